"""Expected loss of a victim with notice, and which units of a plan are given notice for it.

A victim without notice loses the work since its last save. With notice it probably saves: of work
whose notices end saved with the share `credit`, the expected loss per device is

    (1 - credit) * undone + credit * (save + restart)

and the preemptor waits meanwhile with all of its devices, for the save where the victim saves and
else until the deadline. So many device-seconds of its wait count as one that is lost as they do in
the quota plane (`engine.quota.targets.harm`). A plan waits once, for the longest: notice is given
to those units with which loss and delay together are least; of equal sums to fewer. Only
`harmOrder` requests this. A save whose time is not known counts as long as the notice.

Times are integers of one unit, nanoseconds or seconds, per device. Pure. Source:
`docs/notice-decisions.md`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from reprieve.engine.notice.credit import UNKNOWN, WHOLE

__all__ = [
    "NO_TERMS",
    "WAITS_FOR_ONE_LOST",
    "AtStake",
    "Terms",
    "counts_from",
    "likely_loss",
    "likely_wait",
    "with_notice",
]

#: So many device-seconds of a preemptor's wait count as one that is lost. From the study of
#: docs/studies/notice.md.
WAITS_FOR_ONE_LOST: Final = 5


class Terms(NamedTuple):
    """What a unit would be granted, what its save and its restart cost, and its credit.

    `time` 0: it would not be notified. `save` 0: it is not known. `credit`: in thousandths.
    """

    time: int = 0
    save: int = 0
    restart: int = 0
    credit: int = UNKNOWN


NO_TERMS: Final = Terms()


class AtStake(NamedTuple):
    """A unit of a plan: what it has not saved per device, its devices, its terms."""

    undone: int
    devices: int
    terms: Terms = NO_TERMS


def likely_loss(undone: int, terms: Terms) -> int:
    """Return what a unit is expected to lose per device if it gets notice."""
    saved = _save(terms) + terms.restart
    return ((WHOLE - terms.credit) * undone + terms.credit * saved) // WHOLE


def likely_wait(terms: Terms) -> int:
    """Return for how long a preemptor is expected to wait for a unit that gets notice."""
    return ((WHOLE - terms.credit) * terms.time + terms.credit * _save(terms)) // WHOLE


def counts_from(since: int, now: int, terms: Terms) -> int:
    """Return from when a victim's time counts as lost, which is `since` where notice spares none.

    The delay counts as that of a preemptor with as many devices as the victim.
    """
    if not terms.time or now <= since:
        return since
    counts = likely_loss(now - since, terms) + likely_wait(terms) // WAITS_FOR_ONE_LOST
    return max(since, now - counts)


def with_notice(units: Sequence[AtStake], asking: int) -> tuple[bool, ...]:
    """Return which units of a plan get notice, so that loss and delay are least together.

    Args:
        units: the victims of the plan.
        asking: the devices of the preemptor.
    """
    waits = [likely_wait(each.terms) for each in units]
    spared = [
        each.devices * (each.undone - likely_loss(each.undone, each.terms))
        if each.terms.time
        else 0
        for each in units
    ]
    best, longest = 0, -1
    for wait in sorted(set(waits)):
        gain = sum(
            gained
            for gained, each in zip(spared, waits, strict=True)
            if gained > 0 and each <= wait
        )
        if gain * WAITS_FOR_ONE_LOST - wait * asking > best:
            best, longest = gain * WAITS_FOR_ONE_LOST - wait * asking, wait
    return tuple(gained > 0 and each <= longest for gained, each in zip(spared, waits, strict=True))


def _save(terms: Terms) -> int:
    return min(terms.save or terms.time, terms.time)
