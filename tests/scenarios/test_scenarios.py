"""Every scenario file ends as it says, end to end.

The cluster and its machines run in this process; the operator is a process of its own that knows a
kubeconfig and a metrics URL.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from reprieve.scenarios.result import Outcome
from tests.scenarios.concert import Concert


def test_scenario(concert: Concert, scenario_file: Path) -> None:
    _assert_it_holds(concert, scenario_file)


def test_own_scenario(concert: Concert, own_scenario_file: Path) -> None:
    _assert_it_holds(concert, own_scenario_file)


def test_user_story(concert: Concert, story_file: Path) -> None:
    _assert_it_holds(concert, story_file)


def _assert_it_holds(concert: Concert, file: Path) -> None:
    result = concert.result(file)
    if result.outcome is Outcome.SKIPPED:
        pytest.skip(f"{result.scenario}: {result.reason}")
    assert result.outcome is Outcome.PASSED, result.text()
