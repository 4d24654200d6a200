"""Groups of which some pods may be evicted and some not alone (`nonUniformGroups`).

`reprieve.dev/disruption-floor: N` on a PodGroup: its pods are evicted one by one as long as at
least N stay; fewer are of no use, so the rest is evicted with them as one unit.
`reprieve.dev/disruption: with-group` on a pod, such as the leader of an inference group: it is
evicted only with all others. No pod becomes immune: the whole group can always be evicted. A group
of disruption mode `all` is evicted as a whole anyway.

Victims are chosen pod by pod first. Where that tears a group, they are chosen again with that group
as one unit, until none is torn; each round makes another group a unit, so that there is an end.
Source: KEP-5710, "Future extensions".
"""

from __future__ import annotations

from typing import Final

import numpy as np

from reprieve.engine.cluster.arrays import I64
from reprieve.engine.cluster.snapshot import Flag, Snapshot
from reprieve.engine.placement.profile import Policy
from reprieve.engine.scheduling.victims.hierarchy import whole_groups

__all__ = ["NONE_WHOLE", "torn_groups"]

NONE_WHOLE: Final[frozenset[int]] = frozenset()


def torn_groups(snapshot: Snapshot, policy: Policy, victims: I64) -> frozenset[int]:
    """Return the groups that these slots are not evicted from, unless all of the group are.

    Pods that are terminating already do not stay.
    """
    if not policy.non_uniform_groups or not policy.gates.generic_workload or not len(victims):
        return NONE_WHOLE
    groups = snapshot.pod_group
    with_group = (snapshot.pod_flags & Flag.WITH_GROUP) > 0
    leads = set(groups[victims[with_group[victims]]].tolist())
    whole = whole_groups(snapshot, policy)
    found = set()
    staying = (snapshot.pod_node >= 0) & ((snapshot.pod_flags & Flag.DELETING) == 0)
    staying[victims] = False
    for group in set(groups[victims].tolist()) - {-1}:
        row = snapshot.group_rows[group]
        if row is None or whole[group] >= 0 or (row.floor <= 0 and group not in leads):
            continue
        left = int(np.count_nonzero(staying & (groups == group)))
        if left and (left < row.floor or group in leads):
            found.add(group)
    return frozenset(found)
