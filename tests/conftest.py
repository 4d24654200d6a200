"""Fixtures for every folder, and a report of what became of each test.

The report goes to the file `$REPRIEVE_TEST_REPORT`, for `.ci/skips.py`. No folder of tests has a
second try: a test that fails now and then is a race, in itself or in the product.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.kubectl_binary import find_kubectl

# Tests assert no times: how long one example takes says something of the machine.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

_OUTCOMES = ("passed", "failed", "error", "skipped", "xfailed", "xpassed")


@pytest.fixture(scope="session")
def kubectl() -> Path:
    """The path of a real kubectl; tests that want one are skipped where there is none."""
    found = find_kubectl()
    if found is None:
        pytest.skip("no kubectl: set $KUBECTL, or put 1.32 or newer on PATH")
    return found


def pytest_configure() -> None:
    # Else pytest-asyncio's first look for a loop makes one that nobody closes, and whichever test
    # runs when it is collected fails.
    asyncio.set_event_loop(None)


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
