"""The bench of what the governor adds to decisions runs, and finds that it changes none."""

from __future__ import annotations

import json
import subprocess
import sys


def test_the_quick_mode_measures_all_planes_and_changes_no_decision() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.governed", "--quick"],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    cases = [json.loads(line)["case"] for line in done.stdout.splitlines()]
    planes = [f"{p}-{k}" for p in ("scheduling", "idle") for k in ("quiet", "lately", "in-vain")]
    assert cases[-6:] == planes
    assert len(cases) == len(set(cases)) == 14
