"""Kueue's `Configuration` in both versions, and the options of the quota plane."""

from __future__ import annotations

import json
from dataclasses import fields
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubeworld.units.durations import HOUR, MINUTE
from reprieve.engine.quota.assigning.request_rules import Transformation
from reprieve.engine.quota.holdings.usage_based import UsageBased
from reprieve.engine.quota.model import Settings, Strategy
from reprieve.engine.quota.waiting.requeuing import Backoff
from reprieve.settings.quota import (
    MinRuntimes,
    QuotaSource,
    min_runtimes,
    quota_settings,
    read_quota,
)
from reprieve.settings.quota_changes import configuration_changes
from reprieve.settings.quota_configuration import (
    NEW,
    OLD,
    QuotaConfiguration,
    quota_configuration,
    read_quota_configuration,
)
from reprieve.settings.quota_configuration_parts import PodsReady
from reprieve.settings.quota_gates import DEFAULTS
from reprieve.units.errors import UsageError

GATES = (
    Path(__file__).resolve().parents[2].parent
    / "shared/conformance/quota/meta/default-feature-gates.json"
)
GUIDE = Path(__file__).resolve().parents[2].parent / "shared/guides/manifests"
FINAL, INITIAL = Strategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE, Strategy.LESS_THAN_INITIAL_SHARE
BOTH = (FINAL, INITIAL)
THIRTY = PodsReady(1800.0, 1800.0, False)


def new(**keys: Any) -> QuotaConfiguration:
    return quota_configuration({"apiVersion": NEW, "kind": "Configuration", **keys}, "file")


def old(**keys: Any) -> QuotaConfiguration:
    return quota_configuration({"apiVersion": OLD, "kind": "Configuration", **keys}, "file")


def refusal(version: Any, **keys: Any) -> str:
    with pytest.raises(UsageError) as raised:
        version(**keys)
    return str(raised.value)


def test_without_a_file_the_defaults_of_v1beta2_hold() -> None:
    found = quota_configuration(namespace="reprieve")
    assert found == quota_configuration(
        {"apiVersion": NEW, "kind": "Configuration"}, "", "reprieve"
    )
    assert found.settings == Settings()
    assert (found.pods_ready, found.frameworks) == (THIRTY, ("batch/job",))
    assert (found.queue_metrics, found.local_queue_metrics) == (False, True)
    places = ("team", "kube-system", "reprieve")
    labels = [{"kubernetes.io/metadata.name": name} for name in places]
    assert [found.selector.matches(each) for each in labels] == [True, False, False]


def test_v1beta1_shares_fairly_only_when_enabled() -> None:
    strategies = ["LessThanInitialShare"]
    assert old().settings.fair_sharing is None
    assert old(fairSharing={}).settings.fair_sharing is None
    assert old(fairSharing={"preemptionStrategies": strategies}).settings.fair_sharing is None
    assert old(fairSharing={"enable": True}).settings.fair_sharing == BOTH
    shared = {"enable": True, "preemptionStrategies": strategies}
    assert old(fairSharing=shared).settings.fair_sharing == (INITIAL,)
    ignored = {"enable": False, "preemptionStrategies": ["LessThanInitialShare", "Nonsense"]}
    assert old(fairSharing=ignored).settings.fair_sharing is None


def test_what_v1beta1_says_in_vain_is_told() -> None:
    found = old(fairSharing={"preemptionStrategies": []}, queueVisibility={"x": 1})
    assert [notice.where for notice in found.notices] == ["fairSharing", "queueVisibility"]


def test_v1beta2_shares_fairly_when_the_key_is_there() -> None:
    assert new().settings.fair_sharing is None
    listed = [each.value for each in BOTH]
    assert new(fairSharing={"preemptionStrategies": listed}).settings.fair_sharing == BOTH
    assert "fairSharing.preemptionStrategies: Required value: must be specified" in refusal(
        new, fairSharing={}
    )
    assert 'strict decoding error: unknown field "fairSharing.enable"' in refusal(
        new, fairSharing={"enable": True}
    )


def test_an_order_of_strategies_that_nobody_has_is_refused() -> None:
    listed = ["LessThanInitialShare", "LessThanOrEqualToFinalShare"]
    assert refusal(new, fairSharing={"preemptionStrategies": listed}) == (
        "file: fairSharing.preemptionStrategies: Unsupported value: "
        '["LessThanInitialShare","LessThanOrEqualToFinalShare"]: supported values: '
        '"LessThanOrEqualToFinalShare", "LessThanInitialShare", '
        '"LessThanOrEqualToFinalShare,LessThanInitialShare"'
    )


@pytest.mark.skipif(not GUIDE.is_dir(), reason="no guides in ../shared/guides")
def test_the_configuration_of_the_guide_means_fair_sharing() -> None:
    text = (GUIDE / "quota-configuration.yaml").read_text()
    assert read_quota_configuration(text, "guide").settings.fair_sharing == BOTH


def test_pods_are_waited_for_unless_an_old_file_does_not_ask() -> None:
    assert old().pods_ready is None
    assert old(waitForPodsReady={"timeout": "1m"}).pods_ready is None
    assert old(waitForPodsReady={"enable": True}).pods_ready == PodsReady(300.0, 300.0, True)
    explicit = {"enable": True, "blockAdmission": False}
    assert old(waitForPodsReady=explicit).pods_ready == PodsReady(300.0, 300.0, False)
    assert new().pods_ready == new(waitForPodsReady={}).pods_ready == THIRTY
    assert new(featureGates={"DisableWaitForPodsReady": True}).pods_ready is None


def test_requeuing_is_read_whole() -> None:
    strategy = {
        "timestamp": "Creation",
        "backoffLimitCount": 3,
        "backoffBaseSeconds": 10,
        "backoffMaxSeconds": 100,
    }
    found = new(
        waitForPodsReady={
            "timeout": "90s",
            "recoveryTimeout": "3m",
            "blockAdmission": True,
            "requeuingStrategy": strategy,
        }
    )
    assert found.pods_ready == PodsReady(90.0, 180.0, True, False, Backoff(10, 100, 3))
    assert found.backoff == Backoff(10, 100, 3)
    assert (found.settings.block_admission, found.settings.eviction_timestamp) == (True, False)
    assert old().backoff == Backoff()


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        (
            {"waitForPodsReady": {"timeout": "-1s"}},
            'waitForPodsReady.timeout: Invalid value: "-1s": must be greater than or equal to 0',
        ),
        (
            {"waitForPodsReady": {"requeuingStrategy": {"backoffBaseSeconds": -1}}},
            (
                "waitForPodsReady.requeuingStrategy.backoffBaseSeconds: Invalid value: -1: "
                "must be greater than or equal to 0"
            ),
        ),
        (
            {"waitForPodsReady": {"requeuingStrategy": {"timestamp": "Now"}}},
            (
                'waitForPodsReady.requeuingStrategy.timestamp: Unsupported value: "Now": '
                'supported values: "Creation", "Eviction"'
            ),
        ),
        (
            {"integrations": {"frameworks": ["batch/job", "batch/job"]}},
            'integrations.frameworks[1]: Duplicate value: "batch/job"',
        ),
        (
            {"integrations": {"externalFrameworks": ["Foo.v1"]}},
            (
                'integrations.externalFrameworks[0]: Invalid value: "Foo.v1": '
                "must be format, 'Kind.version.group.com'"
            ),
        ),
        (
            {"managedJobsNamespaceSelector": {}},
            (
                "managedJobsNamespaceSelector: Invalid value: {}: "
                'should not match the "kube-system" namespace'
            ),
        ),
        (
            {"admissionFairSharing": {"usageSamplingInterval": "0s"}},
            (
                'admissionFairSharing.usageSamplingInterval: Invalid value: "0s": '
                "must be greater than 0"
            ),
        ),
        (
            {"admissionFairSharing": {"usageSamplingInterval": "-1m"}},
            (
                'admissionFairSharing.usageSamplingInterval: Invalid value: "-1m": '
                "must be greater than 0"
            ),
        ),
        (
            {"admissionFairSharing": {"usageHalfLifeTime": "-1m"}},
            (
                'admissionFairSharing.usageHalfLifeTime: Invalid value: "-1m": '
                "must be greater than or equal to 0"
            ),
        ),
        (
            {"internalCertManagement": {"webhookServiceName": "0-service"}},
            (
                'internalCertManagement.webhookServiceName: Invalid value: "0-service": '
                "a DNS-1035 label must consist of"
            ),
        ),
        (
            {"internalCertManagement": {"webhookSecretName": "secret!"}},
            (
                'internalCertManagement.webhookSecretName: Invalid value: "secret!": '
                "a lowercase RFC 1123 subdomain must consist of"
            ),
        ),
        (
            {"visibilityServer": {"bindAddress": "localhost"}},
            (
                'visibilityServer.bindAddress: Invalid value: "localhost": '
                "must be a valid IP address"
            ),
        ),
        (
            {"visibilityServer": {"bindPort": 0}},
            ("visibilityServer.bindPort: Invalid value: 0: must be a valid port number (1-65535)"),
        ),
        (
            {"tls": {"minVersion": "VersionTLS13", "cipherSuites": ["A"]}},
            (
                'tls.cipherSuites: Invalid value: ["A"]: '
                "may not be specified when `minVersion` is 'VersionTLS13'"
            ),
        ),
        (
            {"resources": {"transformations": [{"input": "a", "strategy": "Drop"}]}},
            (
                'resources.transformations[0].strategy: Unsupported value: "Drop": '
                'supported values: "Retain", "Replace"'
            ),
        ),
        (
            {"resources": {"deviceClassMappings": [{"name": "a/b", "deviceClassNames": []}]}},
            (
                "resources.deviceClassMappings[0].deviceClassNames: Required value: at least one "
                "device class name is required"
            ),
        ),
        (
            {
                "resources": {
                    "deviceClassMappings": [
                        {"name": "a/b", "deviceClassNames": ["c"]},
                        {"name": "a/d", "deviceClassNames": ["c"]},
                    ]
                }
            },
            (
                'resources.deviceClassMappings[1].deviceClassNames[0]: Invalid value: "c": device '
                "class already mapped to resource a/b"
            ),
        ),
        (
            {"resources": {"deviceClassMappings": [{"name": "a", "deviceClassNames": ["c"]}] * 2}},
            'resources.deviceClassMappings[1].name: Duplicate value: "a"',
        ),
        (
            {"resources": {"deviceClassMappings": [{"name": "a", "deviceClassNames": ["c"] * 9}]}},
            (
                "resources.deviceClassMappings[0].deviceClassNames: Too many: 9: must have at most "
                "8 items"
            ),
        ),
        (
            {
                "resources": {
                    "deviceClassMappings": [
                        {"name": "a", "deviceClassNames": ["c"], "sources": [{"counter": {}}]}
                    ]
                }
            },
            (
                "resources.deviceClassMappings[0].sources[0].counter: Invalid value: true: counter "
                "sources require KueueDRAIntegrationPartitionableDevices to be enabled"
            ),
        ),
        (
            {"resources": {"transformations": [{"input": "a"}, {"input": "a"}]}},
            'resources.transformations[1].input: Duplicate value: "a"',
        ),
        (
            {
                "resources": {
                    "excludeResourcePrefixes": ["a"],
                    "quotaCheckStrategy": "IgnoreUndeclared",
                }
            },
            (
                'resources.excludeResourcePrefixes: Invalid value: ["a"]: '
                "excludeResourcePrefixes is not allowed when quotaCheckStrategy is IgnoreUndeclared"
            ),
        ),
        (
            {"webhook": {"port": 70000}},
            "webhook.port: Invalid value: 70000: must be a valid port number (1-65535)",
        ),
        ({"featureGates": {"Nonsense": True}}, "unrecognized feature gate: Nonsense"),
    ],
)
def test_a_mistake_is_named_in_the_references_words(keys: dict[str, Any], text: str) -> None:
    assert text in refusal(new, **keys)


def test_all_mistakes_are_told_at_once() -> None:
    told = refusal(
        new, waitForPodsReady={"timeout": "-1s"}, integrations={"frameworks": ["nonsense"]}
    )
    assert "waitForPodsReady.timeout" in told and "integrations.frameworks[0]" in told
    assert told.startswith("file: ")


@pytest.mark.parametrize(
    ("version", "keys", "path"),
    [
        (new, {"fairsharing": {}}, "fairsharing"),
        (new, {"queueVisibility": {}}, "queueVisibility"),
        (old, {"visibilityServer": {}}, "visibilityServer"),
        (new, {"integrations": {"podOptions": {}}}, "integrations.podOptions"),
        (new, {"resources": {"transformations": [{"in": "x"}]}}, "resources.transformations[0].in"),
        (
            new,
            {"waitForPodsReady": {"requeuingStrategy": {"x": 1}}},
            "waitForPodsReady.requeuingStrategy.x",
        ),
        (old, {"resources": {"quotaCheckStrategy": "x"}}, "resources.quotaCheckStrategy"),
        (new, {"leaderElection": {"leaderElected": True}}, "leaderElection.leaderElected"),
        (new, {"visibilityServer": {"port": 1}}, "visibilityServer.port"),
        (old, {"health": {"bindAddress": ":1"}}, "health.bindAddress"),
        (old, {"controller": {"workers": 1}}, "controller.workers"),
    ],
)
def test_an_unknown_key_is_named_by_its_path(version: Any, keys: dict[str, Any], path: str) -> None:
    assert f'strict decoding error: unknown field "{path}"' in refusal(version, **keys)


def test_another_kind_or_version_is_refused() -> None:
    documents: list[Any] = [{}, {"apiVersion": NEW}, {"kind": "Configuration"}, []]
    for document in documents:
        with pytest.raises(UsageError, match=r"accepted: .*Configuration"):
            quota_configuration(document, "file")


def test_requests_are_transformed_as_the_file_says() -> None:
    rule = {"input": "gpu", "strategy": "Replace", "multiplyBy": "n", "outputs": {"cpu": "500m"}}
    found = new(resources={"excludeResourcePrefixes": ["x/"], "transformations": [rule]}).rules
    assert found.excluded_prefixes == ("x/",)
    assert found.transformations == {"gpu": Transformation({"cpu": Fraction(1, 2)}, "n", False)}


def test_devices_of_claims_count_as_the_file_says() -> None:
    mappings = [
        {"name": "example.com/gpu", "deviceClassNames": ["small", "large"]},
        {"name": "example.com/nic", "deviceClassNames": ["nic"]},
    ]
    assert new(resources={"deviceClassMappings": mappings}).rules.device_classes == {
        "small": "example.com/gpu",
        "large": "example.com/gpu",
        "nic": "example.com/nic",
    }


def test_a_factor_of_an_output_is_as_small_as_it_is_written() -> None:
    rule = {"input": "memory", "outputs": {"example.com/credits": "1n"}}
    found = new(resources={"transformations": [rule]}).rules
    credits = {"memory": 80 * 10**9, "example.com/credits": 80}
    assert found.apply({"memory": 80 * 10**9}) == credits


def test_usage_based_admission_is_off_until_it_is_named() -> None:
    assert new().usage_based is None and not new().settings.admission_fair_sharing
    sharing = {"usageHalfLifeTime": "2h", "resourceWeights": {"cpu": 2, "memory": 0.5}}
    found = new(admissionFairSharing=sharing)
    assert found.usage_based == UsageBased(7200.0, 300.0, {"cpu": 2.0, "memory": 0.5})
    assert found.settings.admission_fair_sharing


def test_every_gate_of_the_engine_can_be_switched() -> None:
    default = quota_configuration().settings.gates
    found = new(featureGates={name: not on for name, on in DEFAULTS.items()}).settings.gates
    for each in fields(default):
        assert getattr(found, each.name) is not getattr(default, each.name), each.name


def test_a_profile_of_topologies_goes_off_with_them_and_cannot_be_on_without() -> None:
    off = {"TopologyAwareScheduling": False}
    found = new(featureGates=off)
    assert not found.gates["TASProfileMixed"]
    assert not found.settings.gates.topology.profile_mixed
    assert new(featureGates={**off, "TASProfileMixed": False}) == found
    told = refusal(new, featureGates={**off, "TASProfileMixed": True})
    assert "cannot use a TAS profile with TAS disabled" in told


def test_gates_of_what_is_not_here_are_accepted_and_change_nothing() -> None:
    found = new(featureGates={"TASCacheTopologyTree": False, "LocalQueueMetrics": True})
    assert found.settings == new().settings
    told = refusal(new, featureGates={"TASCacheTopologyTree": "no", "TASProfileMixt": True})
    assert 'featureGates[TASCacheTopologyTree]: Invalid value: "no": must be true or false' in told
    assert "unrecognized feature gate: TASProfileMixt; accepted: " in told
    elastic = "ElasticJobsViaWorkloadSlicesWithTAS"
    assert new(featureGates={elastic: False}).settings == new().settings
    assert f"featureGates: {elastic}: must not be on" in refusal(new, featureGates={elastic: True})


@pytest.mark.skipif(not GATES.exists(), reason="the published cases are not here")
def test_every_gate_of_the_reference_is_accepted_with_its_default() -> None:
    known = json.loads(GATES.read_text(encoding="utf-8"))
    found = new(featureGates=known)
    assert found.settings == new().settings
    assert {name: on for name, on in known.items() if name in DEFAULTS} == DEFAULTS


def test_gates_come_from_one_place() -> None:
    found = new(featureGates={"PriorityBoost": True, "PartialAdmission": False})
    assert (found.settings.gates.priority_boost, found.settings.gates.partial_admission) == (
        True,
        False,
    )
    assert found.gates["PriorityBoost"] and found.gates["MultiKueue"]
    document = {"apiVersion": NEW, "kind": "Configuration", "featureGates": {"PriorityBoost": True}}
    with pytest.raises(UsageError, match="feature gates for CLI and configuration cannot both"):
        quota_configuration(document, "file", gates={"PriorityBoost": True})


def test_what_concerns_the_process_is_accepted_and_told() -> None:
    found = new(
        leaderElection={"leaderElect": True},
        clientConnection={"qps": 50},
        metrics={"bindAddress": ":8443", "enableClusterQueueResources": True},
        objectRetentionPolicies={"workloads": {"afterFinished": "1h"}},
    )
    assert [notice.where for notice in found.notices] == ["leaderElection", "clientConnection"]
    assert (found.queue_metrics, found.after_finished_s, found.after_deactivated_s) == (
        True,
        3600.0,
        None,
    )


# -- the section `quota` ---------------------------------------------------------------------------


def test_a_policy_alone_is_enough() -> None:
    assert quota_settings().configuration.settings.fair_sharing is None
    found = quota_settings({"preemptionPolicy": "FairSharing"})
    assert found.configuration.settings.fair_sharing == BOTH
    assert quota_settings({"preemptionPolicy": "Classical"}).configuration.settings == Settings()


def test_a_policy_and_a_configuration_that_differ_are_refused() -> None:
    classical = {"apiVersion": NEW, "kind": "Configuration"}
    fair = {**classical, "fairSharing": {"preemptionStrategies": ["LessThanInitialShare"]}}
    same = quota_settings({"preemptionPolicy": "FairSharing", "configuration": fair})
    assert same.configuration.settings.fair_sharing == (INITIAL,)
    with pytest.raises(UsageError, match="accepted: Classical, as quota"):
        quota_settings({"preemptionPolicy": "FairSharing", "configuration": classical})
    with pytest.raises(UsageError, match="accepted: FairSharing, as quota"):
        quota_settings({"preemptionPolicy": "Classical", "configuration": fair})


def test_the_profile_best_switches_its_parts_on_unless_they_are_said() -> None:
    plain = quota_settings().configuration.settings
    assert (plain.best, plain.idle_first, plain.harm_order) == (False, False, False)
    best = quota_settings({"profile": "best"}).configuration.settings
    assert (best.best, best.idle_first, best.harm_order) == (True, True, True)
    part = quota_settings({"profile": "best", "harmOrder": False}).configuration.settings
    assert (part.best, part.idle_first, part.harm_order) == (True, True, False)
    with pytest.raises(UsageError, match="accepted: compatible, best"):
        quota_settings({"profile": "cheapest"})


def test_own_options_are_off_and_loops_are_held() -> None:
    found = quota_settings()
    assert (found.prove_nodes, found.configuration.settings.idle_first) == (False, False)
    assert not found.configuration.settings.harm_order
    assert found.configuration.settings.max_save_wait == HOUR
    assert (found.loop_window, found.loop_limit, found.job_failure_policy) == (HOUR, 2, "Ignore")
    section = {
        "proveNodes": True,
        "idleFirst": True,
        "harmOrder": True,
        "maxSaveWait": "0s",
        "loopWindow": "5m",
        "loopLimit": 0,
        "webhooks": {
            "jobFailurePolicy": "Fail",
            "namespaceSelector": {"matchLabels": {"team": "a"}},
        },
    }
    text = yaml.safe_dump({"quota": section, "gpuPreemption": {}})
    found = quota_settings(read_quota(text, "file"), "file")
    assert (found.prove_nodes, found.configuration.settings.idle_first) == (True, True)
    assert found.configuration.settings.harm_order
    assert found.configuration.settings.max_save_wait == 0
    assert (found.loop_window, found.loop_limit, found.job_failure_policy) == (
        5 * MINUTE,
        0,
        "Fail",
    )
    assert found.webhook_selector == {"matchLabels": {"team": "a"}}


@pytest.mark.parametrize(
    ("section", "text"),
    [
        ({"policy": "x"}, "--config: quota: unknown key 'policy'; accepted: preemptionPolicy"),
        ({"preemptionPolicy": "Fair"}, "quota.preemptionPolicy: 'Fair'; accepted: Classical"),
        ({"loopLimit": -1}, "quota.loopLimit: -1; accepted: an integer"),
        (
            {"webhooks": {"namespaceSelector": {}}},
            'should not match the "kube-system" namespace',
        ),
    ],
)
def test_a_bad_option_is_named(section: dict[str, Any], text: str) -> None:
    with pytest.raises(UsageError) as raised:
        quota_settings(section)
    assert text in str(raised.value)


def test_a_minimum_runtime_is_a_duration_of_a_week_at_most() -> None:
    preempt, reclaim = "reprieve.dev/preempt-min-runtime", "reprieve.dev/reclaim-min-runtime"
    assert min_runtimes(None) == min_runtimes({"other": "soon"}) == MinRuntimes()
    assert min_runtimes({preempt: "90s", reclaim: "1500ms"}) == MinRuntimes(90, 2)
    accepted = "accepted: durations from 0s to 168h0m0s, such as 90s, 5m or 1h"
    for text in ("soon", "-1s", ""):
        said = f"annotation {preempt} is {text!r} and protects no work; {accepted}"
        assert min_runtimes({preempt: text, reclaim: "1m"}) == MinRuntimes(0, 60, (said,))
    said = f"annotation {reclaim} is '1000h', cut; {accepted}"
    assert min_runtimes({reclaim: "1000h"}) == MinRuntimes(0, 168 * 3_600, (said,))


def test_a_config_map_is_named_instead_of_a_configuration() -> None:
    section = {"configurationMap": "kueue-manager-config"}
    text = yaml.safe_dump(
        {
            "apiVersion": NEW,
            "kind": "Configuration",
            "fairSharing": {"preemptionStrategies": [str(FINAL)]},
        }
    )
    before = QuotaSource(section, "--config", "ops").settings()
    assert before.configuration_map == "kueue-manager-config"
    found = QuotaSource(section, "--config", "ops").settings(text)
    assert found.configuration.settings.fair_sharing == (FINAL,)
    with pytest.raises(UsageError, match=r"accepted: FairSharing, as quota\.configurationMap says"):
        QuotaSource({**section, "preemptionPolicy": "Classical"}).settings(text)
    with pytest.raises(UsageError, match="either configuration or configurationMap, not both"):
        quota_settings({**section, "configuration": {}})


def test_changes_of_a_configuration_are_named_with_when_they_take_effect() -> None:
    before = "{waitForPodsReady: {timeout: 5m, recoveryTimeout: 5m}, featureGates: {A: true}}"
    after = "{waitForPodsReady: {timeout: 9m, recoveryTimeout: 5m}, integrations: {x: [1]}}"
    found = configuration_changes(before, after)
    assert [(str(each), each.live) for each in found] == [
        ("featureGates.A: true -> unset (when the operator restarts)", False),
        ("integrations.x: unset -> [1] (when the operator restarts)", False),
        ('waitForPodsReady.timeout: "5m" -> "9m"', True),
    ]
    assert configuration_changes(before, f"# nothing new\n{before}") == ()
