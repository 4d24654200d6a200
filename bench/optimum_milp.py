"""The fewest victims for a gang: exactly, as mixed integer programs for HiGHS.

One binary variable per unit says that it is evicted, one whole number per node and size says how
many members run there. On no node do members and units that stay take more GPUs than it has. The
lowest top priority is found first, then the least of a cost that sums over units.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import highspy
import numpy as np

__all__ = ["UnitOnNodes", "fits_free", "least", "lowest_priority"]


@dataclass(frozen=True, slots=True)
class UnitOnNodes:
    """What is evicted together: its GPUs by node, its pods, and the device-seconds it loses."""

    priority: int
    on: Mapping[int, int]
    pods: int
    lost: int


def fits_free(gpus: Sequence[int], units: Sequence[UnitOnNodes], members: Sequence[int]) -> bool:
    """Return whether members of these GPUs fit with nobody evicted."""
    return _solved(gpus, units, members, lambda unit: 0, lambda unit: False) is not None


def lowest_priority(
    gpus: Sequence[int], units: Sequence[UnitOnNodes], members: Sequence[int]
) -> int | None:
    """Return the lowest priority up to which units have to be evicted; None: nothing helps."""
    for level in sorted({unit.priority for unit in units}):
        may = lambda unit, level=level: unit.priority <= level  # noqa: E731
        if _solved(gpus, units, members, lambda unit: 0, may) is not None:
            return level
    return None


def least(
    gpus: Sequence[int],
    units: Sequence[UnitOnNodes],
    members: Sequence[int],
    level: int,
    cost: Callable[[UnitOnNodes], int],
) -> int:
    """Return the least cost of units up to a priority whose eviction makes room."""
    found = _solved(gpus, units, members, cost, lambda unit: unit.priority <= level)
    assert found is not None, "with all of them evicted the members fit"
    return found


def _solved(
    gpus: Sequence[int],
    units: Sequence[UnitOnNodes],
    members: Sequence[int],
    cost: Callable[[UnitOnNodes], int],
    may: Callable[[UnitOnNodes], bool],
) -> int | None:
    model = highspy.Highs()  # type: ignore[no-untyped-call]
    model.setOptionValue("output_flag", False)
    model.setOptionValue("threads", 1)
    model.setOptionValue("mip_rel_gap", 0.0)
    model.setOptionValue("mip_abs_gap", 0.5)
    sizes = sorted(set(members))
    for unit in units:
        model.addVar(0.0, 1.0 if may(unit) else 0.0)
    for _ in gpus:
        for size in sizes:
            model.addVar(0.0, float(members.count(size)))
    for column in range(len(units) + len(gpus) * len(sizes)):
        model.changeColIntegrality(column, highspy.HighsVarType.kInteger)
    for column, unit in enumerate(units):
        model.changeColCost(column, float(cost(unit)))
    for node, room in enumerate(gpus):
        held = [(column, unit.on[node]) for column, unit in enumerate(units) if node in unit.on]
        first = len(units) + node * len(sizes)
        columns = [column for column, _ in held] + [first + each for each in range(len(sizes))]
        amounts = [-amount for _, amount in held] + sizes
        free = room - sum(amount for _, amount in held)
        _row(model, -highspy.kHighsInf, float(free), columns, amounts)
    for place, size in enumerate(sizes):
        columns = [len(units) + node * len(sizes) + place for node in range(len(gpus))]
        wanted = float(members.count(size))
        _row(model, wanted, wanted, columns, [1] * len(columns))
    model.run()
    if model.getModelStatus() == highspy.HighsModelStatus.kInfeasible:
        return None
    assert model.getModelStatus() == highspy.HighsModelStatus.kOptimal
    return round(model.getInfo().objective_function_value)


def _row(
    model: highspy.Highs, low: float, high: float, columns: Sequence[int], amounts: Sequence[int]
) -> None:
    indices, values = np.array(columns, np.int32), np.array(amounts, np.float64)
    model.addRow(low, high, len(columns), indices, values)
