"""Expected loss with notice, by hand and against every choice of units."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from kubeworld.units.durations import HOUR
from reprieve.engine.notice.credit import NO_HISTORY, UNKNOWN, WHOLE, History
from reprieve.engine.notice.expected import (
    WAITS_FOR_ONE_LOST,
    AtStake,
    Terms,
    counts_from,
    likely_loss,
    likely_wait,
    with_notice,
)

_TERMS = st.builds(
    Terms,
    st.sampled_from([0, 10, 300, 3_600]),
    st.integers(0, 600),
    st.integers(0, 100),
    st.integers(0, WHOLE),
)
_UNITS = st.lists(st.builds(AtStake, st.integers(0, 7_200), st.integers(1, 16), _TERMS), max_size=5)


def test_the_expected_loss_mixes_what_is_undone_with_what_a_save_costs() -> None:
    half = Terms(300, 90, 60)
    assert likely_loss(1_000, half) == (1_000 + 150) // 2
    assert likely_loss(1_000, half._replace(credit=WHOLE)) == 150
    assert likely_loss(1_000, half._replace(credit=0)) == 1_000
    assert likely_wait(half) == (300 + 90) // 2
    # A save whose time is not known counts as long as the notice.
    assert likely_loss(1_000, Terms(300, credit=WHOLE)) == 300


def test_work_that_would_be_told_counts_as_if_it_had_saved_lately() -> None:
    sure = Terms(300, 90, credit=WHOLE)
    assert counts_from(1_000, 5_000, sure) == 5_000 - 90 - 90 // WAITS_FOR_ONE_LOST
    # It never counts as losing more than it has not saved, and without notice as what that is.
    assert counts_from(4_990, 5_000, sure) == 4_990
    assert counts_from(1_000, 5_000, Terms()) == 1_000


def test_who_has_just_saved_is_not_told_and_who_would_lose_hours_is() -> None:
    sure = Terms(300, 60, credit=WHOLE)
    assert with_notice([AtStake(10, 8, sure)], 8) == (False,)
    assert with_notice([AtStake(7_200, 8, sure)], 8) == (True,)
    assert with_notice([AtStake(7_200, 8)], 8) == (False,)


@given(_UNITS, st.integers(0, 64))
def test_no_other_choice_of_units_costs_less(units: list[AtStake], asking: int) -> None:
    def cost(tells: tuple[bool, ...]) -> int:
        lost = sum(
            each.devices * (likely_loss(each.undone, each.terms) if is_told else each.undone)
            for each, is_told in zip(units, tells, strict=True)
        )
        waits = (
            likely_wait(each.terms) for each, is_told in zip(units, tells, strict=True) if is_told
        )
        return lost * WAITS_FOR_ONE_LOST + asking * max(waits, default=0)

    chosen = with_notice(units, asking)
    assert not any(
        is_told and not each.terms.time for each, is_told in zip(units, chosen, strict=True)
    )
    may = [(False, True) if each.terms.time else (False,) for each in units]
    assert cost(chosen) == min(map(cost, product(*may)))


def test_credit_is_the_share_of_the_last_eight_notices_that_ended_saved() -> None:
    history = NO_HISTORY
    assert history.credit(0) == UNKNOWN
    for saved in (False, True, True):
        history = history.ended(saved=saved)
    assert history.credit(0) == 2 * WHOLE // 3
    for _ in range(8):
        history = history.ended(saved=True)
    assert history.credit(0) == WHOLE


def test_a_save_that_the_next_run_contradicts_costs_all_credit_for_a_day() -> None:
    saved = History((True,), step=1_200)
    assert saved.reports(1_200, now=5) == saved
    lied = saved.reports(300, now=5)
    assert (lied.credit(5), lied.credit(24 * HOUR + 4)) == (0, 0)
    assert lied.credit(24 * HOUR + 5) == WHOLE
    assert History((True,)).reports(0, now=5).credit(5) == WHOLE
