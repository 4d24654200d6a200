"""Why a victim was chosen is told by its place in the order in which candidates are taken."""

from __future__ import annotations

import pytest

from reprieve.engine.quota.model import Strategy
from reprieve.web.records.judged import Again, Candidate, Fate, Judgement
from reprieve.web.records.judgement import judgement_of
from reprieve.web.records.why import ordinal, why_chosen
from tests.web.stories import quota_record


def candidate(place: int, among: int, text: str = "") -> Candidate:
    return Candidate("Pod", "a", "b", "u", Fate.MADE_WAY, "r", text, place=place, among=among)


@pytest.mark.parametrize(
    ("number", "told"),
    [(1, "1st"), (2, "2nd"), (3, "3rd"), (4, "4th"), (11, "11th"), (12, "12th"), (22, "22nd")],
)
def test_ordinals(number: int, told: str) -> None:
    assert ordinal(number) == told


def test_place_order_and_who_was_put_back() -> None:
    judgement = Judgement(Again.SAME, counts={"Reprieved/Reprieved": 2}, order="oldest first")
    assert why_chosen("idle", candidate(2, 5, "idle for 50 min"), judgement) == (
        "idle for 50 min; 2nd of 5 idle ones that could be chosen, of which 2 were reprieved "
        "(oldest first)"
    )
    assert why_chosen("idle", candidate(1, 1), judgement) == (
        "1st of 1 idle ones that could be chosen (oldest first)"
    )
    assert why_chosen("idle", candidate(0, 0), judgement) == ""


def test_with_fair_sharing_places_are_those_within_a_queue() -> None:
    judgement = judgement_of(quota_record(fair=(Strategy.LESS_THAN_INITIAL_SHARE,)))
    assert judgement.again is Again.SAME
    assert judgement.order.startswith("within its ClusterQueue, which shares choose")
    places = {each.name: (each.place, each.among) for each in judgement.candidates if each.place}
    assert {among for _, among in places.values()} == {3}
    assert sorted(place for place, _ in places.values()) == [1, 2, 3]


@pytest.mark.parametrize("fair", [None, (Strategy.LESS_THAN_INITIAL_SHARE,)])
def test_where_saves_were_compared_the_order_says_so(fair: tuple[Strategy, ...] | None) -> None:
    judgement = judgement_of(quota_record(fair=fair, harm_order=True))
    assert judgement.again is Again.SAME
    assert judgement.order.endswith(", then later save, or admission without one")
