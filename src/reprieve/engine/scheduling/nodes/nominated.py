"""Nominations as attempts over one snapshot change them, and what each simulation respects.

A pod that is bound has none any more; one that was nominated anew replaces its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from reprieve.engine.cluster.snapshot import Nomination, Snapshot
from reprieve.engine.placement.profile import Policy
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.scheduling.nodes.nominations import (
    Saving,
    kept_beside_saving,
    kept_for_others,
    nominations_of,
)
from reprieve.units.ids import Uid

__all__ = ["Nominated"]


class Nominated:
    """The snapshot's nominations and those made since."""

    def __init__(self, snapshot: Snapshot, policy: Policy) -> None:
        self._snapshot = snapshot
        self._held = {each.uid: each for each in nominations_of(snapshot, policy)}
        self._changes = 0
        # What each profile's simulation respects (`respect`).
        self._respected: dict[str, tuple[int, str, int, frozenset[Uid]]] = {}

    def all(self) -> tuple[Nomination, ...]:
        """Return the nominations that are respected now."""
        return tuple(self._held.values())

    def add(self, nomination: Nomination) -> None:
        """Record that a pod was nominated."""
        self._changes += 1
        self._held[nomination.uid] = nomination

    def end(self, uid: Uid) -> None:
        """Drop the nomination of a pod that was bound."""
        self._changes += self._held.pop(uid, None) is not None

    def respect(
        self, simulation: Simulation, own: frozenset[Uid], group: str, priority: int
    ) -> None:
        """Respect the nominations of others, unless that is what the simulation does already."""
        asked = (self._changes, group, priority, own & self._held.keys())
        if self._respected.get(simulation.profile.scheduler_name) != asked:
            self._respected[simulation.profile.scheduler_name] = asked
            nominations = self._held.values()
            simulation.respect(kept_for_others(self._snapshot, nominations, own, group, priority))

    def respect_beside(
        self,
        simulation: Simulation,
        own: frozenset[Uid],
        group: str,
        priority: int,
        saving: Sequence[Saving],
    ) -> None:
        """Respect the nominations of others whose capacity no saving victims hold."""
        if not saving:
            self.respect(simulation, own, group, priority)
            return
        self._respected.pop(simulation.profile.scheduler_name, None)
        kept = kept_for_others(self._snapshot, self._held.values(), own, group, priority)
        simulation.respect(kept_beside_saving(simulation, kept, saving))
