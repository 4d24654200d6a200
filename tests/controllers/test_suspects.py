"""Work that ended a process: how long it waits, what the lease says of it, and who reads that."""

from __future__ import annotations

import pytest

from kubeworld.units.clock import VirtualClock
from kubeworld.units.durations import HOUR, MINUTE, SECOND
from kubeworld.units.instants import Nanos
from reprieve.engine.plan import Plane
from reprieve.operator.lease_link import Shared
from reprieve.planes.common.suspects import (
    Accused,
    Ended,
    Suspect,
    Suspects,
    accused_again,
    pause_after,
    read_suspects,
    written,
)

HUNG = Accused(Plane.SCHEDULING, "team/hung")
OTHER = Accused(Plane.QUOTA, "team/other")


def test_the_pause_doubles_from_ten_minutes_up_to_a_day() -> None:
    pauses = [pause_after(count) for count in range(1, 100)]
    assert pauses[:4] == [10 * MINUTE, 20 * MINUTE, 40 * MINUTE, 80 * MINUTE]
    assert set(pauses[8:]) == {24 * HOUR}


def test_who_is_accused_again_waits_longer_and_others_stay_until_they_are_a_day_old() -> None:
    now = Nanos(0)
    found = accused_again((), [HUNG, OTHER], now)
    assert [(each.what, each.count) for each in found] == [("team/hung", 1), ("team/other", 1)]
    later = Nanos(found[0].until + HOUR)
    found = accused_again(found, [HUNG], later)
    assert found[0] == Suspect(Plane.QUOTA, "team/other", 1, Nanos(10 * MINUTE))
    assert found[1] == Suspect(Plane.SCHEDULING, "team/hung", 2, Nanos(later + 20 * MINUTE))
    much_later = Nanos(later + 24 * HOUR)
    assert [each.what for each in accused_again(found, [], much_later)] == ["team/hung"]


def test_sixteen_are_kept_the_latest() -> None:
    found: tuple[Suspect, ...] = ()
    for number in range(20):
        found = accused_again(found, [Accused(Plane.IDLE, f"team/{number}")], Nanos(number))
    assert [each.what for each in found] == [f"team/{number}" for number in range(4, 20)]


def test_what_is_written_is_read_and_what_cannot_be_read_is_nothing() -> None:
    found = accused_again((), [HUNG, OTHER], Nanos(7))
    assert read_suspects(written(found)) == found
    for text in (None, "", "[", "{}", "7", "[7]", '[{"plane": "none"}]', "[" * 5_000):
        assert read_suspects(text) == ()
    odd = '[{"plane": "moon", "what": "a", "count": 1, "until": 1}]'
    assert read_suspects(odd) == ()
    assert read_suspects('[{"plane": "idle", "what": "a", "count": 0, "until": 1}]') == ()


def test_a_pause_is_never_longer_than_its_count_allows_whatever_clock_it_was_written_by() -> None:
    clock = VirtualClock()
    counted: list[Plane] = []
    suspects = Suspects(clock, counted.append)
    far = Nanos(clock.wall() + 1_000 * HOUR)
    suspects.delay([Suspect(Plane.SCHEDULING, "team/hung", 1, far)])
    until = suspects.until(Plane.SCHEDULING, "team/hung")
    assert until == clock.monotonic() + 10 * MINUTE
    assert suspects.until(Plane.QUOTA, "team/hung") is None
    with pytest.raises(Ended, match="tried again after 601 s"):
        suspects.refuse(Plane.SCHEDULING, "team/hung")
    assert counted == [Plane.SCHEDULING], "once"


async def test_whose_pause_is_over_is_decided_about() -> None:
    clock = VirtualClock()
    suspects = Suspects(clock)
    past = Suspect(Plane.IDLE, "team/past", 3, Nanos(clock.wall() - SECOND))
    soon = Suspect(Plane.IDLE, "team/soon", 3, Nanos(clock.wall() + SECOND))
    suspects.delay([past, soon])
    assert suspects.until(Plane.IDLE, "team/past") is None
    assert suspects.until(Plane.IDLE, "team/soon") is not None
    await clock.advance(SECOND)
    suspects.refuse(Plane.IDLE, "team/soon")


@pytest.mark.parametrize("what", ["team/g\u00e9", "team/" + 1_000 * "g", "team/" + 400 * "\u00e9"])
@pytest.mark.parametrize("how", ["silent", "gave up"])
def test_work_with_an_odd_or_a_long_name_waits_as_any_other(what: str, how: str) -> None:
    """Whether it was read from memory by the keeper or told to it: it is found, and it alone."""
    clock, shared = VirtualClock(), Shared()
    shared.note(Plane.SCHEDULING, what, 1)
    accused = list(shared.noted()) if how == "silent" else [Accused(Plane.SCHEDULING, what)]
    found = accused_again((), accused, clock.wall())
    found = accused_again(read_suspects(written(found)), accused, clock.wall())
    assert [each.count for each in found] == [2]
    suspects = Suspects(clock)
    suspects.delay(read_suspects(written(found)))
    assert suspects.until(Plane.SCHEDULING, f"{what}-2") is None
    assert suspects.pop_delay(Plane.SCHEDULING, what) == clock.monotonic() + 20 * MINUTE
    assert suspects.until(Plane.SCHEDULING, what) is None
