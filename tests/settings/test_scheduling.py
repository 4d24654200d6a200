"""The section `scheduling` of the configuration file, and the policy that comes of it."""

from __future__ import annotations

import pytest

from kubeworld.units.durations import MINUTE, SECOND
from reprieve.engine.notice.granting import NoticePolicy
from reprieve.engine.placement.profile import (
    CompositePriority,
    Gates,
    Policy,
    Profile,
    Protection,
    VictimChoice,
)
from reprieve.settings.scheduler_configuration import DEFAULT_PROFILES
from reprieve.settings.scheduling import SchedulingSettings, read_scheduling, scheduling_settings
from reprieve.settings.start_up import read_config
from reprieve.units.errors import UsageError

WHOLE = """
gpuPreemption: {enabled: true}
scheduling:
  profile: compatible
  secondReprievePass: false
  kepMessages: true
  simulateClaims: true
  binarySearchPriority: true
  maxPlacements: 3
  topologyPreemption: true
  cascadeAware: true
  harmOrder: true
  nonUniformGroups: true
  maxLostWork: 30m
  maxMinRuntime: 90s500ms
  preemptionPriority: {cap: 1000, namespaces: {team-a: 500}}
  compositePriority: Nearest
  victimDeadline: 90s
  featureGates: {CompositePodGroup: true, SchedulerAsyncPreemption: false}
  configuration:
    apiVersion: kubescheduler.config.k8s.io/v1
    kind: KubeSchedulerConfiguration
    podInitialBackoffSeconds: 2
    podMaxBackoffSeconds: 20
    parallelism: 8
    profiles:
    - schedulerName: gpu
      percentageOfNodesToScore: 10
"""


def read(text: str, feature_gates: str = "") -> SchedulingSettings:
    return scheduling_settings(read_scheduling(text, "v.yaml"), feature_gates, "v.yaml")


def test_without_a_section_the_defaults_are_in_force() -> None:
    policy = Policy(profiles=DEFAULT_PROFILES, choice=VictimChoice.BEST)
    expected = SchedulingSettings(policy, wishes={})
    assert read("") == expected
    assert read("gpuPreemption: {}") == expected
    assert read("scheduling:") == expected
    assert scheduling_settings() == expected
    assert expected.policy.second_reprieve_pass
    assert expected.victim_deadline == 5 * MINUTE


def test_everything_that_can_be_said() -> None:
    found = read(WHOLE, "CompositePodGroup=false,PodGroupPreemptionPolicy=true")
    assert found.policy == Policy(
        profiles=(Profile(scheduler_name="gpu", percentage_of_nodes=10),),
        gates=Gates(pod_group_preemption_policy=True, async_preemption=False),
        second_reprieve_pass=False,
        kep_messages=True,
        simulate_claims=True,
        binary_search_priority=True,
        max_placements=3,
        topology_preemption=True,
        cascade_aware=True,
        harm_order=True,
        non_uniform_groups=True,
        max_lost_work=1_800,
        max_min_runtime=91,
        protection=Protection(1_000, (("team-a", 500),)),
        composite_priority=CompositePriority.NEAREST,
        choice=VictimChoice.COMPATIBLE,
    )
    assert (found.initial_backoff_seconds, found.max_backoff_seconds) == (2, 20)
    assert found.victim_deadline == 90 * SECOND
    assert found.wishes == {
        "CompositePodGroup": False,
        "SchedulerAsyncPreemption": False,
        "PodGroupPreemptionPolicy": True,
    }
    assert [notice.where for notice in found.notices] == [
        "v.yaml: scheduling.configuration.parallelism"
    ]


def test_the_flag_says_how_victims_are_chosen_whatever_the_file_says() -> None:
    section = {"profile": "best"}
    assert scheduling_settings(section).policy.choice is VictimChoice.BEST
    flag = scheduling_settings(section, profile="compatible")
    assert flag.policy.choice is VictimChoice.COMPATIBLE


def test_both_sections_live_in_one_file() -> None:
    assert read_config(WHOLE, "v.yaml") == {"enabled": True}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "scheduling: [1]",
            (
                "v.yaml: scheduling: [1]; accepted: a mapping with profile, secondReprievePass, "
                "kepMessages, simulateClaims, binarySearchPriority, maxPlacements, "
                "topologyPreemption, cascadeAware, harmOrder, nonUniformGroups, "
                "preemptionPriority, maxMinRuntime, maxLostWork, compositePriority, "
                "victimDeadline, maxGrace, "
                "notice, preemptionDelay, featureGates, configuration, gangs"
            ),
        ),
        (
            "scheduling: {secondReprieve: true}",
            (
                "v.yaml: scheduling: unknown key 'secondReprieve'; accepted: profile, "
                "secondReprievePass, "
                "kepMessages, simulateClaims, binarySearchPriority, maxPlacements, "
                "topologyPreemption, cascadeAware, harmOrder, nonUniformGroups, "
                "preemptionPriority, maxMinRuntime, maxLostWork, compositePriority, "
                "victimDeadline, maxGrace, "
                "notice, preemptionDelay, featureGates, configuration, gangs"
            ),
        ),
        (
            "scheduling: {profile: good}",
            "v.yaml: scheduling.profile: 'good'; accepted: compatible, best",
        ),
        (
            "scheduling: {maxPlacements: 0}",
            "v.yaml: scheduling.maxPlacements: 0; accepted: an integer from 1 to 64",
        ),
        (
            "scheduling: {maxMinRuntime: 168h1s}",
            "v.yaml: scheduling.maxMinRuntime: '168h1s'; accepted: durations from 0s to 168h",
        ),
        (
            "scheduling: {kepMessages: 'on'}",
            "v.yaml: scheduling.kepMessages: 'on'; accepted: true or false",
        ),
        (
            "scheduling: {compositePriority: Leaf}",
            "v.yaml: scheduling.compositePriority: 'Leaf'; accepted: Root, Nearest",
        ),
        (
            "scheduling: {victimDeadline: 300}",
            "v.yaml: scheduling.victimDeadline: 300; accepted: a Go duration such as 30s or 5m",
        ),
        (
            "scheduling: {victimDeadline: 0s}",
            "v.yaml: scheduling.victimDeadline: '0s'; accepted: a duration above zero",
        ),
        (
            "scheduling: {featureGates: {GenericWorkload: false, CompositePodGroup: true}}",
            (
                "v.yaml: scheduling.featureGates.CompositePodGroup: CompositePodGroup needs "
                "GenericWorkload and TopologyAwareWorkloadScheduling; accepted: "
                "CompositePodGroup=false, or GenericWorkload=true, "
                "TopologyAwareWorkloadScheduling=true"
            ),
        ),
        (
            "scheduling: {configuration: {kind: KubeSchedulerConfiguration}}",
            (
                "v.yaml: scheduling.configuration.apiVersion: None; accepted: "
                "kubescheduler.config.k8s.io/v1"
            ),
        ),
        (
            (
                "scheduling: {configuration: {apiVersion: kubescheduler.config.k8s.io/v1, "
                "kind: KubeSchedulerConfiguration, extender: []}}"
            ),
            (
                "v.yaml: scheduling.configuration: unknown key 'extender'; accepted: apiVersion, "
                "kind, percentageOfNodesToScore, podInitialBackoffSeconds, podMaxBackoffSeconds, "
                "profiles, extenders, leaderElection, clientConnection, parallelism, "
                "enableProfiling, enableContentionProfiling, delayCacheUntilActive"
            ),
        ),
    ],
    ids=[
        "list",
        "key",
        "profile",
        "placements",
        "runtime",
        "switch",
        "choice",
        "number",
        "zero",
        "needs",
        "head",
        "unknown",
    ],
)
def test_what_cannot_be_used_is_refused_by_name(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(text)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("{}", NoticePolicy()),
        ("{max: 10m}", NoticePolicy(10 * MINUTE)),
        ("{max: 0s, patience: }", NoticePolicy(0)),
        (
            "{max: 1h, patience: {default: 5m, emergency: 30s}}",
            NoticePolicy(60 * MINUTE, 5 * MINUTE, 30 * SECOND),
        ),
        ("{max: 1m, extension: 0s}", NoticePolicy(MINUTE, extension=0)),
    ],
)
def test_what_is_allowed_of_notices_is_read(text: str, found: NoticePolicy) -> None:
    assert read(f"scheduling: {{notice: {text}}}").notice == found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{max: 2h}", "notice.max: '2h'; accepted: 0s, or a duration from 10s to 1h"),
        ("{max: 1s}", "notice.max: '1s'; accepted: 0s, or a duration from 10s to 1h"),
        ("{least: 1s}", "notice: unknown key 'least'; accepted: max, extension, patience"),
        (
            "{patience: {high: 1m}}",
            "notice.patience: unknown key 'high'; accepted: default, emergency",
        ),
    ],
)
def test_what_is_not_allowed_of_notices_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(f"scheduling: {{notice: {text}}}")
    assert message in str(caught.value)
