"""Which records stand for which demand, over the books of all planes of the process.

A demand is known by the lineage of its preemptor, by the preemptor itself and by the pods that were
placed for it, so that a Workload and its pods are one; pods without an owner that are queued as a
group have no lineage in common, and are known by their Workload as well (`workload_of`). A record
counts while it is open, and for a while after it ended with at least one eviction: what is decided
for its demand then continues from it. Source: the design's "Where the planes meet".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from kubeworld.units.durations import MINUTE
from kubeworld.units.instants import Nanos, parse_instant
from reprieve.api.reprieve import (
    IntentPhase,
    ObjectRef,
    Preemption,
    PreemptionSpec,
    VictimState,
)
from reprieve.engine.demands import Beside, Stage, before
from reprieve.engine.plan import Plan, Plane
from reprieve.records.beside import stages_of
from reprieve.records.plans.at_stake import AtStake
from reprieve.units.references import Reference

__all__ = ["GOES_ON_WITHIN", "Demands", "evicted_anybody", "names_of"]

#: For how long after its end a record is continued from.
GOES_ON_WITHIN: Final = 10 * MINUTE
_REMEMBERED: Final = 5_000
_OF_ONE_OBJECT: Final = ("object", "owner", "staying")


@dataclass(frozen=True, slots=True)
class _Known:
    """One record. `until`: wall time from which on it does not count, None while it is open."""

    plane: Plane
    stages: tuple[Stage, ...]
    names: tuple[str, ...]
    until: Nanos | None = None


class Demands:
    """The records of demands, by what the demands are known by.

    `workload_of`: the uid of the Workload of a group of queued pods, by the uid of one of them;
    empty where there is none.
    """

    def __init__(self) -> None:
        self._records: dict[str, _Known] = {}  # by name, the oldest first
        self._last: dict[str, str] = {}  # the last record by name of the demand
        self.workload_of: Callable[[str], str] = lambda uid: ""

    def __len__(self) -> int:
        return len(self._records)

    def written(self, record: str, spec: PreemptionSpec) -> None:
        """Record a demand whose record is about to be written, or was read.

        One without stages is of a plane that decides alone: no other continues from it.
        """
        if spec.preemptor is None or spec.dry_run or not spec.stages:
            return
        self._forget(record)
        names = tuple(self._with_workloads(names_of(spec)))
        known = _Known(Plane(spec.plane), stages_of(spec), names)
        self._records[record] = known
        self._last.update(dict.fromkeys(known.names, record))
        while len(self._records) > _REMEMBERED:
            self._forget(next(iter(self._records)))

    def plane_of(self, name: str) -> Plane | None:
        """Return the plane of the last record of a demand that is known by this name."""
        known = self._records.get(self._last.get(name, ""))
        return None if known is None else known.plane

    def closed(self, record: str, *, evicted: bool, at: Nanos) -> None:
        """Count the end of a record; one without evictions is as if it never was."""
        known = self._records.get(record)
        if known is None:
            return
        if not evicted:
            self._forget(record)
            return
        until = Nanos(at + GOES_ON_WITHIN)
        self._records[record] = _Known(known.plane, known.stages, known.names, until)
        self._forget_old(at)

    def recovered(self, records: Iterable[Preemption]) -> None:
        """Adopt what former processes wrote, of whatever plane."""
        for each in sorted(records, key=lambda record: record.spec.decided_at):
            name = each.metadata.name
            if name in self._records:
                continue
            self.written(name, each.spec)
            if not each.status.phase.open:
                ended = each.status.finished_at or each.spec.decided_at
                self.closed(name, evicted=evicted_anybody(each), at=parse_instant(ended))

    def gone_on_from(
        self, beside: Beside, plan: Plan, at_stake: AtStake | None, now: Nanos
    ) -> Beside:
        """Return what was known of other planes with the stages before a plan, if there are any."""
        lineage = "" if at_stake is None else at_stake.preemptor
        known_by = (*_lineages(lineage), *_objects(plan.preemptor, plan.placement))
        former = self._former([*self._with_workloads(filter(None, known_by))], now)
        return replace(beside, former=former) if former else beside

    def _with_workloads(self, names: Iterable[str]) -> Iterator[str]:
        """Yield these names, and the Workloads of those that are pods of a queued group."""
        given = tuple(names)
        yield from given
        yield from dict.fromkeys(filter(None, map(self.workload_of, given)))

    def _former(self, names: Iterable[str], now: Nanos) -> tuple[Stage, ...]:
        for name in names:
            record = self._last.get(name, "")
            known = self._records.get(record)
            if known is not None and (known.until is None or now < known.until):
                return before(known.stages, known.plane, record)
        return ()

    def _forget_old(self, now: Nanos) -> None:
        """Forget the oldest that do not count any more."""
        while self._records:
            name, oldest = next(iter(self._records.items()))
            if oldest.until is None or now < oldest.until:
                return
            self._forget(name)

    def _forget(self, record: str) -> None:
        known = self._records.pop(record, None)
        for name in () if known is None else known.names:
            if self._last.get(name) == record:
                del self._last[name]


def names_of(spec: PreemptionSpec) -> Iterator[str]:
    """Yield by what the demand of a record is known."""
    yield from _lineages(spec.preemptor_lineage)
    yield from _objects(spec.preemptor, ((place.uid, place.node) for place in spec.placement))


def _lineages(lineage: str) -> Iterator[str]:
    """Yield a lineage, and the uid of the object where it is that of one object.

    A pod without an owner is an object to one plane, and the owner of its Workload to another.
    """
    if not lineage:
        return
    yield lineage
    kind, _, uid = lineage.partition("/")
    if kind in _OF_ONE_OBJECT:
        yield uid


def _objects(
    preemptor: Reference | ObjectRef | None, placement: Iterable[tuple[str, str]]
) -> Iterator[str]:
    if preemptor is not None:
        yield preemptor.uid
    for uid, _ in placement:
        yield uid


def evicted_anybody(record: Preemption) -> bool:
    """Return whether work was evicted by a record that is over."""
    status = record.status
    if status.phase is IntentPhase.COMPLETED:
        return True
    some = status.victims_by_state.get(VictimState.EVICTED.value, 0)
    return bool(some) or any(each.state is VictimState.EVICTED for each in status.victims)
