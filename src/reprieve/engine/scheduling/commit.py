"""Whether a decision still holds when the cluster has changed since its snapshot.

The same pods have to wait, the same victims to be there, and every member to pass its filters on
its node, with the victims gone and the nominations of others respected. Source: the design's "How
data flows", step `commit`.
"""

from __future__ import annotations

import numpy as np

from reprieve.engine.cluster.snapshot import Pending, Snapshot
from reprieve.engine.placement.profile import Policy
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.scheduling.nominations import kept_for_others
from reprieve.engine.scheduling.outcome import Attempt

__all__ = ["still_holds"]


def still_holds(snapshot: Snapshot, policy: Policy, attempt: Attempt) -> bool:
    """Return whether the attempt's bindings, or its plan, may be carried out on this state.

    Devices and volumes may have been taken by others: such an attempt is always decided again.
    """
    if any(member.volumes or member.claims for member in attempt.members):
        return False
    placed = _placement(snapshot, attempt)
    if placed is None:
        return False
    if not placed:
        return attempt.plan is None
    entry = snapshot.classes[placed[0][0].pod_class]
    assert entry is not None, "a pod's class is never free"
    profile = policy.profile(entry.scheduler_name)
    if profile is None:
        return False
    simulation = Simulation(snapshot, policy, profile)
    if attempt.plan is not None:
        wanted = {victim.root.uid for victim in attempt.plan.victims}
        slots = [slot for slot, uid in enumerate(snapshot.pod_uids) if uid in wanted]
        if len(slots) < len(wanted) or (snapshot.pod_node[slots] < 0).any():
            return False
        simulation.remove(np.array(slots, np.int64))
    _respect(simulation, attempt, placed)
    for pending, node in placed:
        if simulation.code_at(pending, node):
            return False
        simulation.place(pending, node)
    return True


def _placement(snapshot: Snapshot, attempt: Attempt) -> list[tuple[Pending, int]] | None:
    """Return the pods with their nodes, None when one of either is missing."""
    if attempt.plan is not None:
        names = attempt.plan.placement
    else:
        names = tuple((member.uid, member.bind) for member in attempt.members if member.bind)
    found = []
    for uid, name in names:
        pending, node = snapshot.pending.get(uid), snapshot.node_index.get(name)
        if pending is None or pending.row.deleting or node is None:
            return None
        found.append((pending, node))
    return found


def _respect(simulation: Simulation, attempt: Attempt, placed: list[tuple[Pending, int]]) -> None:
    snapshot, key = simulation.snapshot, attempt.unit.group
    index = snapshot.group_index.get(key, -1) if key else -1
    row = snapshot.group_rows[index] if index >= 0 else None
    priority = placed[0][0].row.priority if row is None else row.priority
    own = frozenset(attempt.unit.pods)
    simulation.respect(kept_for_others(snapshot, snapshot.nominations, own, key, priority))
