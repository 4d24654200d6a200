"""Which filter keeps each victim from returning: shown by `-v 6` and `reprieve explain`.

For a group this is part of the decision. The decision for a single pod works on all nodes at once
and does not keep it, so that it is worked out here: all victims off, each alone reprieved, and the
first filter that refuses the pod its node. Source: specification 7.7 and 8.4.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.placement.profile import FilterName, Policy
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.scheduling.outcome import Attempt, Preemption

__all__ = ["refusals"]

_ALL: Final = frozenset(FilterName)


def refusals(snapshot: Snapshot, policy: Policy, attempt: Attempt) -> dict[int, str]:
    """Return the filter by slot of the first pod of each victim unit.

    A unit is missing where no filter refuses it alone, as one that only the pods nominated to the
    node keep out.
    """
    found = attempt.preemption
    if found is None or not found.victims:
        return {}
    if attempt.unit.group:
        # The decision names a unit by any of its pods.
        named = dict(found.refused)
        return {
            unit.pods[0]: named[slot]
            for unit in found.victims
            for slot in unit.pods
            if slot in named
        }
    return _of_pod(snapshot, policy, attempt, found)


def _of_pod(
    snapshot: Snapshot, policy: Policy, attempt: Attempt, found: Preemption
) -> dict[int, str]:
    (uid, name), *_ = found.nominated
    pending, node = snapshot.pending[uid], snapshot.node_index[name]
    entry = snapshot.classes[pending.pod_class]
    assert entry is not None, "a pod's class is never free"
    profile = policy.profile(entry.scheduler_name)
    assert profile is not None, "it was decided with its profile"
    simulation = Simulation(snapshot, policy, profile)
    units = [(unit.pods[0], np.array(unit.pods, np.int64)) for unit in found.victims]
    simulation.remove(np.concatenate([slots for _, slots in units]))
    refused = {}
    for first, slots in units:
        simulation.restore(slots)
        name_of_filter = simulation.refusing(pending, node, _ALL)
        simulation.remove(slots)
        if name_of_filter is not None:
            refused[first] = str(name_of_filter)
    return refused
