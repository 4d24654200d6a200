"""The benchmark's smoke mode: results are checked, times are not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bench.quota", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_quick_mode_checks_its_results_and_prints_json() -> None:
    done = bench("--quick")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(line["bench"], line["case"]) for line in lines] == [
        ("quota", "mixed-classical"),
        ("quota", "mixed-fair"),
    ]
    assert all(
        {"cpu_ms", "wall_ms", "peak_mib", "proof_us", "targets"} <= line.keys() for line in lines
    )


def test_a_file_that_is_not_there_is_named() -> None:
    done = bench("nowhere.json.gz")
    assert (done.returncode, "nowhere.json.gz: no such file" in done.stderr) == (2, True)
