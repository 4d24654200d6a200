"""Roots that Kueue Workloads stand for, also while they have no pods at all.

A suspended job that waits for quota is a demand for all the GPUs that its pods would request. The
root is found on the way up from the Workload's owner, which may be a job that another object owns.
Source: specification of the idle plane, section 13 (its Kueue extension, difference D8).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from reprieve.api.core import KueueWorkload
from reprieve.engine.idle.discovery import ResolutionError, Root
from reprieve.engine.idle.resources import add
from reprieve.engine.idle.vendors import Vendor
from reprieve.planes.idle.ownership import BY_OWNER
from reprieve.planes.idle.records import KueueRecord
from reprieve.planes.idle.roots import Roots
from reprieve.planes.idle.watches import Watches
from reprieve.units.ids import Uid
from reprieve.units.references import Reference

__all__ = ["Queued"]


class Queued:
    """Which root each Kueue Workload has, and what it requests."""

    def __init__(self, watches: Watches, roots: Roots, vendors: tuple[Vendor, ...]) -> None:
        self._watches = watches
        self._roots = roots
        self._vendors = vendors
        # By uid of the Workload, and the uids of Workloads by that of their root.
        self._found: dict[str, tuple[Root, Mapping[str, int]]] = {}
        self._below: dict[str, set[str]] = {}

    async def resolve(self, uid: str) -> Root | None:
        """Find the root behind a Kueue Workload; None where there is none, or it is a pod."""
        record = self._watches.kueue.cache.get(uid)
        if record is None or record.owner is None or record.owner.kind == "Pod":
            return None
        try:
            root = await self._roots.resolve_owner(record.owner, record.namespace)
        except ResolutionError:
            return None
        gpus: Mapping[str, int] | None = record.gpus
        if gpus is None:
            gpus = await self._roots.template_gpus(root.ref, self._vendors)
        if record.claims:
            claimed = self._watches.claimed.of_pod_sets(record.namespace, record.claims)
            gpus = add(gpus, claimed)
        self.forget(uid)
        self._found[uid] = root, gpus
        self._below.setdefault(root.ref.uid, set()).add(uid)
        return root

    def forget(self, uid: str) -> None:
        """Forget a Kueue Workload."""
        known = self._found.pop(uid, None)
        if known is not None:
            root = known[0].ref.uid
            self._below[root].discard(uid)
            if not self._below[root]:
                del self._below[root]

    def workloads(self, uid: str) -> list[KueueWorkload]:
        """Return the Kueue Workloads of a pod or root: those that it owns, or that lead to it."""
        cache = self._watches.kueue.cache
        found = {record.uid: record for record in cache.by(BY_OWNER, uid)}
        for below in self._below.get(uid, ()):
            record: KueueRecord | None = cache.get(below)
            if record is not None:
                found[below] = record
        return [record.workload for record in found.values()]

    def root_of(self, uid: str) -> Root | None:
        """Return the root behind a Kueue Workload, where it was found."""
        known = self._found.get(uid)
        return None if known is None else known[0]

    def asks(self, uid: str) -> tuple[Reference, Mapping[str, int]] | None:
        """Return the root behind a Kueue Workload and its GPUs; None while that is not known."""
        known = self._found.get(uid)
        return None if known is None else (known[0].ref, known[1])

    def pods(self, uid: str) -> list[Uid]:
        """Return the pods that own a Kueue Workload, where pods do."""
        record = self._watches.kueue.cache.get(uid)
        owners = () if record is None else record.workload.metadata.owner_references or ()
        return [Uid(owner.uid) for owner in owners if owner.kind == "Pod"]

    def gpus(self, root: str) -> dict[str, int]:
        """Return the GPUs that all Kueue Workloads of a root request."""
        return add(*(self._found[uid][1] for uid in self._below.get(root, ())))

    def roots(self) -> Iterator[Root]:
        """Yield the roots that request GPUs, each at least once."""
        return (root for root, gpus in self._found.values() if gpus)
