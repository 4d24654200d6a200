"""Fixtures for every folder, and a report of what became of each test.

The report goes to the file `$REPRIEVE_TEST_REPORT`, for `.ci/skips.py`. No folder of tests has a
second try: a test that fails now and then is a race, in itself or in the product.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from kubelocal.tests.conftest import kubectl, pytest_configure

__all__ = ["kubectl", "pytest_configure"]

_OUTCOMES = ("passed", "failed", "error", "skipped", "xfailed", "xpassed")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--vectors",
        metavar="DIR",
        help="conformance vectors, a folder per plane (default: ../shared/conformance)",
    )
    parser.addoption(
        "--scenarios",
        metavar="DIR",
        help="scenario files to play (default: ../shared/conformance/idle/scenarios)",
    )
    parser.addoption(
        "--golden",
        metavar="DIR",
        help="recorded answers of kubectl, a file per group (default: ../shared/observed/kubectl)",
    )


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
