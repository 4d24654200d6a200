"""The benchmarks' smoke mode: results are checked, times are not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("case", ["tick", "discovery", "operator"])
def test_the_quick_mode_checks_its_results_and_prints_json(case: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.idle", "--quick", case],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["bench"] for line in lines] == ["idle"] * len(lines)
    assert lines
    assert all({"case", "cpu_ms", "wall_ms", "peak_mib"} <= line.keys() for line in lines)


def test_an_unknown_case_is_named_with_what_is_accepted() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.idle", "tock"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "accepted: tick, discovery, operator" in done.stderr
