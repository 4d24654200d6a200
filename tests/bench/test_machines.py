"""The smoke mode of the machines' benchmark: results are checked, times are not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_quick_mode_checks_its_results_and_prints_json() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.machines", "--quick"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    [line] = [json.loads(line) for line in done.stdout.splitlines()]
    assert (line["bench"], line["case"]) == ("machines", "steady-20-nodes-200-pods")
    assert {"lag_p99_ms", "cpu_share", "cpu_ms", "wall_ms", "peak_mib"} <= line.keys()
