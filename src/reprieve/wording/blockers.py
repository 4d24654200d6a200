"""Names who holds the places that a unit lacks, and by which rule each stays."""

from __future__ import annotations

from typing import Final

from reprieve.engine.diagnosis.model import Blocker, Diagnosis
from reprieve.engine.diagnosis.reasons import Reason
from reprieve.wording.diagnosis import amounts_text, rule_text

__all__ = ["place_holders_text"]

_NAMED: Final = 3


def place_holders_text(diagnosis: Diagnosis) -> str:
    """Return who holds the places of the best domain; empty where places are not what lacks."""
    if diagnosis.reason is not Reason.PLACES_TAKEN or not diagnosis.blockers:
        return ""
    more = sum(diagnosis.refused.values()) - len(diagnosis.blockers[:_NAMED])
    named = "; ".join(_text(each) for each in diagnosis.blockers[:_NAMED])
    return f"{named}; and {more} more" if more > 0 else named


def _text(blocker: Blocker) -> str:
    holder = blocker.holder
    name = f"{holder.kind} {holder.namespace}/{holder.name}"
    held = f"{name} {amounts_text(blocker.amounts)}".rstrip()
    return f"{held}, {rule_text(blocker.rule)}" if blocker.rule else held
