"""`.ci/skips.py` accepts exactly the skips that are written down."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / ".ci" / "skips.py"
SKIPPED = {"id": "tests/a.py::test_one[x]", "outcome": "skipped", "reason": "needs a GPU"}
PASSED = {**SKIPPED, "outcome": "passed", "reason": ""}
OTHER = {"id": "tests/a.py::test_two", "outcome": "passed", "reason": ""}


def checked(
    folder: Path, expected: str, *report: dict[str, str], things: tuple[str, ...] = ()
) -> tuple[int, list[str]]:
    (folder / "report").write_text("".join(json.dumps(line) + "\n" for line in report))
    (folder / "expected").write_text(expected)
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(folder / "report"), str(folder / "expected"), *things],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout.splitlines()


@pytest.mark.parametrize(
    "expected", ["tests/a.py::test_one[x]", "tests/a.py::*", "? tests/a.py::test_one[x]"]
)
def test_a_skip_that_is_written_down_is_shown_and_accepted(tmp_path: Path, expected: str) -> None:
    assert checked(tmp_path, f"# why\n{expected}\n", SKIPPED) == (
        0,
        ["skipped: tests/a.py::test_one[x]: needs a GPU", "as expected, 1 tests in all"],
    )


def test_a_skip_that_is_not_written_down_fails(tmp_path: Path) -> None:
    code, lines = checked(tmp_path, "tests/a.py::test_one[y]\n", SKIPPED, OTHER)
    assert code == 1
    assert lines[-1] == "skipped, but not expected to be: tests/a.py::test_one[x]: needs a GPU"


def test_a_test_that_runs_although_it_should_be_skipped_fails(tmp_path: Path) -> None:
    code, lines = checked(tmp_path, "tests/a.py::test_one[x]\n", PASSED)
    assert (code, lines) == (1, ["expected to be skipped, but ran: tests/a.py::test_one[x]"])


def test_a_test_that_may_be_skipped_may_also_run_or_be_absent(tmp_path: Path) -> None:
    assert checked(tmp_path, "? tests/a.py::test_one[x]\n", PASSED)[0] == 0
    assert checked(tmp_path, "? tests/a.py::test_one[x]\ntests/b.py::*\n", OTHER)[0] == 0


def test_what_needs_a_thing_is_skipped_where_it_is_missing_and_nowhere_else(tmp_path: Path) -> None:
    line = "@lathe tests/a.py::test_one[x]\n"
    skip = "skipped: tests/a.py::test_one[x]: needs a GPU"
    assert checked(tmp_path, line, SKIPPED)[0] == 0
    assert checked(tmp_path, line, PASSED, things=("lathe",))[0] == 0
    assert checked(tmp_path, line, PASSED) == (
        1,
        ["expected to be skipped, but ran: tests/a.py::test_one[x]"],
    )
    assert checked(tmp_path, line, SKIPPED, things=("drill", "lathe")) == (
        1,
        [skip, "skipped, but not expected to be: tests/a.py::test_one[x]: needs a GPU"],
    )


def test_tests_that_did_not_get_to_their_end_fail(tmp_path: Path) -> None:
    (tmp_path / "expected").write_text("")
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(tmp_path / "missing"), str(tmp_path / "expected")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, "did not get to their end" in done.stdout) == (1, True)
