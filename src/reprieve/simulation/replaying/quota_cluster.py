"""The quota of a simulated cluster: one flavor, and a ClusterQueue for each tenant in one cohort.

The devices are shared out evenly, what is left over one each to the first tenants; whatever one
does not use the others may borrow. A job is a gang that gets all of its devices or none: pods that
fill a node each, and one for the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Final

from kubeworld.units.instants import Nanos
from reprieve.engine.disruptions.lineage import Lineage, Party
from reprieve.engine.quota.model import (
    ClusterQueue,
    Cohort,
    Configuration,
    FlavorQuotas,
    LocalQueue,
    PodSet,
    Quota,
    ResourceFlavor,
    ResourceGroup,
    Workload,
)
from reprieve.simulation.policy import PolicySpec
from reprieve.simulation.trace import Job

__all__ = ["DEVICE", "FLAVOR", "configuration", "key_of", "workload"]

DEVICE: Final = "nvidia.com/gpu"
FLAVOR: Final = "devices"
_COHORT: Final = "cluster"


def configuration(policy: PolicySpec, tenants: Sequence[str], capacity: int) -> Configuration:
    """Return the queues of these tenants, in the order of their names' list."""
    even, left = divmod(capacity, len(tenants))
    queues = {}
    for place, name in enumerate(tenants):
        quota = FlavorQuotas(FLAVOR, {DEVICE: Quota(even + (place < left))})
        queues[name] = ClusterQueue(
            name,
            _COHORT,
            (ResourceGroup((DEVICE,), (quota,)),),
            policy.preemption,
            strategy=policy.strategy,
        )
    return Configuration(
        queues,
        {_COHORT: Cohort(_COHORT)},
        {FLAVOR: ResourceFlavor(FLAVOR)},
        {f"{name}/jobs": LocalQueue(f"{name}/jobs", name) for name in tenants},
        {name: {} for name in tenants},
        policy.settings,
    )


def key_of(job: Job) -> str:
    """Return the key of the job's workload."""
    return f"{job.tenant}/{job.id}"


def workload(
    job: Job, number: int, policy: PolicySpec, node_devices: int, now: int = 0
) -> Workload:
    """Return a job as it is queued now; `number` is its place in the order of arrivals."""
    return Workload(
        namespace=job.tenant,
        name=job.id,
        uid=f"{number:012}",
        queue=f"{job.tenant}/jobs",
        priority=job.priority or 0,
        created=Nanos(job.arrival),
        pod_sets=_pods(job.devices, node_devices),
        preempt_min_runtime_s=policy.preempt_min_runtime_s,
        reclaim_min_runtime_s=policy.reclaim_min_runtime_s,
        preempts_from=Nanos(now + policy.delay if policy.delay else 0),
        # A line of work of its own, said so that strangers are told apart at once.
        party=Party(Lineage(f"object/{number:012}"), job.tenant),
    )


@cache
def _pods(devices: int, of_a_node: int) -> tuple[PodSet, ...]:
    whole, rest = divmod(devices, of_a_node)
    found = []
    if whole:
        found.append(PodSet("whole", whole, {DEVICE: of_a_node}))
    if rest:
        found.append(PodSet("rest", 1, {DEVICE: rest}))
    return tuple(found)
