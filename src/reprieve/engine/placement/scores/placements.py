"""Scores of a group's placements: which of the feasible topology domains (specification 17.5).

Two scores, of weight 1 each by default: how many members run there, and how full the domain is
afterwards (MostAllocated over the resources of the profile's scoring strategy, on totals). Equal
totals: smallest name of the domain. Installed packages may bring more (`PlacementScorer`), which a
profile names with a weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import index

import numpy as np

from reprieve.engine.placement.filtering import FeasiblePlacement, View
from reprieve.engine.placement.profile import PlacementScoreName
from reprieve.engine.placement.scores.resources import (
    most_allocated,
    resource_columns,
    scored_requests,
)
from reprieve.units.counts import counted

__all__ = ["BadScores", "FeasiblePlacement", "best_placement", "placement_scores"]


class BadScores(Exception):
    """A scorer of others did not answer with a whole number from 0 to 100 for each placement."""


def best_placement(view: View, placements: Sequence[FeasiblePlacement]) -> FeasiblePlacement:
    """Return the placement with the highest score; `view` is without the proposed members."""
    scores = placement_scores(view, placements)
    return min(zip(scores, placements, strict=True), key=lambda each: (-each[0], each[1].domain))[1]


def placement_scores(view: View, placements: Sequence[FeasiblePlacement]) -> list[int]:
    """Return the weighted total of each placement; `view` is without the proposed members.

    Raises:
        BadScores: a scorer of others returned something else than scores.
    """
    weights = dict(view.profile.placement_weights)
    count = weights.get(PlacementScoreName.POD_GROUP_PODS_COUNT, 0)
    fit = weights.get(PlacementScoreName.NODE_RESOURCES_FIT, 0)
    most = max((placement.members for placement in placements), default=0)
    totals = [
        count * (placement.members * 100 // max(most, 1)) + fit * _fullness(view, placement)
        for placement in placements
    ]
    for name, weight in view.profile.placement_scorers:
        if name in view.scorers and totals:
            found = _scored_by_others(view, name, placements)
            totals = [total + weight * more for total, more in zip(totals, found, strict=True)]
    return totals


def _scored_by_others(
    view: View, name: str, placements: Sequence[FeasiblePlacement]
) -> tuple[int, ...]:
    found = tuple(view.scorers[name](view, placements))
    try:
        scores = tuple(index(score) for score in found)
    except TypeError:
        scores = ()
    if len(scores) != len(placements) or not all(0 <= score <= 100 for score in scores):
        raise BadScores(
            f"placement scorer {name} returned {found!r} for "
            f"{counted(len(placements), 'placement')}; accepted: a whole number from 0 to 100 "
            "for each"
        )
    return scores


def _fullness(view: View, placement: FeasiblePlacement) -> int:
    requests: dict[str, int] = {}
    for number in placement.proposed:
        entry = view.snapshot.classes[number]
        assert entry is not None
        for name, amount in scored_requests(entry).items():
            requests[name] = requests.get(name, 0) + amount
    columns = resource_columns(view, requests, view.profile.strategy.resources, scored=True)
    return most_allocated(
        (
            int(np.sum(column.allocatable[placement.nodes])),
            int(np.sum(column.used[placement.nodes])) + column.own,
            column.weight,
        )
        for column in columns
    )
