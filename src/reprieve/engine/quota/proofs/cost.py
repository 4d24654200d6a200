"""What victims of a plan cost, read from their Workloads alone: a part of the proof.

Smaller is better, the first difference decides: the highest priority of those that do not leave
already; with `harmOrder` the device-seconds that are lost, none of idle work with `idleFirst`; the
sum of (priority + 2**31). Source: promise "Irreducible" of the design.
"""

from __future__ import annotations

from collections.abc import Iterable

from kubeworld.units.durations import SECOND
from reprieve.engine.lost_work import devices_of
from reprieve.engine.quota.holdings.holders import Holder
from reprieve.engine.quota.proofs.proof_state import ProofState, effective

__all__ = ["cost_of"]


def cost_of(state: ProofState, holders: Iterable[Holder]) -> tuple[int, int, int]:
    """Return what these cost."""
    settings, columns = state.settings, state.tree.flavor_resources
    top, lost, priorities = -(2**63), 0, 0
    for holder in holders:
        workload = holder.workload
        if workload.evicted is not None:
            continue
        priority = effective(workload, settings)
        top, priorities = max(top, priority), priorities + priority + 2**31
        if not settings.harm_order or (settings.idle_first and workload.idle):
            continue
        if workload.reserved_at is not None:
            since = max(workload.reserved_at, workload.checkpoint or 0, workload.counts_from or 0)
            devices = devices_of((columns[c].resource, n) for c, n in holder.held)
            lost += devices * max(0, state.plan.now - since) // SECOND
    return top, lost, priorities
