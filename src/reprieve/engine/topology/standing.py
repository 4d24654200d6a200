"""Whether a workload gets places, as candidates of a search for victims leave and return.

Source: specification of topology-aware scheduling, section 6.1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from reprieve.engine.topology.model import PodsWanted
from reprieve.engine.topology.places import Placed, Places

__all__ = ["PlaceSearch"]


class PlaceSearch:
    """The places of one search; `asked` are the pod sets that request places, by flavor."""

    def __init__(self, places: Places, asked: Mapping[str, Sequence[PodsWanted]]) -> None:
        self._places = places
        self._asked = asked

    def begin(self) -> PlaceSearch:
        """Return it with places of its own, as they are before any victim leaves."""
        return PlaceSearch(self._places.copy(), self._asked)

    def remove(self, placed: Sequence[Placed]) -> None:
        """Remove a candidate's usage."""
        self._places.change(placed, -1)

    def give_back(self, placed: Sequence[Placed]) -> None:
        """Undo `remove`."""
        self._places.change(placed, 1)

    def fits(self) -> bool:
        """Return whether all pods get places now."""
        outcomes = self._places.assign(self._asked).values()
        return all(each.assignment is not None for each in outcomes)
