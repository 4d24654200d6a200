"""When what waits will start: what is known of it first, what was measured then, else no estimate.

1. waiting helps, as the engine has decided: until that instant
2. those who make way have ended: their grace periods
3. what holds room says how long it runs: the cluster is decided about once more without all that
   has ended by an instant, the first that does being found by halving
4. similar work waited: a bound from at least 29 of them (`engine.diagnosis.estimates`)

An instant holds if nobody who comes later is before it. Each question of 3 is a decision about the
whole cluster: there are at most five, and fewer where they take long; the end that is named does
in any case.

Source: the design's "Why work waits"; start estimates only where something was measured or said.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

from reprieve.engine.diagnosis.estimates import Basis, Case, Estimate, bound
from reprieve.engine.diagnosis.model import Change, Diagnosis
from reprieve.engine.diagnosis.reasons import Reason
from reprieve.units.durations import SECOND
from reprieve.units.instants import InvalidInstant, Nanos, parse_instant
from reprieve.whatif.declared_ends import declared_ends, without
from reprieve.whatif.snapshot import Snapshot
from reprieve.wording.estimates import too_few

__all__ = ["JUST_WAITS", "Starts", "after_victims", "by_run_times", "known", "measured"]

#: Whether what is asked about starts on this cluster.
Starts = Callable[[Snapshot], Awaitable[bool]]

#: What waits at all has waited longer than instants are exact.
JUST_WAITS: Final = SECOND
_MOST_DECISIONS: Final = 5
_LEAVING: Final = (Reason.VICTIMS_LEAVING, Reason.NOMINATED_WAITING)
#: What does not pass by itself.
_STAYS: Final = frozenset(
    {
        Reason.STOPPED,
        Reason.INACTIVE,
        Reason.NAMESPACE_NOT_ALLOWED,
        Reason.INVALID,
        Reason.TOPOLOGY_UNSUPPORTED,
        Reason.NO_FLAVOR_MATCHES,
        Reason.NEVER_FITS,
        Reason.GROUP_MISSING,
        Reason.GROUP_INCOMPLETE,
        Reason.NOT_UNIFORM,
        Reason.NO_NODE_MATCHES,
    }
)


def known(diagnosis: Diagnosis | None) -> Estimate | None:
    """Return what the diagnosis says of the start; None where it says nothing."""
    if diagnosis is None:
        return Estimate(why="it is not known why it waits")
    if diagnosis.reason in _STAYS:
        return Estimate(why="what it waits for does not pass by itself")
    for fix in diagnosis.fixes:
        at = _instant(fix.after) if fix.change is Change.WAIT else None
        if at is not None:
            basis = Basis.LEAVING if diagnosis.reason in _LEAVING else Basis.PROTECTION
            return Estimate(basis, at)
    return None


async def by_run_times(
    snapshot: Snapshot,
    starts: Starts,
    over: Callable[[], bool],
    but: frozenset[str] = frozenset(),
) -> Estimate | None:
    """Return by when enough of what holds room has ended, as far as it says how long it runs.

    None where it does not do that all of it has ended, nobody says, or there is no time to ask.
    `but`: uids of what is asked about, whose own end helps it nothing.
    """
    ends = [each for each in declared_ends(snapshot) if but.isdisjoint(each.uids)]
    low, high, asked = 0, len(ends) - 1, 0
    if not ends or over() or not await starts(without(snapshot, ends)):
        return None
    while low < high and asked < _MOST_DECISIONS - 1 and not over():
        middle, asked = (low + high) // 2, asked + 1
        if await starts(without(snapshot, ends[: middle + 1])):
            high = middle
        else:
            low = middle + 1
    end = ends[high]
    return Estimate(Basis.RUN_TIME, end.at, end.holder, end.field)


def measured(cases: Iterable[Case], where: str, waited: int = JUST_WAITS) -> Estimate:
    """Return what measured waits say of something that has waited for so many nanoseconds."""
    found = bound(cases, waited)
    if found.wait is None:
        return Estimate(measured=found, where=where, why=too_few(found, where))
    return Estimate(Basis.MEASURED, measured=found, where=where)


def after_victims(at: Nanos, delays: Sequence[int], grace_seconds: int, plans: int) -> Estimate:
    """Return by when those who make way have ended.

    `delays`: after how many nanoseconds each part starts if all of them end at once; `plans`: how
    often somebody makes way, one after the other.
    """
    latest = max(delays, default=0) + plans * grace_seconds * SECOND
    return Estimate(Basis.LEAVING, Nanos(at + latest))


def _instant(text: str) -> Nanos | None:
    try:
        return parse_instant(text) if text else None
    except InvalidInstant:
        return None
