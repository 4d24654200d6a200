"""Cycles in which every head is refused once more: they are set aside, and nothing else follows.

Where work waits, most cycles are such: something came free, and the first of each shape is looked
at in vain. A cycle with all that belongs to one (popped heads, a snapshot, entries, their order) is
spared where

1. each head is refused again by what `refusals` knows, so that none is given anything and no
   workload is preempted
2. each is set aside with its shape, that is, its ClusterQueue is a BestEffortFIFO one, and no scan
   of flavors is left unfinished
3. no candidate is left alone for a time, which would have to be reported

and what the queues know afterwards is what they would know after that cycle. As many as follow one
another are spared together. Heads that cannot be considered at all are left to a cycle.

Source: specification of the quota plane, sections 4, 8.3 and 8.4.
"""

from __future__ import annotations

from itertools import count

from kubeworld.units.instants import Nanos
from reprieve.engine.quota.displacements import Displacements
from reprieve.engine.quota.heads import LastScan
from reprieve.engine.quota.holdings.state import Holdings
from reprieve.engine.quota.model import QueueingStrategy, Workload
from reprieve.engine.quota.refusals import Refusals
from reprieve.engine.quota.targets.candidates import preemptor
from reprieve.engine.quota.targets.protection import protected
from reprieve.engine.quota.waiting.queues import Queues

__all__ = ["set_aside_refused"]


def set_aside_refused(
    holdings: Holdings,
    queues: Queues,
    now: Nanos,
    number: int,
    ledger: Displacements | None,
    refusals: Refusals,
) -> int:
    """Set heads aside as long as each of them is refused again; return how many cycles that were.

    Args:
        holdings: who holds quota.
        queues: who waits; changed.
        now: the instant of the cycles.
        number: of the first cycle.
        ledger: of all displacements, where the governor is queried.
        refusals: of earlier cycles.
    """
    for spared in count():
        refused = []
        for name, workload in queues.next_heads(now):
            who = preemptor(workload, holdings.tree.queues[name], holdings.configuration.settings)
            shape = queues.shape_of(workload)
            known = refusals.again(holdings, who, shape)
            if (
                known is None
                or known.is_pending
                or not _is_plain(holdings, refusals, name, workload)
                or protected(who, now, holdings.protects, ledger) is not None
            ):
                return spared
            generation = holdings.generations[name]
            scan = LastScan(known.bookmark, False, generation, number + spared, shape)
            refused.append((name, workload, scan))
        if not refused:
            return spared
        for name, workload, scan in refused:
            queues.set_aside_next(name, workload, scan)
    raise AssertionError("a cycle without heads ends it")


def _is_plain(holdings: Holdings, refusals: Refusals, name: str, workload: Workload) -> bool:
    """Return whether a head may be considered, and is set aside when it is refused."""
    known = refusals.places.get((name, workload.namespace))
    if known is None:
        known = _is_plain_in(holdings, name, workload.namespace)
        refusals.places[name, workload.namespace] = known
    return (
        known
        and not (workload.checks or workload.invalid or workload.replaces)
        and workload.key not in holdings.holders
    )


def _is_plain_in(holdings: Holdings, name: str, namespace: str) -> bool:
    """Report the same of all of one ClusterQueue and namespace, as far as it depends on these."""
    configuration = holdings.configuration
    queue = configuration.cluster_queues.get(name)
    return (
        queue is not None
        and queue.strategy is QueueingStrategy.BEST_EFFORT_FIFO
        and configuration.settings.gates.scheduling_equivalence_hashing
        and name not in holdings.tree.inactive
        and queue.selector is not None
        and queue.selector.matches(configuration.namespaces.get(namespace, {}))
    )
