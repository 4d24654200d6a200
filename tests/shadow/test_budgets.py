"""What harm budgets would have put off of recorded preemptions, for whom and for how long."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from kubeworld.units.durations import HOUR, MINUTE
from kubeworld.units.instants import Nanos, format_instant, parse_instant
from reprieve.api.reprieve import Preemption
from reprieve.cli.texts.shadow_text import shadow_text
from reprieve.engine.harm_budgets.budget import HarmBudget, Scope
from reprieve.shadow.budgets import Delayed, delayed
from reprieve.shadow.candidate import read_candidate
from reprieve.shadow.comparison import compared
from reprieve.shadow.document import document
from reprieve.simulation.harm_budgets import namespace_labels
from reprieve.units.errors import UsageError
from tests.shadow.records import own_plugins, quota_record

START = parse_instant("2026-03-03T10:00:00Z")  # a Tuesday
LOST = 3_600  # device seconds of each


def recorded(*minutes: int) -> list[Preemption]:
    """Return records of one displacement each, so many minutes after the start."""
    found = []
    for number, minute in enumerate(minutes):
        record: dict[str, Any] = quota_record(f"quota-{number}")
        at = format_instant(Nanos(START + minute * MINUTE))
        victims = [{**each, "lostDeviceSeconds": LOST} for each in record["spec"]["victims"]]
        record = {**record, "spec": {**record["spec"], "decidedAt": at, "victims": victims}}
        found.append(msgspec.convert(record, Preemption))
    return found


def late(records: list[Preemption], **spec: Any) -> list[Delayed]:
    budget = HarmBudget("day", **{"window": HOUR, **spec})
    return delayed(records, [budget], namespace_labels)


def test_what_does_not_fit_is_put_off_until_it_does_and_counts_from_then_on() -> None:
    # The second would have been at 60, and the third once that has left: 120 in place of 70.
    records = recorded(0, 10, 70)
    assert late(records, displacements=1) == [
        Delayed("2026-03-03", "ns", ["day"], 2, (50 + 50) * 60)
    ]
    assert late(records, displacements=2) == []
    assert late(records[::-1], displacements=1) == late(records, displacements=1)


def test_a_budget_of_gpu_hours_counts_what_records_say_was_lost() -> None:
    assert late(recorded(0, 10), lost_device_seconds=2 * LOST) == []
    assert late(recorded(0, 10), lost_device_seconds=LOST) == [
        Delayed("2026-03-03", "ns", ["day"], 1, 50 * 60)
    ]


def test_what_fits_never_is_said_so_and_ends() -> None:
    assert late(recorded(0), displacements=0, window=24 * HOUR, scope=Scope.CAUSED) == [
        Delayed("2026-03-03", "ns", ["day"], 1, 0, never=1)
    ]


def test_a_budget_that_does_not_concern_a_plan_puts_nothing_off() -> None:
    assert late(recorded(0, 1), displacements=0, planes=frozenset({"idle"})) == []
    assert late(recorded(0, 1), displacements=0, holds=False) == []


def test_the_answer_says_what_a_budget_of_a_file_would_have_cost_whom(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text("harmBudgets:\n  batch-day: {limits: {displacements: 1}, window: 1h}\n")
    candidate, records = read_candidate(path), recorded(0, 19)
    found = document(
        candidate,
        [compared(each, candidate, own_plugins) for each in records],
        delayed=delayed(records, candidate.harm_budgets, namespace_labels),
    )
    said = "with harm budget batch-day ns would have waited 41 minutes more on Tuesday 2026-03-03"
    assert f"{said} (1 preemption)" in list(shadow_text(found, 200))
    assert msgspec.to_builtins(found)["delayed"] == [
        {
            "day": "2026-03-03",
            "tenant": "ns",
            "budgets": ["batch-day"],
            "plans": 1,
            "waitedSeconds": 41 * 60,
            "never": 0,
        }
    ]
    assert any("the longest it could have been" in each for each in found.cannot_know)


def test_a_budget_that_a_cluster_would_not_accept_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text("harmBudgets:\n  day: {window: 1h}\n")
    with pytest.raises(UsageError, match="neither displacements nor lostGpuHours"):
        read_candidate(path)
