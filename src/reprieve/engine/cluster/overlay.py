"""What we did to pods and have not seen yet: bindings and nominations, each with a deadline.

An assumption ends when the pod is seen bound, finished or deleted, a nomination when it is seen on
the pod or the pod is bound; both end at their deadline, and decisions are then made from what is
observed. Source: the design's "State that can be trusted".
"""

from __future__ import annotations

from dataclasses import dataclass

from reprieve.units.ids import Uid

__all__ = ["Assumption", "Expected", "Overlay"]


@dataclass(frozen=True, slots=True)
class Assumption:
    """A pod that we bound, and its slot among the assumed ones."""

    node: str
    node_number: int
    slot: int
    pod_class: int
    deadline: int


@dataclass(frozen=True, slots=True)
class Expected:
    """A nomination that we wrote; an empty node: we removed the nomination."""

    node: str
    priority: int
    deadline: int


class Overlay:
    """Assumptions and nominations by pod."""

    def __init__(self) -> None:
        self.assumed: dict[Uid, Assumption] = {}
        self.nominated: dict[Uid, Expected] = {}

    def expired(self, now: int) -> tuple[list[Uid], list[Uid]]:
        """Return the pods whose assumption, and those whose nomination, has reached its deadline.

        `now` and deadlines are on one clock, in any one unit.
        """
        return (
            [uid for uid, entry in self.assumed.items() if entry.deadline <= now],
            [uid for uid, entry in self.nominated.items() if entry.deadline <= now],
        )
