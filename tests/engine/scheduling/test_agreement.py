"""The engine and the naive oracle come to the same end on random clusters, word for word.

Every filter, gate and kind of preemptor is among the cases; victims and their order, codes, texts,
nominations, budgets broken, candidates and the reasons of all other nodes are compared.
"""

from __future__ import annotations

import pytest

from tests.engine.scheduling.agreement import assert_interesting, cases_of, disagreement, judged

CHUNK, CHUNKS = 150, 14


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_engine_and_oracle_agree(chunk: int) -> None:
    cases = cases_of(range(chunk * CHUNK, (chunk + 1) * CHUNK))
    outcomes = [judged(case) for case in cases]
    assert_interesting(zip(cases, outcomes, strict=True))
    pairs = zip(cases, outcomes, strict=True)
    assert [text for case, outcome in pairs if (text := disagreement(case, outcome))] == []


def test_at_least_two_thousand_cases_are_compared() -> None:
    assert CHUNK * CHUNKS >= 2_000
