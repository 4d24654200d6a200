"""Units that were told of their eviction before it: what they said, and who waits for them.

A plan whose record is `Noticed` is begun here. Its units are told from then on, and heard until
they are released or pardoned. The deadline outlasts this process, since it stands in the record.
What was said does not: the next leader waits until the deadline unless it is said again.

Source: the contract of notices in `docs/notice.md`.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from reprieve.api.reprieve import Preemption, Victim
from reprieve.engine.notice.states import Notice, State
from reprieve.telemetry.metrics import Metrics
from reprieve.units.clock import Clock
from reprieve.units.instants import parse_instant

__all__ = ["Notices", "Told", "is_told"]

_LATEST: Final = 600  # notices that ended, which are still answered for


def is_told(intent: Preemption) -> bool:
    """Whether a victim of the plan is told before its eviction."""
    return any(victim.notice is not None for victim in intent.spec.victims)


@dataclass(slots=True)
class Told:
    """One unit that was told: `pods` may read its notice, the speakers among them answer it."""

    id: str
    plan: str
    pods: frozenset[str]
    notice: Notice


class Notices:
    """All notices of a process. `ready`: those that former processes gave are known by now."""

    def __init__(self, clock: Clock, metrics: Metrics) -> None:
        self._clock = clock
        self._metrics = metrics
        self._told: dict[str, Told] = {}  # by id; those that ended come first
        self._by_pod: dict[str, list[str]] = defaultdict(list)
        self._by_plan: dict[str, list[str]] = {}  # open plans alone
        self._waiters: dict[str, set[asyncio.Future[None]]] = defaultdict(set)
        self.ready = False

    # The plan.

    def begin(self, intent: Preemption, speaks: Callable[[Victim], bool]) -> None:
        """Tell the units of a plan that is recorded; a second call changes nothing."""
        name = intent.metadata.name
        if name in self._by_plan:
            return
        units: dict[str, list[Victim]] = {}
        for victim in intent.spec.victims:
            if victim.notice is not None:
                units.setdefault(victim.unit or victim.root.uid, []).append(victim)
        self._by_plan[name] = [
            self._opened(name, unit, victims, speaks) for unit, victims in units.items()
        ]

    def _opened(
        self, plan: str, unit: str, victims: list[Victim], speaks: Callable[[Victim], bool]
    ) -> str:
        said = victims[0].notice
        assert said is not None, "only units with a notice are told"
        pods = frozenset(victim.root.uid for victim in victims)
        speakers = frozenset(victim.root.uid for victim in victims if speaks(victim)) or pods
        # The preemptor is nobody's business: its uid is part of the record's name.
        id = hashlib.sha256(f"{plan}/{unit}".encode()).hexdigest()[:32]
        deadline, until = parse_instant(said.deadline), parse_instant(said.extend_until)
        self._told[id] = Told(id, plan, pods, Notice(deadline, until, speakers))
        for pod in pods:
            self._by_pod[pod].append(id)
            self._wake(pod)
        return id

    def waits(self, intent: Preemption) -> int:
        """Return for how long a plan still waits for its units at most, 0 where all may go."""
        now, longest = self._clock.wall(), 0
        for told in self._of_plan(intent):
            told.notice = told.notice.at(now)
            if not told.notice.may_go:
                longest = max(longest, told.notice.due - now)
        return longest

    def gone(self, uids: Iterable[str]) -> None:
        """These pods have ended."""
        for uid in uids:
            for id in self._by_pod.get(uid, ()):
                self._said(self._told[id], self._told[id].notice.has_saved(uid, self._now()))

    def release(self, intent: Preemption) -> None:
        """The units of a plan are evicted now."""
        for told in self._of_plan(intent):
            saved = told.notice.state is State.SAVED
            told.notice = told.notice.released()
            self._ended(told, intent, "saved" if saved else "overdue")
        self._by_plan.pop(intent.metadata.name, None)

    def pardon(self, intent: Preemption) -> None:
        """The units of a plan stay."""
        for told in self._of_plan(intent):
            told.notice = told.notice.pardoned()
            self._ended(told, intent, "pardoned")
        self._by_plan.pop(intent.metadata.name, None)

    def _ended(self, told: Told, intent: Preemption, end: str) -> None:
        self._metrics.notices.labels(intent.spec.plane, end).inc()
        for pod in told.pods:
            self._wake(pod)
        self._told[told.id] = self._told.pop(told.id)
        over = [each for each in self._told.values() if each.plan not in self._by_plan]
        for each in over[: max(0, len(over) - _LATEST)]:
            self._forget(each)

    def _forget(self, told: Told) -> None:
        del self._told[told.id]
        for pod in told.pods:
            left = [id for id in self._by_pod[pod] if id != told.id]
            if left:
                self._by_pod[pod] = left
            else:
                del self._by_pod[pod]

    # The pods.

    def of_pod(self, uid: str) -> Told | None:
        """Return the notice that a pod has to heed: of several the first to be due."""
        found = (self._told[id] for id in self._by_pod.get(uid, ()))
        heeded = [each for each in found if each.notice.state is not State.PARDONED]
        return min(heeded, key=lambda each: (each.notice.due, each.id), default=None)

    def find(self, id: str, uid: str) -> Told | None:
        """Return a notice by its id, None where there is none or the pod is not of its unit."""
        told = self._told.get(id)
        return told if told is not None and uid in told.pods else None

    def saving(self, told: Told, uid: str, expected: int = 0) -> None:
        """A pod of the unit says that it saves."""
        self._said(told, told.notice.saving(uid, self._now(), expected))

    def saved(self, told: Told, uid: str) -> None:
        """A pod of the unit says that it has saved."""
        self._said(told, told.notice.has_saved(uid, self._now()))

    def _said(self, told: Told, notice: Notice) -> None:
        told.notice = notice
        if notice.may_go:
            self._wake(told.plan)

    # Waiting.

    async def wait(self, name: str, nanoseconds: int) -> None:
        """Return when something has changed for a pod or a plan, or after so long."""
        changed = asyncio.get_running_loop().create_future()
        self._waiters[name].add(changed)
        pause = asyncio.ensure_future(self._clock.sleep(nanoseconds))
        try:
            await asyncio.wait((changed, pause), return_when=asyncio.FIRST_COMPLETED)
        finally:
            pause.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await pause
            self._waiters[name].discard(changed)
            if not self._waiters[name]:
                del self._waiters[name]

    def _wake(self, name: str) -> None:
        for waiter in self._waiters.get(name, ()):
            if not waiter.done():
                waiter.set_result(None)

    def _of_plan(self, intent: Preemption) -> list[Told]:
        return [self._told[id] for id in self._by_plan.get(intent.metadata.name, ())]

    def _now(self) -> int:
        return self._clock.wall()
