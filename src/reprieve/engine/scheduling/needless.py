"""Victims that are needless beside those of other pods of the same owner.

Pods without a group are tried one after the other, each with the victims that are least for it
alone. The victims of a later pod may free capacity for an earlier one as well, so that those of the
earlier one would be evicted without benefit. Where several planes decide together the pods of one
owner are one demand: the victims of each plan in turn, the most important first, are spared where
the victims of the others suffice for all of its pods. Source: the design's "Where the planes meet".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.placement.reasons import Code
from reprieve.engine.scheduling.demand_devices import held_devices
from reprieve.engine.scheduling.nodes.leaving import Delayed, are_named
from reprieve.engine.scheduling.outcome import Attempt, Unit
from reprieve.engine.scheduling.session import Session
from reprieve.units.ids import Uid

__all__ = ["is_served", "needed_victims"]

_MOST: Final = 8  # sets that are tried for one owner
_NODES: Final = 20_000  # of all sets together


def needed_victims(
    snapshot: Snapshot,
    attempts: Sequence[Attempt],
    begin: Callable[[Delayed], Session],
    waits: Delayed,
) -> Mapping[Unit, frozenset[Uid]]:
    """Return the only victims of units of an owner where fewer suffice; empty where none do.

    Args:
        snapshot: that of the sessions.
        attempts: of the units that were tried in one session, in order.
        begin: makes a session in which no unit has been tried.
        waits: of the session of the attempts.
    """
    found: dict[Unit, frozenset[Uid]] = {}
    for units in _owned(snapshot, attempts, waits):
        plans = [_victims(each) for each in attempts if each.unit in units and each.plan]
        if len(plans) < 2:
            continue
        fewer = _spared(snapshot, attempts, units, plans, begin, waits)
        if fewer:
            found.update(dict.fromkeys(units, fewer))
    return found


def is_served(attempt: Attempt) -> bool:
    """Whether a unit is placed, or will be once its victims have left."""
    if attempt.plan is not None:
        return True
    found = attempt.preemption
    placed = attempt.code is Code.SUCCESS and any(member.bind for member in attempt.members)
    return placed or (found is not None and bool(found.nominated))


def _owned(
    snapshot: Snapshot, attempts: Sequence[Attempt], waits: Delayed
) -> Iterator[frozenset[Unit]]:
    """Yield the units of each owner whose victims no other plane names."""
    found: dict[tuple[str, str], list[Unit]] = {}
    for attempt in attempts:
        unit = attempt.unit
        pending = snapshot.pending.get(unit.pods[0])
        if unit.group or pending is None or not pending.row.controller:
            continue
        if unit in waits.patient and not waits.concerns(unit):
            owner = pending.row.namespace, pending.row.controller
            found.setdefault(owner, []).append(unit)
    yield from map(frozenset, found.values())


def _spared(
    snapshot: Snapshot,
    attempts: Sequence[Attempt],
    units: Collection[Unit],
    plans: Sequence[frozenset[Uid]],
    begin: Callable[[Delayed], Session],
    waits: Delayed,
) -> frozenset[Uid]:
    """Return the fewer victims of these plans that suffice for all units, empty where none do."""
    importance = {victims: _importance(snapshot, units, victims) for victims in plans}
    kept = sorted(importance, key=lambda victims: importance[victims], reverse=True)
    served = {each.unit for each in attempts if is_served(each)}
    tries = min(_MOST, _NODES // max(1, len(snapshot.nodes)))
    fewer: frozenset[Uid] = frozenset()
    for victims in tuple(kept)[:tries]:
        rest = frozenset[Uid]().union(*(each for each in kept if each != victims))
        among = {**waits.among, **dict.fromkeys(units, rest)}
        session = begin(replace(waits, among=among))
        again = [session.attempt(each.unit) for each in attempts]
        if rest and served <= {each.unit for each in again if each and is_served(each)}:
            fewer, kept = rest, [each for each in kept if each != victims]
    return fewer


def _importance(
    snapshot: Snapshot, units: Collection[Unit], victims: frozenset[Uid]
) -> tuple[int, int, list[Uid]]:
    """Return the order in which victims are spared: by priority, then by devices, then by uid."""
    named = are_named(snapshot, victims)
    highest = int(snapshot.pod_priority[named].max(initial=-(2**31)))
    return highest, held_devices(snapshot, tuple(units), victims, None)[0], sorted(victims)


def _victims(attempt: Attempt) -> frozenset[Uid]:
    assert attempt.plan is not None
    return frozenset(victim.root.uid for victim in attempt.plan.victims)
