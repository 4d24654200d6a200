"""The smoke mode of the page's benchmark: results are checked, times are not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_quick_mode_checks_its_results_and_prints_json() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.web", "--quick"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(line["bench"], line["case"]) for line in lines] == [
        ("web", "first"),
        ("web", "memory"),
        ("web", "live"),
        ("web", "apart"),
        ("web", "memory"),
    ]
    assert {"file_bytes", "now_bytes", "waiting_bytes"} <= lines[0].keys()
    assert {"cpu_percent", "bytes_per_s", "events_per_s"} <= lines[2].keys()
