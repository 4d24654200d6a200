"""Work that the governor of disruptions holds from one preemptor: no victim of that one for now.

The held work, with the end and the rule of each hold, comes with the unit that is decided about, by
uid. Pods that are evicted as one are held as one, until the last of them is not, and so is one of
them that a user deletes: no unit may plan with its capacity alone. What is on its way out is not
held, nor what is evicted as one and is being preempted.
Source: specification of disruptions, section 4.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from kubeworld.units.instants import Nanos
from reprieve.engine.cluster.arrays import I64
from reprieve.engine.cluster.snapshot import Flag, Snapshot
from reprieve.engine.disruptions.questions import Hold, budget_of
from reprieve.engine.placement.profile import Policy
from reprieve.engine.scheduling.outcome import Held
from reprieve.engine.scheduling.victims.hierarchy import effective_priority
from reprieve.engine.scheduling.victims.min_runtime import work_of
from reprieve.units.ids import Uid

__all__ = ["held_back", "held_until"]


def held_until(
    snapshot: Snapshot,
    policy: Policy,
    holds: Mapping[Uid, Hold],
    together: Iterable[I64] = (),
) -> I64 | None:
    """Return when each pod may be a victim again, 0 where it may be now: (slots,) nanoseconds.

    None where no work is held. `together`: slots of pods in no group that are evicted as a whole.
    """
    if not holds:
        return None
    until = np.zeros(len(snapshot.pod_node), np.int64)
    for slot, uid in enumerate(snapshot.pod_uids):
        hold = holds.get(Uid(uid)) if uid else None
        if hold is not None:
            until[slot] = hold.until
    work, as_one, count = work_of(snapshot, policy, together)
    latest = np.zeros(count, np.int64)
    there = (snapshot.pod_node >= 0) & as_one
    np.maximum.at(latest, work[there], until[there])
    until = np.where(as_one, latest[work], until)
    flags = snapshot.pod_flags
    going = np.zeros(count, np.bool_)
    going[work[there & (flags & Flag.PREEMPTED > 0)]] = True
    out = np.where(as_one, going[work], flags & (Flag.DELETING | Flag.PREEMPTED) > 0)
    found: I64 = np.where(out, 0, until)
    return found if found.any() else None


def held_back(
    snapshot: Snapshot,
    policy: Policy,
    until: I64 | None,
    holds: Mapping[Uid, Hold],
    below: int,
    *,
    groups: bool = True,
) -> Held | None:
    """Return which of lower priority are held, None for none; arguments as in `spared_by`."""
    if until is None:
        return None
    priority = effective_priority(snapshot, policy) if groups else snapshot.pod_priority
    slots = np.flatnonzero((until > 0) & (priority < below))
    if not len(slots):
        return None
    first = Nanos(int(until[slots].min()))
    until_then = [hold for hold in holds.values() if hold.until == first]
    by = min(until_then or holds.values(), key=lambda hold: (hold.rule, budget_of(hold)))
    return Held(len(slots), first, by.rule, budget_of(by))
