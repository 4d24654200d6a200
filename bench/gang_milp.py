"""Whether a gang can be placed at all: the exact answer, as a mixed integer program for HiGHS.

One binary variable says that a member is on a node. Every member is on one node, and no node takes
more of any resource than it has left once all possible victims are gone. Members without a limit of
their own on a node (`allowed`) are kept off it. Used to judge the bounded search of the engine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import highspy
import numpy as np

__all__ = ["Undecided", "can_be_placed"]

_SECONDS = 20.0


class Undecided(Exception):
    """The solver did not come to an end in time."""


def can_be_placed(
    needs: Sequence[Sequence[int]],
    rooms: Sequence[Sequence[int]],
    allowed: Sequence[Sequence[bool]] | None = None,
) -> bool:
    """Return whether all members fit. `needs`: per member, `rooms`: per node, by resource.

    Raises:
        Undecided: no answer within 20 seconds.
    """
    members, nodes = len(needs), len(rooms)
    if not members:
        return True
    if not nodes:
        return False
    model = highspy.Highs()  # type: ignore[no-untyped-call]
    model.setOptionValue("output_flag", False)
    model.setOptionValue("time_limit", _SECONDS)
    # The presolve of release 1.15 calls some tight instances infeasible that are not.
    model.setOptionValue("presolve", "off")
    for member in range(members):
        for node in range(nodes):
            may = allowed is None or allowed[member][node]
            model.addVar(0.0, 1.0 if may else 0.0)
    count = members * nodes
    for column in range(count):
        model.changeColIntegrality(column, highspy.HighsVarType.kInteger)
    for member in range(members):
        columns = np.arange(member * nodes, (member + 1) * nodes, dtype=np.int32)
        model.addRow(1.0, 1.0, nodes, columns, np.ones(nodes))
    for node in range(nodes):
        columns = np.arange(node, count, nodes, dtype=np.int32)
        for resource, room in enumerate(rooms[node]):
            # Small whole numbers, since bytes would drown the tolerances of the solver.
            unit = math.gcd(*(need[resource] for need in needs)) or 1
            amounts = np.array([need[resource] // unit for need in needs], np.float64)
            if amounts.any():
                model.addRow(-highspy.kHighsInf, float(room // unit), members, columns, amounts)
    model.run()
    status = model.getModelStatus()
    if status == highspy.HighsModelStatus.kOptimal:
        return True
    if status == highspy.HighsModelStatus.kInfeasible:
        return False
    raise Undecided(str(status))
