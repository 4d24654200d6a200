"""The least costly victims for a gang with budgets, several resources and spread: by HiGHS.

The order is that of profile best: the lowest top priority, then the fewest pods beyond what budgets
allow, then a cost that sums over units. One binary variable per unit says that it is evicted, one
whole number per node and class of members how many run there, one per budget how far it is
exceeded. Where members are spread one number states how many pods the emptiest domain has, and a
binary variable per domain whether it gets a member.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import highspy
import numpy as np

__all__ = ["Exact", "ExactUnit", "Least"]

Amounts = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ExactUnit:
    """What is evicted together: amounts by node, and its pods by the budget that they count for.

    `counted`: by node, its pods that constraints of the members count.
    """

    priority: int
    on: Mapping[int, Amounts]
    pods: int
    lost: int
    guarded: Mapping[int, int] = field(default_factory=dict)
    counted: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Least:
    """The least that victims cost; None: it fits with nobody evicted, or never."""

    priority: int
    broken: int
    cost: int


@dataclass(frozen=True, slots=True)
class Exact:
    """One cluster: what nodes have, who runs there, what waits. `skew`: of pods between domains.

    `allowed`: by budget. `domains`: by node. `apart`: no two pods that count are on one node.
    """

    room: Sequence[Amounts]
    units: Sequence[ExactUnit]
    members: Sequence[Amounts]
    allowed: Sequence[int] = ()
    skew: int | None = None
    domains: Sequence[int] = ()
    apart: bool = False

    def fits_free(self) -> bool:
        """Return whether the members fit with nobody evicted."""
        return self._solved(lambda unit: False) is not None

    def least(self, cost: Callable[[ExactUnit], int]) -> Least | None:
        """Return what the least costly victims cost; None where nothing helps."""
        for level in sorted({unit.priority for unit in self.units}):

            def may(unit: ExactUnit, level: int = level) -> bool:
                return unit.priority <= level

            if self._solved(may) is None:
                continue
            broken = self._solved(may, exceeded=1) or 0
            paid = self._solved(may, cost, most=broken)
            assert paid is not None
            return Least(level, broken, paid)
        return None

    def _solved(
        self,
        may: Callable[[ExactUnit], bool],
        cost: Callable[[ExactUnit], int] = lambda unit: 0,
        exceeded: int = 0,
        most: int | None = None,
    ) -> int | None:
        model = highspy.Highs()  # type: ignore[no-untyped-call]
        for name, value in (
            ("output_flag", False),
            ("threads", 1),
            ("mip_rel_gap", 0.0),
            ("mip_abs_gap", 0.5),
        ):
            model.setOptionValue(name, value)
        classes = Counter(self.members)
        kinds = sorted(classes)
        for unit in self.units:
            model.addVar(0.0, 1.0 if may(unit) else 0.0)
        for _ in self.room:
            for kind in kinds:
                model.addVar(0.0, float(classes[kind]))
        budgets = len(self.units) + len(self.room) * len(kinds)
        for _ in self.allowed:
            model.addVar(0.0, highspy.kHighsInf)
        emptiest = budgets + len(self.allowed)
        model.addVar(0.0, highspy.kHighsInf)
        for _ in set(self.domains):
            model.addVar(0.0, 1.0)
        for column in range(emptiest + 1 + len(set(self.domains))):
            model.changeColIntegrality(column, highspy.HighsVarType.kInteger)
        for column, unit in enumerate(self.units):
            model.changeColCost(column, float(cost(unit)))
        for number in range(len(self.allowed)):
            model.changeColCost(budgets + number, float(exceeded))
        self._place(model, kinds, classes)
        if self.skew is not None:
            self._spread(model, len(kinds), emptiest, self.skew)
        self._guard(model, budgets, most)
        model.run()
        if model.getModelStatus() == highspy.HighsModelStatus.kInfeasible:
            return None
        assert model.getModelStatus() == highspy.HighsModelStatus.kOptimal
        return round(model.getInfo().objective_function_value)

    def _place(
        self,
        model: highspy.Highs,
        kinds: Sequence[Amounts],
        classes: Mapping[Amounts, int],
    ) -> None:
        free = highspy.kHighsInf
        for node, room in enumerate(self.room):
            first = len(self.units) + node * len(kinds)
            here = [first + place for place in range(len(kinds))]
            held = [(at, unit.on[node]) for at, unit in enumerate(self.units) if node in unit.on]
            for resource, have in enumerate(room):
                columns = [at for at, _ in held] + here
                amounts = [-each[resource] for _, each in held] + [k[resource] for k in kinds]
                left = have - sum(each[resource] for _, each in held)
                _row(model, -free, float(left), columns, amounts)
            if self.apart:
                _row(model, 0.0, 1.0, here, [1] * len(here))
                for at, unit in enumerate(self.units):
                    if unit.counted.get(node):
                        blocked = [*([1] * len(here)), -len(self.members)]
                        _row(model, -free, 0.0, [*here, at], blocked)
        for place, kind in enumerate(kinds):
            columns = [
                len(self.units) + node * len(kinds) + place for node in range(len(self.room))
            ]
            wanted = float(classes[kind])
            _row(model, wanted, wanted, columns, [1] * len(columns))

    def _spread(self, model: highspy.Highs, kinds: int, emptiest: int, skew: int) -> None:
        free = highspy.kHighsInf
        for place, domain in enumerate(sorted(set(self.domains))):
            nodes = [node for node, own in enumerate(self.domains) if own == domain]
            members = [
                len(self.units) + node * kinds + kind for node in nodes for kind in range(kinds)
            ]
            leaving = [
                (at, pods)
                for at, unit in enumerate(self.units)
                if (pods := sum(unit.counted.get(node, 0) for node in nodes))
            ]
            held = sum(pods for _, pods in leaving)
            used, enough = emptiest + 1 + place, len(self.members) + held + skew
            _row(model, -free, 0.0, [*members, used], [*[1] * len(members), -len(self.members)])
            columns = [*members, *(at for at, _ in leaving), emptiest]
            amounts = [*[1] * len(members), *(-pods for _, pods in leaving), -1]
            _row(model, float(-held), free, columns, amounts)
            most = float(skew - held + enough)
            _row(model, -free, most, [*columns, used], [*amounts, enough])

    def _guard(self, model: highspy.Highs, budgets: int, most: int | None) -> None:
        for number, allowed in enumerate(self.allowed):
            hit = [
                (at, unit.guarded[number])
                for at, unit in enumerate(self.units)
                if number in unit.guarded
            ]
            columns = [at for at, _ in hit] + [budgets + number]
            amounts = [pods for _, pods in hit] + [-1]
            _row(model, -highspy.kHighsInf, float(allowed), columns, amounts)
        if most is not None and self.allowed:
            columns = [budgets + number for number in range(len(self.allowed))]
            _row(model, 0.0, float(most), columns, [1] * len(columns))


def _row(
    model: highspy.Highs, low: float, high: float, columns: Sequence[int], amounts: Sequence[int]
) -> None:
    indices, values = np.array(columns, np.int32), np.array(amounts, np.float64)
    model.addRow(low, high, len(columns), indices, values)
