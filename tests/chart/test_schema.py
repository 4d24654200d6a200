"""The values schema names what the operator's own tables name."""

from __future__ import annotations

import json

import pytest
import yaml

from reprieve.engine.idle.literal import SWITCHES
from reprieve.engine.idle.vendors import KNOWN_VENDORS
from reprieve.settings.gates import GATES
from reprieve.settings.scheduling import scheduling_settings
from reprieve.units.errors import UsageError
from tests.chart.helm import CHART

SCHEMA = json.loads((CHART / "values.schema.json").read_text())


def test_the_literal_switches_are_those_of_the_engine() -> None:
    literal = SCHEMA["properties"]["gpuPreemption"]["properties"]["literal"]
    assert list(literal["properties"]) == [switch.name for switch in SWITCHES]


def test_the_vendors_are_those_of_the_engine() -> None:
    assert SCHEMA["definitions"]["vendor"]["anyOf"][0]["enum"] == list(KNOWN_VENDORS)


def test_every_value_of_the_file_has_a_schema() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert set(values) == set(SCHEMA["properties"]) - {"global"}
    for section in ("gpuPreemption", "scheduling"):
        assert set(values[section]) == set(SCHEMA["properties"][section]["properties"]), section


def test_the_feature_gates_are_those_of_the_settings() -> None:
    gates = SCHEMA["properties"]["scheduling"]["properties"]["featureGates"]
    assert list(gates["properties"]) == [gate.name for gate in GATES]
    assert gates["additionalProperties"] is False


def test_the_settings_of_older_gangs_are_those_of_the_settings() -> None:
    gangs = SCHEMA["properties"]["scheduling"]["properties"]["gangs"]["properties"]
    words = {name: each["enum"] for name, each in gangs.items() if "enum" in each}
    for name, accepted in words.items():
        for word in accepted:
            scheduling_settings({"gangs": {name: word}})
    with pytest.raises(UsageError) as refused:
        scheduling_settings({"gangs": {"other": "x"}})
    assert all(name in str(refused.value) for name in gangs)


def test_the_values_of_scheduling_are_its_defaults() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())["scheduling"]
    assert values.pop("schedulerNames") == ["reprieve-scheduler"]
    assert values.pop("configuration") == {}
    assert values.pop("sharedNodes") is False, "an option of the command line"
    assert values.pop("strictDisruptionMode") is False, "a policy of the API server"
    given, default = scheduling_settings(values), scheduling_settings()
    assert given.policy == default.policy
    assert given.victim_deadline == default.victim_deadline
