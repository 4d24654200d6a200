"""VolumeZone: a bound volume's zone and region labels must be the node's (specification 21.5).

A node with none of the four labels passes. A volume's old beta label is also satisfied by the
node's label of the present name. Several zones of one volume are joined by two underscores.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from reprieve.engine.cluster.arrays import Mask
from reprieve.engine.cluster.rows import Kind
from reprieve.engine.cluster.snapshot import Pending
from reprieve.engine.cluster.storage import ClaimRow, VolumeRow, claim_name
from reprieve.engine.placement.filtering import Filter, View
from reprieve.engine.placement.filters.selection import selection_of, spread_over
from reprieve.engine.placement.filters.static import StaticFilter
from reprieve.engine.placement.profile import FilterName
from reprieve.engine.placement.reasons import Rejection

__all__ = ["compile_volume_zone"]

_PRESENT: Final = {  # label of a volume: the label of nodes that stands for it today
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region": "topology.kubernetes.io/region",
}


def compile_volume_zone(view: View, pending: Pending) -> Filter | None:
    """Return the filter of a pod whose bound volumes have zone or region labels."""
    entry = view.snapshot.classes[pending.pod_class]
    assert entry is not None
    claims = view.snapshot.tables.get(Kind.CLAIM, {})
    volumes = view.snapshot.tables.get(Kind.VOLUME, {})
    wanted = set()
    for use in entry.volumes:
        name = claim_name(use, pending.row.name)
        claim: ClaimRow | None = claims.get((pending.row.namespace, name))
        volume: VolumeRow | None = None if claim is None else volumes.get(("", claim.volume))
        if volume is not None:
            wanted |= {(key, value) for key, value in volume.labels if key in _PRESENT}
    if not wanted:
        return None
    refused = np.zeros(len(view.snapshot.nodes), np.bool_)
    for key, value in sorted(wanted):
        refused |= ~_nodes_in(view, key, frozenset(value.split("__")))
    refused &= _labelled(view)
    if not refused.any():
        return None
    codes = np.where(refused, np.uint8(Rejection.VOLUME_ZONE), np.uint8(0))
    return StaticFilter(FilterName.VOLUME_ZONE, codes)


def _nodes_in(view: View, key: str, zones: frozenset[str]) -> Mask:
    selection = selection_of(view)
    own = selection.domains(key)
    found = spread_over(own, lambda value: value in zones)
    present = _PRESENT[key]
    if present != key:
        today = spread_over(selection.domains(present), lambda value: value in zones)
        found |= (own.numbers < 0) & today
    return found


def _labelled(view: View) -> Mask:
    selection = selection_of(view)
    found = np.zeros(len(view.snapshot.nodes), np.bool_)
    for key in _PRESENT:
        found |= selection.domains(key).numbers >= 0
    return found
