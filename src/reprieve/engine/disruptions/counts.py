"""How often each lineage was displaced, in whatever order the rows come.

Used for the counts reported to tenants (TIMES), where neither loops nor weak links play a role: a
lineage is identified by its label, where it has one. Displacements of one instant count once, those
by failures and drains not at all. Adding one costs a look-up, whenever it happened. What is older
than the window is forgotten as others come, and above a number of instants the oldest tenth, as the
ledger has it. Source: specification of disruptions, sections 3, 4.2 and 6.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import chain
from typing import Final

from kubeworld.units.instants import Nanos
from reprieve.engine.disruptions.displacement import Displacement, Exemption
from reprieve.engine.disruptions.ledger import KEPT, MOST_ROWS
from reprieve.engine.disruptions.lineage import Lineage, Participant
from reprieve.engine.disruptions.questions import GovernorPolicy

__all__ = ["DisplacementCounts"]

_CLEAN_AFTER: Final = 10_000
_TENTH: Final = 10


class DisplacementCounts:
    """Instants by lineage, of the last `KEPT` nanoseconds."""

    def __init__(self, policy: GovernorPolicy, most: int = MOST_ROWS) -> None:
        self.policy = policy
        self.most = most
        self._instants: dict[str, list[Nanos]] = {}
        self._last = Nanos(0)
        self._size = 0  # instants
        self._fresh = 0

    def record(self, row: Displacement) -> None:
        """Record a displacement."""
        if row.exempt is not Exemption.NONE:
            return
        instants = self._instants.setdefault(_called(row.victim), [])
        place = bisect_right(instants, row.at)
        if not place or instants[place - 1] != row.at:
            instants.insert(place, row.at)
            self._size += 1
        self._last = max(self._last, row.at)
        self._fresh += 1
        if self._fresh > max(_CLEAN_AFTER, len(self._instants)):
            self._forget(Nanos(self._last - max(KEPT, self.policy.repeated_window)))
        if self._size > self.most:
            every = sorted(chain.from_iterable(self._instants.values()))
            self._forget(every[self._size // _TENTH])

    def __len__(self) -> int:
        """Return how many instants are known."""
        return self._size

    def fold(self, rows: Iterable[Displacement]) -> None:
        """Record many displacements."""
        for row in rows:
            self.record(row)

    def displaced(self, participant: Participant, now: Nanos) -> int:
        """Return how often work was displaced within the window before an instant, it included."""
        return self._count(self._instants.get(_called(participant), []), now)

    def repeated(self, now: Nanos) -> dict[Lineage, int]:
        """Return which lineages were displaced so often that it is reported, and how often."""
        counts = {Lineage(name): self._count(each, now) for name, each in self._instants.items()}
        return {name: count for name, count in counts.items() if count >= self.policy.repeated}

    def _count(self, instants: list[Nanos], now: Nanos) -> int:
        since = Nanos(now - self.policy.repeated_window)
        return bisect_right(instants, now) - bisect_right(instants, since)

    def _forget(self, oldest: Nanos) -> None:
        """Forget this instant and all before it."""
        self._fresh = 0
        for name, instants in list(self._instants.items()):
            del instants[: bisect_right(instants, oldest)]
            if not instants:
                del self._instants[name]
        self._size = sum(map(len, self._instants.values()))


def _called(participant: Participant) -> str:
    return participant.merged or participant.lineage
