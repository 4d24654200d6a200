"""Feature gates of the quota plane, under the reference's names and with its defaults.

Gates that change decisions, or what is stated of them, become `Gates` of the engine; the others are
for a user that requests them by name. Gates of what is not here are accepted and change nothing. A
gate that the reference does not have ends the start.

Source: specification of the quota plane, its first table, and sections 1.6 and 10.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from reprieve.api import field_errors as wrong
from reprieve.engine.quota.model import Gates
from reprieve.engine.topology.model import TopologyGates

__all__ = ["DECIDING", "DEFAULTS", "PLACING", "gates_of"]

# Name of the gate, and the field of `Gates`.
DECIDING: Final[Mapping[str, str]] = {
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
    "UnadmittedWorkloadsObservability": "unadmitted_workloads_observability",
    "TopologyAwareScheduling": "topology_aware_scheduling",
    "TASRecomputeAssignmentWithinSchedulingCycle": (
        "tas_recompute_assignment_within_scheduling_cycle"
    ),
    "TASFailedNodeReplacement": "tas_failed_node_replacement",
    "TASFailedNodeReplacementFailFast": "tas_failed_node_replacement_fail_fast",
    "TASReplaceNodeOnNodeTaints": "tas_replace_node_on_node_taints",
    "TASReplaceNodeOnPodTermination": "tas_replace_node_on_pod_termination",
    "TASReplaceNodeDueToNotReadyOverFixedTime": "tas_replace_node_after_fixed_time",
}
#: The same for `TopologyGates`.
PLACING: Final[Mapping[str, str]] = {
    "TASProfileMixed": "profile_mixed",
    "TASBalancedPlacement": "balanced_placement",
    "TASRespectNodeAffinityPreferred": "respect_preferred_affinity",
    "SkipReassignmentForPodOwnedWorkloads": "skip_pod_owned",
    "TASHandleOverlappingFlavors": "handle_overlapping",
    "TASAssignmentsEncodingByHostnamePrefix": "encode_by_prefix",
}
_ON: Final = (
    "QuotaCheckStrategy",
    "WorkloadIdentifierAnnotations",
    "ElasticJobsViaWorkloadSlices",
    "AssignQueueLabelsForPods",
    "AdmissionGatedBy",
    "WorkloadPriorityClassDefaulting",
    "FinishOrphanedWorkloads",
    "PodIntegrationValidateGroupOwner",
    "ValidateRayAndSparkJobUpdates",
    "LWSImmutableGroupSize",
    "WorkloadValidateResourcesAreNonNegative",
    "MultiKueue",
    "TASMultiLayerTopology",
    "TASValidateWorkloadSliceSize",
)
_OFF: Final = (
    "ShortWorkloadNames",
    "FastQuotaReleaseInPodIntegration",
    "SparkApplicationIntegration",
    "DisableWaitForPodsReady",
    "CustomMetricLabels",
)
# Gates of parts that are not here: topologies, MultiKueue, devices, how things are written.
_ELSEWHERE: Final = frozenset(
    (
        "CleanupProvisioningRequestsOnEviction",
        "DeferRayServiceFinalizationForRedisCleanup",
        "FailureRecoveryPolicy",
        "KueueDRAIntegration",
        "KueueDRAIntegrationConsumableCapacity",
        "KueueDRAIntegrationExtendedResource",
        "KueueDRAIntegrationPartitionableDevices",
        "KueueDRARejectWorkloadsWhenDRADisabled",
        "LocalQueueMetrics",
        "ManagedJobsNamespaceSelectorAlwaysRespected",
        "MetricForWorkloadCreationLatency",
        "MetricsForCohorts",
        "MultiKueueAdaptersForCustomJobs",
        "MultiKueueClusterProfile",
        "MultiKueueIncrementalDispatcherConfig",
        "MultiKueueIncrementalDispatcherRespectConfigOrder",
        "MultiKueueKubeConfigPathValidation",
        "MultiKueueManagerQuotaAutomation",
        "MultiKueueRemoteSpecSync",
        "RejectUpdatesToCQWithInvalidOnFlavors",
        "RemoveFinalizersWithStrictPatch",
        "SchedulerLibraryIntegration",
        "SkipAncestorCheckForDeletedWorkloads",
        "TASCacheNodeMatchResults",
        "TASCacheTopologyTree",
        "TASCachingRemainingResources",
        "TLSOptions",
        "UnadmittedWorkloadsExplicitStatus",
        "VectorizedResourceRequests",
        "VisibilityOnDemand",
        "WorkloadRequestUseMergePatch",
        "WorkloadValidationForPodSetMetadata",
    )
)
#: Gates that cannot be on, and why.
_REFUSED: Final[Mapping[str, str]] = {
    "ElasticJobsViaWorkloadSlicesWithTAS": (
        "must not be on: slices of elastic jobs are not given places beside their old ones"
    ),
}
_DECIDED: Final = Gates()
DEFAULTS: Final[Mapping[str, bool]] = {
    **{name: getattr(_DECIDED, field) for name, field in DECIDING.items()},
    **{name: getattr(_DECIDED.topology, field) for name, field in PLACING.items()},
    **dict.fromkeys(_ON, True),
    **dict.fromkeys(_OFF, False),
}


def gates_of(
    given: Any, flag: Mapping[str, bool] | None, errors: list[str]
) -> tuple[dict[str, bool], Gates]:
    """Return all gates by name, and those of the engine.

    Args:
        given: `featureGates` of the configuration.
        flag: those of the command line, which may not be there as well.
        errors: what is wrong is added.
    """
    if given and flag:
        errors.append("feature gates for CLI and configuration cannot both specified")
    wishes = flag or given or {}
    if not isinstance(wishes, Mapping):
        errors.append(wrong.invalid("featureGates", wishes, "must be a map to true or false"))
        wishes = {}
    found = dict(DEFAULTS)
    for name, on in wishes.items():
        if name in _REFUSED:
            if on is not False:
                errors.append(f"featureGates: {name}: {_REFUSED[name]}")
        elif name not in DEFAULTS and name not in _ELSEWHERE:
            accepted = ", ".join(sorted({*DEFAULTS, *_ELSEWHERE}))
            errors.append(f"featureGates: unrecognized feature gate: {name}; accepted: {accepted}")
        elif not isinstance(on, bool):
            errors.append(wrong.invalid(f"featureGates[{name}]", on, "must be true or false"))
        else:
            found[name] = on
    if not found["TopologyAwareScheduling"]:
        if wishes.get("TASProfileMixed") is True:
            errors.append("featureGates: cannot use a TAS profile with TAS disabled")
        found["TASProfileMixed"] = False
    placing = TopologyGates(**{field: found[name] for name, field in PLACING.items()})
    deciding = Gates(topology=placing)
    on_or_off: dict[str, Any] = {field: found[name] for name, field in DECIDING.items()}
    return found, replace(deciding, **on_or_off)
