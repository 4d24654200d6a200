"""Whether the scheduling plane places a demand without idle work that another plane names.

Queried before idle work is evicted for pods that our scheduling plane places. Source: the design's
"Where the planes meet".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

import numpy as np

from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.cluster.texts import places_of
from reprieve.engine.mixed import FAR_FEWER, FEWER_IDLE
from reprieve.engine.placement.filtering import PlacementScorer
from reprieve.engine.placement.profile import Policy
from reprieve.engine.scheduling.demand_devices import held_devices, least_lacking, priority_of
from reprieve.engine.scheduling.nodes.leaving import Delayed, are_named
from reprieve.engine.scheduling.outcome import Unit
from reprieve.engine.scheduling.session import Session
from reprieve.units.ids import Uid

__all__ = ["MOST_AHEAD", "refusal"]

#: How many units of higher priority are examined.
MOST_AHEAD: Final = 20
_MOST_PREEMPTING: Final = 6  # different ones, with victims of theirs
_TO_OTHERS: Final = "pending work of higher priority would use what is freed"
#: Idle work is evicted first if it holds at most so many times the devices that preemption by
#: priority evicts: halves.
_MOST: Final = 3


def refusal(
    snapshot: Snapshot,
    policy: Policy,
    units: Sequence[Unit],
    gone: frozenset[Uid],
    idle: frozenset[Uid],
    overdue: frozenset[Uid],
    now: int,
    scorers: Mapping[str, PlacementScorer],
    ahead: Sequence[Unit] = (),
    *,
    by_priority: bool = False,
    preempting: Sequence[Unit] = (),
) -> tuple[str, frozenset[Uid]]:
    """Return why it is wrong to evict `gone` for these units; empty where it is right.

    Where the units could preempt idle pods by priority, so that fewer devices are evicted, it is
    wrong, and the pods of idle work are returned: they alone may be their victims. `ahead`: units
    of higher priority that are pending as well, and use what is freed where they fit. `preempting`:
    those of them that may preempt now, and use it where they fit beside their victims.
    `by_priority`: lower priorities may be preempted for the units now; where these hold far fewer
    devices (`_MOST`), it is wrong to evict idle work. Where the order of priorities names pods of
    `gone`, the other pods are examined as well, and they alone are returned: right where they do
    not come back, since they would preempt those of a lower priority then.
    """
    # Every victim of the last of these sessions is one of these.
    slots = places_of(snapshot.pod_uids, gone | idle)

    def session(named: Mapping[Uid, int] | None = slots, **waits: Any) -> Session:
        deferred = Delayed(**waits, slots=named)
        return Session(snapshot, policy, overdue=overdue, now=now, scorers=scorers, waits=deferred)

    if session().places_all(units):
        return "what is free, or on its way, is enough for it", frozenset()
    if not session().places_all(units, gone):
        return "not all of its pods have a node without the victims", frozenset()
    if ahead and not session().places_all(units, gone, ahead):
        return _TO_OTHERS, frozenset()
    first = islice(_different(snapshot, preempting), _MOST_PREEMPTING)
    if any(_joins(session, snapshot, unit, gone) for unit in first):
        return _TO_OTHERS, frozenset()
    devices, _ = held_devices(snapshot, units, gone, slots)
    if by_priority and _exceeds(devices, least_lacking(snapshot, units)):
        others = _by_priority(session(patient=frozenset(units)), snapshot, units)
        if others is not None and _exceeds(devices, _held(snapshot, units, others)):
            return FAR_FEWER, frozenset()
        if others is not None and others & gone:
            # Those of the lowest priority are the idle ones: which pods would be evicted instead?
            rest = _lower_pods(snapshot, units) - gone
            beside = session(None, patient=frozenset(units), among=dict.fromkeys(units, rest))
            others = _by_priority(beside, snapshot, units) if rest else None
            if others is not None and _exceeds(devices, _held(snapshot, units, others)):
                return FAR_FEWER, others
    lower = snapshot.pod_priority < max(priority_of(snapshot, unit) for unit in units)
    if not (lower & are_named(snapshot, idle, slots)).any():
        return "", frozenset()
    among = session(patient=frozenset(units), among=dict.fromkeys(units, idle))
    if _needs_fewer(among, snapshot, units, gone, slots):
        return FEWER_IDLE, idle
    return "", frozenset()


def _different(snapshot: Snapshot, units: Sequence[Unit]) -> Iterator[Unit]:
    """Yield one of those units that request the same with the same priority.

    A unit that is nominated is another one: it may have its victims already.
    """
    nominated = {each.uid for each in snapshot.nominations}
    seen = set[tuple[int, tuple[int, ...], bool]]()
    for unit in units:
        classes = (snapshot.pending[uid].pod_class for uid in unit.pods if uid in snapshot.pending)
        served = not nominated.isdisjoint(unit.pods)
        kind = priority_of(snapshot, unit), tuple(classes), served
        if kind not in seen:
            seen.add(kind)
            yield unit


def _joins(
    session: Callable[..., Session], snapshot: Snapshot, unit: Unit, gone: frozenset[Uid]
) -> bool:
    """Return whether a unit finds victims by priority only where `gone` is evicted as well."""
    patient = frozenset((unit,))
    with_them = session(patient=patient, without={unit: gone})
    found = _by_priority(with_them, snapshot, (unit,))
    if not found:
        return False
    return not _by_priority(session(patient=patient), snapshot, (unit,))


def _needs_fewer(
    among: Session,
    snapshot: Snapshot,
    units: Sequence[Unit],
    gone: frozenset[Uid],
    slots: Mapping[Uid, int],
) -> bool:
    """Return whether fewer idle pods than these are evicted where they are by their priority."""
    victims: set[Uid] = set()
    for unit in units:
        attempt = among.attempt(unit)
        found = None if attempt is None else attempt.preemption
        if attempt is None or (attempt.plan is None and (found is None or not found.nominated)):
            return False
        if attempt.plan is not None:
            victims.update(victim.root.uid for victim in attempt.plan.victims)
    fewest = held_devices(snapshot, units, victims, slots)
    return fewest < held_devices(snapshot, units, gone, slots)


def _exceeds(devices: int, fewest: int) -> bool:
    return 2 * devices > _MOST * fewest


def _lower_pods(snapshot: Snapshot, units: Sequence[Unit]) -> frozenset[Uid]:
    """Return the pods on nodes that have a lower priority than the units."""
    highest = max(priority_of(snapshot, unit) for unit in units)
    lower = np.flatnonzero((snapshot.pod_node >= 0) & (snapshot.pod_priority < highest))
    return frozenset(snapshot.pod_uids[slot] for slot in lower.tolist())


def _held(snapshot: Snapshot, units: Sequence[Unit], victims: frozenset[Uid]) -> int:
    return held_devices(snapshot, units, victims, None)[0]


def _by_priority(
    session: Session, snapshot: Snapshot, units: Sequence[Unit]
) -> frozenset[Uid] | None:
    """Return victims by priority alone, with no budget broken; None: there is no such set."""
    victims: set[Uid] = set()
    for unit in units:
        attempt = session.attempt(unit)
        found = None if attempt is None else attempt.preemption
        placed = attempt is not None and any(member.bind for member in attempt.members)
        if found is not None and found.violating:
            return None
        if attempt is None or (attempt.plan is None and not placed):
            return None
        if attempt.plan is not None:
            victims.update(victim.root.uid for victim in attempt.plan.victims)
    return frozenset(victims)
