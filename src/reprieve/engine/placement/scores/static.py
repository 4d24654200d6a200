"""Scores that no pod changes: TaintToleration, NodeAffinity, ImageLocality (specification 17.2)."""

from __future__ import annotations

from typing import Final

import numpy as np

from reprieve.engine.cluster.images import tagged
from reprieve.engine.cluster.snapshot import Pending
from reprieve.engine.placement.filtering import Score, View
from reprieve.engine.placement.filters.selection import selection_of
from reprieve.engine.placement.filters.taints import taints_of
from reprieve.engine.placement.profile import ScoreName
from reprieve.engine.placement.scores.kinds import (
    StaticScore,
    as_is,
    by_largest,
    by_largest_reversed,
)
from reprieve.engine.selectors import covers

__all__ = ["compile_image_locality", "compile_node_affinity", "compile_taint_toleration"]

_PREFER: Final = "PreferNoSchedule"
_MIB: Final = 2**20
_LEAST: Final = 23 * _MIB  # image bytes that count for nothing
_MOST: Final = 1000 * _MIB  # image bytes that count in full, per container


def compile_taint_toleration(view: View, pending: Pending) -> Score | None:
    """Return the score of PreferNoSchedule taints; None where no node has one that counts."""
    entry = view.snapshot.classes[pending.pod_class]
    assert entry is not None
    raw = taints_of(view).count(
        lambda taint: (
            taint.effect == _PREFER and not any(covers(each, taint) for each in entry.tolerations)
        )
    )
    if not raw.any():
        return None
    return StaticScore(ScoreName.TAINT_TOLERATION, raw, by_largest_reversed)


def compile_node_affinity(view: View, pending: Pending) -> Score | None:
    """Return the score of preferred node affinity, the profile's included; None without terms."""
    entry = view.snapshot.classes[pending.pod_class]
    assert entry is not None
    terms = (*entry.preferred_node_affinity, *view.profile.added_preferred_affinity)
    if not terms:
        return None
    selection = selection_of(view)
    raw = np.zeros(len(view.snapshot.nodes), np.int64)
    for each in terms:
        raw += each.weight * selection.nodes_of_term(each.term)
    return StaticScore(ScoreName.NODE_AFFINITY, raw, by_largest)


def compile_image_locality(view: View, pending: Pending) -> Score | None:
    """Return the score of images that nodes already have; None where no node has one of them."""
    entry = view.snapshot.classes[pending.pod_class]
    assert entry is not None
    if not entry.images:
        return None
    having = view.snapshot.node_facts.images.having
    wanted = [having[name] for name in map(tagged, entry.images) if name in having]
    if not wanted:
        return None
    count = len(view.snapshot.nodes)
    total = np.zeros(count, np.int64)
    for each in wanted:
        total[each.nodes] += (each.sizes * (len(each.nodes) / count)).astype(np.int64)
    most = len(entry.images) * _MOST
    raw = 100 * (np.clip(total, _LEAST, most) - _LEAST) // (most - _LEAST)
    return StaticScore(ScoreName.IMAGE_LOCALITY, raw, as_is)
