"""How notices of each lineage ended: in this process, and by records in former ones.

Source: `docs/notice-decisions.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from reprieve.api.reprieve import Preemption, VictimState
from reprieve.engine.notice.credit import NO_HISTORY, History
from reprieve.records.units import units_of
from reprieve.records.victim_states import victim_states

__all__ = ["Histories"]

_LINEAGES: Final = 10_000  # whose history is known


class Histories:
    """Histories by lineage, the latest last."""

    def __init__(self) -> None:
        self._known: dict[str, History] = {}
        #: Called when histories of former processes are known.
        self.restored: list[Callable[[], None]] = []

    def of(self, lineage: str) -> History:
        """Return the history of a lineage."""
        return self._known.get(lineage, NO_HISTORY)

    def keep(self, lineage: str, history: History) -> None:
        """Use this history from now on."""
        self._known.pop(lineage, None)
        self._known[lineage] = history
        while len(self._known) > _LINEAGES:
            del self._known[next(iter(self._known))]

    def restore(self, records: Iterable[Preemption]) -> None:
        """Count how notices of former processes ended, by the records of their plans.

        An evicted unit had saved if the record states what it lost after the save. Units of open
        plans end in this process; the step of a save is in no record.
        """
        for record in sorted(records, key=lambda each: each.spec.decided_at):
            if record.spec.dry_run or record.status.phase.open:
                continue
            states, saved = victim_states(record), record.status.lost_after_save
            for unit in units_of(record.spec.victims).values():
                found = [states.get(victim.root.uid) for victim in unit]
                evicted = any(each and each.state is VictimState.EVICTED for each in found)
                if unit[0].notice is not None and unit[0].lineage and evicted:
                    had_saved = all(victim.root.uid in saved for victim in unit)
                    self.keep(unit[0].lineage, self.of(unit[0].lineage).ended(saved=had_saved))
        for known in self.restored:
            known()
