"""What displaced work may reclaim, by the records of its displacement (`engine.idle.debts`).

A dry run counts for nothing, nor does a record that does not state which work was evicted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from kubeworld.units.instants import Nanos, parse_instant
from reprieve.api.reprieve import Preemption, Victim, VictimState
from reprieve.engine.demands import Rejection
from reprieve.engine.idle.debts import ANY, WITHIN, Loss, debt
from reprieve.engine.idle.model import Debt
from reprieve.engine.plan import Plane

__all__ = ["debt_of"]

_COULD_NOT: Final = Rejection.NOT_ASKED.value
_STAYED: Final = (VictimState.SPARED, VictimState.FAILED)


def debt_of(
    records: Iterable[Preemption], lineages: Collection[str], names: Collection[str], now: Nanos
) -> Debt | None:
    """Return the debt of displaced work, None without one.

    Args:
        records: of all planes.
        lineages: by which the work is known.
        names: of the devices that it requests.
        now: wall time.
    """
    losses: list[Loss] = []
    chosen: list[tuple[Nanos, int]] = []
    for record in records:
        spec = record.spec
        if spec.dry_run or not spec.stages:
            continue
        at = parse_instant(spec.decided_at)
        if not now - WITHIN < at <= now:
            continue
        if spec.preemptor_lineage in lineages:
            chosen.append((at, _devices(spec.victims, names)))
        stayed = {each.uid for each in record.status.victims if each.state in _STAYED}
        gone = [each for each in _of(spec.victims, lineages) if each.root.uid not in stayed]
        if gone:
            asked = _stated_by_idle(record) != _COULD_NOT
            devices, name = _devices(gone, names), record.metadata.name
            whom, bounds = spec.preemptor_lineage, _bounds(record)
            losses.append(Loss(at, name, whom, devices, spec.depth, asked, *bounds))
    return debt(losses, chosen, now)


def _bounds(record: Preemption) -> tuple[int | None, int | None]:
    """Return below which priority pods could be evicted for the preemptor, and which Workloads."""
    spec = record.spec
    if spec.plane != Plane.QUOTA:
        return spec.preemptor_priority, None
    return None, ANY if spec.reclaims_any else spec.preemptor_priority


def _of(victims: Iterable[Victim], lineages: Collection[str]) -> Iterable[Victim]:
    """Yield the victims of these lineages; that of a unit stands with its first one."""
    known: dict[str, str] = {}
    for each in victims:
        lineage = known.setdefault(each.unit, each.lineage) if each.unit else each.lineage
        if lineage in lineages:
            yield each


def _devices(victims: Iterable[Victim], names: Collection[str]) -> int:
    return sum(each.amounts.get(name, 0) for each in victims for name in names)


def _stated_by_idle(record: Preemption) -> str:
    said = (each.reason for each in record.spec.rejected if each.plane == Plane.IDLE)
    return next(said, "")
