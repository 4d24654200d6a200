"""The ledger of harm: hourly sums that outlive records and processes.

Parts are ConfigMaps of the operator's namespace, `reprieve-harm-2026-11-0` and so on, several for
a month where one is full. A part holds rows of sums (`records.harm_sums`) and the names of the
records that they sum up: both change in one write, so that a record counts once whichever write a
process dies at. What a plan displaced is appended once the plan is over. A process that takes over
loads the parts, and counts from records those whose names are in no part.

Only the leader appends, behind the fence. A part that cannot be written is tried again; nobody
waits for it.
"""

from __future__ import annotations

import asyncio
import datetime
import hashlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from reprieve.engine.disruptions.governor import Governor
from reprieve.engine.harm_budgets.budget import Harm
from reprieve.engine.harm_budgets.sums import LONGEST_WINDOW, Amount, Key
from reprieve.execution.fence import Deposed, Fence
from reprieve.kube.client import Client
from reprieve.kube.errors import ApiError, Forbidden
from reprieve.kube.resource import Resource
from reprieve.kube.writes import Priority
from reprieve.records.harm_sums import merged, sums_from, sums_text
from reprieve.units.clock import Clock
from reprieve.units.durations import HOUR, SECOND
from reprieve.units.instants import Nanos

__all__ = ["HARM_LABEL", "HarmLedger", "named"]

log: Final = logging.getLogger("reprieve.harm")

#: On each part of the ledger.
HARM_LABEL: Final = "reprieve.dev/harm-ledger"
CONFIG_MAPS: Final = Resource("", "v1", "configmaps", "ConfigMap")
_NAME: Final = "reprieve-harm"
_FULL: Final = 600_000  # characters of rows
_MOST_NAMES: Final = 10_000  # of records in one part, which no more than this are kept for a week
_AGAIN: Final = 2 * SECOND
_PAGE: Final = 50


@dataclass(slots=True)
class _Part:
    """One part as it is stored; `obj`: None before it was made."""

    name: str
    obj: dict[str, Any] | None = None
    rows: dict[Key, Amount] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)


class HarmLedger:
    """Loads and appends. `run` works beside the planes, which decide nothing until it `loaded`."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        fence: Fence,
        clock: Clock,
        governor: Governor,
        wait_leading: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`wait_leading`: before that another process may append; None in one that never does."""
        self._client = client
        self._writer = client.at(Priority.STATUS, fence.check, timeout=fence.request_timeout)
        self._namespace = namespace
        self._fence = fence
        self._clock = clock
        self._governor = governor
        self._part: _Part | None = None
        self._owed: list[tuple[str, Sequence[Harm]]] = []
        self._owing = asyncio.Event()
        self._wait_leading = wait_leading
        self.loaded = False
        governor.harm.await_sums()

    async def load(self) -> None:
        """Take over what former processes stored, until that was possible."""
        while True:
            try:
                parts = await self._parts()
            except Forbidden as refusal:
                log.warning("harm is forgotten at restarts: %s", refusal)
                self.loaded = True
                return
            except ApiError as failure:
                log.warning("the ledger of harm cannot be read: %s", failure)
                await self._clock.sleep(_AGAIN)
            else:
                break
        harm, oldest = self._governor.harm, self._clock.wall() - LONGEST_WINDOW - HOUR
        rows = [(k, a) for part in parts for k, a in part.rows.items() if a.last >= oldest]
        with self._governor.guard:
            harm.store, harm.stored_as = self._store, named
            harm.load(rows, (name for part in parts for name in part.names))
        self._part = max(parts, key=lambda part: _order(part.name), default=None)
        self.loaded = True

    def _store(self, record: str, harms: Sequence[Harm]) -> None:
        name = named(record)
        if harms and name not in self._governor.harm.stored:
            self._owed.append((name, harms))
            self._owing.set()

    @property
    def owes(self) -> int:
        """How many plans are still to be stored."""
        return len(self._owed)

    async def run(self) -> None:
        """Load once this process leads, then append what is owed until cancelled."""
        if self._wait_leading is not None:
            await self._wait_leading()
        await self.load()
        while True:
            await self._owing.wait()
            if self._fence.open:
                try:
                    await self._append()
                except (ApiError, Deposed) as failure:
                    log.warning("the ledger of harm is not written: %s", failure)
                    self._part = None
            if self._owed:
                await self._clock.sleep(_AGAIN)
            else:
                self._owing.clear()

    async def _append(self) -> None:
        """Add what is owed to the last part, in one write.

        Raises:
            ApiError: to be tried again; it may have been written all the same.
            Deposed: the fence is closed.
        """
        if self._part is None:
            parts = await self._parts()
            self._part = max(parts, key=lambda part: _order(part.name), default=None)
            # An answer may have been lost.
            known = {name for part in parts for name in part.names}
            self._governor.harm.stored |= known
            self._owed = [each for each in self._owed if each[0] not in known]
            if not self._owed:
                return
        part, owed = self._current(self._part), list(self._owed)
        rows = merged(part.rows, (harm for _, harms in owed for harm in harms))
        names = [*part.names, *(name for name, _ in owed)][-_MOST_NAMES:]
        stored = await self._stored(part, rows, names)
        self._part = _Part(part.name, stored, rows, names)
        self._governor.harm.stored |= {name for name, _ in owed}
        self._owed = self._owed[len(owed) :]

    def _current(self, last: _Part | None) -> _Part:
        """Return the part that is appended to now."""
        month = _month(self._clock.wall())
        if last is not None and last.name.startswith(f"{_NAME}-{month}-"):
            size = len((last.obj or {}).get("data", {}).get("rows", ""))
            if size < _FULL and len(last.names) < _MOST_NAMES:
                return last
            number = int(last.name.rpartition("-")[2]) + 1
            return _Part(f"{_NAME}-{month}-{number}")
        return _Part(f"{_NAME}-{month}-0")

    async def _stored(
        self, part: _Part, rows: dict[Key, Amount], names: list[str]
    ) -> dict[str, Any]:
        data = {"rows": sums_text(rows.items()), "records": "\n".join(names)}
        if part.obj is not None:
            return await self._writer.replace(CONFIG_MAPS, {**part.obj, "data": data}, dict)
        obj = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": part.name,
                "namespace": self._namespace,
                "labels": {HARM_LABEL: "sums", "app.kubernetes.io/part-of": "reprieve"},
            },
            "data": data,
        }
        return await self._writer.create(CONFIG_MAPS, obj, dict)

    async def _parts(self) -> list[_Part]:
        found = []
        pages = self._client.list_pages(
            CONFIG_MAPS,
            dict,
            namespace=self._namespace,
            label_selector=f"{HARM_LABEL}=sums",
            page_size=_PAGE,
        )
        async for page in pages:
            for obj in page.items:
                data = obj.get("data") or {}
                rows, unread = sums_from(data.get("rows", ""))
                name = obj["metadata"]["name"]
                if unread:
                    log.warning("ConfigMap %s: %d rows cannot be read", name, unread)
                names = [each for each in data.get("records", "").split("\n") if each]
                whole = {"apiVersion": "v1", "kind": "ConfigMap", **obj}
                found.append(_Part(name, whole, rows, names))
        return found


def named(record: str) -> str:
    """Return by what a part knows a record: 16 hexadecimal digits of its name."""
    return hashlib.blake2b(record.encode(), digest_size=8).hexdigest()


def _month(now: Nanos) -> str:
    return datetime.datetime.fromtimestamp(now // SECOND, datetime.UTC).strftime("%Y-%m")


def _order(name: str) -> tuple[str, int]:
    month, _, number = name.rpartition("-")
    return month, int(number) if number.isdecimal() else -1
