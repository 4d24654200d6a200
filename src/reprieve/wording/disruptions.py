"""Loops and holds in words. Source: specification of disruptions, section 4."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from kubeworld.units.durations import HOUR, MINUTE, SECOND, format_duration
from kubeworld.units.instants import Nanos, format_instant
from reprieve.engine.disruptions.questions import Hold, Loop, Rule
from reprieve.units.counts import counted

_WHY: Final[Mapping[Rule, str]] = MappingProxyType(
    {
        Rule.CYCLE: "they displace each other in a circle",
        Rule.WITHOUT_GAIN: "they were preempted for it before, and it got nothing of it",
        Rule.REPEATED: "they were displaced again and again",
        Rule.CRASH_LOOP: "it failed again and again soon after others had been preempted for it",
        Rule.REFUSED: "their eviction was refused",
        Rule.HARM_BUDGET: "a harm budget of theirs is used up",
        Rule.KEPT: "their users keep them",
    }
)

__all__ = ["LOOP", "PAIR_HELD", "held_text", "loop_text", "pair_text"]

#: Reasons of the events on the members of a loop, and on those of whom one is held from the other.
LOOP: Final = "PreemptionLoop"
PAIR_HELD: Final = "PreemptionPairHeld"


def held_text(number: int, rule: Rule, until: Nanos, budget: str = "") -> str:
    """Return that so many do not be preempted, why, and until when the first of them does not."""
    why = f"harm budget {budget} is used up" if budget else _WHY[rule]
    return f"{number} of lower priority are not preempted before {format_instant(until)}: {why}"


def pair_text(preemptor: str, victim: str, hold: Hold, times: tuple[int, int], window: int) -> str:
    """Return who is held from whom until when.

    `times`: how often within the window, in nanoseconds, the first preempted the second, and the
    second the first, which a strictly higher priority never allows.
    """
    until = f"the first does not preempt the second before {format_instant(hold.until)}"
    within = f"within {format_duration(window)}"
    if hold.rule not in (Rule.CYCLE, Rule.WITHOUT_GAIN):
        return f"{preemptor} and {victim}: {until}, since {_WHY[hold.rule]}"
    changed = "once a priority, weight or quota of theirs was changed"
    if all(times):
        return (
            f"{preemptor} and {victim} preempted each other {times[0]} and "
            f"{counted(times[1], 'time')} {within}: {until} ({hold.rule}), but with a strictly "
            f"higher priority, or {changed}"
        )
    what = "in a circle of several" if hold.rule is Rule.CYCLE else "and got nothing of it"
    return (
        f"{preemptor} preempted {victim} {counted(times[0], 'time')} {within} {what}: {until} "
        f"({hold.rule}), but {changed}"
    )


def loop_text(loop: Loop, names: Sequence[str]) -> str:
    """Return `A -> B -> A, 14 displacements in 22m0s, 31.0 device-hours lost`, and what is held.

    `names` are those of the loop's members, in their order.
    """
    called = dict(zip(loop.members, names, strict=True))
    turn = " -> ".join((*names, names[0]))
    lost = loop.lost_device_seconds * SECOND / HOUR
    took = (loop.found - loop.began) // SECOND * SECOND
    length = took // MINUTE * MINUTE if took >= MINUTE else took
    held = ", ".join(
        f"{called.get(one, one)} does not displace {called.get(other, other)}"
        for one, other in loop.held
    )
    return (
        f"{turn}, {counted(loop.displacements, 'displacement')} in {format_duration(length)}, "
        f"{lost:.1f} device-hours lost: {held} before {format_instant(loop.until)}"
    )
