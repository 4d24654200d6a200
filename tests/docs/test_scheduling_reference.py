"""What `docs/scheduling.md` says about options, gates and configuration is what is accepted."""

from __future__ import annotations

import re

import pytest
import yaml

from kubeworld.units.durations import SECOND, parse_duration
from reprieve.engine.placement.profile import Profile
from reprieve.settings.gates import GATES
from reprieve.settings.scheduler_arguments import ARGUMENTS
from reprieve.settings.scheduling import read_scheduling, scheduling_settings
from tests.docs.tables import DOCS, table, topic

TEXT = topic("scheduling")
#: What the package in `examples/plugins` offers.
SAMPLES = {"EmptiestDomain": ("placementScore",), "UrgentOnly": ("podGroupPostFilter",)}


def rows(heading: str) -> list[list[str]]:
    return table(TEXT, heading)


def test_every_gate_is_described_with_its_default() -> None:
    described = [tuple(row[:3]) for row in rows("gate")]
    expected = [
        (gate.name, "on" if gate.default else "off", ", ".join(gate.needs)) for gate in GATES
    ]
    assert described == expected
    without = {gate.name for gate in GATES if not gate.field}
    assert {row[0] for row in rows("gate") if row[3].startswith("accepted")} == without


def test_every_option_is_described_with_its_default() -> None:
    settings = scheduling_settings()
    policy = settings.policy
    shown = {row[0]: row[1] for row in rows("option `scheduling.`")}
    assert parse_duration(shown.pop("victimDeadline")) == settings.victim_deadline
    assert parse_duration(shown.pop("maxGrace")) == settings.max_grace
    assert (shown.pop("preemptionDelay"), settings.delay) == ("none", None)
    assert (shown.pop("notice"), settings.notice.most) == ("{max: 0s}", 0)
    assert parse_duration(shown.pop("maxLostWork")) == policy.max_lost_work * SECOND
    assert parse_duration(shown.pop("maxMinRuntime")) == policy.max_min_runtime == 0
    assert shown == {
        "profile": policy.choice.value,
        "secondReprievePass": str(policy.second_reprieve_pass).lower(),
        "kepMessages": str(policy.kep_messages).lower(),
        "simulateClaims": str(policy.simulate_claims).lower(),
        "binarySearchPriority": str(policy.binary_search_priority).lower(),
        "maxPlacements": str(policy.max_placements),
        "topologyPreemption": str(policy.topology_preemption).lower(),
        "cascadeAware": str(policy.cascade_aware).lower(),
        "harmOrder": str(policy.harm_order).lower(),
        "nonUniformGroups": str(policy.non_uniform_groups).lower(),
        "preemptionPriority": "{}",
        "compositePriority": policy.composite_priority.value,
        "featureGates": "see below",
        "configuration": "see below",
        "gangs": "see below",
    }


def test_every_argument_is_described() -> None:
    described = {
        row[0]: [word for word in re.findall(r"[a-z]\w+", row[1]) if word in ARGUMENTS[row[0]]]
        for row in rows("arguments of")
    }
    assert described == {name: list(keys) for name, keys in ARGUMENTS.items()}


def blocks() -> list[str]:
    return re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)


def configurations() -> list[str]:
    return [block for block in blocks() if block.startswith("scheduling:")]


@pytest.mark.parametrize("block", configurations())
def test_the_configuration_examples_are_accepted(block: str) -> None:
    settings = scheduling_settings(read_scheduling(block, "docs/scheduling.md"), extra=SAMPLES)
    assert settings.notices == ()
    assert settings.policy.profiles[0].scheduler_name == "default-scheduler"


def test_the_example_of_the_options_shows_the_defaults() -> None:
    page = (DOCS / "scheduling" / "options.md").read_text(encoding="utf-8")
    block = re.search(r"```yaml\n(.*?)```", page, re.DOTALL)
    assert block is not None
    given = yaml.safe_load(block[1])["scheduling"]
    del given["featureGates"]
    settings = scheduling_settings(given)
    assert settings.policy.profiles == (Profile(),)
    default = scheduling_settings()
    assert settings.policy.gates == default.policy.gates
    assert settings.victim_deadline == default.victim_deadline
