"""All ways to spread the pods of one group over the leaves, one after the other.

No search and no order: every number of pods on every leaf is tried, and kept where all promises of
the request hold. For small clusters alone. Imports nothing of the engine.

Source: specification of topology-aware scheduling, section 1.3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from tests.oracle.topology.counting import Cluster, count
from tests.oracle.topology.domains import Domain, Json
from tests.oracle.topology.requests import Ask

__all__ = ["Arrangement", "Room", "holds", "narrowest", "room_of", "ways"]

Path = tuple[str, ...]


@dataclass(frozen=True)
class Arrangement:
    """Pods of the workers by the path of their leaf, and the leaf of the leader."""

    pods: dict[Path, int]
    leader: Path | None = None


@dataclass(frozen=True)
class Room:
    """What fits each leaf: workers alone, workers beside the leader, whether the leader fits."""

    leaves: tuple[tuple[Path, int, int, bool], ...]


def room_of(on: Cluster, workers: Json, leader: Json | None, asked: Ask) -> Room:
    """Return what fits each leaf."""
    count(on, workers, leader, asked, None)
    return Room(tuple(map(_row, on.root.leaves())))


def _row(leaf: Domain) -> tuple[Path, int, int, bool]:
    return leaf.path, leaf.pods, leaf.pods_beside, leaf.leader > 0


def ways(room: Room, pods: int, led: bool, most: int) -> Iterator[Arrangement] | None:
    """Return all arrangements of so many pods, None where there are more than `most` to look at."""
    leaves = room.leaves
    if prod(min(each[1], pods) + 1 for each in leaves) * (len(leaves) if led else 1) > most:
        return None
    return _ways(leaves, pods, led)


def _ways(
    leaves: Sequence[tuple[Path, int, int, bool]], pods: int, led: bool
) -> Iterator[Arrangement]:
    for leader in [e[0] for e in leaves if e[3]] if led else [None]:
        rooms = [beside if path == leader else alone for path, alone, beside, _ in leaves]
        for counts in _sums(rooms, pods):
            spread = zip(leaves, counts, strict=True)
            yield Arrangement({e[0]: n for e, n in spread if n}, leader)


def _sums(rooms: Sequence[int], total: int) -> Iterator[tuple[int, ...]]:
    if not rooms:
        if not total:
            yield ()
        return
    for here in range(min(rooms[0], total) + 1):
        for rest in _sums(rooms[1:], total - here):
            yield (here, *rest)


def holds(found: Arrangement, asked: Ask) -> bool:
    """Return whether slices are whole and, where a level is required, all is in one domain."""
    if asked.required and not _in_one(found, asked.level):
        return False
    for level, size in asked.layers:
        there: Counter[Path] = Counter()
        for path, pods in found.pods.items():
            there[path[: level + 1]] += pods
        if any(pods % size for pods in there.values()):
            return False
    return True


def narrowest(arrangements: Iterator[Arrangement], asked: Ask) -> int | None:
    """Return the narrowest level, up to the one asked for, of which one domain can have all.

    -1 is several domains of the widest level, None that there is no way.
    """
    best: int | None = None
    for found in arrangements:
        if not holds(found, asked):
            continue
        level = next((at for at in range(asked.level, -1, -1) if _in_one(found, at)), -1)
        best = level if best is None else max(best, level)
        if best == asked.level:
            break
    return best


def _in_one(found: Arrangement, level: int) -> bool:
    paths = [*found.pods, *([found.leader] if found.leader is not None else [])]
    return len({path[: level + 1] for path in paths}) <= 1
