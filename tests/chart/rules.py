"""Reads the alert rules of the chart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import yaml

from tests.chart.helm import CHART

__all__ = ["LOST_DEVICES", "Rule", "groups", "rules"]

#: The default of the chart's value.
LOST_DEVICES: Final = 8
# In the order of the chart.
_FILES: Final = ("operator", "idle", "scheduling", "quota")


@dataclass(frozen=True, slots=True)
class Rule:
    """One alert."""

    alert: str
    expression: str
    lasting: str
    severity: str
    annotations: Mapping[str, str]


def groups(lost_devices: float = LOST_DEVICES) -> dict[str, Any]:
    """Return all groups as one rule file."""
    found: list[Any] = []
    for name in _FILES:
        text = (CHART / "files" / "alerts" / f"{name}.yaml").read_text()
        found += yaml.safe_load(text.replace("LOST_DEVICES", f"{lost_devices:g}"))["groups"]
    return {"groups": found}


def rules(lost_devices: float = LOST_DEVICES) -> Iterator[Rule]:
    """Yield the rules of all planes."""
    for group in groups(lost_devices)["groups"]:
        for rule in group["rules"]:
            yield Rule(
                rule["alert"],
                rule["expr"],
                rule.get("for", "0s"),
                rule["labels"]["severity"],
                rule["annotations"],
            )
