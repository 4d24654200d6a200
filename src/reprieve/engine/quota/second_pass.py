"""The second pass of a cycle: places for who holds quota already.

Who lost a node gets another one before the heads are decided, or is evicted after them; who waited
for checks gets places once they are ready.

Source: specification of topology-aware scheduling, sections 6.6 and 7.
"""

from __future__ import annotations

from collections.abc import Sequence

from kubeworld.units.instants import Nanos
from reprieve.engine.plan_faults import PlanRefused
from reprieve.engine.quota.delayed_places import place_delayed
from reprieve.engine.quota.entries import CycleResult, Entry, Outcome
from reprieve.engine.quota.evictions import Evictions
from reprieve.engine.quota.holdings.snapshot import Snapshot
from reprieve.engine.quota.holdings.state import Holdings
from reprieve.engine.quota.node_failures import (
    NodeVictims,
    evict_for_nodes,
    replace_failed_nodes,
)
from reprieve.engine.quota.nominations import Nominations
from reprieve.engine.quota.room import Room

__all__ = ["SecondPass"]


class SecondPass:
    """Assigns places in one cycle to those who hold quota; what it decides is in the result."""

    def __init__(
        self,
        holdings: Holdings,
        snapshot: Snapshot,
        nominations: Nominations,
        evictions: Evictions,
        room: Room,
        result: CycleResult,
        now: Nanos,
    ) -> None:
        self._holdings = holdings
        self._snapshot = snapshot
        self._settings = snapshot.settings
        self._nominations = nominations
        self._evictions = evictions
        self._room = room
        self._result = result
        self._now = now

    def replace_nodes(self) -> list[Entry]:
        """Give other nodes to those of whose places one failed; return who gets none."""
        replaced, failed = replace_failed_nodes(self._holdings, self._snapshot)
        self._result.entries += replaced
        self._result.progress = self._result.progress or bool(replaced)
        if self._settings.best and self._settings.gates.tas_failed_node_replacement_fail_fast:
            failed = [each for each in failed if not self._gets_victims(each)]
        return failed

    def place_delayed(self) -> None:
        """Give places to those who hold quota and whose checks are ready since."""
        found = place_delayed(self._holdings, self._snapshot)
        self._result.entries += found
        placed = any(each.outcome is Outcome.PLACED for each in found)
        self._result.progress = self._result.progress or placed

    def _gets_victims(self, entry: Entry) -> bool:
        """Return whether others are preempted for pods of a failed node, or are waited for."""
        victims = NodeVictims(
            self._holdings, self._snapshot, self._nominations, self._evictions, self._room
        )
        try:
            if not victims.choose_victims(entry):
                return False
        except PlanRefused:
            return False  # a fault of ours: it is evicted and placed anew, as without this
        if entry.issued:
            self._result.entries.append(entry)
            self._result.progress = True
        return True

    def evict_for_nodes(self, failed: Sequence[Entry]) -> None:
        """Evict those for whose pods there is no other node, unless they are preempted."""
        if not self._settings.gates.tas_failed_node_replacement_fail_fast:
            for each in failed:
                each.outcome = Outcome.UNPLACED
            self._result.entries += failed
            return
        evicted = evict_for_nodes(self._holdings, failed, self._now)
        self._result.entries += evicted
        self._result.progress = self._result.progress or bool(evicted)
