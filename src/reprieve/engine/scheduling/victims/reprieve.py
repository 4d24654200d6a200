"""Which potential victims stay, once the members of the preemptor have their nodes.

Units are reprieved one at a time, those that break a budget first, each time the most important
one; a unit stays when all members still pass all filters on their nodes, else all of its pods are
evicted. The placement never changes meanwhile. Only units with a pod that touches a member's node,
excludes a member or moves a counter that a member reads are tested; all others stay without a test,
which changes no outcome. Source: specification 7.5 to 7.7; the design's "Slack reprieve".

With `second_pass`, units refused by a spread constraint get another chance together: one by one
none can return when any single pod breaks the skew. All of them are restored as far as the monotone
constraints allow; then the least important ones of each domain above its limit are removed, single
pods before whole groups, until all members pass. Whichever pass evicts fewer pods stands; then
units are tried one by one to a fixpoint, those that required affinity refused as well.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np

from reprieve.engine.cluster.arrays import I64, Mask
from reprieve.engine.placement.profile import FilterName
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.scheduling.victims.budget_matches import BudgetMatches
from reprieve.engine.scheduling.victims.budgets import counted_units, violating_pods
from reprieve.engine.scheduling.victims.skew import Skew
from reprieve.engine.scheduling.victims.trackers import Members, Rerun, Room, excluded, skews_of
from reprieve.engine.scheduling.victims.units import Units

__all__ = ["NOT_MONOTONE", "Reprieved", "Rule", "reprieve"]


@dataclass(frozen=True, slots=True)
class Reprieved:
    """The outcome: `victims` are unit indices, most important first.

    `violating`: (victims,) pods that break a budget. `refused`: the filter that keeps each victim
    from returning. `kept`: units reprieved, by rule.
    """

    victims: I64
    violating: I64
    refused: dict[int, FilterName]
    kept: dict[str, int]


class Rule(StrEnum):
    """Why a unit was reprieved, as counted in records and metrics."""

    UNTOUCHED = "touches no member"
    FITS = "members fit beside it"
    TOGETHER = "returned together with others"


#: Filters that may refuse a node because some pod is absent.
NOT_MONOTONE: Final = frozenset({FilterName.POD_TOPOLOGY_SPREAD, FilterName.INTER_POD_AFFINITY})
_NOTHING: Final[list[tuple[int, int]]] = []


class _Board:
    """All trackers together: units continue and come off as a whole."""

    def __init__(self, simulation: Simulation, members: Members, units: Units, slots: I64) -> None:
        snapshot = simulation.snapshot
        self._units = units
        unit_of = units.of_slot[slots]
        self.room = Room(simulation, members)
        self.skews: list[Skew] = []
        moved: list[I64] = []
        for skew, domains in skews_of(simulation, members, slots):
            self.skews.append(skew)
            moved.append(domains)
        self.rerun = Rerun(simulation, members, slots)
        at = np.zeros(len(snapshot.nodes), np.bool_)
        at[self.room.nodes] = True
        here: Mask = at[snapshot.pod_node[slots]]
        concerned = here | self.rerun.concerned
        for domains in moved:
            concerned |= domains >= 0
        self.barred: dict[int, FilterName] = {}
        for name, mask in excluded(simulation, members, slots).items():
            for unit in unit_of[mask].tolist():
                self.barred.setdefault(unit, name)
        chosen = np.flatnonzero(here)
        self._rows: dict[int, list[tuple[int, int]]] = {}
        for unit, row in zip(unit_of[chosen].tolist(), self.room.rows(slots[chosen]), strict=True):
            self._rows.setdefault(unit, []).append(row)
        self.moves = tuple(_moves(unit_of, domains) for domains in moved)
        self._rerun = set(unit_of[self.rerun.concerned].tolist())
        self.tested = np.zeros(len(units), np.bool_)
        self.tested[unit_of[concerned]] = True
        self.tested[list(self.barred)] = True

    def restore(self, unit: int, *, regardless: bool = False) -> FilterName | None:
        """Restore a unit; return the filter that refuses, in which case nothing has changed.

        `regardless`: do not check the spread constraints.
        """
        barred = self.barred.get(unit)
        if barred is not None:
            return barred
        rows = self._rows.get(unit, _NOTHING)
        if rows and not self.room.place(rows):
            return FilterName.NODE_RESOURCES_FIT
        if not regardless:
            for skew, moves in zip(self.skews, self.moves, strict=True):
                domains = moves.get(unit)
                if domains and not skew.admits(domains):
                    self.room.give(rows)
                    return FilterName.POD_TOPOLOGY_SPREAD
        if unit in self._rerun:
            refused = self.rerun.restore(self._units.pods(unit))
            if refused is not None:
                self.room.give(rows)
                return refused
        for skew, moves in zip(self.skews, self.moves, strict=True):
            domains = moves.get(unit)
            if domains:
                skew.add(domains)
        return None

    def restore_each(self, units: Sequence[int]) -> dict[int, FilterName]:
        """Restore units one after the other; return those that are refused, with the filter."""
        if not (self.barred or self.skews or self._rerun):
            wanted = ((unit, self._rows[unit]) for unit in units)
            return dict.fromkeys(self.room.reprieve_each(wanted), FilterName.NODE_RESOURCES_FIT)
        refused: dict[int, FilterName] = {}
        for unit in units:
            reason = self.restore(unit)
            if reason is not None:
                refused[unit] = reason
        return refused

    def close(self, units: Iterable[int], refused: Container[int]) -> None:
        """Leave the simulation as it was."""
        for unit in units:
            if unit not in refused and unit in self._rerun:
                self.rerun.remove(self._units.pods(unit))

    def remove(self, unit: int) -> None:
        """Undo `restore`."""
        self.room.give(self._rows.get(unit, _NOTHING))
        for skew, moves in zip(self.skews, self.moves, strict=True):
            domains = moves.get(unit)
            if domains:
                skew.remove(domains)
        if unit in self._rerun:
            self.rerun.remove(self._units.pods(unit))


def _moves(unit_of: I64, domains: I64) -> dict[int, list[int]]:
    """Return the domains in which each unit counts."""
    chosen = np.flatnonzero(domains >= 0)
    found: dict[int, list[int]] = {}
    for unit, domain in zip(unit_of[chosen].tolist(), domains[chosen].tolist(), strict=True):
        found.setdefault(unit, []).append(domain)
    return found


def reprieve(
    simulation: Simulation,
    units: Units,
    members: Members,
    budgets: BudgetMatches,
    *,
    second_pass: bool,
) -> Reprieved:
    """Return which units are victims.

    The simulation has all pods of `units` out and no member placed, and is left like that.
    """
    slots = units.slots()
    board = _Board(simulation, members, units, slots)
    tested = board.tested
    counted = counted_units(units, slots, tested, budgets)
    order = units.ordered(np.flatnonzero(counted))
    violating = violating_pods(units, order, budgets)
    in_turn = np.concatenate(
        (order[(violating > 0) & tested[order]], order[(violating == 0) & tested[order]])
    ).tolist()
    refused = board.restore_each(in_turn)
    together = 0
    if second_pass:
        before = len(refused)
        spread = FilterName.POD_TOPOLOGY_SPREAD in refused.values()
        better = spread and _return_together(board, in_turn, refused, units)
        if not better and not NOT_MONOTONE.isdisjoint(refused.values()):
            _return_singly(board, in_turn, refused)
        together = before - len(refused)
    board.close(in_turn, refused)
    gone = np.zeros(len(units), np.bool_)
    gone[list(refused)] = True
    victims = order[gone[order]]
    kept = {
        Rule.UNTOUCHED: len(units) - int(tested.sum()),
        Rule.FITS: int(tested.sum()) - len(victims) - together,
        Rule.TOGETHER: together,
    }
    return Reprieved(
        victims=victims,
        violating=violating[gone[order]],
        refused=refused,
        kept={rule: count for rule, count in kept.items() if count},
    )


def _return_together(
    board: _Board, in_turn: Sequence[int], refused: dict[int, FilterName], units: Units
) -> bool:
    """Do the pass again with the spread constraints last; return whether fewer pods are evicted.

    Otherwise the first pass stands.
    """
    first = dict(refused)
    there = {unit: None for unit in in_turn if unit not in first}
    for unit in there:
        board.remove(unit)
    again: dict[int, FilterName] = {}
    there.clear()
    for unit in in_turn:
        reason = board.restore(unit, regardless=True)
        if reason is None:
            there[unit] = None
        else:
            again[unit] = reason
    least_first = [unit for unit in reversed(in_turn) if unit not in again]
    candidates = sorted(least_first, key=lambda unit: unit >= units.singles)
    while going := _surplus(board, there, candidates):
        for unit in going:
            board.remove(unit)
            del there[unit]
            again[unit] = FilterName.POD_TOPOLOGY_SPREAD
    # A pod that was removed may be one that a member's affinity requires.
    if going is not None and board.rerun.holds():
        _return_singly(board, in_turn, again)
        if _pods(units, again) < _pods(units, first):
            refused.clear()
            refused.update(again)
            return True
    for unit in in_turn:
        if unit not in again:
            board.remove(unit)
    for unit in in_turn:
        if unit not in first:
            board.restore(unit)
    return False


def _return_singly(board: _Board, in_turn: Sequence[int], refused: dict[int, FilterName]) -> None:
    """Reprieve single units until none can be; those reprieved are refused no longer."""
    while back := [unit for unit in in_turn if unit in refused and _fits(board, unit, refused)]:
        for unit in back:
            del refused[unit]


def _pods(units: Units, victims: Iterable[int]) -> int:
    return int(units.size[list(victims)].sum())


def _fits(board: _Board, unit: int, refused: dict[int, FilterName]) -> bool:
    reason = board.restore(unit)
    if reason is not None:
        refused[unit] = reason
    return reason is None


def _surplus(board: _Board, there: Iterable[int], candidates: Sequence[int]) -> list[int] | None:
    """Return units to remove next, in the order of `candidates`; None when none would help."""
    present = set(there)
    for index, skew in enumerate(board.skews):
        exceeded = skew.exceeded()
        if not exceeded:
            continue
        going: list[int] = []
        for unit in candidates:
            if unit not in present:
                continue
            hits = [d for d in board.moves[index].get(unit, ()) if exceeded.get(d, 0) > 0]
            if hits:
                for domain in hits:
                    exceeded[domain] -= 1
                going.append(unit)
        return going or None
    return []
