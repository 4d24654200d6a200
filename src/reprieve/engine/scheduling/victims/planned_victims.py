"""The victims of a plan on a snapshot: their slots, and what each of them is evicted with.

A plan names pods by uid, and the unit of each that is evicted with others; the slots that it was
decided on are a hint that holds while pods are where they were. Source: specification 7.3 and 7.8.
"""

from __future__ import annotations

import numpy as np

from reprieve.engine.cluster.arrays import I32, I64
from reprieve.engine.cluster.snapshot import Flag, Snapshot
from reprieve.engine.cluster.texts import texts_at
from reprieve.engine.placement.profile import Policy
from reprieve.engine.scheduling.gangs.job import VictimGangs
from reprieve.engine.scheduling.outcome import Attempt, pods_of

__all__ = ["slots_of_plan", "units_of_plan"]


def slots_of_plan(snapshot: Snapshot, attempt: Attempt) -> I64:
    """Return the victims' slots in this snapshot, -1 for one that is not there."""
    if attempt.plan is None or attempt.preemption is None:
        return np.zeros(0, np.int64)
    victims = attempt.plan.victims
    known = pods_of(attempt.preemption.victims)
    held = snapshot.pod_uids
    # Texts lie in memory in the order of slots.
    order = np.argsort(known)
    if (
        len(known) != len(victims)
        or known.max(initial=-1) >= len(held)
        or texts_at(held, known[order].tolist())
        != [victims[place].root.uid for place in order.tolist()]
    ):
        uids = [victim.root.uid for victim in victims]
        wanted = set(uids)
        where = {uid: slot for slot, uid in enumerate(held) if uid in wanted}
        known = np.array([where.get(uid, -1) for uid in uids], np.int64)
    return known


def units_of_plan(
    snapshot: Snapshot,
    policy: Policy,
    attempt: Attempt,
    slots: I64,
    together: I32 | None,
    victim_gangs: VictimGangs,
) -> I64:
    """Return what each victim is evicted with, as `Going` has it: (victims,)."""
    assert attempt.plan is not None
    units = np.arange(len(slots))
    if attempt.gang is not None and victim_gangs is VictimGangs.POD:
        return units
    reported = attempt.gang is not None or policy.non_uniform_groups
    named = [victim.unit for victim in attempt.plan.victims] if reported else []
    if attempt.gang is not None:
        first: dict[str, int] = {}
        return np.array(
            [first.setdefault(unit, at) if unit else at for at, unit in enumerate(named)], np.int64
        )
    if together is None:
        return units
    whole = together[slots]
    if named:
        leads = (snapshot.pod_flags & Flag.WITH_GROUP) > 0
        led = set(snapshot.pod_group[leads].tolist())
        groups = snapshot.pod_group[slots].tolist()
        for at, (unit, index) in enumerate(zip(named, groups, strict=True)):
            row = snapshot.group_rows[index] if index >= 0 else None
            if unit and whole[at] < 0 and row is not None and (row.floor > 0 or index in led):
                whole[at] = index
    grouped = np.flatnonzero(whole >= 0)
    if len(grouped):
        lead = np.zeros(len(snapshot.group_rows), np.int64)
        lead[whole[grouped]] = grouped
        units[grouped] = lead[whole[grouped]]
    return units
