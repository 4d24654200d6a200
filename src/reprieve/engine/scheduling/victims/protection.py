"""How hard work is to preempt, where that is more than its priority (`preemptionPriority`).

The annotation `reprieve.dev/preemption-priority-class` on a PodGroup, or on a pod in no group,
names a PriorityClass whose value counts for it as a victim; as a preemptor it keeps its own
priority. The value counts up to the limit of its namespace and never lowers anything, so that no
two units can preempt each other in turn: each would have to be above the other's. A class that is
not there states nothing. Source: KEP-5710, "Future extensions".
"""

from __future__ import annotations

import numpy as np

from reprieve.engine.cluster.arrays import I64
from reprieve.engine.cluster.rows import Kind
from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.placement.profile import Policy

__all__ = ["protected"]


def protected(snapshot: Snapshot, policy: Policy, priority: I64) -> I64:
    """Return the priority of each pod as a victim, given its own or its group's: (slots,)."""
    protection = policy.protection
    if protection is None:
        return priority
    classes = snapshot.tables.get(Kind.PRIORITY_CLASS, {})
    lowest = int(np.iinfo(np.int64).min)

    def value(name: str, namespace: str) -> int:
        entry = classes.get(("", name))
        return lowest if entry is None else min(entry.value, protection.limit(namespace))

    of_groups = [
        lowest if row is None or not row.protection else value(row.protection, row.namespace)
        for row in snapshot.group_rows
    ]
    # Group -1 reads the last entry, that of no group.
    groups = snapshot.pod_group if policy.gates.generic_workload else np.int64(-1)
    found = np.maximum(priority, np.array([*of_groups, lowest], np.int64)[groups])
    for slot, name in snapshot.protections.items():
        if snapshot.pod_group[slot] < 0 or not policy.gates.generic_workload:
            namespace = snapshot.pod_keys[slot].partition("/")[0]
            found[slot] = max(int(found[slot]), value(name, namespace))
    return found
