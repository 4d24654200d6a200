"""The values schema names what the operator's own tables name."""

from __future__ import annotations

import json

import yaml

from reprieve.engine.idle.literal import SWITCHES
from reprieve.engine.idle.vendors import KNOWN_VENDORS
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
    preemption = SCHEMA["properties"]["gpuPreemption"]["properties"]
    assert set(values["gpuPreemption"]) == set(preemption)
