"""Feeds a mirror: one reflector for each kind, or for each namespace that was named.

A kind is watched cluster-wide where that may be listed, else in the named namespaces. One that is
not served counts as empty and is looked for again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kubeworld.units.clock import Clock
from kubeworld.units.durations import MILLISECOND
from reprieve.answers.kinds import LOCAL_QUEUES, WORKLOADS
from reprieve.api import kueue
from reprieve.api.core import MetaWithFinalizers, Node, Pod
from reprieve.api.devices import DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice
from reprieve.api.disruption import Disruption
from reprieve.api.kaiwo import GpuWorkload
from reprieve.api.preemption_notice import PreemptionNotice
from reprieve.api.reprieve import Preemption
from reprieve.kube.cache import Cache
from reprieve.kube.errors import ApiError, Forbidden, NotFound
from reprieve.kube.objects import PartialObject
from reprieve.kube.reader import Reader
from reprieve.kube.reflector import Health, Reflector
from reprieve.kube.resource import (
    DEVICE_CLAIMS,
    DEVICE_CLASSES,
    DEVICE_SLICES,
    DEVICE_TEMPLATES,
    DISRUPTIONS,
    EVENTS,
    GPU_WORKLOADS,
    LEASES,
    NODES,
    PODS,
    PREEMPTION_NOTICES,
    PREEMPTIONS,
    Resource,
)
from reprieve.web.mirror.leading import LEASE_NAME, Lease
from reprieve.web.mirror.mirror import Mirror, Watched
from reprieve.web.mirror.reported import WaitingEvent
from reprieve.wording.diagnosis import WAITING

__all__ = ["Feed", "feeds", "read_once", "run_feeds", "settled"]

_CLUSTER_QUEUES: Final = Resource(
    kueue.GROUP, "v1beta2", "clusterqueues", "ClusterQueue", namespaced=False
)
_TOPOLOGIES: Final = Resource(kueue.GROUP, "v1beta2", "topologies", "Topology", namespaced=False)
_COHORTS: Final = Resource(kueue.GROUP, "v1beta2", "cohorts", "Cohort", namespaced=False)
#: The better first.
_WORSE: Final = (
    Health.WATCHING,
    Health.NOT_SERVED,
    Health.STARTING,
    Health.FORBIDDEN,
    Health.UNREACHABLE,
    Health.FAILING,
)


@dataclass(frozen=True, slots=True)
class Feed:
    """One kind, and what keeps its cache up to date; several reflectors where it has namespaces."""

    resource: Resource
    reflectors: tuple[Reflector[Any], ...]
    cache: Cache[Any, Any]
    namespaces: int = 0

    @property
    def ready(self) -> bool:
        """Whether everything that can be known of the kind is."""
        waiting = (Health.STARTING, Health.UNREACHABLE)
        return all(each.health not in waiting for each in self.reflectors)

    def reported(self) -> Watched:
        """Return how the kind is watched, by the reflector that fares worst."""
        worst = max(self.reflectors, key=lambda each: _WORSE.index(each.health))
        well = worst.health in (Health.WATCHING, Health.NOT_SERVED)
        error = "" if well or worst.error is None else str(worst.error)
        return Watched(
            self.resource.qualified,
            worst.health.value,
            self.namespaces,
            len(self.cache),
            error,
        )


@dataclass(frozen=True, slots=True)
class _Kind:
    resource: Resource
    wire: type[Any]
    cache: Cache[Any, Any]
    field_selector: str = ""


class _Share:
    """The part of a cache that one namespace's reflector feeds: a list replaces only that part."""

    def __init__(self, cache: Cache[Any, Any], namespace: str) -> None:
        self._cache = cache
        self._namespace = namespace

    def received(self, objects: list[Any]) -> list[Any]:
        """Return the objects as they are: they are converted one by one."""
        return objects

    def replaced(self, objects: list[Any], resource_version: str) -> None:
        """Hold exactly these objects of the namespace."""
        listed = {obj.metadata.uid for obj in objects}
        for record in list(self._cache):
            if record.namespace == self._namespace and record.uid not in listed:
                self._cache.deleted(PartialObject(metadata=MetaWithFinalizers(uid=record.uid)))
        for obj in objects:
            self._cache.applied(obj)

    def applied(self, obj: Any) -> None:
        """Hold this object."""
        self._cache.applied(obj)

    def deleted(self, obj: Any) -> None:
        """Release this object."""
        self._cache.deleted(obj)


async def feeds(
    mirror: Mirror, client: Reader, clock: Clock, namespaces: Collection[str] = ()
) -> list[Feed]:
    """Return what feeds the mirror, not started; `namespaces` where cluster-wide is refused.

    What may not be listed at all is noted in `mirror.unseen`.

    Raises:
        ClusterError: the API server cannot be reached.
    """
    found: list[Feed] = []
    unseen: list[str] = []
    for kind in _kinds(mirror):
        if await _may_list(client, kind):
            whole = _reflector(kind, client, clock, kind.cache)
            found.append(Feed(kind.resource, (whole,), kind.cache))
            continue
        named = sorted(namespaces) if kind.resource.namespaced else []
        unseen.append(f"{kind.resource.qualified}{_outside(named)}")
        shares = [_reflector(kind, client, clock, _Share(kind.cache, each), each) for each in named]
        if shares:
            found.append(Feed(kind.resource, tuple(shares), kind.cache, len(named)))
    mirror.unseen = tuple(unseen)
    mirror.watched = lambda: [each.reported() for each in found]
    return found


async def run_feeds(found: Iterable[Feed]) -> None:
    """Keep the mirror up to date, for ever."""
    async with asyncio.TaskGroup() as group:
        for feed in found:
            for reflector in feed.reflectors:
                group.create_task(reflector.run(), name=f"watch {feed.resource.qualified}")


async def settled(found: Collection[Feed], clock: Clock) -> None:
    """Return once every kind has been listed, or is known not to be listed."""
    while not all(feed.ready for feed in found):
        await clock.sleep(20 * MILLISECOND)


async def read_once(mirror: Mirror, client: Reader, namespaces: Collection[str] = ()) -> None:
    """Fill a mirror by lists alone; what is not served counts as none being there.

    What may not be listed is noted in `mirror.unseen`; `namespaces` where cluster-wide is refused.

    Raises:
        ApiError: a list failed.
    """
    kinds = _kinds(mirror)
    refused = await asyncio.gather(*(_read(kind, client, sorted(namespaces)) for kind in kinds))
    mirror.unseen = tuple(each for each in refused if each)


async def _read(kind: _Kind, client: Reader, namespaces: Sequence[str]) -> str:
    """Return what could not be seen of a kind, empty for nothing."""
    try:
        kind.cache.replaced(*await _listed(kind, client, ""))
        return ""
    except NotFound:
        return ""
    except Forbidden:
        named = namespaces if kind.resource.namespaced else ()
    seen = []
    for namespace in named:
        try:
            objects, version = await _listed(kind, client, namespace)
        except NotFound:
            # Who may not list everywhere hears of rights before he hears what is served.
            return ""
        except Forbidden:
            continue
        _Share(kind.cache, namespace).replaced(objects, version)
        seen.append(namespace)
    return f"{kind.resource.qualified}{_outside(seen)}"


async def _listed(kind: _Kind, client: Reader, namespace: str) -> tuple[list[Any], str]:
    page = await client.list(
        kind.resource, kind.wire, namespace=namespace, field_selector=kind.field_selector
    )
    return page.items, page.resource_version


def _outside(namespaces: Sequence[str]) -> str:
    return f" outside of {', '.join(namespaces)}" if namespaces else ""


def _kinds(mirror: Mirror) -> tuple[_Kind, ...]:
    return (
        _Kind(PODS, Pod, mirror.pods),
        _Kind(NODES, Node, mirror.nodes),
        _Kind(DEVICE_CLAIMS, ResourceClaim, mirror.devices.claims),
        _Kind(DEVICE_TEMPLATES, ResourceClaimTemplate, mirror.devices.templates),
        _Kind(DEVICE_CLASSES, DeviceClass, mirror.devices.classes),
        _Kind(DEVICE_SLICES, ResourceSlice, mirror.devices.slices),
        _Kind(GPU_WORKLOADS, GpuWorkload, mirror.idle),
        _Kind(WORKLOADS[0], kueue.Workload, mirror.workloads),
        _Kind(_CLUSTER_QUEUES, kueue.ClusterQueue, mirror.cluster_queues),
        _Kind(_COHORTS, kueue.Cohort, mirror.cohorts),
        _Kind(_TOPOLOGIES, kueue.Topology, mirror.topologies),
        _Kind(LOCAL_QUEUES[0], kueue.LocalQueue, mirror.local_queues),
        _Kind(PREEMPTIONS, Preemption, mirror.preemptions),
        _Kind(DISRUPTIONS, Disruption, mirror.disruptions),
        _Kind(PREEMPTION_NOTICES, PreemptionNotice, mirror.notices),
        _Kind(EVENTS, WaitingEvent, mirror.waiting, f"reason={WAITING}"),
        _Kind(LEASES, Lease, mirror.leases, f"metadata.name={LEASE_NAME}"),
    )


async def _may_list(client: Reader, kind: _Kind) -> bool:
    try:
        async for _ in client.list_pages(kind.resource, dict, page_size=1):
            break
    except Forbidden:
        return False
    except ApiError:
        # Not served, or not now: the reflector states it and tries again.
        return True
    return True


def _reflector(
    kind: _Kind, client: Reader, clock: Clock, sink: Any, namespace: str = ""
) -> Reflector[Any]:
    return Reflector(
        client,
        kind.resource,
        kind.wire,
        sink,
        clock,
        namespace=namespace,
        field_selector=kind.field_selector,
    )
