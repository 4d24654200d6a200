"""Loops in the graph of who displaced whom, and which displacement is to be held in each.

An edge leads from a preemptor to its victim and has the instants at which that happened. Edges that
happened fewer times than is allowed are no part of a loop; of what is left, every strongly
connected component of two or more members is one. In each, edges are held until none turns any
more; the order in which they are chosen, first difference decides:

1. only edges that no strictly higher priority justifies
2. the one that happened the fewest times
3. the least gain: the lower preemptor's priority, compared with its victim's
4. the least gain: the more device seconds lost
5. names

2 bounds how often a cycle turns. When every edge of a cycle has happened `limit` times, the one
that got there last happened exactly that often; so did the first edge of the cycle that is chosen,
and it does not happen again before the oldest of these instants is out of the window. Whichever
edges continue, the cycle as a whole turns at most `limit` times in any window. By 1 this holds for
cycles without a strictly higher priority in them ("of equals").

Costs O(edges) for each edge that is held. Source: specification of disruptions, section 4.1.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from kubeworld.units.instants import Nanos

__all__ = ["Edge", "FoundLoop", "find_loops"]


@dataclass(frozen=True, slots=True)
class Edge:
    """Displacements of one family by another; `instants` in order, each once.

    `above`: by how much the preemptor's priority was higher, the last time.
    """

    preemptor: str
    victim: str
    instants: tuple[Nanos, ...]
    above: int = 0
    lost_device_seconds: int = 0
    displacements: int = 0

    @property
    def strict(self) -> bool:
        """Whether a strictly higher priority justifies it."""
        return self.above > 0


@dataclass(frozen=True, slots=True)
class FoundLoop:
    """A component that turns: its members in the order of one turn, all its edges, those held.

    Of members that one turn does not pass, the names follow in order.
    """

    members: tuple[str, ...]
    edges: tuple[Edge, ...]
    held: tuple[Edge, ...]


def find_loops(edges: Iterable[Edge], limit: int) -> list[FoundLoop]:
    """Return the loops among edges that happened `limit` times, by their first member."""
    often = sorted(
        (each for each in edges if len(each.instants) >= limit and each.preemptor != each.victim),
        key=lambda each: (each.preemptor, each.victim),
    )
    found = []
    for inside in _components(often):
        held = tuple(_held(inside))
        found.append(FoundLoop(_turn(inside, held[0] if held else inside[0]), inside, held))
    return sorted(found, key=lambda loop: loop.members)


def _held(inside: Sequence[Edge]) -> Iterator[Edge]:
    """Yield edges of a component until it does not turn any more without strict ones."""
    left = [inside]
    while left:
        component = left.pop()
        choices = [each for each in component if not each.strict]
        if choices:
            chosen = min(choices, key=_order)
            yield chosen
            left += _components([each for each in component if each is not chosen])


def _order(edge: Edge) -> tuple[int, int, int, str, str]:
    return (
        len(edge.instants),
        edge.above,
        -edge.lost_device_seconds,
        edge.preemptor,
        edge.victim,
    )


def _turn(inside: Sequence[Edge], first: Edge) -> tuple[str, ...]:
    """Return the members, beginning with the shortest turn through an edge."""
    after: dict[str, list[str]] = {}
    for each in inside:
        after.setdefault(each.preemptor, []).append(each.victim)
    came: dict[str, str] = {first.victim: ""}
    waiting = deque([first.victim])
    while waiting and first.preemptor not in came:
        here = waiting.popleft()
        for there in after[here]:
            if there not in came:
                came[there] = here
                waiting.append(there)
    turn, here = [], first.preemptor
    while here:
        turn.append(here)
        here = came[here]
    # From the preemptor back to the victim that it began with: against the edges, but for the last.
    turn = [turn[0], *reversed(turn[1:])]
    return (*turn, *sorted(after.keys() - set(turn)))


def _components(edges: Sequence[Edge]) -> list[tuple[Edge, ...]]:
    """Return the edges within each strongly connected component of two or more, in their order."""
    after: dict[str, list[str]] = {}
    for each in edges:
        after.setdefault(each.preemptor, []).append(each.victim)
        after.setdefault(each.victim, [])
    component = _numbered(after)
    inside: dict[int, list[Edge]] = {}
    for each in edges:
        if component[each.preemptor] == component[each.victim]:
            inside.setdefault(component[each.preemptor], []).append(each)
    return [tuple(found) for found in inside.values()]


def _numbered(after: dict[str, list[str]]) -> dict[str, int]:
    """Return the number of each node's strongly connected component (Tarjan, without recursion)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    component: dict[str, int] = {}
    stack: list[str] = []
    for start in after:
        if start in index:
            continue
        work = [(start, iter(after[start]))]
        index[start] = low[start] = len(index)
        stack.append(start)
        while work:
            node, rest = work[-1]
            for there in rest:
                if there not in index:
                    index[there] = low[there] = len(index)
                    stack.append(there)
                    work.append((there, iter(after[there])))
                    break
                if there not in component:
                    low[node] = min(low[node], index[there])
            else:
                work.pop()
                if work:
                    above = work[-1][0]
                    low[above] = min(low[above], low[node])
                if low[node] == index[node]:
                    number = len(component)
                    while node not in component:
                        component[stack.pop()] = number
    return component
