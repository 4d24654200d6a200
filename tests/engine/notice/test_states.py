"""The promise of a notice, held against speakers who lie, die, speak late, twice and in any order.

The oracle keeps its own account of what was said, and knows nothing of the table of transitions.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeworld.units.durations import MINUTE, SECOND
from reprieve.engine.notice.granting import LEAST, MOST, Grant, NoticePolicy, Withheld, granted
from reprieve.engine.notice.states import HEARTBEAT, TRANSITIONS, Happening, Notice, State

_SPEAKERS = ("a", "b", "c")
_FINAL = (State.RELEASED, State.PARDONED)
_WORDS = st.tuples(
    st.sampled_from(("saving", "saved", "ended", "nothing", "release", "pardon")),
    st.sampled_from((*_SPEAKERS, "stranger")),
    st.integers(-5, 120).map(lambda seconds: seconds * SECOND),  # since the last one
    st.integers(0, 1500).map(lambda seconds: seconds * SECOND),  # expected
)


def _said(notice: Notice, word: str, speaker: str, now: int, expected: int) -> Notice:
    match word:
        case "saving":
            return notice.saving(speaker, now, expected)
        case "saved" | "ended":
            return notice.has_saved(speaker, now)
        case "release":
            return notice.at(now).released()
        case "pardon":
            return notice.at(now).pardoned()
        case _:
            return notice.at(now)


@given(
    st.integers(10, 600).map(lambda seconds: seconds * SECOND),
    st.integers(0, 300).map(lambda seconds: seconds * SECOND),
    st.integers(1, 3),
    st.lists(_WORDS, max_size=25),
)
def test_nobody_goes_before_all_have_saved_or_the_deadline(
    deadline: int, extension: int, count: int, words: list[tuple[str, str, int, int]]
) -> None:
    notice = Notice(deadline, deadline + extension, frozenset(_SPEAKERS[:count]))
    now, latest, saved, told, deadlines = 0, 0, set[str](), deadline, {deadline}
    for word, speaker, passed, expected in words:
        now = max(0, now + passed)
        latest = max(latest, now)
        before, notice = notice, _said(notice, word, speaker, now, expected)
        if word in ("saved", "ended"):
            saved.add(speaker)

        assert notice.due >= told, "a deadline that was told comes earlier"
        assert notice.due <= deadline + extension
        if notice.may_go:
            assert saved >= notice.speakers or latest >= deadline
        if latest >= deadline + extension:
            assert notice.may_go or notice.state is State.PARDONED
        if before.state in _FINAL:
            assert notice.state is before.state
        if before.extended:
            assert notice.extended == before.extended, "it was extended twice"
        told = notice.due
        deadlines.add(notice.extended or deadline)
    assert len(deadlines) <= 2


@given(st.integers(1, 300).map(lambda s: s * SECOND), st.integers(0, 600).map(lambda s: s * SECOND))
def test_a_unit_that_falls_silent_goes_a_minute_after_its_last_word(wanted: int, at: int) -> None:
    notice = Notice(10 * MINUTE, 20 * MINUTE, frozenset("a"))

    said = notice.saving("a", at, 10 * MINUTE + wanted)
    end = min(10 * MINUTE + wanted, at + HEARTBEAT) if at < 10 * MINUTE else 0
    end = max(10 * MINUTE, end)

    assert said.due == end
    assert said.at(end).may_go
    assert said.at(end - 1).may_go == (at >= 10 * MINUTE)


def test_the_states_are_passed_through_in_order() -> None:
    notice = Notice(MINUTE, MINUTE, frozenset("ab"))

    saving = notice.saving("a", 1)
    half = saving.has_saved("a", 2)
    whole = half.has_saved("b", 3)

    assert [each.state for each in (notice, saving, half, whole, whole.released())] == [
        State.NOTICED,
        State.SAVING,
        State.SAVING,
        State.SAVED,
        State.RELEASED,
    ]
    assert half.at(MINUTE).released().state is State.RELEASED
    assert half.at(MINUTE).state is State.OVERDUE
    assert whole.pardoned().state is State.PARDONED
    assert notice.pardoned().released().state is State.PARDONED


def test_every_state_but_the_last_two_can_be_pardoned() -> None:
    pardons = {state for state, happening in TRANSITIONS if happening is Happening.PARDON}

    assert pardons == set(State) - set(_FINAL)


@pytest.mark.parametrize(
    ("asked", "policy", "emergency", "found"),
    [
        ([], {"most": MINUTE}, False, 0),
        ([MINUTE], {}, False, 0),  # nobody allows any
        ([MINUTE, 2 * MINUTE], {"most": 5 * MINUTE}, False, 2 * MINUTE),
        ([20 * MINUTE], {"most": 5 * MINUTE}, False, 5 * MINUTE),
        ([20 * MINUTE], {"most": 30 * MINUTE, "patience": 3 * MINUTE}, False, 3 * MINUTE),
        ([20 * MINUTE], {"most": 30 * MINUTE}, True, 0),
        ([10 * MOST], {"most": 10 * MOST, "patience": 10 * MOST}, False, MOST),
        ([LEAST - 1], {"most": MINUTE}, False, 0),
        ([LEAST], {"most": MINUTE}, False, LEAST),
        ([MINUTE], {"most": LEAST - 1}, False, 0),
    ],
)
def test_the_least_of_what_is_asked_and_allowed_is_given(
    asked: list[int], policy: dict[str, Any], emergency: bool, found: int
) -> None:
    policy = {"extension": 0, **policy}
    assert granted(NoticePolicy(**policy), asked, emergency=emergency)[:2] == (found, 0)


def test_a_queue_allows_less_and_a_hurried_preemptor_grants_no_extension() -> None:
    policy = NoticePolicy(5 * MINUTE, emergency_patience=MINUTE, extension=MINUTE)

    assert granted(policy, [MOST], emergency=False, allowed=MINUTE) == Grant(MINUTE, MINUTE)
    assert granted(policy, [MOST], emergency=True) == Grant(MINUTE)
    assert granted(policy, [MOST], emergency=False, allowed=0)[:2] == (0, 0)


@pytest.mark.parametrize(
    ("asked", "policy", "emergency", "allowed", "why"),
    [
        ([MINUTE], {}, False, 0, Withheld.NOT_ALLOWED),
        ([MINUTE], {"patience": 0}, False, MOST, Withheld.NO_PATIENCE),
        ([MINUTE], {}, True, MOST, Withheld.EMERGENCY),
        ([MINUTE], {}, True, 0, Withheld.NOT_ALLOWED),
        ([MINUTE], {"emergency_patience": MINUTE}, True, MOST, None),
        ([MINUTE], {}, False, MOST, None),
        ([], {}, False, 0, None),
        ([LEAST - 1], {}, False, 0, None),
        ([MINUTE], {"most": 0}, False, 0, None),
    ],
)
def test_why_a_unit_that_requests_notice_gets_none_is_stated_where_a_plane_gives_notice(
    asked: list[int], policy: dict[str, Any], emergency: bool, allowed: int, why: Withheld | None
) -> None:
    policy = {"most": MINUTE, **policy}
    found = granted(NoticePolicy(**policy), asked, emergency=emergency, allowed=allowed)
    assert found.withheld is why
    assert why is None or found.time == 0


@given(
    st.lists(st.tuples(st.sets(st.sampled_from("abcd")), st.sets(st.sampled_from("abcd")))),
    st.sets(st.sampled_from("abcd")),
)
def test_pods_that_come_and_go_release_a_unit_only_when_each_speaker_saved_or_went(
    seen: list[tuple[set[str], set[str]]], saying: set[str]
) -> None:
    notice, known, done = Notice(MINUTE, MINUTE, frozenset()), set[str](), set[str]()
    for there, new in seen:
        known |= there | new
        done |= known - there
        notice = notice.spoken_for(frozenset(known), frozenset(there), 0)
        for speaker in saying & known:
            notice = notice.has_saved(speaker, 0)
            done.add(speaker)
        assert notice.may_go == (notice.state is State.SAVED)
        if notice.may_go:
            assert known and done >= known
            return
    assert not known or done < known


def test_an_extension_that_is_requested_just_before_the_deadline_is_granted_once_recorded() -> None:
    deadline = 100 * SECOND
    notice = Notice(deadline, 160 * SECOND, frozenset("a"))
    wished = notice.saving("a", deadline - 1, 150 * SECOND).being_recorded(deadline - 1)

    assert wished.due == deadline, "nobody is told what is not recorded"
    assert wished.at(deadline + SECOND).waits
    extended = wished.at(deadline + SECOND).extended_to(150 * SECOND, deadline + SECOND)
    assert (extended.due, extended.waits) == (150 * SECOND, True)
    assert wished.at(deadline + 2 * SECOND).state is State.OVERDUE, "it is not recorded in time"
    late = notice.saving("a", deadline, 150 * SECOND)
    assert (late.state, late.due) == (State.OVERDUE, deadline)
    short = Notice(deadline, deadline + SECOND, frozenset("a")).saving("a", deadline - 1, MOST)
    assert short.being_recorded(deadline - 1).at(deadline + SECOND).state is State.OVERDUE
