"""What a scheduler profile requests: filters, scores, their arguments, plugins after a failure.

Made by `settings` from a KubeSchedulerConfiguration; the defaults are those of the default profile.
Source: specification of the scheduling plane, sections 15 to 17 and 21.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, is_dataclass, replace
from enum import StrEnum
from typing import Final

from reprieve.engine.cluster.rows import NodeTerm, SpreadConstraint, Weighted
from reprieve.engine.victim_choice import VictimChoice

__all__ = [
    "DEFAULT_FILTERS",
    "DEFAULT_PLACEMENT_WEIGHTS",
    "DEFAULT_WEIGHTS",
    "OF_THE_NODE_ALONE",
    "CompositePriority",
    "FilterName",
    "Gates",
    "PlacementScoreName",
    "Policy",
    "Profile",
    "ScoreName",
    "ScoringStrategy",
    "ScoringType",
    "VictimChoice",
    "policy_text",
]


# Fields of a policy that are options of ours: its text, and so the ids of plans, omits them as long
# as they are not set.
_OPTION: Final = "option"


class FilterName(StrEnum):
    """Filter plugins, in the order in which they look at a node (21.1)."""

    NODE_NAME = "NodeName"
    NODE_UNSCHEDULABLE = "NodeUnschedulable"
    TAINT_TOLERATION = "TaintToleration"
    NODE_AFFINITY = "NodeAffinity"
    NODE_PORTS = "NodePorts"
    NODE_RESOURCES_FIT = "NodeResourcesFit"
    VOLUME_RESTRICTIONS = "VolumeRestrictions"
    NODE_VOLUME_LIMITS = "NodeVolumeLimits"
    VOLUME_BINDING = "VolumeBinding"
    VOLUME_ZONE = "VolumeZone"
    POD_TOPOLOGY_SPREAD = "PodTopologySpread"
    INTER_POD_AFFINITY = "InterPodAffinity"
    DYNAMIC_RESOURCES = "DynamicResources"
    NODE_DECLARED_FEATURES = "NodeDeclaredFeatures"


class ScoreName(StrEnum):
    """Score plugins."""

    TAINT_TOLERATION = "TaintToleration"
    NODE_AFFINITY = "NodeAffinity"
    POD_TOPOLOGY_SPREAD = "PodTopologySpread"
    INTER_POD_AFFINITY = "InterPodAffinity"
    DYNAMIC_RESOURCES = "DynamicResources"
    NODE_RESOURCES_FIT = "NodeResourcesFit"
    BALANCED_ALLOCATION = "NodeResourcesBalancedAllocation"
    IMAGE_LOCALITY = "ImageLocality"
    VOLUME_BINDING = "VolumeBinding"


class PlacementScoreName(StrEnum):
    """Plugins that score a group's placements (17.5)."""

    POD_GROUP_PODS_COUNT = "PodGroupPodsCount"
    NODE_RESOURCES_FIT = "NodeResourcesFit"


class ScoringType(StrEnum):
    """How NodeResourcesFit scores a node."""

    LEAST_ALLOCATED = "LeastAllocated"
    MOST_ALLOCATED = "MostAllocated"
    REQUESTED_TO_CAPACITY_RATIO = "RequestedToCapacityRatio"


@dataclass(frozen=True, slots=True)
class ScoringStrategy:
    """NodeResourcesFit's strategy; `shape`: (utilization 0..100, score 0..10) in order."""

    type: ScoringType = ScoringType.LEAST_ALLOCATED
    resources: tuple[tuple[str, int], ...] = (("cpu", 1), ("memory", 1))  # name, weight
    shape: tuple[tuple[int, int], ...] = ()


DEFAULT_FILTERS: Final = tuple(FilterName)
#: Filters whose answer no placed sibling changes.
OF_THE_NODE_ALONE: Final = frozenset(
    {
        FilterName.NODE_NAME,
        FilterName.NODE_UNSCHEDULABLE,
        FilterName.TAINT_TOLERATION,
        FilterName.NODE_AFFINITY,
        FilterName.VOLUME_ZONE,
        FilterName.NODE_DECLARED_FEATURES,
    }
)
DEFAULT_WEIGHTS: Final = (
    (ScoreName.TAINT_TOLERATION, 3),
    (ScoreName.NODE_AFFINITY, 2),
    (ScoreName.POD_TOPOLOGY_SPREAD, 2),
    (ScoreName.INTER_POD_AFFINITY, 2),
    (ScoreName.DYNAMIC_RESOURCES, 2),
    (ScoreName.NODE_RESOURCES_FIT, 1),
    (ScoreName.BALANCED_ALLOCATION, 1),
    (ScoreName.IMAGE_LOCALITY, 1),
    (ScoreName.VOLUME_BINDING, 1),
)
DEFAULT_PLACEMENT_WEIGHTS: Final = tuple((name, 1) for name in PlacementScoreName)


@dataclass(frozen=True, slots=True)
class Profile:
    """One profile. `percentage_of_nodes`: None examines all nodes, 0 adapts to their number."""

    scheduler_name: str = "default-scheduler"
    filters: tuple[FilterName, ...] = DEFAULT_FILTERS
    weights: tuple[tuple[ScoreName, int], ...] = DEFAULT_WEIGHTS
    placement_weights: tuple[tuple[PlacementScoreName, int], ...] = DEFAULT_PLACEMENT_WEIGHTS
    strategy: ScoringStrategy = ScoringStrategy()
    balanced_resources: tuple[str, ...] = ("cpu", "memory")
    ignored_resources: frozenset[str] = frozenset()
    ignored_resource_groups: frozenset[str] = frozenset()
    added_affinity: tuple[NodeTerm, ...] | None = None
    added_preferred_affinity: tuple[Weighted[NodeTerm], ...] = ()
    default_spread: tuple[SpreadConstraint, ...] | None = None  # None: defaultingType System
    hard_pod_affinity_weight: int = 1
    ignore_preferred_terms_of_existing_pods: bool = False
    volume_shape: tuple[tuple[int, int], ...] = ((0, 10), (100, 0))
    volume_bind_seconds: int = 600  # time limit for binding volumes; for the plane
    percentage_of_nodes: int | None = None
    min_candidate_nodes_percentage: int = 100
    min_candidate_nodes_absolute: int = 100
    post_filters: tuple[str, ...] = ("DynamicResources", "DefaultPreemption")
    pod_group_post_filters: tuple[str, ...] = ("DynamicResources", "DefaultPreemption")
    placement_scorers: tuple[tuple[str, int], ...] = field(default=(), metadata={_OPTION: True})


@dataclass(frozen=True, slots=True)
class Gates:
    """Feature gates that decisions depend on (section 15); defaults are ours."""

    generic_workload: bool = True
    pod_group_preemption_policy: bool = False
    topology_aware: bool = True
    composite_pod_group: bool = False
    async_preemption: bool = True
    # Requests of pods are read with what their claims use of the node.
    node_allocatable_claims: bool = field(default=False, metadata={_OPTION: True})
    # Koordinator's label is read as the preemption policy of pods.
    preemption_policy_label: bool = field(default=False, metadata={_OPTION: True})
    # Tolerations may compare numbers (Gt, Lt).
    toleration_comparisons: bool = field(default=False, metadata={_OPTION: True})


class CompositePriority(StrEnum):
    """Whose priority counts for a pod in a tree of composite groups."""

    ROOT = "Root"
    NEAREST = "Nearest"


@dataclass(frozen=True, slots=True)
class Protection:
    """How far priorities of victims above their own count, at most (`preemptionPriority`).

    `namespaces`: the limits of those that have one of their own.
    """

    cap: int = 1_000_000_000
    namespaces: tuple[tuple[str, int], ...] = ()

    def limit(self, namespace: str) -> int:
        """Return the limit of a namespace."""
        return dict(self.namespaces).get(namespace, self.cap)


@dataclass(frozen=True, slots=True)
class Policy:
    """All that a scheduling decision depends on besides the snapshot.

    `second_reprieve_pass`: victims refused for a constraint that is not monotone are reprieved
    together. `kep_messages`: conditions in KEP-5710's own words. `binary_search_priority`: only the
    lowest priorities that are needed are considered. `max_placements` and `topology_preemption`:
    for how many placements victims are chosen. `cascade_aware`: of two that do equal harm, the one
    whose victims find other nodes. `harm_order`: among equals of the KEP's order idle work is
    evicted first, then what loses least; `max_lost_work`: seconds that work without a checkpoint
    loses at most. `protection`: as victims pods and groups may have a priority of their own, None:
    none has. `non_uniform_groups`: pods of a group are evicted one by one down to its floor only,
    and leaders with all. `max_min_runtime`: seconds for which work that has just started may be no
    victim, at most; 0: the minimum runtime that it states does not count. `choice`: how victims are
    chosen. `fewest_devices`: of victims of the same priority those that hold the fewest devices,
    where several planes decide.
    """

    profiles: tuple[Profile, ...] = (Profile(),)
    gates: Gates = field(default_factory=Gates)
    second_reprieve_pass: bool = True
    kep_messages: bool = False
    simulate_claims: bool = False
    composite_priority: CompositePriority = field(
        default=CompositePriority.ROOT, metadata={_OPTION: True}
    )
    binary_search_priority: bool = field(default=False, metadata={_OPTION: True})
    max_placements: int = field(default=1, metadata={_OPTION: True})
    topology_preemption: bool = field(default=False, metadata={_OPTION: True})
    cascade_aware: bool = field(default=False, metadata={_OPTION: True})
    harm_order: bool = field(default=False, metadata={_OPTION: True})
    max_lost_work: int = field(default=3_600, metadata={_OPTION: True})
    protection: Protection | None = field(default=None, metadata={_OPTION: True})
    non_uniform_groups: bool = field(default=False, metadata={_OPTION: True})
    max_min_runtime: int = field(default=0, metadata={_OPTION: True})
    choice: VictimChoice = field(default=VictimChoice.COMPATIBLE, metadata={_OPTION: True})
    fewest_devices: bool = field(default=False, metadata={_OPTION: True})

    def beside_others(self) -> Policy:
        """Return the policy where other planes decide about the same demands.

        What one demand costs is counted alike then, whichever plane evicts for it: in devices.
        """
        return replace(self, fewest_devices=self.best and not self.harm_order)

    @property
    def best(self) -> bool:
        """Whether the least costly victims are searched for."""
        return self.choice is VictimChoice.BEST

    @property
    def timed(self) -> bool:
        """Whether decisions depend on what time it is."""
        return self.harm_order or self.max_min_runtime > 0

    def profile(self, scheduler_name: str) -> Profile | None:
        """Return the profile of that scheduler name, None when we do not serve it."""
        return next((p for p in self.profiles if p.scheduler_name == scheduler_name), None)


def policy_text(policy: Policy) -> str:
    """Return a text that is the same for equal policies in every process, and no others."""
    return _text(policy)


def _text(value: object) -> str:
    if is_dataclass(value) and not isinstance(value, type):
        parts = (
            f"{each.name}={_text(getattr(value, each.name))}"
            for each in fields(value)
            if _OPTION not in each.metadata or getattr(value, each.name) != each.default
        )
        return f"{type(value).__name__}({', '.join(parts)})"
    if isinstance(value, frozenset):
        return "{" + ", ".join(sorted(map(_text, value))) + "}"
    if isinstance(value, tuple):
        return "(" + ", ".join(map(_text, value)) + ")"
    return repr(value)
