"""What the planes of a replay know of each other's demands, so that one of them evicts for each.

As in an operator with several planes: idle work is looked at first. Until the idle plane has
answered about a job, and while idle work is evicted for it, no other work is preempted for it;
where a part of its capacity is left to priority, it preempts for that once. A displaced job that
returns may have idle work evicted up to its debt. Source: the design's "Where the planes meet".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from kubeworld.units.instants import Nanos
from reprieve.engine.idle.debts import WITHIN, Loss, debt
from reprieve.engine.idle.model import Debt
from reprieve.engine.scheduling.nodes.leaving import Delayed
from reprieve.engine.scheduling.outcome import Unit
from reprieve.units.ids import Uid

__all__ = ["Answers", "Chains"]

_NOBODY: Final[frozenset[Uid]] = frozenset()


class Answers:
    """What the idle plane states of each job that waits.

    `asked`: of whom it has not stated anything yet. `among`: the only pods that may be victims of a
    job. `going`: pods of idle work evicted for a job; `beside`: jobs that preempt others as well.
    `reclaimable`: the pods of all idle work.
    """

    def __init__(self) -> None:
        self.asked: set[str] = set()
        self.among: dict[str, frozenset[Uid]] = {}
        self.going: dict[str, frozenset[Uid]] = {}
        self.beside: set[str] = set()
        self.reclaimable: frozenset[Uid] = frozenset()
        self._declined: set[str] = set()
        self._idle = False

    def begin(self, idle: frozenset[Uid]) -> None:
        """Forget what was stated; `idle`: the pods of all idle work."""
        self.reclaimable, self._idle = idle, bool(idle)
        self.asked.clear()
        self._declined.clear()

    def decline(self, jobs: Iterable[str]) -> None:
        """State that no idle work is evicted for these, unless some is."""
        self._declined.update(jobs)

    def reopen(self, job: str) -> None:
        """Undo what was stated of a job: it has its quota now, and lacks something else."""
        self._declined.discard(job)

    def forget(self, job: str) -> None:
        """A job is placed, or waits no more."""
        self.among.pop(job, None)
        self.beside.discard(job)

    @property
    def decides(self) -> bool:
        """Whether the idle plane decides too: some work is idle, or is evicted for it."""
        return self._idle or bool(self.going)

    def delays(self, job: str) -> bool:
        """Whether nothing is preempted for a job yet."""
        if not self.decides:
            return False
        if job in self.going:
            return True
        if job in self._declined:
            return False
        self.asked.add(job)
        return True

    def waits(self, units: Mapping[str, Unit]) -> Delayed:
        """Return which jobs preempt nothing on nodes, or not everything; `units`: by job."""
        deferred = set()
        without: dict[Unit, frozenset[Uid]] = {}
        for job, unit in units.items():
            if job in self.beside and job in self.going:
                without[unit] = self.going[job]
            elif self.delays(job):
                deferred.add(unit)
        among = {unit: self.among[job] for job, unit in units.items() if job in self.among}
        return Delayed(frozenset(deferred), frozenset(units.values()), among=among, without=without)

    def pods_beside(self, job: str) -> frozenset[Uid]:
        """Return the pods of idle work beside which a job preempts others now."""
        return self.going.get(job, _NOBODY) if job in self.beside else _NOBODY


class Chains:
    """Who was displaced by whom within the last hour."""

    def __init__(self) -> None:
        self._losses: defaultdict[str, list[Loss]] = defaultdict(list)
        self._chosen: defaultdict[str, list[tuple[Nanos, int]]] = defaultdict(list)

    def displaced(
        self,
        now: Nanos,
        preemptor: str,
        victims: Mapping[str, int],
        asked: bool,
        bounds: tuple[int | None, int | None] = (None, None),
    ) -> None:
        """Record a preemption; `victims`: with their devices, `asked` as in `Loss`.

        `bounds`: its `priority` and `of_quota`.
        """
        depth = self.depth(preemptor, now) if preemptor else 1
        name = f"{now:020}/{preemptor}"
        for job, devices in victims.items():
            self._lately(job, now).append(
                Loss(now, name, preemptor, devices, depth, asked, *bounds)
            )
        if preemptor:
            self._chosen[preemptor].append((now, sum(victims.values())))

    def was_displaced(self, job: str, now: Nanos) -> bool:
        """Whether work was displaced for a job within the hour."""
        return job in self._losses and bool(self._lately(job, now))

    def debt(self, job: str, now: Nanos) -> Debt | None:
        """Return what idle work may be evicted for the return of a job."""
        return debt(self._losses.get(job, ()), self._chosen.get(job, ()), now)

    def depth(self, job: str, now: Nanos) -> int:
        """Return the place of a preemption for a job in a chain of displacements, from 1 on."""
        depth, seen = 1, {""}
        before: int = now
        while job not in seen:
            seen.add(job)
            losses = [
                each for each in self._losses.get(job, ()) if now - WITHIN < each.at <= before
            ]
            if not losses or not losses[-1].whom:
                break
            job, before, depth = losses[-1].whom, losses[-1].at, depth + 1
        return depth

    def _lately(self, job: str, now: Nanos) -> list[Loss]:
        kept = [each for each in self._losses[job] if each.at > now - WITHIN]
        self._losses[job] = kept
        return kept
