"""Where a workload gets its places once other planes have freed capacity there.

Its quota is free, and its pods have no places: what stands in their way holds none itself, so that
no rule of a queue evicts it. The scheduling plane of the process may preempt it for these pods, or
it is idle. For each domain that would have capacity for them with all of it gone the pods are found
that have to go (`MayGo`); of all domains the one is taken

1. where idle work alone goes, then where lower priorities go as well;
2. where the fewest devices go;
3. at the narrowest level;
4. that lacks the fewest pods.

The places of the workload are then assigned as if exactly these were gone. Source: specification of
topology-aware scheduling, section 9; the design's "Where the planes meet".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

import numpy as np

from reprieve.engine.quota.assigning.assigner import Assigner
from reprieve.engine.quota.assigning.assignment import Assignment, Mode
from reprieve.engine.quota.assigning.topologies import asked_places
from reprieve.engine.quota.holdings.snapshot import Snapshot
from reprieve.engine.quota.model import Workload
from reprieve.engine.quota.targets.preemption import nobody
from reprieve.engine.topology.assign import groups_of
from reprieve.engine.topology.capacity import capacity
from reprieve.engine.topology.places import NodeUse, Places
from reprieve.units.ids import Uid

__all__ = ["Leaver", "MayGo", "assigned_without", "places_made"]

_DOMAINS: Final = 32  # that are worked out
_WORST: Final = (3, 0, 0)

Made = tuple[NodeUse, ...]


@dataclass(frozen=True, slots=True)
class Leaver:
    """Pods that are evicted, what they use of nodes and how many devices they hold.

    `by`: 1 where idle work alone goes, 2 where lower priorities go as well.
    """

    by: int
    devices: int
    uses: Made
    pods: Collection[Uid]


@dataclass(frozen=True, slots=True)
class MayGo:
    """The pods that other planes may evict for a workload, none of which holds places.

    `uses`: of all of them. `leaving`: who of them goes so that the pods of an assignment fit on
    these nodes, all where None; None: they do not. `fits`: whether all pods have a node in the
    places of an assignment once these are gone.
    """

    uses: Made
    leaving: Callable[[Assignment, Collection[str] | None], Leaver | None]
    fits: Callable[[Assignment, Leaver], bool]


def assigned_without(
    snapshot: Snapshot, workload: Workload, queue: int, gone: Made
) -> Assignment | None:
    """Return the assignment that a workload gets without these; None where it lacks more."""
    without = snapshot.without(())
    without.free(gone)
    found = Assigner(without, workload, queue, nobody, None).assign()
    return found if found.mode is Mode.FIT else None


def places_made(snapshot: Snapshot, workload: Workload, queue: int, may_go: MayGo) -> Made:
    """Return the victims that give the workload places; nothing where that does not help."""
    every = may_go.uses
    whole = assigned_without(snapshot, workload, queue, every) if every else None
    if whole is None:
        return ()
    best: tuple[tuple[int, int, int], Made] = (_WORST, ())
    domains = islice(_domains(snapshot, workload, queue, whole, every), _DOMAINS)
    for number, within in enumerate(domains):
        leaver = may_go.leaving(whole, within)
        cost = _WORST if leaver is None else (leaver.by, leaver.devices, number)
        if leaver is None or cost >= best[0]:
            continue
        found = assigned_without(snapshot, workload, queue, leaver.uses)
        if found is not None and may_go.fits(found, leaver):
            best = cost, leaver.uses
    return best[1]


def _domains(
    snapshot: Snapshot, workload: Workload, queue: int, whole: Assignment, every: Made
) -> Iterator[frozenset[str] | None]:
    """Yield the nodes of domains that fit all pods once all victims left; None: of all domains."""
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
