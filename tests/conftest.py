"""Writes what became of each test to the file `$REPRIEVE_TEST_REPORT`, for `.ci/skips.py`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

_OUTCOMES = ("passed", "failed", "error", "skipped", "xfailed", "xpassed")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    target = os.environ.get("REPRIEVE_TEST_REPORT")
    if not target:
        return
    with Path(target).open("w", encoding="utf-8") as file:
        for outcome in _OUTCOMES:
            for report in terminalreporter.getreports(outcome):
                reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
                line = {
                    "id": report.nodeid,
                    "outcome": outcome,
                    "reason": reason.removeprefix("Skipped: "),
                }
                file.write(json.dumps(line) + "\n")
