"""The quota of a simulated cluster: one flavor, and a ClusterQueue for each tenant in one cohort.

The devices are shared out evenly, what is left over one each to the first tenants; whatever one
does not use the others may borrow. A job is a gang that gets all of its devices or none: pods that
fill a node each, and one for the rest. Where nodes have domains the flavor has a topology, so that
quota is given with a place for each pod.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Final

from kubeworld.units.instants import Nanos
from reprieve.engine.disruptions.lineage import Lineage, Participant
from reprieve.engine.quota.model import (
    Admission,
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
from reprieve.engine.topology.model import HOSTNAME, Topology, TopologyNode, TopologyRequest
from reprieve.engine.topology.places import Grounds
from reprieve.simulation.domains import NO_DOMAINS, Domains, node_names
from reprieve.simulation.policy import PolicySpec
from reprieve.simulation.trace import Job

__all__ = ["DEVICE", "FLAVOR", "configuration", "grounds", "key_of", "nodes_of", "workload"]

DEVICE: Final = "nvidia.com/gpu"
FLAVOR: Final = "devices"
_COHORT: Final = "cluster"
_TOPOLOGY: Final = "domains"
_MOST_PODS: Final = 1_000_000  # no limit: devices are what is short


def configuration(
    policy: PolicySpec, tenants: Sequence[str], capacity: int, domains: Domains = NO_DOMAINS
) -> Configuration:
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
        {FLAVOR: ResourceFlavor(FLAVOR, topology=_TOPOLOGY if domains else "")},
        {f"{name}/jobs": LocalQueue(f"{name}/jobs", name) for name in tenants},
        {name: {} for name in tenants},
        policy.settings,
        {_TOPOLOGY: Topology(_TOPOLOGY, domains.labels)} if domains else {},
    )


def grounds(count: int, devices: int, domains: Domains) -> Grounds:
    """Return the nodes on which quota is given with places."""
    offers = {DEVICE: devices, "pods": _MOST_PODS}
    names = enumerate(node_names(count))
    return Grounds(
        [TopologyNode(name, {HOSTNAME: name, **domains.of_node(n)}, offers) for n, name in names]
    )


def nodes_of(admission: Admission | None) -> tuple[str, ...]:
    """Return the node of each pod that has a place by an admission."""
    return tuple(
        domain.values[-1]
        for each in (admission.pod_sets if admission is not None else ())
        if each.topology is not None
        for domain in each.topology.domains
        for _ in range(domain.count)
    )


def key_of(job: Job) -> str:
    """Return the key of the job's workload."""
    return f"{job.tenant}/{job.id}"


def workload(
    job: Job, number: int, policy: PolicySpec, node_devices: int, now: int = 0, places: bool = False
) -> Workload:
    """Return a job as it is queued now; `number` is its place in the order of arrivals.

    `places`: quota is given with places, in the domain that it requests.
    """
    asked = (job.required, job.preferred) if places else ("", "")
    return Workload(
        namespace=job.tenant,
        name=job.id,
        uid=f"{number:012}",
        queue=f"{job.tenant}/jobs",
        priority=job.priority or 0,
        created=Nanos(job.arrival),
        pod_sets=_pods(job.devices, node_devices, *asked),
        preempt_min_runtime_s=policy.preempt_min_runtime_s,
        reclaim_min_runtime_s=policy.reclaim_min_runtime_s,
        preempts_from=Nanos(now + policy.delay if policy.delay else 0),
        # A lineage of its own, stated so that foreign jobs are distinguished at once.
        participant=Participant(Lineage(f"object/{number:012}"), job.tenant),
    )


@cache
def _pods(devices: int, of_a_node: int, required: str, preferred: str) -> tuple[PodSet, ...]:
    whole, rest = divmod(devices, of_a_node)
    asks = bool(required or preferred)
    request = TopologyRequest(required, preferred) if asks else None
    # Both pod sets in one domain.
    group = "job" if asks and whole and rest else ""
    found = []
    if whole:
        found.append(PodSet("whole", whole, {DEVICE: of_a_node}, group=group, topology=request))
    if rest:
        found.append(PodSet("rest", 1, {DEVICE: rest}, group=group, topology=request))
    return tuple(found)
