"""Whether the scheduling plane places a demand once idle work is gone that another plane names.

Asked before idle work is evicted for pods that our scheduling plane places. Source: the design's
"Where the planes meet".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.cluster.texts import places_of
from reprieve.engine.placement.filtering import PlacementScorer
from reprieve.engine.placement.profile import Policy
from reprieve.engine.scheduling.mixtures import held_devices, priority_of
from reprieve.engine.scheduling.nodes.leaving import PutOff, are_named
from reprieve.engine.scheduling.outcome import Unit
from reprieve.engine.scheduling.session import Session
from reprieve.units.ids import Uid

__all__ = ["MOST_AHEAD", "refusal"]

#: How many units of higher priority are looked at.
MOST_AHEAD: Final = 20


def refusal(
    snapshot: Snapshot,
    policy: Policy,
    units: Sequence[Unit],
    gone: frozenset[Uid],
    idle: frozenset[Uid],
    overdue: frozenset[Uid],
    now: int,
    scorers: Mapping[str, PlacementScorer],
    ahead: Collection[Unit] = (),
) -> tuple[str, frozenset[Uid]]:
    """Return why it is wrong to evict `gone` for these units; empty where it is right.

    Where the units could preempt idle pods by priority, so that fewer devices go, it is wrong, and
    the pods of idle work are returned: they alone may be their victims. `ahead`: units of higher
    priority that wait as well, and take what comes free where they fit.
    """
    # Whoever is among the victims of the last of these sessions is one of these.
    slots = places_of(snapshot.pod_uids, gone | idle)

    def session(**waits: Any) -> Session:
        return Session(
            snapshot,
            policy,
            overdue=overdue,
            now=now,
            scorers=scorers,
            waits=PutOff(**waits, slots=slots),
        )

    if session().places_all(units):
        return "what is free, or on its way, is enough for it", frozenset()
    if not session().places_all(units, gone):
        return "not all of its pods have a node with the victims gone", frozenset()
    if ahead and not session().places_all(units, gone, ahead):
        return "what comes free goes to others that wait, with a higher priority", frozenset()
    lower = snapshot.pod_priority < max(priority_of(snapshot, unit) for unit in units)
    if not (lower & are_named(snapshot, idle, slots)).any():
        return "", frozenset()
    among = session(patient=frozenset(units), among=dict.fromkeys(units, idle))
    victims: set[Uid] = set()
    for unit in units:
        attempt = among.attempt(unit)
        found = None if attempt is None else attempt.preemption
        if attempt is None or (attempt.plan is None and (found is None or not found.nominated)):
            return "", frozenset()
        if attempt.plan is not None:
            victims.update(victim.root.uid for victim in attempt.plan.victims)
    fewest = held_devices(snapshot, units, victims, slots)
    if fewest < held_devices(snapshot, units, gone, slots):
        return "fewer of the idle pods have to go by their priority", idle
    return "", frozenset()
