"""A candidate file changes what it says and nothing else; what changes nothing is told."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml

from reprieve.engine.idle.model import Fit
from reprieve.engine.idle.model import Policy as IdlePolicy
from reprieve.engine.placement.profile import Gates
from reprieve.engine.placement.profile import Policy as PlacingPolicy
from reprieve.engine.quota.model import Policy, Settings, Strategy
from reprieve.engine.quota.model import Preemption as Rules
from reprieve.engine.victim_choice import VictimChoice
from reprieve.settings.option import NO_DECISION
from reprieve.settings.options import OPTIONS
from reprieve.shadow.candidate import Candidate, read_candidate
from reprieve.units.errors import UsageError

BOTH = (Strategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE, Strategy.LESS_THAN_INITIAL_SHARE)


def candidate(folder: Path, content: Any) -> Candidate:
    path = folder / "candidate.yaml"
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return read_candidate(path)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"quota": {"preemptionPolicy": "FairSharing"}}, {"quota": {"fair_sharing": BOTH}}),
        ({"quota": {"preemptionPolicy": "Classical"}}, {"quota": {"fair_sharing": None}}),
        ({"quota": {"idleFirst": False}}, {"quota": {"idle_first": False}}),
        ({"quota": {"harmOrder": True}}, {"quota": {"harm_order": True}}),
        (
            {"quota": {"profile": "best"}},
            {
                "quota": {
                    "profile": VictimChoice.BEST,
                    "idle_first": True,
                    "harm_order": True,
                }
            },
        ),
        ({"scheduling": {"harmOrder": True}}, {"scheduling": {"harm_order": True}}),
        (
            {"scheduling": {"maxMinRuntime": "10m", "maxLostWork": "2h"}},
            {"scheduling": {"max_min_runtime": 600, "max_lost_work": 7_200}},
        ),
        (
            {"scheduling": {"featureGates": {"CompositePodGroup": True}}},
            {"scheduling": {"gates": Gates(composite_pod_group=True)}},
        ),
        (
            {"gpuPreemption": {"enabled": True, "fit": "Node", "irreducible": True}},
            {"idle": {"fit": Fit.NODE, "irreducible": True}},
        ),
        (
            {"gpuPreemption": {"enabled": True, "profile": "best"}},
            {"idle": {"choice": VictimChoice.BEST}},
        ),
        (
            {"preemption": {"withinClusterQueue": "LowerPriority"}},
            {"preemption": Rules(Policy.LOWER_PRIORITY)},
        ),
        ({"preemption": "Never", "replicas": 2}, {"preemption": Rules()}),
        ({"minRuntime": {"preempt": "10m"}}, {"preempt_min_runtime_s": 600}),
        ({"minRuntime": {"reclaim": "1h"}}, {"reclaim_min_runtime_s": 3_600}),
    ],
)
def test_a_key_replaces_its_own_fields_and_no_others(
    tmp_path: Path, content: Any, expected: dict[str, Any]
) -> None:
    found = candidate(tmp_path, content)
    assert found == Candidate("candidate.yaml", **expected, unused=found.unused)


def test_a_whole_configuration_replaces_all_that_it_decides(tmp_path: Path) -> None:
    document = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "fairSharing": {"preemptionStrategies": ["LessThanInitialShare"]},
    }
    found = candidate(tmp_path, {"quota": {"configuration": document}})
    assert found.quota.keys() == set(Settings.__slots__) - {
        "idle_first",
        "harm_order",
        "max_save_wait",
        "profile",
    }
    assert found.quota["fair_sharing"] == (Strategy.LESS_THAN_INITIAL_SHARE,)


def test_what_changes_no_recorded_decision_is_named_with_its_reason(tmp_path: Path) -> None:
    content = {
        "gpuPreemption": {"irreducible": True, "defaultThreshold": "5", "vendors": ["amd"]},
        "scheduling": {"victimDeadline": "5m"},
        "quota": {"loopLimit": 3},
        "governor": {"enforce": True},
        "strategy": "StrictFIFO",
        "image": {"tag": "1"},
    }
    assert candidate(tmp_path, content).unused == {
        "strategy": "a record holds the heads of the queues, not the queues",
        "governor": "the records name the lineages on hold",
        "gpuPreemption.defaultThreshold": (
            "the settings of each workload are read from the records"
        ),
        "gpuPreemption.vendors": "it changes no decision",
        "scheduling.victimDeadline": "the records name the overdue victims",
        "quota.loopLimit": "the records name the lineages on hold",
    }


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("quota: [1]", "candidate.yaml:1: quota: [1]; accepted: a mapping with "),
        ("replicas: 1\nquotas: {}", "candidate.yaml:2: policy: unknown key 'quotas'; accepted: "),
        ("quota: {idle: 1}", "candidate.yaml:1: quota: unknown key 'idle'; accepted: "),
        ("\nscheduling: {harmOrder: 3}", "candidate.yaml:2: scheduling.harmOrder: 3; accepted: "),
        ("gpuPreemption: {fit: Best}", "candidate.yaml:1: gpuPreemption.fit: "),
        ("gpuPreemption: {fits: Sum}", "candidate.yaml:1: gpuPreemption.fits: accepted: "),
        ("governor: {enforce: maybe}", "candidate.yaml:1: governor.enforce: 'maybe'; accepted: "),
        ("minRuntime: {preempt: long}", "candidate.yaml:1: minRuntime.preempt: "),
        ("preemption: Always", "candidate.yaml:1: preemption: 'Always'; accepted: "),
        ("own: x.py:X", "unknown key 'own'; accepted: "),
        ("{}", "nothing in it changes a recorded decision (it states nothing); accepted: "),
        (
            "governor: {enforce: true}",
            "nothing in it changes a recorded decision (governor: the records name the lineages",
        ),
        ("{", "candidate.yaml:1:2: not YAML"),
    ],
)
def test_what_is_wrong_is_named_in_one_line(tmp_path: Path, content: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        candidate(tmp_path, content)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_every_key_of_the_operator_is_applied_or_told_as_unused() -> None:
    silent = {
        (section, option.key)
        for section, options in OPTIONS.items()
        for option in options
        if not option.recorded and option.unrecorded == NO_DECISION
    }
    assert silent == {
        ("gpuPreemption", "enabled"),
        ("gpuPreemption", "metricsEndpoint"),
        ("gpuPreemption", "pollingInterval"),
        ("gpuPreemption", "vendors"),
        ("quota", "webhooks"),
        ("quota", "jobKinds"),
    }


def test_what_a_key_replaces_are_fields_of_the_recorded_policy() -> None:
    policies = {"gpuPreemption": IdlePolicy, "scheduling": PlacingPolicy, "quota": Settings}
    for section, options in OPTIONS.items():
        names = {each.name for each in fields(policies[section])}
        assert {name for option in options for name in option.recorded} <= names, section
