"""How much of its quota a ClusterQueue uses, what it may still borrow, and what limits that.

The text names the flavor with the smallest shortage: `team-b: 12 of 12 amd.com/gpu (mi300x) used
(nominal 8, borrowingLimit 4), requests 4; may borrow 0 more: borrowingLimit 4`. Amounts are those
of the queue's own quota: what its cohort has left is stated where that is the limit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from reprieve.engine.diagnosis.quota_shortages import Shortage
from reprieve.engine.quota.holdings.amounts import UNLIMITED, WIDE, text
from reprieve.engine.quota.holdings.snapshot import Snapshot
from reprieve.engine.quota.holdings.tree import available
from reprieve.engine.quota.model import FlavorResource

__all__ = ["ceiling_text", "usage_text"]

_MOST_BORROWERS: Final = 3


def usage_text(snapshot: Snapshot, queue: int, lacks: Sequence[Shortage]) -> str:
    """Return the use of the quota that is short, with what limits borrowing."""
    if not lacks:
        return ""
    nearest = lacks[0]
    return "; ".join(
        _resource_text(snapshot, queue, nearest, resource) for resource in nearest.missing
    )


def _resource_text(snapshot: Snapshot, queue: int, lack: Shortage, resource: str) -> str:
    tree = snapshot.tree
    column = tree.column(FlavorResource(lack.flavor, resource))
    usage, path = snapshot.usage[column], tree.path[queue]
    used, nominal = usage[queue], tree.nominal[column][queue]
    limit = tree.borrowing_limit[column][queue]
    ceiling = nominal if limit is None else nominal + limit
    parts = ""
    if limit is not None:
        parts = f" (nominal {text(resource, nominal)}, {_limit(limit, resource)})"
    of = "no limit" if ceiling >= UNLIMITED else text(resource, ceiling)
    if limit is None and used > nominal:
        # Without a cohort its quota was lowered below what it uses.
        lowered = tree.parent[queue] < 0
        parts = f", {text(resource, used - nominal)} too many" if lowered else ", the rest borrowed"
    said = (
        f"{tree.names[queue]}: {text(resource, used)} of {of} {resource} ({lack.flavor}) used"
        f"{parts}, requests {text(resource, lack.asked[resource])}"
    )
    left = max(0, available(tree, column, usage, path))
    own = max(0, nominal - used)
    return f"{said}; {_borrowing(snapshot, queue, column, left - own, limit, resource)}"


def _borrowing(
    snapshot: Snapshot, queue: int, column: int, more: int, limit: int | None, resource: str
) -> str:
    """Return how much it may borrow beyond its own, and why no more."""
    tree = snapshot.tree
    used, nominal = snapshot.usage[column][queue], tree.nominal[column][queue]
    if tree.parent[queue] < 0:
        return f"it may not borrow: ClusterQueue {tree.names[queue]} is in no cohort"
    if more < 0:
        return f"{_borrowers(snapshot, queue, column, resource)} its cohort"
    amount = text(resource, more)
    if limit is not None and more >= limit - max(0, used - nominal):
        return f"may borrow {amount} more: {_limit(limit, resource)}"
    cohort = tree.names[tree.parent[queue]]
    return f"may borrow {amount} more: cohort {cohort} has {amount} left"


def _borrowers(snapshot: Snapshot, queue: int, column: int, resource: str) -> str:
    """Return which queues have borrowed how much of a cohort."""
    found = sorted(_over_nominal(snapshot, queue, column), key=lambda each: (-each[1], each[0]))
    if not found:
        return "others use"
    named = [f"{name} has borrowed {text(resource, n)}" for name, n in found[:_MOST_BORROWERS]]
    *some, last = named
    return f"{', '.join(some)}{' and ' if some else ''}{last} of"


def _over_nominal(snapshot: Snapshot, queue: int, column: int) -> Iterator[tuple[str, int]]:
    tree = snapshot.tree
    for name, node in tree.queues.items():
        if not tree.path[node] or node == queue or tree.root(node) != tree.root(queue):
            continue
        over = snapshot.usage[column][node] - tree.nominal[column][node]
        if over > 0:
            yield name, over


def ceiling_text(snapshot: Snapshot, queue: int, pair: FlavorResource) -> str:
    """Return what a queue's most of a flavor's resource is made of."""
    tree = snapshot.tree
    column = tree.column(pair)
    own, most = tree.nominal[column][queue], tree.potential[column][queue]
    nominal, limit = text(pair.resource, own), tree.borrowing_limit[column][queue]
    if tree.parent[queue] < 0:
        return f"nominal {nominal}, and no cohort to borrow from"
    if limit is not None and most >= own + limit:
        return f"nominal {nominal}, {_limit(limit, pair.resource)}"
    cohort = tree.names[tree.parent[queue]]
    if most <= own:
        return f"nominal {nominal}, and cohort {cohort} has nothing to lend"
    return f"nominal {nominal}, the rest borrowed from cohort {cohort}"


def _limit(limit: int, resource: str) -> str:
    return "no borrowingLimit" if limit >= WIDE else f"borrowingLimit {text(resource, limit)}"
