"""One scheduling cycle of a plain pod: place it, else search a node whose victims free enough.

Source: specification 8 and 17.1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from reprieve.engine.cluster.snapshot import Pending
from reprieve.engine.placement.profile import Policy
from reprieve.engine.placement.reasons import Code
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.scheduling.nodes.placing import Choose, place_members
from reprieve.engine.scheduling.outcome import Attempt, Member, Nominate, Preemption, Unit
from reprieve.engine.scheduling.pod_preemption import preempt_for_pod

__all__ = ["PodPostFilter", "schedule_pod"]

PodPostFilter: TypeAlias = Callable[[Simulation, Pending, Policy], Preemption]


def schedule_pod(
    simulation: Simulation,
    unit: Unit,
    pending: Pending,
    policy: Policy,
    choose: Choose,
    preempt: PodPostFilter = preempt_for_pod,
) -> Attempt:
    """Return the end of the pod's cycle; a placed pod stays in the simulation."""
    placing, _ = place_members(simulation, [pending], 0, 1, choose)
    uid, node, diagnosis = pending.row.uid, placing.nodes[0], placing.diagnoses[0]
    if node >= 0:
        return Attempt(unit, Code.SUCCESS, (Member(uid, simulation.snapshot.nodes[node].name),))
    if placing.error:
        member = Member(uid, nominate=Nominate.CLEAR, diagnosis=diagnosis)
        return Attempt(unit, Code.ERROR, (member,), scheduler_error=True)
    if not simulation.snapshot.nodes:
        # There is no node whose filters could have failed: PostFilter has nothing to look at.
        member = Member(uid, nominate=Nominate.CLEAR, diagnosis=diagnosis)
        return Attempt(unit, Code.UNSCHEDULABLE, (member,))
    if "DefaultPreemption" not in simulation.profile.post_filters:
        return Attempt(unit, Code.UNSCHEDULABLE, (Member(uid, diagnosis=diagnosis),))
    found = preempt(simulation, pending, policy)
    nominate: str | Nominate = Nominate.CLEAR
    if found.code is Code.SUCCESS:
        nominate = found.nominated[0][1]
    elif found.keep_nominations:
        nominate = Nominate.KEEP
    member = Member(uid, nominate=nominate, diagnosis=diagnosis)
    return Attempt(unit, Code.UNSCHEDULABLE, (member,), preemption=found)
