"""Opens records that viewers look at: reads them whole, and has them decided again.

1. One at a time, in the order in which they were requested; what is requested twice is opened once.
2. The decision runs in a process of its own (`deciding`), which is ended after a time limit.
3. A record never changes but for its status, so that what was opened once stays true as long as it
   is kept: the last `MOST_KEPT` are.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from reprieve.answers.preemptions.record_sources import whole_record
from reprieve.api.reprieve import Preemption
from reprieve.kube.errors import ApiError
from reprieve.kube.reader import Reader
from reprieve.units.errors import ReprieveError
from reprieve.web.records.judged import Again, Judgement, Whole

__all__ = ["MOST_KEPT", "Limits", "Opening", "decided_apart"]

log: Final = logging.getLogger("reprieve.web")

MOST_KEPT: Final = 32
_MOST_WISHES: Final = 200
_PAUSE_S: Final = 30.0  # before what could not be read is tried again
# One thread: numpy's would use the cores of the process that serves pages.
_ONE_THREAD: Final = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}

_Key = tuple[str, str, str]  # namespace, name, uid
_Judge = Callable[[Preemption], Awaitable[Judgement]]


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of deciding one record again: bytes of its JSON, seconds of processor time.

    `patience`: seconds in all, for a machine that has other things to do.
    """

    size: int = 64 * 1024 * 1024
    seconds: int = 30
    patience: float = 180.0


class Opening:
    """Records, opened on demand; `changed` is called whenever there is more to show.

    Args:
        reader: with the rights to read Preemptions and their parts.
        changed: called on the event loop.
        judge: decides a record again.
    """

    def __init__(
        self, reader: Reader, changed: Callable[[], None], judge: _Judge | None = None
    ) -> None:
        self._reader = reader
        self._changed = changed
        self._judge = judge or decided_apart
        self._known: OrderedDict[_Key, Whole] = OrderedDict()
        self._failed: dict[_Key, float] = {}
        self._wanted: OrderedDict[_Key, None] = OrderedDict()
        self._wish = asyncio.Event()

    def whole(self, namespace: str, name: str, uid: str) -> Whole | None:
        """Return a record, None while it is not there, or where it cannot be read."""
        key = (namespace, name, uid)
        known = self._known.get(key)
        if known is not None:
            self._known.move_to_end(key)
            return known
        failed = self._failed.get(key)
        if failed is not None and asyncio.get_running_loop().time() < failed + _PAUSE_S:
            return None
        if len(self._wanted) < _MOST_WISHES:
            self._wanted[key] = None
            self._wish.set()
        return None

    async def run(self) -> None:
        """Open what is requested, for ever."""
        while True:
            await self._wish.wait()
            while self._wanted:
                key = next(iter(self._wanted))
                try:
                    await self._open(key)
                finally:
                    self._wanted.pop(key, None)
                self._changed()
            self._wish.clear()

    async def _open(self, key: _Key) -> None:
        namespace, name, uid = key
        try:
            record = await whole_record(self._reader, namespace, name)
        except (ApiError, ReprieveError) as failure:
            log.info("preemption %s is shown in part: %s", name, failure)
            self._fail(key)
            return
        if record.metadata.uid != uid:
            self._fail(key)
            return
        spec = msgspec.structs.replace(record.spec, input=None)
        self._keep(key, Whole(spec, None))
        self._changed()
        self._keep(key, Whole(spec, await self._judge(record)))

    def _fail(self, key: _Key) -> None:
        if len(self._failed) >= _MOST_WISHES:
            self._failed.clear()
        self._failed[key] = asyncio.get_running_loop().time()

    def _keep(self, key: _Key, whole: Whole) -> None:
        self._known[key] = whole
        self._known.move_to_end(key)
        while len(self._known) > MOST_KEPT:
            self._known.popitem(last=False)


async def decided_apart(record: Preemption, limits: Limits | None = None) -> Judgement:
    """Return what a process of its own states of a record; that it is too large where it fails."""
    limits = limits or Limits()
    said = msgspec.json.encode(record)
    if len(said) > limits.size:
        return Judgement(Again.TOO_LARGE, f"The record has more than {limits.size:,} bytes")
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "reprieve.web.records.deciding",
        str(limits.seconds),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, **_ONE_THREAD},
    )
    try:
        reported, _ = await asyncio.wait_for(process.communicate(said), limits.patience)
    except TimeoutError:
        return Judgement(Again.TOO_LARGE, f"It needed longer than {limits.patience:g} s")
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    try:
        return msgspec.json.decode(reported, type=Judgement)
    except msgspec.DecodeError:
        how = f"The process that decided it ended with {process.returncode}"
        if process.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
            how = f"It needed more than {limits.seconds} s of processor time"
        return Judgement(Again.TOO_LARGE, how)
