"""The fewest GPUs that have to go so that equal pods fit in one rack, by brute force.

A cluster as plain numbers: GPUs by node, a rack for each node, pods with a node, GPUs and whether
they may go. Imports nothing of the engine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations

__all__ = ["BY_RULES", "Held", "fits_in_a_rack", "least_by_rack", "least_of_both", "starts"]

BY_RULES = 3


@dataclass(frozen=True)
class Held:
    """A pod with a node.

    `may_go`: 0 never, 1 it is idle, 2 it has a lower priority, 3 the rules of a queue evict it.
    """

    name: str
    node: str
    gpus: int
    may_go: int = 0


def fits_in_a_rack(
    nodes: Mapping[str, tuple[str, int]], held: Sequence[Held], pods: int, gpus: int
) -> set[str]:
    """Return the racks in which so many pods of so many GPUs have nodes beside these."""
    found: dict[str, int] = {}
    for name, (rack, size) in nodes.items():
        free = size - sum(each.gpus for each in held if each.node == name)
        found[rack] = found.get(rack, 0) + free // gpus
    return {rack for rack, room in found.items() if room >= pods}


def least_by_rack(
    nodes: Mapping[str, tuple[str, int]], held: Sequence[Held], pods: int, gpus: int
) -> tuple[int, int] | None:
    """Return by what the room is made, 1 or 2, and the fewest GPUs; None where it cannot be."""

    def ways(by: int) -> Iterator[int]:
        free = [each for each in held if 0 < each.may_go <= by]
        for number in range(len(free) + 1):
            for gone in combinations(free, number):
                staying = [each for each in held if each not in gone]
                if fits_in_a_rack(nodes, staying, pods, gpus):
                    yield sum(each.gpus for each in gone)

    for by in (1, 2):
        least = min(ways(by), default=None)
        if least is not None:
            return by, least
    return None


def least_of_both(
    nodes: Mapping[str, tuple[str, int]],
    held: Sequence[Held],
    pods: int,
    gpus: int,
    quota: int = 1 << 30,
) -> tuple[int, int] | None:
    """Return the fewest GPUs where pods of queues and others go, and by what the others do.

    None where one of the two kinds alone does, or both together do not. `quota`: of the pods that
    the rules of the queue evict, and of those that wait.
    """

    def ways(kinds: Sequence[int]) -> list[int]:
        free = [each for each in held if each.may_go in kinds]
        sets = chain.from_iterable(combinations(free, size) for size in range(len(free) + 1))
        return [
            sum(each.gpus for each in gone)
            for gone in sets
            if starts(nodes, [each for each in held if each not in gone], pods, gpus, quota)
        ]

    if ways((BY_RULES,)) or ways((1, 2)):
        return None
    for by in (1, 2):
        found = ways((*range(1, by + 1), BY_RULES))
        if found:
            return by, min(found)
    return None


def starts(
    nodes: Mapping[str, tuple[str, int]], held: Sequence[Held], pods: int, gpus: int, quota: int
) -> bool:
    """Return whether the pods have a rack and their quota beside these."""
    used = sum(each.gpus for each in held if each.may_go == BY_RULES)
    return used + pods * gpus <= quota and bool(fits_in_a_rack(nodes, held, pods, gpus))
