"""Which deciders a policy's planes need: the one that a replay calls, and what is inside of it.

| planes | decider |
|---|---|
| quota | `deciding.EngineDecider`, or `own_decider.OwnDecider` for a policy of one's own |
| scheduling | `scheduling_decider.SchedulingDecider` |
| quota and scheduling | `joint_decider.JointDecider`, which has the two above |
| idle beside any of them | `idle_decider.IdleDecider`, which has one of the two above |

Where nodes have domains the quota plane alone gives quota with places; with the scheduling plane it
is that one which places, and a required level is its gangs' topology constraint.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kubeworld.units.instants import Nanos
from reprieve.simulation.domains import NO_DOMAINS, Domains
from reprieve.simulation.policy import IDLE, QUOTA, SCHEDULING, PolicySpec
from reprieve.simulation.replaying.deciding import Decider, EngineDecider
from reprieve.simulation.replaying.idle_decider import IdleDecider
from reprieve.simulation.replaying.joint_decider import JointDecider
from reprieve.simulation.replaying.own_decider import OwnDecider, Standing
from reprieve.simulation.replaying.scheduling_decider import SchedulingDecider
from reprieve.simulation.replaying.work import Saved

__all__ = ["Deciders", "deciders_of"]


@dataclass(frozen=True, slots=True)
class Deciders:
    """The decider; `placing`, `joint` and `idle` are those inside of it, None where they are not.

    `placing` has those that are on nodes or wait for them, `joint` those with quota beside that.
    """

    asked: Decider
    placing: SchedulingDecider | None = None
    joint: JointDecider | None = None
    idle: IdleDecider | None = None


def deciders_of(
    policy: PolicySpec,
    tenants: Sequence[str],
    nodes: tuple[int, int],
    saved: Callable[[str, Nanos], Saved],
    standing: Callable[[str, int], Standing],
    idle_utilization: float,
    domains: Domains = NO_DOMAINS,
) -> Deciders:
    """Return the deciders of a policy.

    Args:
        policy: whose planes they are.
        tenants: who has quota.
        nodes: how many there are, and the devices of each.
        saved: what a job that runs has saved by then.
        standing: what a policy of one's own sees of a job.
        idle_utilization: what the devices of an idle job show, in percent.
        domains: those of the nodes.
    """
    if IDLE in policy.planes:
        idle = IdleDecider(policy, tenants, nodes, saved, idle_utilization, domains)
        return Deciders(idle, idle.placing, idle.joint, idle)
    if {QUOTA, SCHEDULING} <= set(policy.planes):
        joint = JointDecider(policy, tenants, nodes, saved, domains)
        return Deciders(joint, joint.placing, joint)
    if SCHEDULING in policy.planes:
        placing = SchedulingDecider(policy, nodes, saved, domains=domains)
        return Deciders(placing, placing)
    if policy.own is not None:
        return Deciders(OwnDecider(policy, tenants, nodes, standing))
    return Deciders(EngineDecider(policy, tenants, nodes, saved, domains=domains))
