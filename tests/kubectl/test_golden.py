"""kubectl says the same against the embedded cluster as it said against a real API server."""

from __future__ import annotations

import pytest

from tests.kubectl import exceptions
from tests.kubectl.golden import LIMIT_PERCENT, Case, Group, difference
from tests.kubectl.play import Play


def test_embedded_cluster(embedded_case: tuple[Group, Case], embedded_play: Play) -> None:
    _compare(embedded_case, embedded_play)


@pytest.mark.slow
def test_real_api_server(real_case: tuple[Group, Case], real_play: Play) -> None:
    _compare(real_case, real_play)


def _compare(played: tuple[Group, Case], play: Play) -> None:
    group, case = played
    found = difference(case.answer, play.answer(group.name, case.name))
    if found:
        pytest.fail(f"kubectl {' '.join(case.argv)}\n{found}", pytrace=False)


def test_exceptions_are_few_and_of_stable_cases(golden_group: Group) -> None:
    excepted = {
        name.partition("::")[2]
        for name in exceptions.EMBEDDED
        if name.startswith(f"{golden_group.name}::")
    }
    stable = {case.name for case in golden_group.stable}
    assert excepted <= stable
    assert len(excepted) * 100 <= len(stable) * LIMIT_PERCENT[golden_group.name]
