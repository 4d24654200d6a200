"""How often a call is tried, on which errors again, and after which pauses."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import pytest

from kubeworld.units.durations import SECOND
from reprieve.kube.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
    NotFound,
    ServerError,
    TooManyRequests,
    Unreachable,
)
from reprieve.kube.retry import ATTEMPTS, UNSETTLED, backoff, retried


class Call:
    """Fails with each of these in turn, then answers; `pauses` are those before the answer."""

    def __init__(self, failures: Iterable[ApiError]) -> None:
        self._failures = list(failures)
        self.calls = 0
        self.pauses: list[int] = []
        self.asked: list[float | None] = []

    async def once(self) -> str:
        self.calls += 1
        if self._failures:
            raise self._failures.pop(0)
        return "done"

    async def pause(self, number: int, retry_after: float | None) -> None:
        self.pauses.append(number)
        self.asked.append(retry_after)


@pytest.mark.parametrize("lost", UNSETTLED)
async def test_what_is_unsettled_is_tried_after_pauses_that_grow(
    lost: type[ApiError],
) -> None:
    call = Call([lost("x"), lost("x"), lost("x")])
    assert await retried(call.once, call.pause) == "done"
    assert (call.calls, call.pauses) == (4, [0, 1, 2])


async def test_what_was_no_fresh_copy_is_read_again_at_once_after_a_first_conflict() -> None:
    call = Call([Conflict("x"), Conflict("x"), Unreachable("x")])
    assert await retried(call.once, call.pause, soon=True) == "done"
    assert (call.calls, call.pauses) == (4, [1, 2])
    away = Call([Unreachable("x"), Conflict("x")])
    assert await retried(away.once, away.pause, soon=True) == "done"
    assert (away.calls, away.pauses) == (3, [0, 1])


@pytest.mark.parametrize("lost", UNSETTLED)
async def test_the_last_failure_is_raised_without_another_pause(lost: type[ApiError]) -> None:
    call = Call(lost(str(number)) for number in range(ATTEMPTS + 1))
    with pytest.raises(lost, match=f"^{ATTEMPTS - 1}"):
        await retried(call.once, call.pause)
    assert (call.calls, call.pauses) == (ATTEMPTS, list(range(ATTEMPTS - 1)))


@pytest.mark.parametrize("answer", [AlreadyExists, Forbidden, NotFound])
async def test_an_answer_is_an_answer(answer: type[ApiError]) -> None:
    call = Call([answer("x")])
    with pytest.raises(answer):
        await retried(call.once, call.pause)
    assert (call.calls, call.pauses) == (1, [])


async def test_callers_name_what_is_tried_again() -> None:
    call = Call([NotFound("x"), AlreadyExists("x")])
    assert await retried(call.once, call.pause, (NotFound, AlreadyExists)) == "done"
    other = Call([Unreachable("x")])
    with pytest.raises(Unreachable):
        await retried(other.once, other.pause, (Conflict,))


async def test_the_servers_retry_after_goes_before_the_pause() -> None:
    call = Call([ServerError("x", retry_after=7.0), Conflict("x"), TooManyRequests("x")])
    assert await retried(call.once, call.pause) == "done"
    assert call.asked == [7.0, None, None]


@pytest.mark.parametrize("lost", UNSETTLED)
async def test_what_is_tried_again_as_a_whole_is_not_tried_again_in_its_parts(
    lost: type[ApiError],
) -> None:
    inner, outer = Call([lost("x")] * 100), Call([])
    with pytest.raises(lost):
        await retried(lambda: retried(inner.once, inner.pause), outer.pause)
    assert (inner.calls, inner.pauses, outer.pauses) == (ATTEMPTS, [], [0, 1, 2, 3])


async def test_a_part_is_tried_again_after_what_the_whole_does_not_bear() -> None:
    inner, outer = Call([Unreachable("x"), Conflict("x"), Unreachable("x")]), Call([])
    found = retried(lambda: retried(inner.once, inner.pause), outer.pause, (Conflict,))
    assert await found == "done"
    assert (inner.pauses, outer.pauses) == ([0, 0], [0])


async def test_what_comes_after_a_call_that_was_tried_again_is_tried_again_itself() -> None:
    first, second = Call([Unreachable("x")] * 100), Call([Unreachable("x")])
    with pytest.raises(Unreachable):
        await retried(first.once, first.pause)
    assert await retried(second.once, second.pause) == "done"


def test_pauses_double_to_ten_seconds_and_retry_after_goes_before() -> None:
    jitter = Random(1)
    middles = [SECOND // 5 * 2**number for number in range(6)] + [10 * SECOND] * 3
    for number, middle in enumerate(middles):
        found = [backoff(number, jitter) for _ in range(200)]
        assert middle // 2 <= min(found) < middle < max(found) <= middle * 3 // 2
    found = [backoff(0, jitter, 7.0) for _ in range(200)]
    assert 7 * SECOND <= min(found) < max(found) <= 7.7 * SECOND
    assert backoff(0, jitter, 3_600.0) <= 66 * SECOND
