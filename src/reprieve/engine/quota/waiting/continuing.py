"""Whether another cycle follows in a run of cycles.

1. one that changed something is followed by another
2. so is one that leaves a head queued since its scan of flavors is not finished, or is made anew
3. where the scans of all heads stop as they did in an earlier cycle, and nothing changed since,
   no flavor is left for them: they are set aside, and what waits behind them is next
4. with fair sharing, who got quota has a larger share, so that its queue's work may be preempted by
   what was set aside before: that is tried once more
"""

from __future__ import annotations

from reprieve.engine.quota.entries import CycleResult, Outcome
from reprieve.engine.quota.heads import ALIKE
from reprieve.engine.quota.holdings.state import Holdings
from reprieve.engine.quota.waiting.queues import Queues

__all__ = ["Continuation", "count_grown"]


def count_grown(result: CycleResult, holdings: Holdings, queues: Queues) -> None:
    """Count the ClusterQueues whose share a cycle has increased, before its run may end."""
    if holdings.configuration.settings.fair_sharing is not None:
        queues.grown |= {entry.cluster_queue for entry in result.of(Outcome.ADMITTED)}


class Continuation:
    """Decides for one run; queues again what has to be tried once more."""

    def __init__(self) -> None:
        self._scans: set[str] = set()

    def follows(self, result: CycleResult, holdings: Holdings, queues: Queues) -> bool:
        """Return whether another cycle follows this one, which was counted."""
        if result.progress:
            self._scans.clear()
            return True
        scans = repr([(e.workload.key, e.scan and e.scan.bookmark) for e in result.entries])
        unfinished = [
            e.workload.key
            for e in result.entries
            if e.requeue in ALIKE and queues.is_queued(e.workload.key)
        ]
        if scans not in self._scans:
            self._scans.add(scans)
            if unfinished or result.scanned:
                return True
        else:
            moved = [key for key in unfinished if queues.set_aside(key)]
            if moved:
                self._scans.clear()
                return True
        grown, queues.grown = queues.grown, set()
        queues.flush({name for each in grown for name in holdings.related(each) or [each]})
        return bool(grown)
