"""A cycle in which every head is refused once more: they are set aside, and nothing else follows.

Where work waits, most cycles are such: something came free, and the first of each shape is looked
at in vain. A cycle with all that belongs to one (a snapshot, entries, their order) is spared where

1. each head is refused again by what `refusals` knows, so that none is given anything and nobody
   makes way
2. each is set aside with its shape, that is, its ClusterQueue is a BestEffortFIFO one, and no scan
   of flavors is left unfinished
3. nobody is left alone for a time, of which it would have to be told

and what the queues know afterwards is what they would know after that cycle. Heads that cannot be
considered at all are left to it.

Source: specification of the quota plane, sections 4, 8.3 and 8.4.
"""

from __future__ import annotations

from collections.abc import Sequence

from reprieve.engine.quota.candidates import preemptor
from reprieve.engine.quota.displacements import Displacements
from reprieve.engine.quota.heads import LastScan, RequeueReason
from reprieve.engine.quota.model import QueueingStrategy, Workload
from reprieve.engine.quota.protection import protected
from reprieve.engine.quota.queues import Queues
from reprieve.engine.quota.refusals import Refusals
from reprieve.engine.quota.state import Holdings
from reprieve.units.instants import Nanos

__all__ = ["set_aside_together"]


def set_aside_together(
    holdings: Holdings,
    queues: Queues,
    heads: Sequence[tuple[str, Workload]],
    now: Nanos,
    number: int,
    ledger: Displacements | None,
    refusals: Refusals,
) -> bool:
    """Set all heads aside if each is refused again; else change nothing and return False.

    Args:
        holdings: who holds quota.
        queues: that the heads were taken from; changed.
        heads: with the names of their ClusterQueues.
        now: the instant of the cycle.
        number: of the cycle.
        ledger: of who displaced whom, where the governor is asked.
        refusals: of earlier cycles.
    """
    scans = []
    for name, workload in heads:
        if not _is_plain(holdings, name, workload):
            return False
        who = preemptor(workload, holdings.tree.queues[name], holdings.configuration.settings)
        shape = queues.shape_of(workload)
        known = refusals.again(holdings, who, shape)
        if known is None or known.is_pending:
            return False
        if protected(who, now, holdings.protects, ledger) is not None:
            return False
        scans.append(LastScan(known.bookmark, False, holdings.generations[name], number, shape))
    for (_, workload), scan in zip(heads, scans, strict=True):
        queues.requeue(workload.key, RequeueReason.PREEMPTION_NO_CANDIDATES, scan)
    return bool(heads)


def _is_plain(holdings: Holdings, name: str, workload: Workload) -> bool:
    """Tell whether a head may be considered, and is set aside when it is refused."""
    configuration = holdings.configuration
    queue = configuration.cluster_queues.get(name)
    return (
        queue is not None
        and queue.strategy is QueueingStrategy.BEST_EFFORT_FIFO
        and configuration.settings.gates.scheduling_equivalence_hashing
        and name not in holdings.tree.inactive
        and queue.selector is not None
        and queue.selector.matches(configuration.namespaces.get(workload.namespace, {}))
        and not (workload.checks or workload.invalid or workload.replaces)
        and workload.key not in holdings.holders
    )
