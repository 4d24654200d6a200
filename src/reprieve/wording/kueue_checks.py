"""Kueue's texts about admission checks, and how long one that requests a retry wants it to wait.

Source: specification of the quota plane, section 9; the reference's objects.
"""

from __future__ import annotations

from collections.abc import Sequence

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos, parse_instant
from reprieve.api.kueue import AdmissionCheckState

__all__ = ["checks_message", "retry_until"]


def checks_message(checks: Sequence[AdmissionCheckState], state: str) -> str:
    """Return which checks are in a state, by name, with what they state."""
    found = sorted((each for each in checks if each.state == state), key=lambda each: each.name)
    parts = [
        f'"{each.name}" ({each.message})' if each.message else f'"{each.name}"' for each in found
    ]
    noun = "AdmissionChecks" if len(parts) > 1 else "AdmissionCheck"
    return f"{noun} in {state} state: {'; '.join(parts)}"


def retry_until(checks: Sequence[AdmissionCheckState]) -> Nanos | None:
    """Return until when the checks in state Retry request to wait; None where none does."""
    ends = [
        parse_instant(each.last_transition_time) + each.requeue_after_seconds * SECOND
        for each in checks
        if each.state == "Retry"
        and each.requeue_after_seconds is not None
        and each.last_transition_time
    ]
    return Nanos(max(ends)) if ends else None
