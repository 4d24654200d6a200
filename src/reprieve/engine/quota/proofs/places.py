"""What a proof of a preemption needs of places: where pods are placed without the victims.

The plan states where the preemptor's pods are placed. That is checked against the tree leaf by
leaf: each pod set has all of its pods in it, in one domain where one is required, and every leaf
has what its pods request. That no victim could stay is checked by assigning once more, with that
one victim where it was.

Source: promises "Feasible" and "Irreducible" of the design; specification of topology-aware
scheduling, sections 4 and 6.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from reprieve.engine.quota.holdings.holders import Holder
from reprieve.engine.topology.assign import groups_of, led
from reprieve.engine.topology.model import PlacedPods, PodsWanted, TopologyAssignment
from reprieve.engine.topology.places import Places
from reprieve.engine.topology.standing import PlaceSearch
from reprieve.engine.topology.tree import Tree
from reprieve.units.counts import counted

__all__ = ["AskedPlaces", "PlaceProof"]


@dataclass(frozen=True, slots=True)
class AskedPlaces:
    """The pod sets that request places, by flavor, and where the plan places each."""

    wanted: Mapping[str, Sequence[PodsWanted]]
    planned: Mapping[str, TopologyAssignment]


class PlaceProof:
    """The places of one snapshot, as the rules of a proof query them."""

    def __init__(self, asked: AskedPlaces, places: Places) -> None:
        self._asked = asked
        self._places = places
        self._search = PlaceSearch(places, asked.wanted)

    def lacks(self) -> bool:
        """Return whether the preemptor's pods get no places without evictions."""
        return not self._search.fits()

    def fits_without(self, gone: Iterable[Holder]) -> bool:
        """Return whether its pods would get places, wherever, without these."""
        search = self._search.begin()
        for holder in gone:
            search.remove(holder.placed)
        return search.fits()

    def fault_without(self, gone: Iterable[Holder]) -> str:
        """Return what is wrong with the planned places without these; empty if nothing."""
        places = self._places.copy()
        for holder in gone:
            places.change(holder.placed, -1)
        for flavor, wanted in self._asked.wanted.items():
            leaders = {pair[1].name for pair in map(led, groups_of(wanted)) if pair[1] is not None}
            for each in wanted:
                if each.count:
                    planned = self._asked.planned.get(each.name)
                    if planned is None:
                        return f"{each.name}: no places are planned"
                    fault = _fault(each, planned, places.trees[flavor], each.name in leaders)
                    if not fault and not places.has_room(
                        flavor, PlacedPods(each.requests, planned)
                    ):
                        fault = "a domain has no capacity for its pods"
                    if fault:
                        return f"{each.name}: {fault}"
        return ""


def _fault(wanted: PodsWanted, planned: TopologyAssignment, tree: Tree, leads: bool) -> str:
    size = wanted.request.layers[0].size if wanted.request and wanted.request.layers else 1
    # A leader is one pod, and has no slices.
    if planned.pods != (1 if leads else wanted.count // size * size):
        return f"{planned.pods} of {wanted.count} pods have places"
    required = wanted.request.required if wanted.request is not None else ""
    if required:
        level = tree.levels.index(required) + 1
        paths = {
            tree.paths[tree.index[each.values]][:level]
            for each in planned.domains
            if each.values in tree.index
        }
        if planned.pods and len(paths) != 1:
            return f"its pods are in {counted(len(paths), 'domain')} of {required}"
    return ""
