"""What displaced work may take back: the debt that stands in the record by which it was displaced.

Of the records of the last hour those are taken by which the demand itself was displaced, the last
one and those for the same preemptor in the minute before. The debt is the devices that it lost,
less those that were evicted for its return since. There is none where the preemptor had been
displaced itself (depth 2 is the end), for a dry run, and where the record does not say who went.

Idle work that could have gone for the preemptor stays: only where the idle plane was not to be
asked may all of it go for the return. Else that may go which has become idle since: what was idle
before may have helped by its priority, or beside others. Source: the design's
"Where the planes meet".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from reprieve.api.reprieve import Preemption, Victim, VictimState
from reprieve.engine.demands import Rejection
from reprieve.engine.idle.model import Debt
from reprieve.engine.plan import Plane
from reprieve.units.durations import HOUR, MINUTE
from reprieve.units.instants import Nanos, parse_instant

__all__ = ["debt_of"]

_WITHIN: Final = HOUR
_TOGETHER: Final = MINUTE
_COULD_NOT: Final = Rejection.NOT_ASKED.value
_STAYED: Final = (VictimState.SPARED, VictimState.FAILED)


def debt_of(
    records: Iterable[Preemption], lineages: Collection[str], names: Collection[str], now: Nanos
) -> Debt | None:
    """Return the debt of displaced work, None without one.

    Args:
        records: of all planes.
        lineages: by which the work is known.
        names: of the devices that it asks for.
        now: wall time.
    """
    lost: list[tuple[Nanos, Preemption, int]] = []
    taken: list[tuple[Nanos, int]] = []
    for record in records:
        spec = record.spec
        if spec.dry_run or not spec.stages:
            continue
        at = parse_instant(spec.decided_at)
        if not now - _WITHIN < at <= now:
            continue
        if spec.preemptor_lineage in lineages:
            taken.append((at, _devices(spec.victims, names)))
        stayed = {each.uid for each in record.status.victims if each.state in _STAYED}
        gone = [each for each in _of(spec.victims, lineages) if each.root.uid not in stayed]
        if gone:
            lost.append((at, record, _devices(gone, names)))
    if not lost:
        return None
    lost.sort(key=lambda each: (each[0], each[1].metadata.name))
    last, by, _ = lost[-1]
    whom = by.spec.preemptor_lineage
    own = [e for e in lost if e[1].spec.preemptor_lineage == whom and last - e[0] <= _TOGETHER]
    left = sum(devices for *_, devices in own) - sum(n for at, n in taken if at >= own[0][0])
    if left <= 0 or any(record.spec.depth > 1 for _, record, _ in own):
        return None
    could_not = all(_said_by_idle(record) == _COULD_NOT for _, record, _ in own)
    return Debt(left, None if could_not else last)


def _of(victims: Iterable[Victim], lineages: Collection[str]) -> Iterable[Victim]:
    """Yield the victims of these lineages; that of a unit stands with its first one."""
    known: dict[str, str] = {}
    for each in victims:
        lineage = known.setdefault(each.unit, each.lineage) if each.unit else each.lineage
        if lineage in lineages:
            yield each


def _devices(victims: Iterable[Victim], names: Collection[str]) -> int:
    return sum(each.amounts.get(name, 0) for each in victims for name in names)


def _said_by_idle(record: Preemption) -> str:
    said = (each.reason for each in record.spec.rejected if each.plane == Plane.IDLE)
    return next(said, "")
