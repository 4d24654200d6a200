"""`.ci/times.py` sums the seconds of tests by file, the longest first."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / ".ci" / "times.py"


def test_seconds_are_summed_by_file_and_the_longest_comes_first(tmp_path: Path) -> None:
    rows = (("tests/a.py::one", 1.5), ("tests/b.py::two[x::y]", 4.0), ("tests/a.py::three", 1.0))
    report = tmp_path / "tests.jsonl"
    report.write_text("".join(json.dumps({"id": id, "seconds": s}) + "\n" for id, s in rows))
    command: list[str | Path] = [sys.executable, SCRIPT, report, tmp_path / "absent.jsonl"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert printed.splitlines() == [
        "tests: 6 s in 2 files",
        "     4.0 s  tests/b.py",
        "     2.5 s  tests/a.py",
    ]
