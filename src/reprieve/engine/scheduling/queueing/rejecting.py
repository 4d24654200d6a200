"""Which plugins rejected the pods of a unit, so that the queue knows whose hints may wake it.

A pod that no node accepted was rejected by the filters that state why. A member that had a place,
or was not tried any more, waits for its group: GangScheduling holds it back. Source: specification
22.
"""

from __future__ import annotations

from reprieve.engine.placement.reasons import PLUGIN
from reprieve.engine.scheduling.outcome import Attempt, Diagnosis
from reprieve.engine.scheduling.queueing.events import GANG
from reprieve.units.ids import Uid

__all__ = ["rejecting_plugins"]


def rejecting_plugins(attempt: Attempt) -> dict[Uid, frozenset[str]]:
    """Return the names of the plugins for each pod that is not bound."""
    waiting = frozenset({GANG}) if attempt.unit.group else frozenset[str]()
    return {
        member.uid: waiting if member.diagnosis is None else _plugins(member.diagnosis)
        for member in attempt.members
        if not member.bind
    }


def _plugins(diagnosis: Diagnosis) -> frozenset[str]:
    reasons = [reason for reason, _ in diagnosis.counts]
    if diagnosis.everywhere is not None:
        reasons.append(diagnosis.everywhere)
    found = (PLUGIN.get(reason.rejection) for reason in reasons)
    return frozenset(str(name) for name in found if name is not None)
