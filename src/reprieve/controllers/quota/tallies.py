"""What each ClusterQueue and LocalQueue holds, for their statuses: counts and amounts.

A workload counts once for its ClusterQueue and once for its LocalQueue, as reserving and, when
admitted, as that. One change costs what the workload holds, never a pass over all of them. Source:
specification of the quota plane, section 1.1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from reprieve.engine.quota.model import FlavorResource

__all__ = ["Share", "Tallies", "Tally"]


@dataclass(slots=True)
class Tally:
    """What one queue holds. Amounts in engine units."""

    reserving: int = 0
    admitted: int = 0
    reservation: Counter[FlavorResource] = field(default_factory=Counter)
    usage: Counter[FlavorResource] = field(default_factory=Counter)

    def add(self, share: Share, sign: int) -> None:
        """Count a workload, or with `sign` -1 take it back."""
        self.reserving += sign
        for pair, amount in share.amounts:
            self.reservation[pair] += sign * amount
        if share.admitted:
            self.admitted += sign
            for pair, amount in share.amounts:
                self.usage[pair] += sign * amount


@dataclass(frozen=True, slots=True)
class Share:
    """What one workload contributes; `queues` are the keys of the queues that it counts for."""

    queues: tuple[str, ...]
    admitted: bool
    amounts: tuple[tuple[FlavorResource, int], ...]


class Tallies:
    """Tallies by key: `NAME` of a ClusterQueue, `NAMESPACE/NAME` of a LocalQueue."""

    def __init__(self) -> None:
        self._tallies: dict[str, Tally] = {}
        self._shares: dict[str, Share] = {}
        self.changed: set[str] = set()

    def put(self, workload: str, share: Share | None) -> None:
        """Count a workload by what it is now, None for nothing."""
        before = self._shares.get(workload)
        if before == share:
            return
        if before is not None:
            self._add(before.queues, before, -1)
            del self._shares[workload]
        if share is not None:
            self._add(share.queues, share, 1)
            self._shares[workload] = share

    def of(self, queue: str) -> Tally:
        """Return the tally of a queue."""
        return self._tallies.get(queue) or Tally()

    def keys(self) -> Mapping[str, Tally]:
        """Return all tallies."""
        return self._tallies

    def _add(self, queues: Iterable[str], share: Share, sign: int) -> None:
        for queue in queues:
            self._tallies.setdefault(queue, Tally()).add(share, sign)
            self.changed.add(queue)
