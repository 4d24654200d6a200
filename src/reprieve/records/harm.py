"""Harm beside the input of a record: what harm budgets know of both sides of its displacements.

Written where the cluster has harm budgets, as `harm` in `spec.input`, by the uid of the first
object of each unit. Without it the sides are known by tenant and lineage, and no budget that
selects by priority or ClusterQueue counts them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from reprieve.api.reprieve import Preemption
from reprieve.engine.disruptions.displacement import Displacement, Exemption
from reprieve.engine.harm_budgets.budget import Harm, HarmSide
from reprieve.records.displacements import HARM_KEY

__all__ = ["harms_in", "in_truth", "stored_harm"]

_MOST: Final = 300


class _Sides(msgspec.Struct, frozen=True, array_like=True):
    """What budgets select by: queue and priority of the victim and of the preemptor."""

    queue: str = ""
    priority: int | None = None
    preemptor_queue: str = ""
    preemptor_priority: int | None = None


def stored_harm(harms: Sequence[Harm], firsts: Sequence[str]) -> dict[str, Any]:
    """Return what to store beside a decision's input; `firsts`: the uid that names each unit."""
    if not harms or len(harms) > _MOST:
        return {}
    found = {}
    for harm, first in zip(harms, firsts, strict=True):
        asks, suffers = harm.preemptor or HarmSide(""), harm.victim
        found[first] = _Sides(suffers.queue, suffers.priority, asks.queue, asks.priority)
    return {HARM_KEY: msgspec.to_builtins(found)}


def harms_in(intent: Preemption, rows: Sequence[Displacement]) -> tuple[Harm, ...]:
    """Return what budgets count of a record; `rows` are its displacements.

    Of a record that is closed it is what those lost in truth who had saved after a notice.
    """
    known = _stored(intent.spec.input)
    victims = {victim.subject.uid: victim for victim in intent.spec.victims}
    units: dict[str, set[str]] = {}
    for victim in intent.spec.victims:
        units.setdefault(victim.unit or victim.root.uid, set()).add(victim.root.uid)
    found = []
    for row in rows:
        if row.exempt in (Exemption.NODE_FAILURE, Exemption.DRAIN):
            continue
        victim = victims[row.uid]
        sides = known.get(row.uid) or known.get(victim.root.uid) or _Sides()
        preemptor = None
        if row.preemptor is not None:
            asks = row.preemptor
            preemptor = HarmSide(
                asks.tenant, sides.preemptor_queue, sides.preemptor_priority, asks.lineage
            )
        found.append(
            Harm(
                row.at,
                str(row.actor),
                HarmSide(row.victim.tenant, sides.queue, sides.priority, row.victim.lineage),
                preemptor,
                victim.lost_device_seconds,
                victim.rule,
                frozenset(units[victim.unit or victim.root.uid]),
            )
        )
    return (
        tuple(found) if intent.status.phase.open else in_truth(found, intent.status.lost_after_save)
    )


def in_truth(harms: Sequence[Harm], lost: Mapping[str, int]) -> tuple[Harm, ...]:
    """Return them with what units lost that had saved, of all of whose objects it is known.

    `lost`: device seconds by the uids of roots.
    """
    return tuple(
        harm.in_truth(sum(lost[uid] for uid in harm.uids)) if harm.uids <= lost.keys() else harm
        for harm in harms
    )


def _stored(recorded: Mapping[str, Any] | None) -> Mapping[str, _Sides]:
    try:
        return msgspec.convert((recorded or {}).get(HARM_KEY, {}), dict[str, _Sides])
    except msgspec.ValidationError:
        return {}
