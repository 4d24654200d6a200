"""Whether a decision still holds when the cluster has changed since its snapshot.

The same pods have to wait, the same victims to be there, and every member to pass its filters on
its node, with the victims removed and the nominations of others respected: what `proof` checks, on
the present state. That a victim could stay since another pod has left is no reason to decide again.
Source: the design's "How data flows", step `commit`.
"""

from __future__ import annotations

from collections.abc import Collection

from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.placement.profile import Policy
from reprieve.engine.scheduling.outcome import Attempt
from reprieve.engine.scheduling.proofs.proof import feasibility_faults_of
from reprieve.units.ids import Uid

__all__ = ["still_holds"]


def still_holds(
    snapshot: Snapshot,
    policy: Policy,
    attempt: Attempt,
    now: int = 0,
    overdue: Collection[Uid] = (),
) -> bool:
    """Return whether the attempt's bindings, or its plan, may be carried out on this state.

    `now`: Unix seconds, for a policy that is `timed`. `overdue`: victims that should have ended.
    Other pods may use the devices and volumes by now: such an attempt is always decided again.
    """
    if any(member.volumes or member.claims for member in attempt.members):
        return False
    return not feasibility_faults_of(snapshot, policy, attempt, now, overdue)
