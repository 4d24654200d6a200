"""Why it waited last night: told from the decision log, with the files that it was rotated into."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from reprieve.cli.explain import explain
from reprieve.engine.idle.model import Policy
from reprieve.records.idle.record import encode
from reprieve.units.errors import UsageError
from tests.engine.rows import NOW, demand, snapshot

WORKLOAD = "job-train-0a1b2"
RECORDED = encode(snapshot(demand("wanted", gpus=8)), Policy(), NOW)


def line(time: str, reason: str, previous: str = "", **other: Any) -> str:
    """Return a line about the Workload of job train."""
    said = {
        "time": f"2026-11-20T{time}:00.000000Z",
        "plane": "quota",
        "kind": "Workload",
        "namespace": "team",
        "name": WORKLOAD,
        "uid": "u-1",
        "reason": reason,
        "previous": previous,
        "sentence": f"The sentence of {reason}" if reason else "It waits no longer",
    }
    return json.dumps(said | other) + "\n"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Return a log that was rotated once."""
    path = tmp_path / "decisions.log"
    path.with_name("decisions.log.1").write_text(
        line("01:00", "BehindHead")
        + line("01:00", "Stopped", name="job-train-2-0a1b2", uid="u-2")
        + line("02:00", "HeldByOthers", "BehindHead")
    )
    path.write_text(
        '{"time": "2026-11-20T02:30:00.000000Z", "dropped": 3}\n{"torn\n'
        + line("04:00", "", "HeldByOthers")
        + line("04:10", "Full", plane="scheduling", kind="Pod", name="train-x2k4p", uid="u-3")
        + line("06:00", "Stopped", name="job-other-0a1b2", uid="u-4")
    )
    return path


def explained(log: Path, as_of: str, subject: str = "job/train", *more: str) -> tuple[int, str]:
    """Return exit code and output."""
    arguments = [subject, "-n", "team", "--as-of", as_of, "--decision-log", str(log)]
    found = CliRunner().invoke(explain, [*arguments, *more])
    if isinstance(found.exception, UsageError):
        return 2, f"{found.exception}\n"
    return found.exit_code, found.output


def test_the_reason_that_stood_then_is_told_with_what_came_before_and_after(log: Path) -> None:
    code, told = explained(log, "2026-11-20 03:00")
    assert code == 0, told
    text = " ".join(told.split())
    assert "Job team/train waited at 2026-11-20T03:00:00Z since 01:00:00Z (2 h ago)" in text
    assert "the sentence of HeldByOthers." in text
    assert f"quota Workload {WORKLOAD}: HeldByOthers since 2026-11-20T02:00:00Z" in text
    assert "before BehindHead" in text
    assert "then 2026-11-20T04:00:00Z it waited no longer" in text
    assert "docs/why-it-waits.md#quota-heldbyothers" in text
    assert "Of the log 3 lines before that instant are missing, 1 line cannot be read." in text
    assert "No decision about it was sampled" in text


def test_its_pods_are_found_by_the_name_of_the_job(log: Path) -> None:
    code, told = explained(log, "2026-11-20T05:15:00+01:00")
    assert code == 0, told
    assert "waited at 2026-11-20T04:15:00Z" in told and "sentence of Full" in told


def test_between_its_waits_it_is_said_not_to_have_waited(log: Path) -> None:
    code, told = explained(log, "2026-11-20 04:05")
    assert code == 0 and "did not wait at 2026-11-20T04:05:00Z" in told, told


def test_a_sampled_input_is_decided_again(log: Path) -> None:
    about = {"plane": "idle", "kind": "GpuWorkload", "name": "job-train-0a1b2c3d", "uid": "u-5"}
    with log.open("a") as file:
        file.write(line("07:00", "NobodyIdle", **about))
        file.write(line("07:00", "NobodyIdle", input=RECORDED, **about))
    code, told = explained(log, "2026-11-20 07:30", f"gpuworkload/{about['name']}", "-o", "json")
    assert code == 0, told
    said = json.loads(told)
    assert said["waiting"]["plane"] == "idle" and said["state"] == "Waits"
    assert said["waiting"]["reason"] == "NobodyIdle"
    assert said["certainty"][1] == (
        "Decided again on the input that was sampled 2026-11-20T07:00:00Z: nothing is preempted."
    )


@pytest.mark.parametrize(
    ("as_of", "subject", "said"),
    [
        ("2026-11-20 00:30", "job/train", "is before the log"),
        ("2026-11-20 03:00", "job/tran", "nearest: "),
        ("last night", "job/train", "--as-of: 'last night' is no instant; accepted: 2026-11-20"),
        ("2026-11-20 03:00", "quota-1", "--as-of is about KIND/NAME that waited"),
    ],
)
def test_what_cannot_be_answered_is_one_line(
    log: Path, as_of: str, subject: str, said: str
) -> None:
    code, told = explained(log, as_of, subject)
    assert code == 2 and said in told and told.count("\n") == 1, told


def test_the_past_needs_a_log(log: Path) -> None:
    found = CliRunner().invoke(explain, ["job/train", "--as-of", "2026-11-20 03:00"])
    assert "--as-of and --decision-log belong together" in str(found.exception)
    code, told = explained(log.with_name("none"), "2026-11-20 03:00")
    assert code == 2 and "cannot be read: No such file" in told
