"""Places members of different sizes: a few good orders first, then a bounded exhaustive search.

1. Largest members first, each on the cheapest node that passes.
2. Members in their own order, each on the cheapest node: what the reference would find if it tried
   every node again.
3. Largest first, each on the node where it leaves the least.
4. Depth first over all assignments, largest first, cheapest node first. Equal members are placed on
   nodes in one direction only, nodes that are equal in all that counts are tried once, and states
   that failed are remembered. It ends after `STEPS` placements at the latest.

What members find in their own order is compared with it afterwards (`job_preemption`). The first
that gives every member a node wins, so that the outcome depends on neither the order in
which members are handed in nor on time. Members of one size on plain resources never get to 4,
since for them 1 is exact. Source: issue of gang jobs, "Better than the reference".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np

from reprieve.engine.cluster.arrays import I64, Mask
from reprieve.engine.cluster.snapshot import Pending
from reprieve.engine.placement.filtering import Placed
from reprieve.engine.placement.filters.resources import ResourcesFilter
from reprieve.engine.placement.profile import OF_THE_NODE_ALONE
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.scheduling.gangs.first_fit import first_fit

__all__ = ["STEPS", "search"]

STEPS: Final = 20_000
_SLOW_STEPS: Final = 1_000  # where every step runs whole filters
_WIDTH: Final = 64  # nodes that the exhaustive search looks at


def search(
    simulation: Simulation, members: Sequence[Pending], order: I64, candidates: Mask
) -> list[int] | None:
    """Return the node of each member, None when no placement was found.

    `order`: (nodes,) indices, best first. The simulation is left as it was.
    """
    sizes = _sizes(simulation, members)
    largest = sorted(range(len(members)), key=lambda i: (-sizes[i], _name(members[i])))
    own = sorted(range(len(members)), key=lambda i: _name(members[i]))
    found = _in_turn(simulation, members, largest, order, candidates)
    if found is not None or (len(set(sizes)) <= 1 and _plain(simulation, members)):
        return found
    if own != largest:
        found = _in_turn(simulation, members, own, order, candidates)
    if found is None:
        found = _best_fit(simulation, members, largest, order, candidates)
    if found is None:
        found = _exhaustive(simulation, members, largest, order, candidates)
    return found


def _name(pending: Pending) -> tuple[str, str]:
    return pending.row.namespace, pending.row.name


def _sizes(simulation: Simulation, members: Sequence[Pending]) -> list[float]:
    """Return the largest share of the cluster that each member requests of any resource."""
    total = np.maximum(simulation.snapshot.allocatable.sum(axis=0), 1)
    known: dict[int, float] = {}
    for pending in members:
        if pending.pod_class not in known:
            share = simulation.requests_of(pending.pod_class)[1:] / total[1:]
            known[pending.pod_class] = float(share.max(initial=0.0))
    return [known[pending.pod_class] for pending in members]


def _in_turn(
    simulation: Simulation,
    members: Sequence[Pending],
    turn: Sequence[int],
    order: I64,
    candidates: Mask,
) -> list[int] | None:
    queue = [members[i] for i in turn]
    nodes = first_fit(simulation, queue, order, candidates, narrowing=False)
    if len(nodes) < len(members):
        return None
    return _back(turn, nodes)


def _back(turn: Sequence[int], nodes: Sequence[int]) -> list[int]:
    found = [0] * len(turn)
    for index, node in zip(turn, nodes, strict=True):
        found[index] = node
    return found


def _best_fit(
    simulation: Simulation,
    members: Sequence[Pending],
    turn: Sequence[int],
    order: I64,
    candidates: Mask,
) -> list[int] | None:
    """Place the largest first, each where the share that stays free is smallest."""
    allocatable = simulation.snapshot.allocatable
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    placed: list[Placed] = []
    nodes: list[int] = []
    for index in turn:
        pending = members[index]
        passing = np.flatnonzero(candidates & (simulation.codes(pending) == 0))
        if not len(passing):
            break
        need = simulation.requests_of(pending.pod_class)
        asked = np.flatnonzero(need > 0)[1:] if (need[1:] > 0).any() else np.array([0])
        offered = np.maximum(allocatable[passing][:, asked], 1)
        free = (offered - simulation.used[passing][:, asked] - need[asked]) / offered
        node = int(passing[np.lexsort((rank[passing], free.sum(axis=1)))[0]])
        nodes.append(node)
        placed.append(simulation.place(pending, node))
    for pod in reversed(placed):
        simulation.unplace(pod)
    return _back(turn, nodes) if len(nodes) == len(members) else None


class _Board(Protocol):
    """What the exhaustive search plays on; nodes are places in its list of nodes."""

    def fits(self, member: int, place: int) -> bool: ...

    def place(self, member: int, place: int) -> None: ...

    def remove(self, member: int, place: int) -> None: ...

    def signature(self, place: int) -> object:
        """Return a value that is equal for nodes that are equal to every member."""
        ...


class _Rooms:
    """Members that only request resources: a few numbers per node."""

    def __init__(
        self, simulation: Simulation, members: Sequence[Pending], nodes: list[int]
    ) -> None:
        columns = {0}
        for pending in members:
            for each in simulation.filters(pending):
                if isinstance(each, ResourcesFilter):
                    columns.update(each.columns)
        chosen = sorted(columns)
        index = np.array(nodes, np.int64)
        free = simulation.snapshot.allocatable - simulation.used
        for node, pods in simulation.nominated.items():
            for pod in pods:
                free[node] -= simulation.requests_of(pod.pod_class)
        left = free[index]
        self._left: list[tuple[int, ...]] = list(map(tuple, left[:, chosen].tolist()))
        self._need: list[tuple[int, ...]] = [
            tuple(simulation.requests_of(pending.pod_class)[chosen].tolist()) for pending in members
        ]
        passes = {
            (p.pod_class, p.labels): (simulation.codes(p)[index] == 0).tolist() for p in members
        }
        self._passes = [passes[p.pod_class, p.labels] for p in members]
        self._static = list(zip(*passes.values(), strict=True))

    def fits(self, member: int, place: int) -> bool:
        if not self._passes[member][place]:
            return False
        return all(
            need <= left or not need
            for need, left in zip(self._need[member], self._left[place], strict=True)
        )

    def place(self, member: int, place: int) -> None:
        need = self._need[member]
        self._left[place] = tuple(a - b for a, b in zip(self._left[place], need, strict=True))

    def remove(self, member: int, place: int) -> None:
        need = self._need[member]
        self._left[place] = tuple(a + b for a, b in zip(self._left[place], need, strict=True))

    def signature(self, place: int) -> object:
        return self._static[place], self._left[place]


class _Whole:
    """Members with constraints on each other: whole filters at every step."""

    def __init__(
        self, simulation: Simulation, members: Sequence[Pending], nodes: list[int]
    ) -> None:
        self._simulation = simulation
        self._members = members
        self._nodes = nodes
        self._placed: list[Placed] = []

    def fits(self, member: int, place: int) -> bool:
        return self._simulation.code_at(self._members[member], self._nodes[place]) == 0

    def place(self, member: int, place: int) -> None:
        pod = self._simulation.place(self._members[member], self._nodes[place])
        self._placed.append(pod)

    def remove(self, member: int, place: int) -> None:
        self._simulation.unplace(self._placed.pop())

    def signature(self, place: int) -> object:
        return place


def _plain(simulation: Simulation, members: Sequence[Pending]) -> bool:
    return all(
        isinstance(each, ResourcesFilter) or each.name in OF_THE_NODE_ALONE
        for pending in members
        for each in simulation.filters(pending)
    )


def _exhaustive(
    simulation: Simulation,
    members: Sequence[Pending],
    turn: Sequence[int],
    order: I64,
    candidates: Mask,
) -> list[int] | None:
    useful = np.zeros(len(order), np.bool_)
    for pending in members:
        useful |= simulation.codes(pending) == 0
    nodes = [int(node) for node in order if candidates[node] and useful[node]][:_WIDTH]
    if not nodes:
        return None
    plain = _plain(simulation, members)
    queue = [members[i] for i in turn]
    board: _Board = (_Rooms if plain else _Whole)(simulation, queue, nodes)
    steps = STEPS if plain else _SLOW_STEPS
    places = _depth_first(board, queue, len(nodes), steps, remember=plain)
    if places is None:
        return None
    return _back(turn, [nodes[place] for place in places])


def _depth_first(
    board: _Board, members: Sequence[Pending], width: int, steps: int, *, remember: bool
) -> list[int] | None:
    """Return a place for each member; the board is left as it was."""
    alike = [
        i > 0
        and (members[i].pod_class, members[i].labels)
        == (members[i - 1].pod_class, members[i - 1].labels)
        for i in range(len(members))
    ]
    failed: set[object] = set()
    chosen: list[int] = []
    levels = [_Level(0, _state(board, 0, 0, width))]
    found: list[int] | None = None
    while levels:
        level, member = levels[-1], len(chosen)
        place = width if steps <= 0 else _next_place(board, level, member, width)
        if place >= width:
            if steps > 0:
                failed.add(level.state)
            levels.pop()
            if chosen:
                board.remove(member - 1, chosen.pop())
            continue
        steps -= 1
        level.next = place + 1
        board.place(member, place)
        chosen.append(place)
        if len(chosen) == len(members):
            found = list(chosen)
            break
        # Among equal members a later one never uses an earlier place.
        start = place if alike[member + 1] else 0
        state = _state(board, member + 1, start, width) if remember else None
        levels.append(_Level(width if remember and state in failed else start, state))
    for member in reversed(range(len(chosen))):
        board.remove(member, chosen[member])
    return found


@dataclass(slots=True)
class _Level:
    """One member's turn: the next place to try, the state it began in, and what was tried."""

    next: int
    state: object
    tried: set[object] = field(default_factory=set)


def _next_place(board: _Board, level: _Level, member: int, width: int) -> int:
    for place in range(level.next, width):
        same = board.signature(place)
        if same not in level.tried and board.fits(member, place):
            level.tried.add(same)
            return place
    return width


def _state(board: _Board, member: int, start: int, width: int) -> object:
    return member, start, tuple(board.signature(place) for place in range(width))
