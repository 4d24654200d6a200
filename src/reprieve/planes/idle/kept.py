"""Idle work that its users keep: it reported so within its notice, and is spared for a while.

It is spared once, for as long as the administrator allows, and again only after it was at work: who
never works cannot hold GPUs by a claim of its own. The newest 10,000 are known; a new process knows
none. Source: the contract of notices in `docs/notice-reference.md`.
"""

from __future__ import annotations

from typing import Final

from kubeworld.units.instants import Nanos
from reprieve.engine.disruptions.questions import Hold, Rule
from reprieve.units.ids import Uid

__all__ = ["Kept"]

_MOST: Final = 10_000


class Kept:
    """Roots that are kept, by uid. Instants are wall time."""

    def __init__(self) -> None:
        self._until: dict[Uid, Nanos] = {}

    def keep(self, root: str, until: Nanos) -> bool:
        """Spare a root until then; return whether that is granted."""
        if Uid(root) in self._until:
            return False
        self._until[Uid(root)] = until
        while len(self._until) > _MOST:
            del self._until[next(iter(self._until))]
        return True

    def at_work(self, root: str) -> None:
        """A root works again: it may be kept again."""
        self._until.pop(Uid(root), None)

    def held(self, now: Nanos) -> dict[Uid, Hold]:
        """Return who is spared at an instant."""
        return {u: Hold(until, Rule.KEPT) for u, until in self._until.items() if now < until}
