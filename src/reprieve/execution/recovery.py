"""Recovery: what a new holder of the process lease does before it decides anything.

It reads all intents by quorum, writes its own epoch into every open one, so that the former
holder's next write to them fails, and waits one request timeout, so that a write of the former
holder that passed the fence has landed or is lost. Only then is anything evicted. Source: the
design's "Recovery".
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Sequence
from typing import Final

from kubeworld.units.clock import Clock
from kubeworld.units.durations import MINUTE, SECOND
from kubeworld.units.instants import Nanos, parse_instant
from reprieve.api.reprieve import IntentPhase, Preemption
from reprieve.execution.fence import Fence
from reprieve.execution.records.intents import IntentLog
from reprieve.kube.errors import ApiError, Conflict, NotFound

__all__ = ["Unbegun", "claim_open", "expired", "remove_old"]

log: Final = logging.getLogger("reprieve.execution")

_UNSETTLED: Final = MINUTE
_LOOK_EVERY: Final = 10 * SECOND


class Unbegun:
    """Intents whose first writes have failed, so that no victim in them is marked.

    They may be stored all the same, as an answer can be lost: such a one is abandoned. They are
    looked for during a minute, in which a write that no work waits for any more may still arrive.
    """

    def __init__(self) -> None:
        self._names: dict[str, int] = {}  # until when each is looked for
        self._next = 0

    def add(self, name: str, now: int) -> None:
        """The intent of this name could not be begun; `now` is monotonic."""
        self._names[name] = now + _UNSETTLED

    async def settle(self, intents: IntentLog, now: int) -> None:
        """Abandon those of them that are there.

        Raises:
            Deposed: the fence is closed.
            ApiError: they cannot be listed, to be tried again.
        """
        if not self._names or now < self._next:
            return
        self._next = now + _LOOK_EVERY
        for intent in await intents.list(bare=True):
            if intent.metadata.name not in self._names or not intent.status.phase.open:
                continue
            try:
                with contextlib.suppress(Conflict, NotFound):
                    await intents.finish(intent, IntentPhase.ABANDONED, "it could not be begun", ())
            except ApiError as failure:
                log.warning("preemption %s stays open: %s", intent.metadata.name, failure)
        self._names = {name: until for name, until in self._names.items() if now < until}


async def claim_open(
    intents: IntentLog, fence: Fence, clock: Clock, records: Iterable[Preemption]
) -> list[Preemption]:
    """Return the open ones of a plane's records, all under this process's epoch, but dry runs.

    `records`: listed since the process leads.

    Raises:
        Deposed: the fence closed on the way.
        ApiError: to be tried again.
    """
    claimed: list[Preemption] = []
    for intent in records:
        if intent.spec.dry_run or not intent.status.phase.open:
            continue
        started = await _started(intents, intent)
        if started is not None:
            claimed.append(await intents.whole(started))
    if claimed:
        await clock.sleep(fence.request_timeout)
    return claimed


async def _started(intents: IntentLog, intent: Preemption) -> Preemption | None:
    """Return the intent under this process's epoch, None when it is deleted or over meanwhile."""
    found: Preemption | None = intent
    while found is not None and found.status.phase.open:
        try:
            return await intents.start(found)
        except NotFound:
            return None
        except Conflict:
            # The former holder wrote in this moment.
            found = await intents.current(intent.metadata.name)
    return None


async def remove_old(
    intents: IntentLog,
    plane: str,
    records: Sequence[Preemption],
    now: Nanos,
    time_to_live: int,
    cap: int,
) -> None:
    """Remove those of a plane's records that are `expired`, and parts without a head.

    Raises:
        ApiError: one could not be removed; all others were tried.
    """
    try:
        await intents.remove_all(expired(records, now, time_to_live, cap))
    finally:
        await intents.sweep(plane, records)


def expired(
    records: Iterable[Preemption], now: Nanos, time_to_live: int, cap: int
) -> list[Preemption]:
    """Return the records to remove: older than the time to live, or beyond the cap, oldest first.

    Open intents are never among them and count towards the cap.
    """
    ordered = sorted(
        records, key=lambda record: (record.metadata.creation_timestamp, record.metadata.name)
    )
    surplus = len(ordered) - cap
    gone: list[Preemption] = []
    for record in ordered:
        over = record.spec.dry_run or not record.status.phase.open
        ended = record.status.finished_at or record.metadata.creation_timestamp
        old = bool(ended) and now - parse_instant(ended) >= time_to_live
        if over and (old or surplus > 0):
            gone.append(record)
            surplus -= 1
    return gone
