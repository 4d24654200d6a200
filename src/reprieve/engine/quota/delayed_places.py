"""Workloads that get places after their quota: once checks have provided the nodes.

A flavor whose nodes are provided by a check has none of them when quota is reserved. The pods then
get places in the first cycle in which every check is ready, on the flavors that they hold. Where
nodes have no capacity yet the quota is kept, and each later cycle tries again.

Source: specification of topology-aware scheduling, section 6.6.
"""

from __future__ import annotations

from dataclasses import replace

from reprieve.engine.quota.assigning.topologies import places_after_checks
from reprieve.engine.quota.entries import Entry, Outcome
from reprieve.engine.quota.holdings.snapshot import Snapshot
from reprieve.engine.quota.holdings.state import Holdings
from reprieve.engine.quota.model import Admission

__all__ = ["place_delayed"]


def place_delayed(holdings: Holdings, snapshot: Snapshot) -> list[Entry]:
    """Return the entries placed and those without capacity; holdings and snapshot are changed."""
    found: list[Entry] = []
    places, configuration = snapshot.places, snapshot.configuration
    if places is None:
        return found
    for key in holdings.awaits_places:
        holder = holdings.holders[key]
        admission = holder.workload.admission
        assert admission is not None, "a holder of quota has an admission"
        entry = Entry(holder.workload, admission.cluster_queue, holder.queue)
        found.append(entry)
        queue = configuration.cluster_queues[admission.cluster_queue]
        given, why = places_after_checks(holder.workload, queue, configuration, places)
        if why:
            entry.outcome, entry.message = Outcome.UNPLACED, why
            continue
        pod_sets = tuple(
            replace(each, topology=given.get(each.name), delayed=False) if each.delayed else each
            for each in admission.pod_sets
        )
        entry.outcome = Outcome.PLACED
        entry.admission = Admission(admission.cluster_queue, pod_sets)
        holdings.hold(replace(holder.workload, admission=entry.admission))
        snapshot.place(holdings.holders[key].placed, 1)
    return found
