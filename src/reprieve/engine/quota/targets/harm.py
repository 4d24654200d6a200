"""What victims lose: which of equal candidates are first, and whether to wait for their saves.

Only with the option `harmOrder`. Work loses the time since its last save, or since it got its quota
where it has not saved since, times its devices (`engine.lost_work`). Per device that frees that is
the time alone, so that the later save is evicted first, and the order of any two does not change
while neither saves: it replaces the reservation in the order of candidates (`state`), below
priority and everything else that stands above it.

Who is to be preempted and states when its next save is to be good may be worth waiting for. The
preemptor waits until the save of one of its victims at which they lose least altogether, if what
they lose less then is more than a fifth of the device time that is waited for. That is the time of
all devices that come free or are requested, whichever are more: who else waits for those of a wide
victim waits, too, however narrow the preemptor. It waits like one whose victims are on their way.

How long that may last in all follows from what the victims state: a third more than the longest
time between two saves of theirs, within the bound `maxSaveWait`. Who saves every half hour is at
its next save within that time, and a preemptor does not wait for the hour of another one.

Work that would be given notice counts as losing what it is expected to lose with it
(`engine.notice.expected`), so that it is evicted before others that lose more, and its save is
waited for only where notice spares less.

No workload is safe for that: a save that is overdue is not waited for, and a workload that has
saved is evicted first; one that saves seldom is not waited for long, as the wait costs more than it
gains. And a preemptor waits no longer than that for all saves together, from the first that it
waited for until it has its quota: one save after the other may seem worth it, by others' choice or
because another victim is found each time. Source: KEP-5710, "Future extensions"; the quota plane's
own options.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kubeworld.units.instants import Nanos
from reprieve.engine.notice.expected import WAITS_FOR_ONE_LOST
from reprieve.engine.quota.model import Workload

__all__ = ["UNRESERVED", "longest_wait", "unsaved_since", "worth_waiting_for"]

#: A reservation whose condition is not True counts as made now, later than any other.
UNRESERVED: Final = 2**62


def unsaved_since(workload: Workload) -> int:
    """Return the instant from which on the work of a workload with quota counts as lost."""
    reserved = workload.reserved_at
    if reserved is None:
        return UNRESERVED
    return max(reserved, workload.checkpoint or reserved, workload.counts_from or reserved)


def longest_wait(victims: Sequence[Workload], bound: int) -> int:
    """Return for how many nanoseconds a preemptor of these waits for saves in all."""
    intervals = (
        each.next_checkpoint - unsaved_since(each)
        for each in victims
        if each.next_checkpoint is not None and each.reserved_at is not None
    )
    return min(bound, max(intervals, default=0) * 4 // 3)


def worth_waiting_for(
    victims: Sequence[tuple[Workload, int]], devices: int, now: Nanos, latest: Nanos
) -> Nanos | None:
    """Return the instant of a save that the preemptor of these waits for, None for none.

    Args:
        victims: who would be preempted now, each with the devices that it holds.
        devices: how many the preemptor requests.
        now: the instant of the decision.
        latest: no later save is waited for.
    """
    best, until = 0, None
    waiting = max(devices, sum(held for _, held in victims))
    for instant in sorted({next_ for each, _ in victims if (next_ := each.next_checkpoint)}):
        if not now < instant <= latest:
            continue
        less = sum(held * _less_unsaved(each, now, instant) for each, held in victims)
        gain = less * WAITS_FOR_ONE_LOST - waiting * (instant - now)
        if gain > best:
            best, until = gain, instant
    return until


def _less_unsaved(workload: Workload, now: int, at: int) -> int:
    """Return by how much shorter the time that is not saved is at a later instant."""
    since = min(unsaved_since(workload), now)
    expected = workload.next_checkpoint
    # What is overdue is not counted on.
    later = since if expected is None or not now < expected <= at else expected
    return later - since - (at - now)
