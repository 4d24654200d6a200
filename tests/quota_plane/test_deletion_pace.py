"""What a controller makes again is deleted again only after a pause that grows."""

from __future__ import annotations

import itertools

from reprieve.controllers.quota.deletion_pace import DeletionPace
from reprieve.units.durations import MINUTE, SECOND
from reprieve.units.instants import Nanos, format_instant

TENTH = SECOND // 10


class Standing:
    """A clock that stands still until it is set forward."""

    def __init__(self) -> None:
        self._now = Nanos(1_772_618_400 * SECOND)

    def wall(self) -> Nanos:
        return self._now

    def monotonic(self) -> Nanos:
        return self._now

    async def sleep(self, nanoseconds: int) -> None:
        self.advance(nanoseconds)

    def advance(self, nanoseconds: int) -> None:
        self._now = Nanos(self._now + nanoseconds)


def created(clock: Standing) -> str:
    return format_instant(clock.wall())


def storm(pace: DeletionPace, clock: Standing, until: int, server: int = 0) -> list[int]:
    """Make a pod again as soon as it is deleted, and return when it was deleted, in tenths.

    `server` is how far the API server's clock is ahead.
    """
    begun, gone, made = clock.monotonic(), list[int](), format_instant(Nanos(clock.wall() + server))
    while clock.monotonic() - begun < until:
        if pace.take("owner", made) is None:
            gone.append((clock.monotonic() - begun) // TENTH)
            made = format_instant(Nanos(clock.wall() + server))
        clock.advance(TENTH)
    return gone


def test_what_is_made_again_at_once_goes_after_pauses_twice_as_long_each() -> None:
    gone = storm(DeletionPace(clock := Standing()), clock, 2 * MINUTE)
    pauses = [after - before for before, after in itertools.pairwise(gone)]
    assert pauses[0] <= 10 and all(b <= 2.1 * a for a, b in itertools.pairwise(pauses))
    assert gone == [0, 10, 30, 70, 150, 310, 630]


def test_the_longest_pause_is_five_minutes() -> None:
    gone = storm(DeletionPace(clock := Standing()), clock, 60 * MINUTE)
    pauses = [after - before for before, after in itertools.pairwise(gone)]
    assert max(pauses) == 3_000


def test_a_clock_that_is_behind_makes_no_storm_either() -> None:
    """Whatever is made again looks older than its round: the number in a round is bounded."""
    gone = storm(DeletionPace(clock := Standing()), clock, 10 * MINUTE, server=-MINUTE)
    assert len(gone) <= 64 * 12


def test_all_that_were_there_before_go_at_once() -> None:
    clock = Standing()
    pace, before = DeletionPace(clock), created(clock)
    clock.advance(5 * SECOND)
    assert [pace.take("owner", before) for _ in range(50)] == [None] * 50
    assert pace.take("owner", created(clock)) == clock.wall() + SECOND
    assert pace.take("another", created(clock)) is None


def test_an_owner_that_was_left_alone_begins_anew() -> None:
    clock = Standing()
    pace = DeletionPace(clock)
    assert len(storm(pace, clock, MINUTE)) == 6
    clock.advance(12 * MINUTE)
    assert storm(pace, clock, MINUTE) == [0, 10, 30, 70, 150, 310]
