"""Which sets of idle work and of pods of lower priority make room for equal pods, by brute force.

A small cluster as plain numbers: GPUs by node, pods with a node, GPUs and a priority, some of them
of an idle unit that goes as a whole. Imports nothing of the engine.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

__all__ = ["Held", "Ways", "fits_without", "ways"]


@dataclass(frozen=True)
class Held:
    """A pod with a node. `idle`: the idle unit that it goes with; empty for one that works."""

    name: str
    node: str
    gpus: int
    priority: int
    idle: str = ""


@dataclass(frozen=True)
class Ways:
    """Fewest GPUs by each way to the room, None where it does not lead there."""

    nobody: bool
    idle: int | None
    priority: int | None
    both: int | None


def fits_without(
    nodes: Mapping[str, int], held: Sequence[Held], gone: Collection[str], wanted: Sequence[int]
) -> bool:
    """Whether pods of so many GPUs, all alike, have nodes once the pods of these names are gone."""
    free = dict(nodes)
    for each in held:
        if each.name not in gone:
            free[each.node] -= each.gpus
    return sum(left // wanted[0] for left in free.values()) >= len(wanted)


def ways(
    nodes: Mapping[str, int], held: Sequence[Held], wanted: Sequence[int], priority: int
) -> Ways:
    """Try every set of idle units with every set of pods of lower priority."""
    units = sorted({each.idle for each in held} - {""})
    lower = [each for each in held if each.priority < priority]
    found: dict[str, list[int]] = {"idle": [], "priority": [], "both": []}
    for idle in _parts(units):
        going = {each.name for each in held if each.idle in idle}
        for pods in _parts([each.name for each in lower if each.name not in going]):
            gone = going | set(pods)
            if gone and fits_without(nodes, held, gone, wanted):
                way = "both" if idle and pods else "idle" if idle else "priority"
                found[way].append(sum(each.gpus for each in held if each.name in gone))
    fewest = {way: min(sizes, default=None) for way, sizes in found.items()}
    return Ways(
        fits_without(nodes, held, (), wanted), fewest["idle"], fewest["priority"], fewest["both"]
    )


def _parts(names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for number in range(len(names) + 1):
        yield from combinations(names, number)
