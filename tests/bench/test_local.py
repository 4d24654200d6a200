"""The embedded cluster's benchmark: its smoke mode checks results, times it does not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
FIGURES = {
    "create": {"requests", "per_cpu_second"},
    "status-patch": {"requests", "per_cpu_second"},
    "get": {"requests", "per_cpu_second"},
    "list": {"objects", "per_cpu_second"},
    "watch": {"events", "watchers", "cpu_ms_per_1000_events", "without_the_writes_ms_per_1000"},
    "memory": {"objects", "bytes_each", "kib_per_object", "resident_mib"},
    "up": {"cpu_ms", "runs"},
}


def test_the_quick_mode_goes_through_every_case() -> None:
    done = _run("--quick")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(line["bench"], line["case"]) for line in lines] == [
        ("local", case) for case in FIGURES
    ]
    for line in lines:
        assert FIGURES[line["case"]] <= line.keys()


def test_an_unknown_case_is_named_with_what_is_accepted() -> None:
    done = _run("listen")
    assert done.returncode == 2
    assert "'listen'; accepted: requests, watch, memory, up" in done.stderr


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bench.local", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
