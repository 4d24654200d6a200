"""A naive judge of gangs on nodes: plays decisions by hand and looks for room by trying all of it.

Nodes are all alike, a job is pods that fill a node each and one for the rest. Nothing here comes
from the engine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product


@dataclass(frozen=True)
class Asked:
    """A job: devices and priority."""

    devices: int
    priority: int


def pods(devices: int, of_a_node: int) -> list[int]:
    """Return the devices of each pod of a job."""
    whole, rest = divmod(devices, of_a_node)
    return [of_a_node] * whole + [rest] * bool(rest)


def has_room(free: Sequence[int], widths: Sequence[int]) -> bool:
    """Whether all pods have a node, by trying every one for each."""
    if not widths:
        return True
    return any(
        has_room([*free[:node], room - widths[0], *free[node + 1 :]], widths[1:])
        for node, room in enumerate(free)
        if room >= widths[0]
    )


def placed(free: Sequence[int], widths: Sequence[int]) -> set[tuple[int, ...]]:
    """Return what is free once all pods have a node, for each way in which they may have one."""
    if not widths:
        return {tuple(free)}
    return {
        left
        for node, room in enumerate(free)
        if room >= widths[0]
        for left in placed([*free[:node], room - widths[0], *free[node + 1 :]], widths[1:])
    }


@dataclass
class Board:
    """Who is where; `told` counts what was judged."""

    nodes: int
    of_a_node: int
    jobs: Mapping[str, Asked]
    where: dict[str, tuple[str, ...]] = field(default_factory=dict)
    told: Counter[str] = field(default_factory=Counter)

    def free(self, without: Sequence[str] = ()) -> list[int]:
        """Return the free devices of each node that anybody was ever on, and of the others."""
        used: Counter[str] = Counter()
        for name, places in self.where.items():
            if name not in without:
                for width, node in zip(self._pods(name), places, strict=True):
                    used[node] += width
        names = sorted({node for places in self.where.values() for node in places})
        held = [self.of_a_node - used[node] for node in names]
        return held + [self.of_a_node] * (self.nodes - len(held))

    def starts(self, name: str, places: tuple[str, ...]) -> None:
        """Place a job; no node may have more than it offers."""
        assert name not in self.where
        self.where[name] = places
        assert min(self.free()) >= 0, (name, places)
        self.told["started"] += 1

    def fits(self, name: str) -> bool:
        """Whether all of a job's pods have a node now."""
        return has_room(self.free(), self._pods(name))

    def has_room_for(self, name: str, places: tuple[str, ...]) -> bool:
        """Whether the nodes that a job got have room for it."""
        used: Counter[str] = Counter()
        for each, nodes in [*self.where.items(), (name, places)]:
            for width, node in zip(self._pods(each), nodes, strict=True):
                used[node] += width
        return max(used.values()) <= self.of_a_node

    def makes_way(
        self,
        preemptor: str,
        victims: Sequence[str],
        leaving: Sequence[str] = (),
        before: Sequence[Sequence[str]] = ((),),
    ) -> None:
        """Judge victims: of lower priority, needed, enough, and none of them in vain.

        The gang's nodes are chosen first, and then who has to leave these: there has to be a choice
        for which all of them have to. `leaving` will be gone as well; `before` are those for whom
        they leave and who have their nodes first, in each way in which that may be.
        """
        widths = self._pods(preemptor)
        above = self.jobs[preemptor].priority
        assert all(self.jobs[name].priority < above for name in victims)
        assert not has_room(self.free(), widths), "there was room without"
        assert has_room(self.free([*victims, *leaving]), widths), "they do not suffice"
        assert self.needs_all(widths, victims, leaving, before), "somebody goes in vain"
        self.told["preempted"] += 1

    def needs_all(
        self,
        widths: Sequence[int],
        victims: Sequence[str],
        leaving: Sequence[str] = (),
        before: Sequence[Sequence[str]] = ((),),
    ) -> bool:
        """Whether pods have nodes that they get only with all of these gone; as above."""
        fewer = [[*some, *leaving] for some in combinations(victims, len(victims) - 1)]
        whole = [self.of_a_node] * self.nodes
        theirs = [
            left
            for names in before
            for left in placed(whole, [width for name in names for width in self._pods(name)])
        ]
        return any(
            self._takes(nodes, widths, [*victims, *leaving], left)
            and not any(self._takes(nodes, widths, some, left) for some in fewer)
            for nodes in product(range(self.nodes), repeat=len(widths))
            for left in theirs
        )

    def leaves(self, name: str) -> None:
        """Take a job off its nodes."""
        del self.where[name]

    def waits_rightly(self, waiting: Sequence[str]) -> None:
        """Nobody waits who fits, nor for whom somebody of lower priority could be preempted."""
        for name in waiting:
            widths, own = self._pods(name), self.jobs[name].priority
            assert not has_room(self.free(), widths), f"{name} waits, and there is room"
            lower = [each for each in self.where if self.jobs[each].priority < own]
            assert not has_room(self.free(lower), widths), f"{name} waits beside lower ones"
            self.told["refused"] += 1
            alike = [each for each in waiting if self.jobs[each] == self.jobs[name]]
            self.told["ties"] += len(alike) > 1

    def _takes(
        self,
        nodes: Sequence[int],
        widths: Sequence[int],
        without: Sequence[str],
        left: Sequence[int],
    ) -> bool:
        """Whether these nodes have room for the pods; `left`: of whole nodes, by others."""
        free = [
            room + of - self.of_a_node for room, of in zip(self.free(without), left, strict=True)
        ]
        for node, width in zip(nodes, widths, strict=True):
            free[node] -= width
        return min(free) >= 0

    def _pods(self, name: str) -> list[int]:
        return pods(self.jobs[name].devices, self.of_a_node)
