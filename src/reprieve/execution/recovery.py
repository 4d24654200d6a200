"""Recovery: what a new holder of the process lease does before it decides anything.

It reads all intents by quorum, writes its own epoch into every open one, so that the former
holder's next write to them fails, and waits one request timeout, so that a write of the former
holder that passed the fence has landed or is lost. Only then is anything evicted. Source: the
design's "Recovery".
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Final

from reprieve.api.reprieve import IntentPhase, Preemption
from reprieve.execution.fence import Fence
from reprieve.execution.intents import IntentLog
from reprieve.kube.errors import Conflict, NotFound
from reprieve.units.clock import Clock
from reprieve.units.durations import MINUTE, SECOND
from reprieve.units.instants import Nanos, parse_instant

__all__ = ["Unbegun", "claim_open", "expired"]

_UNSETTLED: Final = MINUTE
_LOOK_EVERY: Final = 10 * SECOND


class Unbegun:
    """Intents whose first writes have failed, so that nobody in them is marked.

    They may be stored all the same, as an answer can be lost: such a one is abandoned. They are
    looked for during a minute, in which a write that nobody waits for any more may still arrive.
    """

    def __init__(self) -> None:
        self._names: dict[str, int] = {}  # until when each is looked for
        self._next = 0

    def add(self, name: str, now: int) -> None:
        """The intent of this name could not be begun; `now` is monotonic."""
        self._names[name] = now + _UNSETTLED

    async def settle(self, log: IntentLog, now: int) -> None:
        """Abandon those of them that are there.

        Raises:
            Deposed: the fence is closed.
            ApiError: to be tried again.
        """
        if not self._names or now < self._next:
            return
        self._next = now + _LOOK_EVERY
        for intent in await log.list(bare=True):
            if intent.metadata.name in self._names and intent.status.phase.open:
                with contextlib.suppress(Conflict, NotFound):
                    await log.finish(intent, IntentPhase.ABANDONED, "it could not be begun", ())
        self._names = {name: until for name, until in self._names.items() if now < until}


async def claim_open(log: IntentLog, fence: Fence, clock: Clock, plane: str) -> list[Preemption]:
    """Return the open intents of a plane, all under this process's epoch; not those of dry runs.

    Raises:
        Deposed: the fence closed on the way.
        ApiError: to be tried again.
    """
    claimed: list[Preemption] = []
    for intent in await log.list():
        if intent.spec.plane != plane or intent.spec.dry_run or not intent.status.phase.open:
            continue
        try:
            claimed.append(await log.whole(await log.start(intent)))
        except (Conflict, NotFound):
            # The former holder wrote in this moment: the watch shows the intent again.
            continue
    if claimed:
        await clock.sleep(fence.request_timeout)
    return claimed


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
