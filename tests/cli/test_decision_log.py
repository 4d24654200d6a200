"""`reprieve run --decision-log`: a file that cannot be written ends the start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def run(*arguments: str) -> tuple[int, str, str]:
    """Return exit code, standard output and standard error of a dry run."""
    command = [sys.executable, "-m", "reprieve", "run", "--dry-run", "--controllers", "scheduling"]
    ended = subprocess.run(
        [*command, *arguments], capture_output=True, text=True, check=False, timeout=60
    )
    return ended.returncode, ended.stdout, ended.stderr


@pytest.mark.parametrize(
    ("name", "why"), [("missing/log", "No such file or directory"), ("", "Is a directory")]
)
def test_a_file_that_cannot_be_written_is_one_line_and_exit_code_2(
    tmp_path: Path, name: str, why: str
) -> None:
    where = f"{tmp_path}/{name}"
    code, out, said = run("--decision-log", where)
    assert (code, out) == (2, "")
    assert said == (
        f"Error: --decision-log: '{where}' cannot be written: {why}; accepted: a file, or - for "
        "standard output\n"
    )


def test_the_option_needs_a_value() -> None:
    code, _, said = run("--decision-log")
    assert code == 2
    assert said.endswith("Error: Option '--decision-log' requires an argument.\n")
