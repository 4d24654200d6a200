"""KubeSchedulerConfiguration: what real ones say, and what is refused by name."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from reprieve.engine.cluster.rows import NodeTerm, Operator, Requirement, SpreadConstraint, Weighted
from reprieve.engine.placement.profile import (
    DEFAULT_FILTERS,
    DEFAULT_WEIGHTS,
    FilterName,
    PlacementScoreName,
    Profile,
    ScoreName,
    ScoringStrategy,
    ScoringType,
)
from reprieve.settings.idle import Notice
from reprieve.settings.scheduler_configuration import (
    DEFAULT_PROFILES,
    SchedulerConfiguration,
    read_scheduler_configuration,
)
from reprieve.units.errors import UsageError

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def read(text: str, **given: Any) -> SchedulerConfiguration:
    return read_scheduler_configuration(HEAD + text, "sched.yaml", **given)


def only(text: str, **given: Any) -> Profile:
    """The one profile of a configuration that has no notices."""
    found = read(text, **given)
    assert found.notices == ()
    (profile,) = found.profiles
    return profile


def weights(**changed: int) -> tuple[tuple[ScoreName, int], ...]:
    """The default weights with some changed, 0 taking one out."""
    found = {**dict(DEFAULT_WEIGHTS), **{ScoreName(name): w for name, w in changed.items()}}
    return tuple((name, weight) for name, weight in found.items() if weight)


def test_without_profiles_both_names_are_served_and_all_nodes_examined() -> None:
    assert read("") == SchedulerConfiguration()
    assert read("profiles: []").profiles == DEFAULT_PROFILES
    names = [profile.scheduler_name for profile in DEFAULT_PROFILES]
    assert names == ["default-scheduler", "reprieve-scheduler"]
    assert [profile.percentage_of_nodes for profile in DEFAULT_PROFILES] == [None, None]


def test_an_empty_profile_is_the_default_one() -> None:
    assert only("profiles: [{}]") == Profile()
    assert only("profiles: [{schedulerName: gpu}]") == Profile(scheduler_name="gpu")


def test_the_queue_and_the_share_of_nodes() -> None:
    found = read(
        """
podInitialBackoffSeconds: 2
podMaxBackoffSeconds: 30
percentageOfNodesToScore: 50
profiles:
- schedulerName: one
- schedulerName: two
  percentageOfNodesToScore: 0
"""
    )
    assert (found.initial_backoff_seconds, found.max_backoff_seconds) == (2, 30)
    assert [profile.percentage_of_nodes for profile in found.profiles] == [50, 0]
    assert read("podMaxBackoffSeconds: 0").max_backoff_seconds == 0
    assert [p.percentage_of_nodes for p in read("percentageOfNodesToScore: 0").profiles] == [0, 0]


def test_a_second_profile_without_scoring() -> None:
    found = read(
        """
profiles:
- schedulerName: default-scheduler
- schedulerName: no-scoring-scheduler
  plugins:
    preScore: {disabled: [{name: '*'}]}
    score: {disabled: [{name: '*'}]}
"""
    )
    assert found.profiles == (
        Profile(),
        Profile(scheduler_name="no-scoring-scheduler", weights=()),
    )


def test_bin_packing_for_gpus() -> None:
    profile = only(
        """
leaderElection:
profiles:
- schedulerName: bin-packing-scheduler
  plugins:
    score:
      disabled:
      - name: NodeResourcesBalancedAllocation
      enabled:
      - name: NodeResourcesFit
        weight: 10
  pluginConfig:
  - name: NodeResourcesFit
    args:
      apiVersion: kubescheduler.config.k8s.io/v1
      kind: NodeResourcesFitArgs
      ignoredResources: [example.com/left-out]
      ignoredResourceGroups: [vendor.example]
      scoringStrategy:
        type: MostAllocated
        resources:
        - {name: nvidia.com/gpu, weight: 5}
        - {name: cpu}
"""
    )
    assert profile == Profile(
        scheduler_name="bin-packing-scheduler",
        weights=weights(NodeResourcesFit=10, NodeResourcesBalancedAllocation=0),
        strategy=ScoringStrategy(ScoringType.MOST_ALLOCATED, (("nvidia.com/gpu", 5), ("cpu", 1))),
        ignored_resources=frozenset({"example.com/left-out"}),
        ignored_resource_groups=frozenset({"vendor.example"}),
    )


def test_requested_to_capacity_ratio() -> None:
    profile = only(
        """
profiles:
- pluginConfig:
  - name: NodeResourcesFit
    args:
      scoringStrategy:
        type: RequestedToCapacityRatio
        resources: [{name: intel.com/foo, weight: 3}, {name: intel.com/bar, weight: 5}]
        requestedToCapacityRatio:
          shape: [{utilization: 0, score: 0}, {utilization: 100, score: 10}]
"""
    )
    assert profile.strategy == ScoringStrategy(
        ScoringType.REQUESTED_TO_CAPACITY_RATIO,
        (("intel.com/foo", 3), ("intel.com/bar", 5)),
        ((0, 0), (100, 10)),
    )


def test_the_arguments_of_the_other_plugins() -> None:
    found = read(
        """
profiles:
- pluginConfig:
  - name: NodeResourcesBalancedAllocation
    args: {resources: [{name: cpu, weight: 1}, {name: memory}, {name: nvidia.com/gpu}]}
  - name: InterPodAffinity
    args: {hardPodAffinityWeight: 5, ignorePreferredTermsOfExistingPods: true}
  - name: PodTopologySpread
    args:
      defaultingType: List
      defaultConstraints:
      - {maxSkew: 1, topologyKey: rack, whenUnsatisfiable: DoNotSchedule, minDomains: 3}
      - maxSkew: 2
        topologyKey: rack
        whenUnsatisfiable: ScheduleAnyway
        nodeAffinityPolicy: Ignore
        nodeTaintsPolicy: Honor
  - name: NodeAffinity
    args:
      addedAffinity:
        requiredDuringSchedulingIgnoredDuringExecution:
          nodeSelectorTerms:
          - matchExpressions:
            - {key: pool, operator: In, values: [gpu, big]}
            - {key: cores, operator: Gt, values: ["16"]}
          - matchFields:
            - {key: metadata.name, operator: In, values: [n1]}
        preferredDuringSchedulingIgnoredDuringExecution:
        - weight: 7
          preference: {matchExpressions: [{key: spot, operator: DoesNotExist}]}
  - name: DefaultPreemption
    args: {minCandidateNodesPercentage: 10}
  - name: VolumeBinding
    args:
      bindTimeoutSeconds: 60
      shape: [{utilization: 0, score: 0}, {utilization: 100, score: 10}]
"""
    )
    assert found.notices == ()
    assert found.profiles == (
        Profile(
            balanced_resources=("cpu", "memory", "nvidia.com/gpu"),
            hard_pod_affinity_weight=5,
            ignore_preferred_terms_of_existing_pods=True,
            default_spread=(
                SpreadConstraint("rack", 1, hard=True, selector=None, min_domains=3),
                SpreadConstraint(
                    "rack", 2, hard=False, selector=None, honor_affinity=False, honor_taints=True
                ),
            ),
            added_affinity=(
                NodeTerm(
                    (
                        Requirement("pool", Operator.IN, ("gpu", "big")),
                        Requirement("cores", Operator.GT, ("16",)),
                    )
                ),
                NodeTerm(fields=(Requirement("metadata.name", Operator.IN, ("n1",)),)),
            ),
            added_preferred_affinity=(
                Weighted(7, NodeTerm((Requirement("spot", Operator.DOES_NOT_EXIST),))),
            ),
            min_candidate_nodes_percentage=10,
            volume_bind_seconds=60,
            volume_shape=((0, 0), (100, 10)),
        ),
    )


def test_an_empty_list_of_default_constraints_means_none() -> None:
    text = "profiles: [{pluginConfig: [{name: PodTopologySpread, args: {defaultingType: List}}]}]"
    assert only(text).default_spread == ()
    text = "profiles: [{pluginConfig: [{name: PodTopologySpread, args: {}}]}]"
    assert only(text).default_spread is None


def test_a_plugin_disabled_at_multi_point_runs_nowhere() -> None:
    profile = only(
        "profiles: [{plugins: {multiPoint: {disabled: [{name: InterPodAffinity}, "
        "{name: DefaultPreemption}, {name: PodGroupPodsCount}]}}}]"
    )
    assert profile == Profile(
        filters=tuple(
            name for name in DEFAULT_FILTERS if name is not FilterName.INTER_POD_AFFINITY
        ),
        weights=weights(InterPodAffinity=0),
        placement_weights=((PlacementScoreName.NODE_RESOURCES_FIT, 1),),
        post_filters=("DynamicResources",),
        pod_group_post_filters=("DynamicResources",),
    )


def test_the_weight_of_a_point_beats_that_of_multi_point() -> None:
    profile = only(
        """
profiles:
- plugins:
    multiPoint: {enabled: [{name: ImageLocality, weight: 4}, {name: NodeResourcesFit, weight: 6}]}
    score: {enabled: [{name: TaintToleration}, {name: NodeResourcesFit, weight: 9}]}
"""
    )
    # Named without a weight counts as 1, whatever the default is.
    assert profile.weights == weights(ImageLocality=4, NodeResourcesFit=9, TaintToleration=1)
    assert profile.placement_weights == (
        (PlacementScoreName.POD_GROUP_PODS_COUNT, 1),
        (PlacementScoreName.NODE_RESOURCES_FIT, 6),
    )


def test_only_what_is_named_runs_without_the_defaults() -> None:
    required = (
        "SchedulingGates, PrioritySort, DefaultBinder, GangScheduling, TopologyPlacementGenerator"
    )
    names = [*required.split(", "), "NodeName", "NodeResourcesFit"]
    entries = ", ".join(f"{{name: {name}}}" for name in names)
    text = plugins(f"multiPoint: {{disabled: [{{name: '*'}}], enabled: [{entries}]}}")
    assert only(text) == Profile(
        filters=(FilterName.NODE_NAME, FilterName.NODE_RESOURCES_FIT),
        weights=((ScoreName.NODE_RESOURCES_FIT, 1),),
        placement_weights=((PlacementScoreName.NODE_RESOURCES_FIT, 1),),
        post_filters=(),
        pod_group_post_filters=(),
    )


def test_installed_plugins_run_in_the_order_of_the_configuration() -> None:
    extra = {"Ours": ("podGroupPostFilter", "postFilter"), "Half": ("postFilter",)}
    profile = only(
        """
profiles:
- plugins:
    multiPoint: {enabled: [{name: Half}]}
    podGroupPostFilter: {enabled: [{name: Ours}, {name: DefaultPreemption}]}
    postFilter: {disabled: [{name: '*'}], enabled: [{name: DefaultPreemption}, {name: Ours}]}
""",
        extra=extra,
    )
    # Named ones that multiPoint has too, the rest of multiPoint, the rest of the named.
    assert profile.pod_group_post_filters == ("DefaultPreemption", "DynamicResources", "Ours")
    assert profile.post_filters == ("DefaultPreemption", "Ours")
    profile = only("profiles: [{plugins: {multiPoint: {enabled: [{name: Half}]}}}]", extra=extra)
    assert profile.post_filters == ("DynamicResources", "DefaultPreemption", "Half")
    assert profile.pod_group_post_filters == ("DynamicResources", "DefaultPreemption")


def test_what_changes_nothing_is_told() -> None:
    found = read(
        """
parallelism: 16
leaderElection: {leaderElect: true, resourceName: kube-scheduler}
clientConnection: {kubeconfig: /etc/kubernetes/scheduler.conf, qps: 50, burst: 100}
enableProfiling: true
enableContentionProfiling: true
delayCacheUntilActive: true
extenders: []
profiles:
- plugins:
    filter: {enabled: [{name: InterPodAffinity, weight: 2}]}
  pluginConfig:
  - {name: DynamicResources, args: {filterTimeout: 5s, bindingTimeout: 10m}}
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: LeastAllocated, requestedToCapacityRatio: {shape: []}}}
"""
    )
    assert found.profiles == (Profile(),)
    assert [notice.where for notice in found.notices] == [
        "sched.yaml: leaderElection",
        "sched.yaml: clientConnection",
        "sched.yaml: parallelism",
        "sched.yaml: enableProfiling",
        "sched.yaml: enableContentionProfiling",
        "sched.yaml: delayCacheUntilActive",
        "sched.yaml: profiles[0].plugins.filter.enabled[0].weight",
        "sched.yaml: profiles[0].plugins.filter",
        "sched.yaml: profiles[0].pluginConfig[0].args.filterTimeout",
        "sched.yaml: profiles[0].pluginConfig[0].args.bindingTimeout",
        "sched.yaml: profiles[0].pluginConfig[1].args.scoringStrategy.requestedToCapacityRatio",
    ]
    assert found.notices[2] == Notice(
        "sched.yaml: parallelism",
        "16",
        "decisions are made one after the other, by columns instead of threads",
    )


def plugins(text: str) -> str:
    return f"profiles: [{{plugins: {{{text}}}}}]"


def config(name: str, args: str) -> str:
    return f"profiles: [{{pluginConfig: [{{name: {name}, args: {{{args}}}}}]}}]"


def fit(strategy: str) -> str:
    return config("NodeResourcesFit", f"scoringStrategy: {{{strategy}}}")


def ratio(shape: str) -> str:
    return fit(f"type: RequestedToCapacityRatio, requestedToCapacityRatio: {{shape: {shape}}}")


def spread(constraint: str) -> str:
    return config(
        "PodTopologySpread", f"defaultingType: List, defaultConstraints: [{{{constraint}}}]"
    )


def affinity(requirement: str, kind: str = "matchExpressions") -> str:
    term = f"{{{kind}: [{{{requirement}}}]}}"
    return config(
        "NodeAffinity",
        "addedAffinity: {requiredDuringSchedulingIgnoredDuringExecution: "
        f"{{nodeSelectorTerms: [{term}]}}}}",
    )


ADDED = (
    "profiles[0].pluginConfig[0].args.addedAffinity."
    "requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
)

REFUSED = [
    ("extenders: [{urlPrefix: 'http://x', filterVerb: filter}]",
     "extenders: HTTP extenders are not supported; accepted: an empty list"),
    ("profile: []", "unknown key 'profile'; accepted: apiVersion, kind, percentageOfNodes"),
    ("healthzBindAddress: ''", "unknown key 'healthzBindAddress'; accepted: "),
    ("parallelism: 0", "parallelism: 0; accepted: an integer from 1 to "),
    ("percentageOfNodesToScore: 101",
     "percentageOfNodesToScore: 101; accepted: an integer from 0 to 100"),
    ("percentageOfNodesToScore: '50'",
     "percentageOfNodesToScore: '50'; accepted: an integer from 0 to 100"),
    ("podInitialBackoffSeconds: 0",
     "podInitialBackoffSeconds: 0; accepted: an integer from 1 to "),
    ("podInitialBackoffSeconds: 20",
     "podMaxBackoffSeconds: 10; accepted: 0, or at least podInitialBackoffSeconds, 20"),
    ("profiles: {}", "profiles: {}; accepted: a list"),
    ("profiles: [default-scheduler]",
     "profiles[0]: 'default-scheduler'; accepted: a mapping with schedulerName, "),
    ("profiles: [{schedulerName: ''}]",
     "profiles[0].schedulerName: ''; accepted: the name that pods give"),
    ("profiles: [{}, {schedulerName: x}]",
     "profiles[0].schedulerName: None; accepted: the name that pods give"),
    ("profiles: [{schedulerName: x}, {schedulerName: x}]",
     "profiles[1].schedulerName: 'x' is given twice; accepted: once"),
    ("profiles: [{percentageOfNodesToScore: -1}]",
     "profiles[0].percentageOfNodesToScore: -1; accepted: an integer from 0 to 100"),
    # Plugins.
    (plugins("filters: {}"), "profiles[0].plugins: unknown key 'filters'; accepted: preEnqueue, "),
    (plugins("filter: {enable: []}"),
     "profiles[0].plugins.filter: unknown key 'enable'; accepted: enabled, disabled"),
    (plugins("filter: {enabled: [{name: NodeResourceFit}]}"),
     ("profiles[0].plugins.filter.enabled[0].name: unknown plugin 'NodeResourceFit'; accepted: "
     "SchedulingGates, PrioritySort, NodeName, ")),
    (plugins("multiPoint: {enabled: [{name: Coscheduling}]}"),
     "profiles[0].plugins.multiPoint.enabled[0].name: unknown plugin 'Coscheduling'; accepted: "),
    (plugins("score: {disabled: [{name: NodeResourcesLeastAllocated}]}"),
     "profiles[0].plugins.score.disabled[0].name: unknown plugin 'NodeResourcesLeastAllocated'; "),
    (plugins("score: {enabled: [{name: NodeName}]}"),
     ("profiles[0].plugins.score.enabled[0].name: NodeName has no score; accepted there: "
     "TaintToleration, NodeAffinity, NodeResourcesFit, VolumeBinding, PodTopologySpread, "
     "InterPodAffinity, DynamicResources, NodeResourcesBalancedAllocation, ImageLocality")),
    (plugins("postBind: {enabled: [{name: DefaultBinder}]}"),
     ("profiles[0].plugins.postBind.enabled[0].name: DefaultBinder has no postBind; accepted "
     "there: nothing")),
    (plugins("score: {enabled: [{name: ImageLocality, weight: -1}]}"),
     "profiles[0].plugins.score.enabled[0].weight: -1; accepted: an integer from 0 to "),
    (plugins("score: {enabled: [{name: ImageLocality}, {name: ImageLocality}]}"),
     "profiles[0].plugins.score.enabled[1]: ImageLocality is given twice; accepted: once"),
    (plugins("score: {enabled: [{weight: 1}]}"),
     "profiles[0].plugins.score.enabled[0].name: None; accepted: the name of a plugin"),
    (plugins("queueSort: {disabled: [{name: '*'}]}"),
     ("profiles[0].plugins.queueSort: PrioritySort is disabled, without which no pod is scheduled "
     "here; accepted: PrioritySort enabled")),
    (plugins("bind: {disabled: [{name: DefaultBinder}]}"),
     "profiles[0].plugins.bind: DefaultBinder is disabled, without which"),
    (plugins("multiPoint: {disabled: [{name: SchedulingGates}]}"),
     "profiles[0].plugins.preEnqueue: SchedulingGates is disabled, without which"),
    (plugins("multiPoint: {disabled: [{name: GangScheduling}]}"),
     ("; accepted: GangScheduling enabled; the feature gate GenericWorkload=false switches groups "
     "off")),
    (plugins("placementGenerate: {disabled: [{name: '*'}]}"),
     ("; accepted: TopologyPlacementGenerator enabled; the feature gate "
     "TopologyAwareWorkloadScheduling=false switches placements off")),
    (plugins("filter: {disabled: [{name: NodeResourcesFit}]}"),
     ("profiles[0].plugins: NodeResourcesFit is disabled at filter only; accepted: preFilter, "
     "filter all enabled or all disabled")),
    (plugins("reserve: {disabled: [{name: VolumeBinding}]}"),
     ("profiles[0].plugins: VolumeBinding is disabled at reserve only; accepted: preFilter, "
     "filter, reserve, preBind all enabled or all disabled")),
    (plugins("preScore: {disabled: [{name: InterPodAffinity}]}"),
     ("profiles[0].plugins.preScore: InterPodAffinity is disabled, which its score needs; "
     "accepted: InterPodAffinity enabled, or disabled at score too")),
    (plugins("preEnqueue: {disabled: [{name: DefaultPreemption}]}"),
     ("profiles[0].plugins.preEnqueue: DefaultPreemption is disabled, which its "
     "podGroupPostFilter, postFilter needs; accepted: DefaultPreemption enabled, or disabled "
     "there too")),
    # Arguments.
    ("profiles: [{pluginConfig: [{name: Coscheduling, args: {}}]}]",
     ("profiles[0].pluginConfig[0].name: unknown plugin 'Coscheduling'; accepted: "
     "NodeResourcesFit, ")),
    (config("ImageLocality", ""),
     ("profiles[0].pluginConfig[0].name: ImageLocality has no arguments; accepted: "
     "NodeResourcesFit, NodeResourcesBalancedAllocation, InterPodAffinity, PodTopologySpread, "
     "NodeAffinity, DefaultPreemption, VolumeBinding, DynamicResources")),
    ("profiles: [{pluginConfig: [{name: VolumeBinding}, {name: VolumeBinding}]}]",
     "profiles[0].pluginConfig[1].name: VolumeBinding is given twice; accepted: once"),
    (config("VolumeBinding", "apiVersion: kubescheduler.config.k8s.io/v1beta3"),
     ("profiles[0].pluginConfig[0].args.apiVersion: 'kubescheduler.config.k8s.io/v1beta3'; "
     "accepted: kubescheduler.config.k8s.io/v1")),
    (config("VolumeBinding", "kind: NodeAffinityArgs"),
     "profiles[0].pluginConfig[0].args.kind: 'NodeAffinityArgs'; accepted: VolumeBindingArgs"),
    (config("VolumeBinding", "bindTimeout: 1"),
     ("profiles[0].pluginConfig[0].args: unknown key 'bindTimeout'; accepted: apiVersion, kind, "
     "bindTimeoutSeconds, shape")),
    (config("VolumeBinding", "bindTimeoutSeconds: -1"),
     "args.bindTimeoutSeconds: -1; accepted: an integer from 0 to "),
    (config("VolumeBinding", "shape: []"),
     "args.shape: []; accepted: a list of at least one {utilization, score}"),
    (config("NodeResourcesFit", "ignoredResourceGroups: [example.com/foo]"),
     "args.ignoredResourceGroups[0]: 'example.com/foo'; accepted: a group without /NAME"),
    (config("NodeResourcesFit", "ignoredResources: [cpu]"),
     ("args.ignoredResources[0]: 'cpu'; accepted: an extended resource such as "
     "example.com/device")),
    (fit("type: BinPacking"),
     ("args.scoringStrategy.type: 'BinPacking'; accepted: LeastAllocated, MostAllocated, "
     "RequestedToCapacityRatio")),
    (fit("resources: [{name: cpu, weight: 101}]"),
     "args.scoringStrategy.resources[0].weight: 101; accepted: an integer from 1 to 100"),
    (fit("resources: [{weight: 1}]"),
     "args.scoringStrategy.resources[0].name: None; accepted: the name of a resource"),
    (fit("resources: [{name: cpu}, {name: cpu}]"),
     "args.scoringStrategy.resources[1].name: cpu is given twice; accepted: once"),
    (fit("type: RequestedToCapacityRatio"),
     ("args.scoringStrategy.requestedToCapacityRatio.shape: None; accepted: a list of at least "
     "one {utilization, score}")),
    (ratio("[{utilization: 101, score: 1}]"),
     "requestedToCapacityRatio.shape[0].utilization: 101; accepted: an integer from 0 to 100"),
    (ratio("[{utilization: 1, score: 11}]"),
     "requestedToCapacityRatio.shape[0].score: 11; accepted: an integer from 0 to 10"),
    (ratio("[{utilization: 50, score: 1}, {utilization: 50, score: 2}]"),
     ("requestedToCapacityRatio.shape[1].utilization: 50; accepted: more than the point before, "
     "50")),
    (config("NodeResourcesBalancedAllocation", "resources: [{name: cpu, weight: 2}]"),
     "args.resources[0].weight: 2; accepted: an integer from 1 to 1"),
    (config("InterPodAffinity", "hardPodAffinityWeight: 101"),
     "args.hardPodAffinityWeight: 101; accepted: an integer from 0 to 100"),
    (config("InterPodAffinity", "ignorePreferredTermsOfExistingPods: 'yes'"),
     "args.ignorePreferredTermsOfExistingPods: 'yes'; accepted: true or false"),
    (config("PodTopologySpread", "defaultingType: Cluster"),
     "args.defaultingType: 'Cluster'; accepted: System, List"),
    (config("PodTopologySpread",
            "defaultConstraints: [{maxSkew: 1, topologyKey: z, whenUnsatisfiable: DoNotSchedule}]"),
     "args.defaultConstraints: accepted only with defaultingType: List"),
    (spread("maxSkew: 0, topologyKey: z, whenUnsatisfiable: DoNotSchedule"),
     "args.defaultConstraints[0].maxSkew: 0; accepted: an integer from 1 to "),
    (spread("maxSkew: 1, whenUnsatisfiable: DoNotSchedule"),
     "args.defaultConstraints[0].topologyKey: None; accepted: a label of nodes"),
    (spread("maxSkew: 1, topologyKey: z"),
     ("args.defaultConstraints[0].whenUnsatisfiable: None; accepted: DoNotSchedule, "
     "ScheduleAnyway")),
    (spread("maxSkew: 1, topologyKey: z, whenUnsatisfiable: DoNotSchedule, labelSelector: {}"),
     "args.defaultConstraints[0]: unknown key 'labelSelector'; accepted: maxSkew, topologyKey, "),
    (spread("maxSkew: 1, topologyKey: z, whenUnsatisfiable: ScheduleAnyway, minDomains: 2"),
     ("args.defaultConstraints[0].minDomains: 2; accepted: none with whenUnsatisfiable: "
     "ScheduleAnyway")),
    (spread("maxSkew: 1, topologyKey: z, whenUnsatisfiable: DoNotSchedule}, "
            "{maxSkew: 2, topologyKey: z, whenUnsatisfiable: DoNotSchedule"),
     ("args.defaultConstraints[1]: z with the same whenUnsatisfiable is given twice; accepted: "
     "once")),
    (affinity("key: a, operator: Is, values: [b]"),
     (f"{ADDED}[0].matchExpressions[0].operator: 'Is'; accepted: In, NotIn, Exists, "
     "DoesNotExist, Gt, Lt")),
    (affinity("key: a, operator: In"),
     f"{ADDED}[0].matchExpressions[0].values: []; accepted: at least one with In"),
    (affinity("key: a, operator: Exists, values: [b]"),
     f"{ADDED}[0].matchExpressions[0].values: ['b']; accepted: none with Exists"),
    (affinity("key: a, operator: Gt, values: [big]"),
     f"{ADDED}[0].matchExpressions[0].values: ['big']; accepted: one integer with Gt"),
    (affinity("key: a, operator: Gt, values: [16]"),
     f"{ADDED}[0].matchExpressions[0].values[0]: 16; accepted: text"),
    (affinity("key: spec.name, operator: In, values: [b]", "matchFields"),
     f"{ADDED}[0].matchFields[0].key: 'spec.name'; accepted: metadata.name"),
    (affinity("key: metadata.name, operator: Exists", "matchFields"),
     f"{ADDED}[0].matchFields[0].operator: 'Exists'; accepted: In, NotIn"),
    (affinity("key: metadata.name, operator: In, values: [a, b]", "matchFields"),
     f"{ADDED}[0].matchFields[0].values: ['a', 'b']; accepted: one name"),
    (config("NodeAffinity", "addedAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {}}"),
     f"{ADDED}: None; accepted: at least one term"),
    (config("NodeAffinity",
            "addedAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 0}]}"),
     ("preferredDuringSchedulingIgnoredDuringExecution[0].weight: 0; accepted: an integer from 1 "
     "to 100")),
    (config("DefaultPreemption", "minCandidateNodesPercentage: 101"),
     "args.minCandidateNodesPercentage: 101; accepted: an integer from 0 to 100"),
    (config("DefaultPreemption", "minCandidateNodesPercentage: 0, minCandidateNodesAbsolute: 0"),
     ("args: minCandidateNodesPercentage and minCandidateNodesAbsolute are both 0; accepted: at "
     "least one above 0")),
    (config("DynamicResources", "filterTimeout: 5"),
     "args.filterTimeout: 5; accepted: a Go duration such as 30s or 5m"),
    (config("DynamicResources", "filterTimeout: -5s"),
     "args.filterTimeout: '-5s'; accepted: a Go duration such as 30s or 5m"),
    # The document.
    ("profiles: []\nprofiles: []", "not YAML: key 'profiles' is given twice"),
    ("profiles: [", "not YAML: while parsing"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), REFUSED, ids=[f"{i}" for i in range(len(REFUSED))])
def test_what_cannot_be_used_is_refused_by_name(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(text)
    assert str(caught.value).startswith("sched.yaml: ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("", "sched.yaml: apiVersion: None; accepted: kubescheduler.config.k8s.io/v1"),
        (
            HEAD.replace("/v1", "/v1beta3"),
            (
                "sched.yaml: apiVersion: 'kubescheduler.config.k8s.io/v1beta3'; accepted: "
                "kubescheduler.config.k8s.io/v1"
            ),
        ),
        (
            HEAD.replace("Kube", ""),
            "sched.yaml: kind: 'SchedulerConfiguration'; accepted: KubeSchedulerConfiguration",
        ),
        ("[1]", "sched.yaml: [1]; accepted: a mapping with apiVersion, kind, "),
    ],
)
def test_another_document_is_refused(document: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_scheduler_configuration(document, "sched.yaml")
    assert message in str(caught.value)


def test_json_is_read_too() -> None:
    document = yaml.safe_load(HEAD)
    found = read_scheduler_configuration(str({**document, "profiles": [{}]}), "sched.json")
    assert found.profiles == (Profile(),)
