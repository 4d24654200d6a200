"""Which waiting pods request the same devices, so that one filter answers for all of them.

The members of a gang mostly have a claim each, made from one template: another claim for each, and
the same for every node. What they differ in is the claim that is written when one is placed, and
its name in texts. A claim that another pod names too, or that has an allocation, needs a filter of
its pod's own, and so do extended resources. Source: specification 21.9.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, TypeAlias

from reprieve.engine.cluster.devices import Constraint, Request, ResourceClaimRow
from reprieve.engine.cluster.rows import Kind, PodRow
from reprieve.engine.cluster.snapshot import Pending, Snapshot
from reprieve.engine.placement.filters.dynamic.device_extended import extended_requests

__all__ = ["Asked", "asked_alike", "claim_names"]

#: Requests and constraints of each claim, in the order of the pod.
Asked: TypeAlias = tuple[tuple[tuple[Request, ...], tuple[Constraint, ...]], ...]

_NAME: Final = "pods of claims"


def claim_names(row: PodRow) -> tuple[str, ...]:
    """Return the names of a pod's claims, each once."""
    return tuple(dict.fromkeys(name for _, name in row.claims if name is not None))


def asked_alike(snapshot: Snapshot, pending: Pending) -> Asked | None:
    """Return what a pod requests, equal for pods that are answered alike; None: like no other."""
    row = pending.row
    entry = snapshot.classes[pending.pod_class]
    if not row.claims or entry is None or snapshot.pending.get(row.uid) is not pending:
        return None
    if extended_requests(snapshot, entry):
        return None
    claims = snapshot.tables.get(Kind.RESOURCE_CLAIM, {})
    users = _users(snapshot)
    found = []
    for name in claim_names(row):
        claim: ResourceClaimRow | None = claims.get((row.namespace, name))
        if claim is None or claim.allocation is not None or claim.in_flight or claim.deleting:
            return None
        if users[row.namespace, name] != 1:
            return None
        found.append((claim.requests, claim.constraints))
    return tuple(found) or None


def _users(snapshot: Snapshot) -> Counter[tuple[str, str]]:
    """Return how many waiting pods name each claim."""
    pending = snapshot.pending
    return snapshot.derived.of(
        _NAME,
        (pending,),
        lambda: Counter(
            (each.row.namespace, name)
            for each in pending.values()
            if each.row.claims
            for name in claim_names(each.row)
        ),
    )
