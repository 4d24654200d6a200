"""What is told of a plan that cannot be recorded, in every plane: nobody makes way by it."""

from __future__ import annotations

from typing import Final

from reprieve.units.untrusted import cut

__all__ = ["PREEMPTION_NOT_RECORDED", "not_recorded"]

PREEMPTION_NOT_RECORDED: Final = "PreemptionNotRecorded"


def not_recorded(failure: str, pause: int) -> str:
    """Return the message of work whose plan cannot be written down; `pause` in seconds."""
    return cut(
        f"nobody makes way, as the plan cannot be recorded ({failure}); it is tried again after "
        f"{pause} s, or when the work changes"
    )
