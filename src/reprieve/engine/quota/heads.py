"""What becomes of the head of a ClusterQueue that was not admitted.

It returns to the queue at once, or is set aside as inadmissible:

* StrictFIFO: back at once, but for a namespace that does not match
* BestEffortFIFO: back at once if it failed after nomination, if its preemptions are pending, failed
  or may not begin yet, if flavors are left to try, or if what was set aside was flushed since this
  head was popped

With a head that does not fit or finds no candidates, a BestEffortFIFO queue sets aside everything
of the same shape: everything that fits or does not fit alike.

Source: specification of the quota plane, sections 4 and 9.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from reprieve.engine.quota.assigning.assignment import Bookmark
from reprieve.engine.quota.model import Workload

__all__ = ["ALIKE", "LastScan", "RequeueReason", "Shape", "goes_back", "shape"]


class RequeueReason(StrEnum):
    """Why a head was not admitted."""

    GENERIC = ""
    NAMESPACE_MISMATCH = "NamespaceMismatch"
    FAILED_AFTER_NOMINATION = "FailedAfterNomination"
    PENDING_PREEMPTION = "PendingPreemption"
    PENDING_MIGRATION = "PendingMigration"
    PREEMPTION_FAILED = "PreemptionFailed"
    PREEMPTION_GATED = "PreemptionGated"
    PREEMPTION_DELAYED = "PreemptionDelayed"
    NO_FIT = "NoFit"
    PREEMPTION_NO_CANDIDATES = "PreemptionNoCandidates"


_AT_ONCE: Final = frozenset(
    {
        RequeueReason.FAILED_AFTER_NOMINATION,
        RequeueReason.PENDING_PREEMPTION,
        RequeueReason.PENDING_MIGRATION,
        RequeueReason.PREEMPTION_FAILED,
        RequeueReason.PREEMPTION_DELAYED,
    }
)
ALIKE: Final = frozenset({RequeueReason.NO_FIT, RequeueReason.PREEMPTION_NO_CANDIDATES})


@dataclass(frozen=True, slots=True)
class LastScan:
    """Where the scan of flavors stopped, and when: it is good for one generation of the queue."""

    bookmark: Bookmark
    pending: bool
    generation: int
    cycle: int
    shape: object


def goes_back(
    reason: RequeueReason, scan: LastScan | None, *, best_effort: bool, flushed: bool
) -> bool:
    """Return whether a head is queued again at once.

    Args:
        reason: why it was not admitted.
        scan: where its search of flavors stopped.
        best_effort: its queue is a BestEffortFIFO one.
        flushed: what was set aside was queued again since the head was popped.
    """
    if not best_effort:
        return reason is not RequeueReason.NAMESPACE_MISMATCH
    return reason in _AT_ONCE or (scan is not None and scan.pending) or flushed


class Shape:
    """What workloads have in common when they fit or do not fit alike; hashed once."""

    __slots__ = ("_hash", "_parts")

    def __init__(self, parts: tuple[object, ...]) -> None:
        self._parts, self._hash = parts, hash(parts)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Shape) and self._parts == other._parts

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"Shape({self._parts!r})"


def shape(workload: Workload, priority: int) -> Shape:
    """Return the shape of a workload with an effective priority."""
    return Shape(
        (
            priority,
            tuple(
                (
                    each.count,
                    each.min_count,
                    tuple(sorted(each.requests.items())),
                    tuple(sorted(each.node_selector.items())),
                    each.affinity,
                    each.tolerations,
                    each.group,
                    each.topology,
                    each.preferred,
                    _items(each.pod_requests),
                )
                for each in workload.pod_sets
            ),
            tuple(sorted(workload.reclaimable.items())),
        )
    )


def _items(amounts: Mapping[str, int] | None) -> tuple[tuple[str, int], ...] | None:
    return None if amounts is None else tuple(sorted(amounts.items()))
