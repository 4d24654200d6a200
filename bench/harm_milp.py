"""The least work that can be lost for a gang: exactly, as a mixed integer program for HiGHS.

One binary variable says that a unit goes, one whole number per node how many members run there. On
no node do the members and the units that stay take more GPUs than it has. All units may go, and
what is lost with one does not depend on the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import highspy
import numpy as np

__all__ = ["least_lost"]


def least_lost(
    gpus: Sequence[int],
    units: Sequence[tuple[int, Mapping[int, int]]],
    members: int,
    each: int,
) -> int | None:
    """Return the least sum, None when the gang fits nowhere.

    `gpus`: of each node. `units`: what is lost with each, and its GPUs by node. `each`: GPUs of a
    member.
    """
    model = highspy.Highs()  # type: ignore[no-untyped-call]
    model.setOptionValue("output_flag", False)
    model.setOptionValue("presolve", "off")
    model.setOptionValue("mip_rel_gap", 0.0)
    for _ in units:
        model.addVar(0.0, 1.0)
    for _ in gpus:
        model.addVar(0.0, float(members))
    for column in range(len(units) + len(gpus)):
        model.changeColIntegrality(column, highspy.HighsVarType.kInteger)
    for column, (lost, _) in enumerate(units):
        model.changeColCost(column, float(lost))
    for node, room in enumerate(gpus):
        held = [(column, on[node]) for column, (_, on) in enumerate(units) if node in on]
        columns = np.array([column for column, _ in held] + [len(units) + node], np.int32)
        amounts = np.array([-amount for _, amount in held] + [each], np.float64)
        free = room - sum(amount for _, amount in held)
        model.addRow(-highspy.kHighsInf, float(free), len(columns), columns, amounts)
    nodes = np.arange(len(units), len(units) + len(gpus), dtype=np.int32)
    model.addRow(float(members), float(members), len(nodes), nodes, np.ones(len(nodes)))
    model.run()
    if model.getModelStatus() == highspy.HighsModelStatus.kInfeasible:
        return None
    assert model.getModelStatus() == highspy.HighsModelStatus.kOptimal
    return round(model.getInfo().objective_function_value)
