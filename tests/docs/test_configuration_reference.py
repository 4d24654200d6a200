"""What `docs/idle.md` says about settings is what the code accepts."""

from __future__ import annotations

import re

import yaml

from kubeworld.units.durations import parse_duration
from reprieve.api.kaiwo import SUFFIXES
from reprieve.settings.idle import FALLBACK, in_force
from reprieve.settings.start_up import read_config
from reprieve.settings.vendors import parse_vendors
from tests.docs.tables import table, topic

TEXT = topic("idle")
SETTINGS = {
    "grace-period": "grace_period",
    "threshold": "threshold",
    "policy": "policy",
    "aggregation": "aggregation",
    "ttl": "ttl",
}


def rows(heading: str) -> list[list[str]]:
    return table(TEXT, heading)


def test_every_annotation_is_described_with_its_built_in_value() -> None:
    table = rows("annotation `kaiwo.silogen.ai/gpu-preemption.`")
    assert sorted(row[0] for row in table) == sorted(SUFFIXES)
    for suffix, field in SETTINGS.items():
        (built_in,) = [row[3] for row in table if row[0] == suffix]
        shown = in_force(FALLBACK, field)
        if field in ("grace_period", "ttl"):
            assert parse_duration(built_in) == parse_duration(shown)
        else:
            assert built_in == shown


def test_the_configuration_examples_are_accepted() -> None:
    blocks = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)]
    sections = [block["gpuPreemption"] for block in blocks if "gpuPreemption" in block]
    assert len(sections) == 2
    for section in sections:
        accepted = read_config(yaml.safe_dump({"gpuPreemption": section}), "docs/idle.md")
        parse_vendors(accepted.get("vendors"))
