"""Outcome against expectation, by the rules of the vectors' README.

Within objects only the keys of the expectation are checked, and `null` means absent or empty; lists
are compared in full and in order. What a format compares in full is said in `EXACT`.

Two texts of a GpuWorkload are the same when they say the same: a duration in its short or long
form (difference D7), and why a victim went, where the demand asks for several resources and the
reference names whichever its map gives first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from typing import Any

from kubeworld.units.durations import InvalidDuration, parse_duration

EXACT = ("resources",)
# Formats that are about how a duration is written.
WRITTEN = ("durations", "duration_format")
_WHY = re.compile(r"Preempted to free (?P<amounts>.+) for pending workload (?P<demand>\S+)")
# Expected per resource name or workload: what is not listed must not happen.
WHOLE_MAPPINGS = {"decision_evaluate": ("preempt",)}


def differences(plane_format: str, outcome: Any, expected: Any, given: Any = None) -> list[str]:
    """Return one line for each difference. `given`: the case's input, for who asked for what."""
    if plane_format in EXACT:
        return [] if outcome == (expected or {}) else [f"{outcome!r} is not {expected!r}"]
    found: list[str] = []
    for key in WHOLE_MAPPINGS.get(plane_format, ()):
        surplus = sorted(set(outcome[key]) - set(expected[key]))
        found += [f"{key}: {name} is not expected" for name in surplus]
    if plane_format == "owner_resolution" and isinstance(expected, dict) and "error" in expected:
        text = outcome.get("error", "")
        return [] if expected["error"] in text else [f"{text!r} lacks {expected['error']!r}"]
    if plane_format == "metrics_scrape" and expected.get("samples", 0) is None:
        expected = {key: value for key, value in expected.items() if key != "samples"}
    if plane_format == "metrics_scrape" and "aggregate" in expected:
        wanted = {k: {v["policy"]: v["value"]} for k, v in expected["aggregate"].items()}
        expected = {**expected, "aggregate": wanted}
    alike = _Alike(plane_format not in WRITTEN, _demands(given))
    _compare(outcome, expected, "", found, alike)
    return found


class _Alike:
    """Which texts say the same. `demands`: workload -> resources that it requests."""

    def __init__(self, durations: bool, demands: Mapping[str, Set[str]]) -> None:
        self._durations = durations
        self._demands = demands

    def __call__(self, one: Any, other: Any) -> bool:
        if not isinstance(one, str) or not isinstance(other, str):
            return False
        return (self._durations and _same_duration(one, other)) or self._same_reason(one, other)

    def _same_reason(self, one: str, other: str) -> bool:
        ours, theirs = _WHY.fullmatch(one), _WHY.fullmatch(other)
        if ours is None or theirs is None or ours["demand"] != theirs["demand"]:
            return False
        amounts = [_amounts(found["amounts"]) for found in (ours, theirs)]
        asked = self._demands.get(ours["demand"], set())
        return all(each.keys() <= asked for each in amounts) and all(
            amounts[0][name] == amounts[1][name] for name in amounts[0].keys() & amounts[1].keys()
        )


def _demands(given: Any) -> dict[str, set[str]]:
    workloads = given.get("workloads", ()) if isinstance(given, dict) else ()
    return {
        each["metadata"]["name"]: set(each["spec"].get("gpuResources") or ()) for each in workloads
    }


def _amounts(text: str) -> dict[str, str]:
    pairs = (each.split(" ", 1) for each in text.split(", "))
    return {pair[1]: pair[0] for pair in pairs if len(pair) == 2}


def _same_duration(one: str, other: str) -> bool:
    try:
        return parse_duration(one) == parse_duration(other)
    except InvalidDuration:
        return False


def _compare(outcome: Any, expected: Any, where: str, found: list[str], alike: _Alike) -> None:
    if expected is None:
        if outcome not in (None, "", [], {}, False):
            found.append(f"{where}: {outcome!r} should be absent")
    elif isinstance(expected, dict):
        if not isinstance(outcome, dict):
            found.append(f"{where}: {outcome!r} is not {expected!r}")
            return
        for key, value in expected.items():
            _compare(outcome.get(key), value, f"{where}.{key}", found, alike)
    elif isinstance(expected, list):
        if not isinstance(outcome, list) or len(outcome) != len(expected):
            found.append(f"{where}: {outcome!r} is not {expected!r}")
            return
        for index, value in enumerate(expected):
            _compare(outcome[index], value, f"{where}[{index}]", found, alike)
    elif (
        outcome != expected
        and not (expected == "" and outcome is None)
        and not alike(outcome, expected)
    ):
        found.append(f"{where}: {outcome!r} is not {expected!r}")
