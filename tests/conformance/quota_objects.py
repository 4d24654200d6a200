"""API objects of the quota plane's vectors, as plain JSON, into the engine's values."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from typing import Any

from kubeworld.units.instants import Nanos, parse_instant
from kubeworld.units.quantities import parse_milli, parse_quantity
from reprieve.api.kueue_topology import PROVISIONING
from reprieve.engine.quota.holdings.amounts import UNLIMITED
from reprieve.engine.quota.holdings.shares import fair_weight
from reprieve.engine.quota.model import (
    Admission,
    AdmittedPodSet,
    BorrowWithinCohort,
    Check,
    ClusterQueue,
    Cohort,
    Configuration,
    Eviction,
    FlavorFungibility,
    FlavorQuotas,
    Fungibility,
    Gates,
    LabelSelector,
    LocalQueue,
    NodeExpression,
    PodSet,
    Policy,
    Preemption,
    Preference,
    QueueingStrategy,
    Quota,
    ResourceFlavor,
    ResourceGroup,
    Settings,
    StopPolicy,
    Strategy,
    Taint,
    Toleration,
    Workload,
)
from reprieve.engine.topology.encoding import decoded
from reprieve.engine.topology.model import (
    Layer,
    PreferredTerm,
    Topology,
    TopologyGates,
    TopologyRequest,
)

Json = dict[str, Any]
# The zero time of an absent creationTimestamp is older than anything.
ZERO = Nanos(-62_135_596_800_000_000_000)
GATES = {
    "PrioritySortingWithinCohort": "priority_sorting_within_cohort",
    "FlavorFungibility": "flavor_fungibility",
    "FlavorFungibilityPreserveScanProgress": "flavor_fungibility_preserve_scan_progress",
    "FairSharingPreemptWithinNominal": "fair_sharing_preempt_within_nominal",
    "FairSharingPrioritizeNonBorrowing": "fair_sharing_prioritize_non_borrowing",
    "RecomputeAssignmentUponPreemptionTargetsOverlap": (
        "recompute_assignment_upon_preemption_targets_overlap"
    ),
    "PartialAdmission": "partial_admission",
    "ReclaimablePods": "reclaimable_pods",
    "SchedulingEquivalenceHashing": "scheduling_equivalence_hashing",
    "AdmissionFairSharing": "admission_fair_sharing",
    "PriorityBoost": "priority_boost",
    "PrioritizePreemptorWorkloads": "prioritize_preemptor_workloads",
    "ConcurrentAdmission": "concurrent_admission",
    "MultiKueueOrchestratedPreemption": "multi_kueue_orchestrated_preemption",
    "TopologyAwareScheduling": "topology_aware_scheduling",
    "TASRecomputeAssignmentWithinSchedulingCycle": (
        "tas_recompute_assignment_within_scheduling_cycle"
    ),
    "TASFailedNodeReplacementFailFast": "tas_failed_node_replacement_fail_fast",
    "UnadmittedWorkloadsObservability": "unadmitted_workloads_observability",
}


def amount(resource: str, text: str | int) -> int:
    value = parse_milli(text) if resource == "cpu" else parse_quantity(text)
    return min(UNLIMITED, value)


def settings(case: Json) -> Settings:
    config = case.get("config") or {}
    fair = config.get("fairSharing")
    strategies = None
    if fair is not None:
        strategies = tuple(Strategy(s) for s in fair.get("preemptionStrategies") or ())
    if case.get("fairSharingEnabled"):
        strategies = ()
    given = case.get("featureGates") or {}
    gates = {GATES[k]: v for k, v in given.items() if k in GATES}
    return Settings(
        fair_sharing=strategies,
        gates=Gates(**gates, topology=topology_gates(given)),
        eviction_timestamp=config.get("podsReadyRequeuingTimestamp", "Eviction") == "Eviction",
        admission_fair_sharing=bool(case.get("admissionFairSharing")),
    )


def configuration(case: Json) -> Configuration:
    provisioning = {
        each["metadata"]["name"]
        for each in case.get("admissionChecks") or ()
        if each["spec"]["controllerName"] == PROVISIONING
    }
    return Configuration(
        cluster_queues={
            q["metadata"]["name"]: cluster_queue(q, provisioning) for q in case["clusterQueues"]
        },
        cohorts={c["metadata"]["name"]: cohort(c) for c in case.get("cohorts") or ()},
        flavors=flavors(case),
        local_queues={
            q.key: q for q in (local_queue(each) for each in case.get("localQueues") or ())
        },
        namespaces={
            n["metadata"]["name"]: n["metadata"].get("labels") or {}
            for n in case.get("namespaces") or ()
        },
        topologies={
            each["metadata"]["name"]: topology(each) for each in case.get("topologies") or ()
        },
        settings=settings(case),
    )


def flavors(case: Json) -> dict[str, ResourceFlavor]:
    """The case's flavors; a case that says nothing about them has all that are named."""
    if "resourceFlavors" in case:
        return {each["metadata"]["name"]: flavor(each) for each in case["resourceFlavors"] or ()}
    return {
        found.flavor: ResourceFlavor(found.flavor)
        for queue in case["clusterQueues"]
        for group in groups(queue["spec"])
        for found in group.flavors
    }


def cluster_queue(each: Json, provisioning: Collection[str] = ()) -> ClusterQueue:
    spec = each["spec"]
    rules = spec.get("preemption") or {}
    within = rules.get("borrowWithinCohort")
    fungibility = spec.get("flavorFungibility") or {}
    preference = fungibility.get("preference")
    # Older spellings mean the same.
    old = {"Borrow": "MayStopSearch", "Preempt": "MayStopSearch"}
    borrow = fungibility.get("whenCanBorrow") or "MayStopSearch"
    preempt = fungibility.get("whenCanPreempt") or "TryNextFlavor"
    strategy = spec.get("admissionChecksStrategy") or {}
    checks = strategy.get("admissionChecks") or ()
    return ClusterQueue(
        name=each["metadata"]["name"],
        cohort=spec.get("cohortName") or "",
        groups=groups(spec),
        preemption=Preemption(
            Policy(rules.get("withinClusterQueue", "Never")),
            Policy(rules.get("reclaimWithinCohort", "" if rules else "Never")),
            within
            and BorrowWithinCohort(
                Policy(within.get("policy", "Never")), within.get("maxPriorityThreshold")
            ),
        ),
        fungibility=FlavorFungibility(
            Fungibility(old.get(borrow, borrow)),
            Fungibility(old.get(preempt, preempt)),
            Preference(preference) if preference else None,
        ),
        strategy=QueueingStrategy(spec.get("queueingStrategy") or "BestEffortFIFO"),
        selector=label_selector(spec.get("namespaceSelector")),
        stop_policy=StopPolicy(spec.get("stopPolicy") or "None"),
        weight=weight(spec),
        checks=tuple(check["name"] for check in checks),
        checks_on_flavors={c["name"]: tuple(c.get("onFlavors") or ()) for c in checks},
        provisioning=tuple(check["name"] for check in checks if check["name"] in provisioning),
    )


def cohort(each: Json) -> Cohort:
    spec = each.get("spec") or {}
    return Cohort(
        each["metadata"]["name"], spec.get("parentName") or "", groups(spec), weight(spec)
    )


def weight(spec: Json) -> float:
    given = (spec.get("fairSharing") or {}).get("weight")
    return 1.0 if given is None else fair_weight(str(given))


def groups(spec: Json) -> tuple[ResourceGroup, ...]:
    return tuple(
        ResourceGroup(
            tuple(group.get("coveredResources") or ()),
            tuple(
                FlavorQuotas(
                    each["name"], {r["name"]: quota(r) for r in each.get("resources") or ()}
                )
                for each in group.get("flavors") or ()
            ),
        )
        for group in spec.get("resourceGroups") or ()
    )


def quota(given: Json) -> Quota:
    def limit(key: str) -> int | None:
        text = given.get(key)
        return None if text is None else amount(given["name"], text)

    return Quota(
        amount(given["name"], given["nominalQuota"]), limit("borrowingLimit"), limit("lendingLimit")
    )


def expressions(given: Iterable[Json]) -> tuple[NodeExpression, ...]:
    return tuple(
        NodeExpression(e["key"], e["operator"], tuple(e.get("values") or ())) for e in given
    )


def label_selector(given: Json | None) -> LabelSelector | None:
    if given is None:
        return None
    labels = [
        {"key": key, "operator": "In", "values": [value]}
        for key, value in (given.get("matchLabels") or {}).items()
    ]
    return LabelSelector(expressions([*labels, *(given.get("matchExpressions") or ())]))


def toleration(given: Json) -> Toleration:
    return Toleration(
        given.get("key") or "",
        given.get("operator") or "Equal",
        given.get("value") or "",
        given.get("effect") or "",
    )


def flavor(each: Json) -> ResourceFlavor:
    spec = each.get("spec") or {}
    return ResourceFlavor(
        each["metadata"]["name"],
        spec.get("nodeLabels") or {},
        tuple(
            Taint(t["key"], t.get("value") or "", t["effect"]) for t in spec.get("nodeTaints") or ()
        ),
        tuple(toleration(t) for t in spec.get("tolerations") or ()),
        spec.get("topologyName") or "",
    )


def topology(each: Json) -> Topology:
    levels = tuple(level["nodeLabel"] for level in each["spec"]["levels"])
    return Topology(each["metadata"]["name"], levels)


def topology_gates(given: Json) -> TopologyGates:
    return TopologyGates(
        given.get("TASProfileMixed", True),
        given.get("TASBalancedPlacement", False),
        given.get("TASRespectNodeAffinityPreferred", False),
        given.get("ElasticJobsViaWorkloadSlicesWithTAS", False),
        given.get("SkipReassignmentForPodOwnedWorkloads", True),
        given.get("TASHandleOverlappingFlavors", True),
    )


def topology_request(given: Json | None) -> TopologyRequest | None:
    if given is None:
        return None
    layers = tuple(
        Layer(each["topology"], each["size"])
        for each in given.get("podsetSliceRequiredTopologyConstraints") or ()
    )
    if given.get("podSetSliceRequiredTopology"):
        layers = (Layer(given["podSetSliceRequiredTopology"], given.get("podSetSliceSize", 0)),)
    return TopologyRequest(
        given.get("required") or "",
        given.get("preferred") or "",
        given.get("unconstrained"),
        layers,
    )


def preferred_terms(given: Iterable[Json]) -> tuple[PreferredTerm, ...]:
    return tuple(
        PreferredTerm(each["weight"], expressions(each["preference"].get("matchExpressions") or ()))
        for each in given
    )


def local_queue(each: Json) -> LocalQueue:
    metadata, spec = each["metadata"], each["spec"]
    return LocalQueue(
        f"{metadata.get('namespace', '')}/{metadata['name']}",
        spec["clusterQueue"],
        StopPolicy(spec.get("stopPolicy") or "None"),
        weight(spec),
    )


def pod_requests(spec: Json) -> dict[str, int]:
    """Effective requests of one pod: containers and sidecars, or the largest init container."""

    def requests(container: Json) -> dict[str, int]:
        resources = container.get("resources") or {}
        merged = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
        return {name: amount(name, text) for name, text in merged.items()}

    def added(left: dict[str, int], right: dict[str, int]) -> dict[str, int]:
        return {n: left.get(n, 0) + right.get(n, 0) for n in {**left, **right}}

    def larger(left: dict[str, int], right: dict[str, int]) -> dict[str, int]:
        return {n: max(left.get(n, 0), right.get(n, 0)) for n in {**left, **right}}

    total: dict[str, int] = {}
    for container in spec.get("containers") or ():
        total = added(total, requests(container))
    sidecars: dict[str, int] = {}
    largest: dict[str, int] = {}
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            total = added(total, requests(container))
            sidecars = added(sidecars, requests(container))
            largest = larger(largest, sidecars)
        else:
            largest = larger(largest, added(sidecars, requests(container)))
    overhead = {n: amount(n, text) for n, text in (spec.get("overhead") or {}).items()}
    return added(larger(total, largest), overhead)


def pod_set(each: Json) -> PodSet:
    spec = each["template"].get("spec") or {}
    node_affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    affinity = node_affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    terms = None
    if affinity is not None:
        terms = tuple(
            expressions(term.get("matchExpressions") or ())
            for term in affinity.get("nodeSelectorTerms") or ()
        )
    return PodSet(
        name=each["name"],
        count=each.get("count", 0),
        requests=pod_requests(spec),
        min_count=each.get("minCount"),
        node_selector=spec.get("nodeSelector") or {},
        affinity=terms,
        tolerations=tuple(toleration(t) for t in spec.get("tolerations") or ()),
        group=(each.get("topologyRequest") or {}).get("podSetGroupName") or "",
        topology=topology_request(each.get("topologyRequest")),
        preferred=preferred_terms(
            node_affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
        ),
    )


def condition(each: Json, kind: str) -> Json | None:
    for found in (each.get("status") or {}).get("conditions") or ():
        if found["type"] == kind:
            return dict(found)
    return None


def eviction(each: Json, kind: str) -> Eviction | None:
    found = condition(each, kind)
    if found is None or found["status"] != "True":
        return None
    return Eviction(found["reason"], parse_instant(found["lastTransitionTime"]))


def validation(each: Json, limit_ranges: Iterable[Json]) -> str:
    """Why a workload's requests cannot be considered, else empty."""
    namespace = (each.get("metadata") or {}).get("namespace") or ""
    limits = [
        limit
        for found in limit_ranges
        if (found["metadata"].get("namespace") or "") == namespace
        for limit in found["spec"].get("limits") or ()
        if limit["type"] == "Container"
    ]

    def beyond(have: Json, bound: Json, sign: int) -> list[str]:
        both = sorted(set(have) & set(bound))
        return [n for n in both if sign * (parse_milli(have[n]) - parse_milli(bound[n])) > 0]

    faults: list[str] = []
    ranged: list[str] = []
    for i, pod_set in enumerate((each.get("spec") or {}).get("podSets") or ()):
        spec = pod_set["template"].get("spec") or {}
        for kind in ("initContainers", "containers"):
            for j, container in enumerate(spec.get(kind) or ()):
                where = f"spec.podSets[{i}].template.spec.{kind}[{j}]: Invalid value: "
                resources = container.get("resources") or {}
                requests = resources.get("requests") or {}
                names = beyond(requests, resources.get("limits") or {}, 1)
                if names:
                    faults.append(
                        f"{where}{json.dumps(names)}: requests must not exceed its limits"
                    )
                for limit in limits:
                    names = beyond(requests, limit.get("max") or {}, 1)
                    if names:
                        ranged.append(
                            f"{where}{json.dumps(names)}: "
                            "requests must not be above the limitRange max"
                        )
                    names = beyond(requests, limit.get("min") or {}, -1)
                    if names:
                        ranged.append(
                            f"{where}{json.dumps(names)}: "
                            "requests must not be below the limitRange min"
                        )
    if faults:
        return f"resources validation failed: {joined(faults)}"
    return f"resources didn't satisfy LimitRange constraints: {joined(ranged)}" if ranged else ""


def joined(faults: list[str]) -> str:
    return faults[0] if len(faults) == 1 else f"[{', '.join(faults)}]"


def workload(each: Json, limit_ranges: Iterable[Json] = ()) -> Workload:
    metadata, spec, status = (
        each.get("metadata") or {},
        each.get("spec") or {},
        each.get("status") or {},
    )
    admission = status.get("admission")
    reserved = condition(each, "QuotaReserved")
    requeued = condition(each, "Requeued")
    finished = condition(each, "Finished")
    created = metadata.get("creationTimestamp")
    annotations = metadata.get("annotations") or {}
    try:
        boost = int(annotations.get("kueue.x-k8s.io/priority-boost") or 0)
    except ValueError:
        boost = 0
    requeue_at = (status.get("requeueState") or {}).get("requeueAt")
    opened = {
        gate["name"] for gate in status.get("preemptionGates") or () if gate["position"] == "Open"
    }
    namespace = metadata.get("namespace") or ""
    return Workload(
        namespace=namespace,
        name=metadata.get("name") or "",
        uid=metadata.get("uid") or "",
        queue=f"{namespace}/{spec.get('queueName') or ''}",
        priority=spec.get("priority") or 0,
        boost=boost,
        created=parse_instant(created) if created else ZERO,
        pod_sets=tuple(pod_set(p) for p in spec.get("podSets") or ()),
        reclaimable={p["name"]: p["count"] for p in status.get("reclaimablePods") or ()},
        admission=admission
        and Admission(
            admission["clusterQueue"],
            tuple(
                AdmittedPodSet(
                    p["name"],
                    p.get("count", 0),
                    p.get("flavors") or {},
                    {n: amount(n, text) for n, text in (p.get("resourceUsage") or {}).items()},
                    decoded(p["topologyAssignment"]) if p.get("topologyAssignment") else None,
                    p.get("delayedTopologyRequest") == "Pending",
                )
                for p in admission.get("podSetAssignments") or ()
            ),
        ),
        reserved_at=parse_instant(reserved["lastTransitionTime"])
        if reserved and reserved["status"] == "True"
        else None,
        evicted=eviction(each, "Evicted"),
        preempted=eviction(each, "Preempted"),
        active=spec.get("active", True) is not False,
        requeued=not (requeued and requeued["status"] == "False"),
        requeue_at=parse_instant(requeue_at) if requeue_at else None,
        checks={c["name"]: Check(c["state"]) for c in status.get("admissionChecks") or ()},
        closed_gates=tuple(
            gate["name"] for gate in spec.get("preemptionGates") or () if gate["name"] not in opened
        ),
        finished=bool(finished and finished["status"] == "True"),
        invalid=validation(each, limit_ranges),
        job_uid=(metadata.get("labels") or {}).get("kueue.x-k8s.io/job-uid") or "",
        replaces=annotations.get("kueue.x-k8s.io/workload-slice-replacement-for") or "",
        unhealthy_nodes=tuple(n["name"] for n in status.get("unhealthyNodes") or ()),
        of_one_pod=_is_one_pod(metadata),
    )


def _is_one_pod(metadata: Json) -> bool:
    owners: list[Json] = metadata.get("ownerReferences") or []
    grouped = (metadata.get("annotations") or {}).get("kueue.x-k8s.io/is-group-workload") == "true"
    return len(owners) == 1 and owners[0].get("kind") == "Pod" and not grouped
