"""Where the pods of a workload that requests places lack capacity, and which workloads use it.

Source: specification of topology-aware scheduling, section 9 (7).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from reprieve.engine.diagnosis.quota_trial import Trial
from reprieve.engine.quota.assigning.topologies import asked_places
from reprieve.engine.quota.holdings.holders import Holder
from reprieve.engine.quota.model import Workload
from reprieve.engine.topology.assign import groups_of, led
from reprieve.engine.topology.capacity import Capacity, capacity
from reprieve.engine.topology.model import PodsWanted
from reprieve.engine.topology.places import Places
from reprieve.units.counts import counted

__all__ = ["PlaceShortage", "place_shortage"]

_MOST_EXCLUDED: Final = 3  # causes that one sentence names


@dataclass(frozen=True, slots=True)
class PlaceShortage:
    """Where capacity is short.

    Attributes:
        values: what sentences need: `short`, and `wider` where a wider level has capacity.
        holders: the holders of places in the domain with the most capacity.
    """

    values: Mapping[str, str]
    holders: tuple[Holder, ...]


def place_shortage(trial: Trial, workload: Workload, *, empty: bool) -> PlaceShortage | None:
    """Return what the first pods without capacity lack, None where all have it.

    Args:
        trial: the decision about the workload.
        workload: as it was decided about.
        empty: whether everything that topologies placed counts as evicted.
    """
    snapshot = trial.snapshot
    queue = snapshot.configuration.cluster_queues[snapshot.tree.names[trial.queue]]
    asked = asked_places(trial.assignment, workload, queue, snapshot.configuration, snapshot.places)
    if asked is None or snapshot.places is None:
        return None
    places = snapshot.places.emptied() if empty else snapshot.places
    for flavor, wanted in asked.wanted.items():
        for group in groups_of(wanted):
            room = capacity(places.on(flavor), group)
            if room is None or room.suffices or not room.tree.paths:
                continue
            workers, leader = led(group)
            best = room.best(room.meant.level)
            values = {"short": _short(room, best, _asks(room, workers, leader))}
            wider = room.wider() if room.meant.required else None
            if wider is not None:
                values["wider"] = room.tree.levels[wider]
            holders = () if best is None or empty else _holders(trial, flavor, room, best)
            return PlaceShortage(values, holders)
    return None


def _asks(room: Capacity, workers: PodsWanted, leader: PodsWanted | None) -> str:
    size = room.meant.slicing.size
    if size > 1:
        said = f"{counted(room.need, 'slice')} of {size} pods"
    else:
        said = counted(workers.count, "pod")
    return said if leader is None else f"{said} and their leader"


def _short(room: Capacity, best: int | None, asks: str) -> str:
    """Return where the most capacity is, in words."""
    level = room.meant.level
    if not room.meant.required:
        widest = room.slices(0 if room.meant.climbs else level)
        text = f"the whole topology has capacity for {int(widest.sum())} of {asks}"
    elif best is None:
        return f"there is no {room.tree.levels[level]}"
    else:
        most = room.room(level, best)
        text = f"no {room.tree.levels[level]} has capacity for {asks}"
        if most:
            return f"{text}: the best, {room.name(level, best)}, has capacity for {most}"
    if not room.excluded:
        return text
    most_often = sorted(room.excluded.items(), key=lambda each: (-each[1], each[0]))
    why = ", ".join(f"{times} for {what}" for what, times in most_often[:_MOST_EXCLUDED])
    return f"{text}; left out of {len(room.tree.paths)} nodes: {why}"


def _holders(trial: Trial, flavor: str, room: Capacity, domain: int) -> tuple[Holder, ...]:
    """Return who has pods in a domain of the wanted level."""
    snapshot, places = trial.snapshot, trial.snapshot.places
    assert places is not None
    found = {}
    for lists in snapshot.lists:
        for rows in lists.values():
            for *_, holder in rows:
                if _is_in(holder, flavor, places, room, domain):
                    found[holder.key] = holder
    return tuple(found[key] for key in sorted(found))


def _is_in(holder: Holder, flavor: str, places: Places, room: Capacity, domain: int) -> bool:
    tree, level = room.tree, room.meant.level
    return any(
        each.values in tree.index and tree.ancestor(tree.index[each.values], level) == domain
        for name, pods in holder.placed
        if name == flavor or (tree.by_host and places.trees[name].by_host)
        for each in pods.assignment.domains
    )
