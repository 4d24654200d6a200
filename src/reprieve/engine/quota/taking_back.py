"""What a cycle has decided and could not be written is undone.

A workload whose admission was not stored is queued again as if nothing had been decided; one whose
victims stay waits for those that do leave, and is tried again where none does.

Source: specification of the quota plane, section 8.
"""

from __future__ import annotations

from collections.abc import Collection

from reprieve.engine.quota.entries import Entry, Outcome
from reprieve.engine.quota.heads import RequeueReason
from reprieve.engine.quota.holdings.state import Holdings
from reprieve.engine.quota.waiting.queues import Queues

__all__ = ["preemptions_failed", "undo_admission"]


def undo_admission(holdings: Holdings, queues: Queues, entry: Entry) -> None:
    """Undo an admission that could not be written; the workload is queued again."""
    holdings.release(entry.workload.key)
    queues.push(entry.workload)


def preemptions_failed(
    holdings: Holdings, queues: Queues, entry: Entry, failed: Collection[str]
) -> None:
    """Undo evictions that could not be written; `failed` are keys of the entry's targets.

    The entry waits for those that are left; without any it is tried again.
    """
    assert entry.assignment is not None
    for key in failed:
        holdings.eviction_failed(key)
    if entry.outcome is Outcome.NODE_PREEMPTING:
        return  # it runs, and is decided about again while its node is a failed one
    left = sum(target.holder.key not in failed for target in entry.targets)
    if left:
        entry.message = f"{entry.assignment.message}. Pending the preemption of {left} workload(s)"
        return
    count = len(entry.targets)
    entry.message = (
        f"{entry.assignment.message}. Preempting {count} workload(s) failed, will retry."
    )
    entry.requeue = RequeueReason.PREEMPTION_FAILED
    queues.preemption_failed(entry.workload.key)
