"""The kinds that the idle plane watches, each with its cache."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from kubeworld.units.clock import Clock
from reprieve.api.core import KueueWorkload, Namespace, Node, ObjectMeta, Pod
from reprieve.api.kaiwo import KaiwoConfig
from reprieve.api.reprieve import Preemption
from reprieve.engine.idle.vendors import Vendor
from reprieve.kube.objects import version_number
from reprieve.kube.resource import (
    ENDPOINT_SLICES,
    GPU_WORKLOADS,
    KAIWO_CONFIGS,
    NAMESPACES,
    NODES,
    PODS,
    PREEMPTIONS,
    Resource,
)
from reprieve.planes.common.mirrors.mirror import Mirror
from reprieve.planes.common.mirrors.troubles import Troubles
from reprieve.planes.common.mirrors.watching import Watch, Watcher, start
from reprieve.planes.idle.claimed import BY_CLAIM, ClaimedDevices, DeviceWatches
from reprieve.planes.idle.limits import PodLimits
from reprieve.planes.idle.measures.metric_sources import ReadyAddress
from reprieve.planes.idle.ownership import BY_GROUP, BY_OWNER
from reprieve.planes.idle.records import (
    ConfigRecord,
    IntentRecord,
    KueueRecord,
    NamespaceRecord,
    NodeRecord,
    PodRecord,
    WatchedGpuWorkload,
    WorkloadRecord,
    kueue_converter,
    pod_converter,
)

__all__ = ["KUEUE_GROUP", "ServiceIndex", "Watches"]

KUEUE_GROUP: Final = "kueue.x-k8s.io"
_BY_SERVICE: Final = "service"
_SERVICE_LABEL: Final = "kubernetes.io/service-name"


_POD_INDEXES: Final[Mapping[str, Callable[[PodRecord], Sequence[str]]]] = {
    BY_CLAIM: lambda pod: [f"{pod.namespace}/{name}" for name in pod.claims],
    BY_OWNER: lambda pod: [owner.uid for owner in pod.owners],
    BY_GROUP: lambda pod: (
        [f"{pod.namespace}/{pod.row.group}"] if pod.row.group and pod.row.gpus else []
    ),
}


class Watches:
    """All watches of one plane.

    Nodes and slices of devices are watched only for the placement proof, EndpointSlices only when a
    metric source names a Service, PriorityClasses and queues with `limits`, for what they state of
    delays and notices. Kueue's Workloads and claims of devices are read where their APIs are
    served.
    """

    def __init__(
        self,
        mirror: Mirror,
        clock: Clock,
        vendors: Sequence[Vendor],
        *,
        nodes: bool,
        services: bool,
        limits: bool = False,
        report: Callable[[Exception], None],
        restarted: Callable[[str, str], None] = lambda kind, why: None,
    ) -> None:
        self.watcher = watcher = Watcher(mirror, report, restarted)
        watch = watcher.watch
        self.limits = PodLimits(watcher) if limits else None
        self.devices = DeviceWatches(watcher, on_nodes=nodes)
        self.claimed = claimed = ClaimedDevices(self.devices, vendors)
        convert = pod_converter(vendors, on_nodes=nodes)
        self._troubles = Troubles(clock)
        self.pods: Watch[Pod, PodRecord] = watch(
            PODS,
            Pod,
            lambda pod: claimed.remade(convert(pod)),
            _POD_INDEXES,
        )
        claimed.follow(self.pods.cache)
        self.namespaces = watch(NAMESPACES, Namespace, NamespaceRecord.of)
        self.workloads = watch(GPU_WORKLOADS, WatchedGpuWorkload, WorkloadRecord.of)
        self.configs = watch(KAIWO_CONFIGS, KaiwoConfig, ConfigRecord.of)
        self.intents: Watch[Preemption, IntentRecord] = watch(
            PREEMPTIONS, Preemption, IntentRecord.of
        )

        def queued(version: str) -> Watch[KueueWorkload, KueueRecord]:
            return watch(
                Resource(KUEUE_GROUP, version, "workloads", "Workload"),
                KueueWorkload,
                kueue_converter(vendors),
                {BY_OWNER: lambda workload: workload.owner_uids},
                required=False,
            )

        self._queued = queued
        self.kueue_version = "v1beta1"
        self.kueue = queued(self.kueue_version)
        self.nodes = watch(NODES, Node, NodeRecord.of) if nodes else None
        self.slices: Watch[_Slice, _SliceRecord] | None = (
            watch(
                ENDPOINT_SLICES,
                _Slice,
                _SliceRecord.of,
                {_BY_SERVICE: lambda found: [(found.namespace, found.service)]},
            )
            if services
            else None
        )

    def __iter__(self) -> Iterator[Watch[Any, Any]]:
        every = (
            self.pods,
            self.namespaces,
            self.workloads,
            self.configs,
            self.intents,
            self.kueue,
            self.nodes,
            self.slices,
            *self.devices.all(),
            *(self.limits or ()),
        )
        return (watch for watch in every if watch is not None)

    def read_kueue_as(self, version: str) -> None:
        """Read Kueue's Workloads in this version; before anything is started."""
        self.kueue_version = version
        self.kueue = self._queued(version)

    async def synced(self) -> None:
        """Wait for the first list of every required kind."""
        for watch in self:
            if watch.required:
                await watch.reflector.synced.wait()

    def troubles(self) -> list[str]:
        """Return one line for each required kind that cannot be read."""
        return self._troubles.lines(watch.reflector for watch in self if watch.required)

    def start(self, group: asyncio.TaskGroup) -> None:
        """Start all watches but that of Kueue's Workloads."""
        start((watch for watch in self if watch is not self.kueue), group)

    def start_kueue(self, group: asyncio.TaskGroup) -> None:
        """Start the watch of Kueue's Workloads, once it is known in which version they are read."""
        start((self.kueue,), group)


class _SliceConditions(msgspec.Struct, frozen=True):
    ready: bool | None = None


class _SliceEndpoint(msgspec.Struct, frozen=True):
    addresses: list[str] | None = None
    conditions: _SliceConditions = _SliceConditions()


class _SlicePort(msgspec.Struct, frozen=True):
    name: str | None = None
    port: int | None = None


class _Slice(msgspec.Struct, frozen=True, rename="camel"):
    metadata: ObjectMeta
    endpoints: list[_SliceEndpoint] | None = None
    ports: list[_SlicePort] | None = None


@dataclass(frozen=True, slots=True)
class _SliceRecord:
    uid: str
    namespace: str
    name: str
    resource_version: int
    service: str
    addresses: tuple[ReadyAddress, ...]

    @classmethod
    def of(cls, found: _Slice) -> _SliceRecord:
        ports = {port.name or "": port.port for port in found.ports or () if port.port}
        metadata = found.metadata
        return cls(
            metadata.uid,
            metadata.namespace,
            metadata.name,
            version_number(metadata.resource_version),
            (metadata.labels or {}).get(_SERVICE_LABEL, ""),
            tuple(
                ReadyAddress(address, ports)
                for endpoint in found.endpoints or ()
                # The API: an unknown readiness counts as ready.
                if endpoint.conditions.ready is not False
                for address in endpoint.addresses or ()
            ),
        )


class ServiceIndex:
    """The ready addresses behind Services, from the EndpointSlices that are watched."""

    def __init__(self, watches: Watches) -> None:
        self._slices = watches.slices

    def addresses(self, namespace: str, name: str) -> Sequence[ReadyAddress]:
        """Return the ready addresses behind a Service; none when it is unknown."""
        if self._slices is None:
            return ()
        found = self._slices.cache.by(_BY_SERVICE, (namespace, name))
        unique = {address.address: address for record in found for address in record.addresses}
        return [unique[address] for address in sorted(unique)]
