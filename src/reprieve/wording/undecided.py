"""What is reported in several planes of work that cannot be decided about, or not be recorded."""

from __future__ import annotations

from typing import Final

from kubeworld.units.untrusted import cut

__all__ = ["DECISION_FAILED", "FAULT", "PREEMPTION_NOT_RECORDED", "not_recorded"]

DECISION_FAILED: Final = "DecisionFailed"
FAULT: Final = "A fault of the operator keeps it from being decided about; its log has the details"
PREEMPTION_NOT_RECORDED: Final = "PreemptionNotRecorded"
_MOST_OF_FAILURE: Final = 700  # characters, so that the note of an event has space for the rest


def not_recorded(failure: str, pause: int, *, sooner: str = ", or when the work changes") -> str:
    """Return the message of work whose plan cannot be written down; `pause` in seconds.

    `sooner` states what ends the pause before its time.
    """
    why = cut(failure, _MOST_OF_FAILURE)
    again = f"it is tried again after {pause} s{sooner}"
    return f"nothing is preempted, as the plan cannot be recorded ({why}); {again}"
