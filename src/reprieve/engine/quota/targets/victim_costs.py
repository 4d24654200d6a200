"""What it costs to evict workloads, as the profile `best` compares it.

Smaller is better, the first difference decides: the highest effective priority of those that do not
leave already (`top`); with `harmOrder` the device-seconds that are lost, none of idle work with
`idleFirst`; the sum of (priority + 2**31); those that leave already, which cost nothing else.
Source: KEP-5710, "Future extensions"; the quota plane's own options.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.engine.quota.holdings.holders import Holder
from reprieve.engine.quota.holdings.snapshot import Snapshot
from reprieve.engine.quota.targets.candidates import Target

__all__ = ["NOTHING", "OFFSET", "Cost", "Costs"]

#: So that every eviction adds to the sum of priorities.
OFFSET: Final = 2**31
_NEVER: Final = -(2**63)


@dataclass(frozen=True, slots=True)
class Cost:
    """What evicting one workload costs but for being the highest priority."""

    lost: int
    priority: int  # with its offset, 0 for one that leaves already
    leaving: int

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.lost + other.lost, self.priority + other.priority, self.leaving + other.leaving
        )

    @property
    def key(self) -> tuple[int, int, int]:
        return self.lost, self.priority, self.leaving


NOTHING: Final = Cost(0, 0, 0)


class Costs:
    """What workloads cost, at one instant."""

    def __init__(self, snapshot: Snapshot, now: Nanos) -> None:
        self.by_work = snapshot.settings.harm_order
        self._now = now

    def of(self, holder: Holder) -> Cost:
        if holder.evicted:
            return Cost(0, 0, 1)
        lost = 0
        if self.by_work and not holder.idle:
            lost = holder.devices * max(0, self._now - holder.since) // SECOND
        return Cost(lost, holder.priority + OFFSET, 0)

    def top(self, targets: Sequence[Target]) -> int:
        """Return the highest priority of those that do not leave already."""
        return max((t.holder.priority for t in targets if not t.holder.evicted), default=_NEVER)

    def total(self, targets: Sequence[Target]) -> Cost:
        """Return what they cost together."""
        return sum((self.of(target.holder) for target in targets), NOTHING)
