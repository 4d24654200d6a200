"""How many refusals have their input written: one in two hundred, at most one a second."""

from __future__ import annotations

from kubeworld.units.durations import MILLISECOND, SECOND
from kubeworld.units.instants import Nanos
from reprieve.telemetry.input_samples import InputSamples


class Clock:
    """A clock that stands still until it is set."""

    now = 0

    def wall(self) -> Nanos:
        return Nanos(self.now)

    def monotonic(self) -> Nanos:
        return Nanos(self.now)

    async def sleep(self, nanoseconds: int) -> None:
        raise AssertionError("nobody sleeps")


def test_the_first_is_taken_and_then_one_in_two_hundred() -> None:
    clock = Clock()
    samples = InputSamples(clock)
    taken = []
    for number in range(601):
        clock.now += SECOND
        if samples.is_due():
            taken.append(number)
            samples.took(1_000)
    assert taken == [0, 200, 400, 600]


def test_however_many_are_refused_one_a_second_is_taken_and_few_bytes() -> None:
    clock = Clock()
    samples = InputSamples(clock)
    small = 0
    for _ in range(60_000):
        clock.now += MILLISECOND
        if samples.is_due():
            small += 1
            samples.took(1_000)
    assert 50 <= small <= 60
    large = 0
    for _ in range(60_000):
        clock.now += MILLISECOND
        if samples.is_due():
            large += 256 * 1024
            samples.took(256 * 1024)
    assert large <= 4 * 256 * 1024
