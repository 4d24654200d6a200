"""Which pods may be a victim of a unit, and which are left alone: overdue, protected or held ones.

Protected are those within their minimum runtime, held those that the governor of disruptions keeps
from this unit. Where gangs of older APIs are evicted as a whole, these bounds hold for the
whole. Source: specification 8.7; specification of disruptions, section 4.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from reprieve.engine.cluster.arrays import I64, Mask
from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.disruptions.questions import Hold
from reprieve.engine.placement.profile import Policy
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.scheduling.gangs.job import JobOptions, VictimGangs
from reprieve.engine.scheduling.outcome import Attempt
from reprieve.engine.scheduling.victims.held import held_back, held_until
from reprieve.engine.scheduling.victims.hierarchy import raised_above
from reprieve.engine.scheduling.victims.min_runtime import protected_until, spared_by
from reprieve.units.ids import Uid

__all__ = ["Allowed", "LeftAlone"]


@dataclass(frozen=True, slots=True)
class LeftAlone:
    """Who must not be a victim of a unit: `until` when each is protected, and is `held` from it."""

    until: I64 | None
    holds: Mapping[Uid, Hold]
    held: I64 | None

    def counted(self, attempt: Attempt, snapshot: Snapshot, policy: Policy, below: int) -> Attempt:
        """Return the attempt with the number of those of lower priority that it was to spare."""
        of_groups = attempt.gang is None
        if attempt.gang is not None and attempt.gang.trigger is not None:
            below = snapshot.pending[attempt.gang.trigger].row.priority
        return replace(
            attempt,
            spared=spared_by(snapshot, policy, self.until, below, groups=of_groups),
            protected=raised_above(snapshot, policy, below) if of_groups else 0,
            held=held_back(snapshot, policy, self.held, self.holds, below, groups=of_groups),
        )


class Allowed:
    """Who may be a victim in a snapshot.

    `overdue`: victims that should have ended by now; no plan counts on them again. `now`: Unix
    seconds, for a policy that is `timed`. `jobs`: how older gangs preempt.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        policy: Policy,
        overdue: Collection[Uid],
        now: int,
        jobs: JobOptions,
    ) -> None:
        self._snapshot = snapshot
        self._policy = policy
        self._overdue = frozenset(overdue)
        self._now = now
        self._whole = jobs.policy.victim_gangs is VictimGangs.ALL
        self._until = protected_until(snapshot, policy, now)

    def anybody(self) -> Mask:
        """Return which pods may be victims of any unit: neither overdue nor protected."""
        return self._evictable(self._until)

    def leave_alone(
        self,
        simulation: Simulation,
        holds: Mapping[Uid, Hold],
        gangs: Sequence[Sequence[Uid]],
    ) -> LeftAlone:
        """Show the simulation which pods may be a victim of a unit; return which may not.

        `gangs`: pods of other gangs, for a unit that may evict these as a whole.
        """
        until = self._until
        bounds = until is not None or bool(holds)
        together = self._slots_of(gangs) if bounds and gangs and self._whole else []
        if together and until is not None:
            until = protected_until(self._snapshot, self._policy, self._now, together)
            simulation.evictable = self._evictable(until)
        held = held_until(self._snapshot, self._policy, holds, together)
        if held is not None:
            simulation.evictable = simulation.evictable & (held == 0)
        return LeftAlone(until, holds, held)

    def _evictable(self, until: I64 | None) -> Mask:
        found = np.ones(len(self._snapshot.pod_node), np.bool_)
        if self._overdue:
            uids = self._snapshot.pod_uids
            found = np.array([uid not in self._overdue for uid in uids], np.bool_)
        return found if until is None else found & (until == 0)

    def _slots_of(self, gangs: Iterable[Sequence[Uid]]) -> list[I64]:
        slots = {uid: slot for slot, uid in enumerate(self._snapshot.pod_uids) if uid}
        return [np.array([slots[uid] for uid in uids if uid in slots], np.int64) for uids in gangs]
