"""kubectl says the same against the embedded cluster as it said against a real API server."""

from __future__ import annotations

import pytest

from tests.kubectl.exceptions import EXCEPTIONS
from tests.kubectl.golden import LIMIT_PERCENT, Case, Group, difference
from tests.kubectl.play import Play


def test_embedded_cluster(embedded_case: tuple[Group, Case], embedded_play: Play) -> None:
    group, case = embedded_case
    found = difference(case.answer, embedded_play.answer(group.name, case.name))
    if found:
        pytest.fail(f"kubectl {' '.join(case.argv)}\n{found}", pytrace=False)


def test_exceptions_are_few_and_of_stable_cases(golden_group: Group) -> None:
    excepted = {
        name.partition("::")[2] for name in EXCEPTIONS if name.startswith(f"{golden_group.name}::")
    }
    stable = {case.name for case in golden_group.stable}
    assert excepted <= stable
    assert len(excepted) * 100 <= len(stable) * LIMIT_PERCENT[golden_group.name]
