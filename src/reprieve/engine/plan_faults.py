"""What a plane's proof finds against a plan, and the refusal to carry that plan out.

Each plane has its own list of faults; all planes report them in the same form.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["PlanFault", "PlanRefused"]


@dataclass(frozen=True, slots=True)
class PlanFault:
    """One fault; `subject` is whom it concerns, `detail` a node, a number or a name."""

    fault: StrEnum
    subject: str
    detail: str = ""

    def __str__(self) -> str:
        """Return it as one clause."""
        said = f"{self.subject}: {self.fault}" if self.subject else str(self.fault)
        return f"{said} ({self.detail})" if self.detail else said


class PlanRefused(Exception):
    """A plan was not carried out because its proof failed; the message states why."""

    def __init__(self, faults: tuple[PlanFault, ...]) -> None:
        super().__init__("; ".join(str(fault) for fault in faults))
        self.faults = faults
