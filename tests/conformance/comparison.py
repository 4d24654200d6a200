"""Outcome against expectation, by the rules of the vectors' README.

Within objects only the keys of the expectation are checked, and `null` means absent or empty; lists
are compared in full and in order. What a format compares in full is said in `EXACT`.
"""

from __future__ import annotations

from typing import Any

EXACT = ("resources",)
# Expected per resource name or workload: what is not listed must not happen.
WHOLE_MAPPINGS = {"decision_evaluate": ("preempt",)}


def differences(plane_format: str, outcome: Any, expected: Any) -> list[str]:
    """Return one line for each difference."""
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
    _compare(outcome, expected, "", found)
    return found


def _compare(outcome: Any, expected: Any, where: str, found: list[str]) -> None:
    if expected is None:
        if outcome not in (None, "", [], {}, False):
            found.append(f"{where}: {outcome!r} should be absent")
    elif isinstance(expected, dict):
        if not isinstance(outcome, dict):
            found.append(f"{where}: {outcome!r} is not {expected!r}")
            return
        for key, value in expected.items():
            _compare(outcome.get(key), value, f"{where}.{key}", found)
    elif isinstance(expected, list):
        if not isinstance(outcome, list) or len(outcome) != len(expected):
            found.append(f"{where}: {outcome!r} is not {expected!r}")
            return
        for index, value in enumerate(expected):
            _compare(outcome[index], value, f"{where}[{index}]", found)
    elif outcome != expected and not (expected == "" and outcome is None):
        found.append(f"{where}: {outcome!r} is not {expected!r}")
