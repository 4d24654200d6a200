"""Where a workload gets its places once other planes have freed capacity there.

Its quota is free, and its pods have no places: what stands in their way holds none itself, so that
no rule of a queue evicts it. The scheduling plane of the process may preempt it for these pods, or
it is idle. For each domain that would have capacity for them with all of it evicted the pods are
found that have to be evicted (`MayGo`); of all domains the one is chosen

1. where idle work alone is evicted, then where lower priorities are evicted as well;
2. where the fewest devices are evicted;
3. at the narrowest level;
4. that lacks the fewest pods.

The places of the workload are then assigned as if exactly these were evicted. Source: specification
of topology-aware scheduling, section 9; the design's "Where the planes meet".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from typing import Final

import numpy as np

from reprieve.engine.quota.assigning.assigner import Assigner
from reprieve.engine.quota.assigning.assignment import Assignment, Mode
from reprieve.engine.quota.assigning.topologies import asked_places
from reprieve.engine.quota.holdings.holders import Holder
from reprieve.engine.quota.holdings.snapshot import Snapshot
from reprieve.engine.quota.model import Workload
from reprieve.engine.quota.targets.candidates import Target
from reprieve.engine.quota.targets.preemption import nobody
from reprieve.engine.topology.assign import groups_of
from reprieve.engine.topology.capacity import capacity
from reprieve.engine.topology.model import TopologyAssignment
from reprieve.engine.topology.places import NodeUse, Places
from reprieve.units.ids import Uid

__all__ = [
    "Beside",
    "ByRules",
    "Leaver",
    "Made",
    "MayGo",
    "assigned_without",
    "domains_freed",
    "nodes_planned",
    "places_made",
]

_DOMAINS: Final = 32  # that are worked out
_WORST: Final = (3, 0, 0)

Made = tuple[NodeUse, ...]


@dataclass(frozen=True, slots=True)
class Leaver:
    """Pods that are evicted, what they use of nodes and how many devices they hold.

    `by`: 1 where idle work alone is evicted, 2 where lower priorities are evicted as well.
    """

    by: int
    devices: int
    uses: Made
    pods: Collection[Uid]


@dataclass(frozen=True, slots=True)
class MayGo:
    """The pods that other planes may evict for a workload, none of which holds places.

    `uses`: of all of them, `idle` of those of idle work. `leaving`: those of them that are evicted
    so that the pods of an assignment fit on these nodes, all where None, without targets; None:
    they do not. `fits`: whether all pods have a node in the places of an assignment once these, and
    targets, are evicted.
    """

    uses: Made
    idle: Made
    leaving: Callable[[Assignment, Collection[str] | None, Collection[Target]], Leaver | None]
    fits: Callable[[Assignment, Leaver, Collection[Target]], bool]


@dataclass(frozen=True, slots=True)
class Beside:
    """What the rules of its queue give a workload once pods that hold no places have left.

    `left`: the snapshot without these pods, but with the targets. `candidates`: all whom the rules
    permit to evict.
    """

    left: Snapshot
    assignment: Assignment
    targets: tuple[Target, ...]
    candidates: tuple[Holder, ...]


#: Returns what the rules give a workload without these; True: with the least costly targets.
ByRules = Callable[[Made, bool], Beside | None]


def assigned_without(
    snapshot: Snapshot, workload: Workload, queue: int, gone: Made
) -> Assignment | None:
    """Return the assignment that a workload gets without these; None where it lacks more."""
    without = snapshot.without(())
    without.free(gone)
    found = Assigner(without, workload, queue, nobody, None).assign()
    return found if found.mode is Mode.FIT else None


def places_made(
    snapshot: Snapshot,
    workload: Workload,
    queue: int,
    may_go: MayGo,
    planned: frozenset[str],
    first: Leaver | None,
) -> Leaver | None:
    """Return the victims that give the workload places; None where that does not help.

    `planned`: nodes of places that others were evicted for: no others are made while these can be,
    and with `first` evicted if that suffices.
    """
    every = may_go.uses
    whole = assigned_without(snapshot, workload, queue, every) if every else None
    if whole is None:
        return None
    if first is not None:
        given = assigned_without(snapshot, workload, queue, first.uses)
        if given is not None and may_go.fits(given, first, ()):
            return first
    best: tuple[tuple[int, int, int], Leaver | None] = (_WORST, None)
    found = domains_freed(snapshot, workload, queue, whole, every)
    domains = chain((planned,) if planned else (), islice(found, _DOMAINS))
    for number, within in enumerate(domains):
        leaver = may_go.leaving(whole, within, ())
        cost = _WORST if leaver is None else (leaver.by, leaver.devices, number)
        if leaver is None or cost >= best[0]:
            continue
        given = assigned_without(snapshot, workload, queue, leaver.uses)
        if given is not None and may_go.fits(given, leaver, ()):
            best = cost, leaver
            if planned and not number:
                break
    return best[1]


def nodes_planned(
    planned: Mapping[str, TopologyAssignment], places: Places | None
) -> frozenset[str]:
    """Return the nodes of planned places."""
    values = {domain.values for each in planned.values() for domain in each.domains}
    if not values or places is None:
        return frozenset()
    return frozenset(
        node
        for tree in places.trees.values()
        for leaves in ({tree.index[each] for each in values if each in tree.index},)
        for node, leaf in tree.leaf_of_node.items()
        if leaf in leaves
    )


def domains_freed(
    snapshot: Snapshot,
    workload: Workload,
    queue: int,
    whole: Assignment,
    every: Made,
    holders: Iterable[Holder] = (),
) -> Iterator[frozenset[str] | None]:
    """Yield the nodes of domains that fit all pods once all these left; None: of all domains."""
    places, configuration = snapshot.places, snapshot.configuration
    config = configuration.cluster_queues[snapshot.tree.names[queue]]
    asked = asked_places(whole, workload, config, configuration, places)
    if asked is None or places is None:
        return
    if len(asked.wanted) != 1:
        yield None
        return
    ((flavor, wanted),) = asked.wanted.items()
    emptier = places.copy()
    emptier.free(every)
    for holder in holders:
        emptier.change(holder.placed, -1)
    spreads = True
    for group in groups_of(wanted):
        now, then = capacity(places.on(flavor), group), capacity(emptier.on(flavor), group)
        if now is None or then is None or now.suffices:
            continue
        spreads = spreads and (then.meant.climbs or not then.meant.required)
        for level in then.levels():
            later = then.slices(level)
            enough = np.flatnonzero(later >= then.need)
            lacks = then.need - now.slices(level)[enough]
            for at in np.lexsort((enough, lacks)):
                yield _nodes_in(places, flavor, level, int(enough[at]))
    if spreads:
        yield None


def _nodes_in(places: Places, flavor: str, level: int, domain: int) -> frozenset[str]:
    tree = places.trees[flavor]
    return frozenset(
        node for node, leaf in tree.leaf_of_node.items() if tree.ancestor(leaf, level) == domain
    )
