"""Slim records of the kinds that the idle plane watches.

A running cluster has tens of thousands of pods and only their GPUs, owners and phase matter here,
so the wire structs are dropped as soon as they are read; what is kept of a pod beyond its row are
the scheduler's words while it is Pending. Strings that repeat are interned, and pods of one
template share what they request, which is worked out once for all of them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from kubeworld.objects.pods import OVER
from reprieve.api.core import (
    KueueWorkload,
    KueueWorkloadSpec,
    Namespace,
    Node,
    ObjectMeta,
    Pod,
    PodResourceClaim,
    WorkloadStatus,
)
from reprieve.api.kaiwo import GpuWorkload, KaiwoConfig
from reprieve.api.reprieve import Preemption
from reprieve.engine.idle.discovery import Owner
from reprieve.engine.idle.model import PodRow
from reprieve.engine.idle.vendors import Vendor
from reprieve.execution.pod_victims import DEFAULT_GRACE
from reprieve.intake.cluster.metadata import checkpoint_of, claims_of, speaks_of
from reprieve.intake.owners import found
from reprieve.intake.pods import (
    counted_pod_row,
    gpu_share,
    gpus_of,
    node_amounts,
    other_requests,
    pod_row,
    workload_gpus,
)
from reprieve.kube.objects import version_number
from reprieve.planes.idle.context import log
from reprieve.units.ids import Uid

__all__ = [
    "ConfigRecord",
    "IntentRecord",
    "KueueRecord",
    "NamespaceRecord",
    "NodeRecord",
    "PodRecord",
    "WatchedGpuWorkload",
    "WorkloadRecord",
    "kueue_converter",
    "pod_converter",
]

_NO_LABELS: Final[Mapping[str, str]] = {}
# What is shared is kept for pods to come, so that it has bounds, whatever tenants write.
_TEMPLATES: Final = 4_096
_LONGEST_TEMPLATE: Final = 4_096  # bytes of JSON


@dataclass(frozen=True, slots=True)
class PodRecord:
    """A pod: its row without demand, its owners, and the whole of it while it is Pending.

    `checkpoint`: Unix seconds of the last one that it states, 0 for none. `labels`: of a pod that
    requests GPUs, for what its owners select. `asked`: its GPUs without those of claims. `claims`:
    the names of its ResourceClaims; of those that hold or request GPUs `claimed` has the resource
    names that it waits for, and `shared`, as `namespace/name`, which are named by other pods, too.
    `part`: the resource name by which it requests a share of a GPU, empty for whole ones.
    `priority`: as the API server has resolved it. `speaks`: it answers a notice for its unit.
    `grace`: seconds that it may need to end.
    """

    uid: str
    namespace: str
    name: str
    resource_version: int
    row: PodRow
    owners: tuple[Owner, ...]
    pending: Pod | None
    checkpoint: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    asked: Mapping[str, int] = field(default_factory=dict)
    claims: tuple[str, ...] = ()
    claimed: frozenset[str] = frozenset()
    shared: tuple[str, ...] = ()
    part: str = ""
    priority: int = 0
    speaks: bool = False
    priority_class: str = ""
    grace: int = DEFAULT_GRACE

    @property
    def occupies(self) -> bool:
        """Whether it holds capacity on a node."""
        return self.row.node is not None and self.row.phase not in OVER


def pod_converter(
    vendors: Sequence[Vendor], *, on_nodes: bool = False
) -> Callable[[Pod], PodRecord]:
    """Return the conversion of pods under these vendors' resource names.

    `on_nodes`: with what they request beside GPUs; pods that request the same share it.
    """
    asked = _asked_by(vendors, on_nodes)

    def convert(pod: Pod) -> PodRecord:
        metadata = pod.metadata
        gpus, asks = asked(pod)
        try:
            row = pod_row(pod, gpus, (), asks=asks)
        except Exception:
            # What it holds counts all the same, or it would be hidden by what cannot be read.
            log.exception("pod %s/%s cannot be read", metadata.namespace, metadata.name)
            row = counted_pod_row(pod, gpus, asks)
        names = claims_of(pod.spec.resource_claims, pod.status.resource_claim_statuses)
        claims = tuple(sorted({name for _, name in names if name}))
        uses, grace = bool(gpus or claims), pod.spec.termination_grace_period_seconds
        return PodRecord(
            uid=metadata.uid,
            namespace=sys.intern(metadata.namespace),
            name=metadata.name,
            resource_version=version_number(metadata.resource_version),
            row=row,
            owners=found(pod).owners,
            pending=pod if uses and row.phase == "Pending" else None,
            checkpoint=checkpoint_of(metadata),
            labels=_interned(metadata.labels) if uses else _NO_LABELS,
            asked=gpus,
            claims=claims,
            part=gpu_share(pod.spec) if gpus else "",
            priority=pod.spec.priority or 0,
            speaks=speaks_of(metadata),
            priority_class=sys.intern(pod.spec.priority_class_name or ""),
            grace=DEFAULT_GRACE if grace is None else grace,
        )

    return convert


def _interned(labels: Mapping[str, str] | None) -> Mapping[str, str]:
    return {sys.intern(key): sys.intern(value) for key, value in (labels or {}).items()}


def _asked_by(
    vendors: Sequence[Vendor], on_nodes: bool
) -> Callable[[Pod], tuple[Mapping[str, int], Mapping[str, int]]]:
    """Return what changes the GPUs of a pod, and with `on_nodes` what it requests beside them."""
    known: dict[bytes, tuple[Mapping[str, int], Mapping[str, int]]] = {}
    encode = msgspec.json.Encoder().encode

    def asked(pod: Pod) -> tuple[Mapping[str, int], Mapping[str, int]]:
        spec = pod.spec
        # All that `gpus_of` and `other_requests` read.
        key = encode((spec.containers, spec.init_containers, spec.resources, spec.overhead))
        found = known.get(key)
        if found is None:
            beside = other_requests(pod, vendors) if on_nodes else ()
            found = (
                {sys.intern(name): count for name, count in gpus_of(pod, vendors).items()},
                {sys.intern(name): amount for name, amount in beside},
            )
            if len(key) <= _LONGEST_TEMPLATE:
                known[key] = found
                if len(known) > _TEMPLATES:
                    del known[next(iter(known))]
        return found

    return asked


@dataclass(frozen=True, slots=True)
class NamespaceRecord:
    """A namespace and its annotations."""

    uid: str
    namespace: str
    name: str
    resource_version: int
    annotations: dict[str, str]

    @classmethod
    def of(cls, namespace: Namespace) -> NamespaceRecord:
        """Return the record of a namespace."""
        return cls(*_identity(namespace.metadata), namespace.metadata.annotations or {})


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """A node without its status, and what it offers in base units."""

    uid: str
    namespace: str
    name: str
    resource_version: int
    node: Node
    offered: Mapping[str, int]

    @classmethod
    def of(cls, node: Node) -> NodeRecord:
        """Return the record of a node."""
        kept = Node(node.metadata, node.spec)
        return cls(*_identity(node.metadata), kept, node_amounts(node))


@dataclass(frozen=True, slots=True)
class ConfigRecord:
    """A KaiwoConfig's section for this plane."""

    uid: str
    namespace: str
    name: str
    resource_version: int
    gpu_preemption: dict[str, Any] | None

    @classmethod
    def of(cls, config: KaiwoConfig) -> ConfigRecord:
        """Return the record of a KaiwoConfig."""
        return cls(*_identity(config.metadata), config.spec.gpu_preemption)


@dataclass(frozen=True, slots=True)
class KueueRecord:
    """A Kueue Workload without its templates.

    `gpus`: what its pods request beside claims, if it has any. `claims`: of each pod set with
    claims the number of its pods, and what they name.
    """

    uid: str
    namespace: str
    name: str
    resource_version: int
    workload: KueueWorkload
    gpus: dict[str, int] | None
    claims: tuple[tuple[int, tuple[PodResourceClaim, ...]], ...] = ()

    @property
    def owner(self) -> Owner | None:
        """The controlling owner, else the first one."""
        owners = self.workload.metadata.owner_references or []
        chosen = next(
            (owner for owner in owners if owner.controller), owners[0] if owners else None
        )
        if chosen is None:
            return None
        return Owner(chosen.api_version, chosen.kind, chosen.name, Uid(chosen.uid), controller=True)

    @property
    def owner_uids(self) -> tuple[str, ...]:
        """Uids of all owners: the job, or the pod for pod integrations."""
        return tuple(owner.uid for owner in self.workload.metadata.owner_references or ())


def kueue_converter(vendors: Sequence[Vendor]) -> Callable[[KueueWorkload], KueueRecord]:
    """Return the conversion of Kueue Workloads under these vendors' resource names."""

    def convert(workload: KueueWorkload) -> KueueRecord:
        # Where the quota plane is on, too, this is what it reads, which has much more.
        status = WorkloadStatus(workload.status.conditions)
        spec = KueueWorkloadSpec(priority=workload.spec.priority)
        kept = KueueWorkload(metadata=workload.metadata, spec=spec, status=status)
        claims = tuple(
            (each.count, tuple(each.template.spec.resource_claims))
            for each in workload.spec.pod_sets
            if each.template.spec.resource_claims
        )
        gpus = workload_gpus(workload, vendors)
        return KueueRecord(*_identity(workload.metadata), kept, gpus, claims)

    return convert


class _ManagedMeta(ObjectMeta, frozen=True, rename="camel"):
    """Object metadata with the authors of its fields."""

    managed_fields: list[dict[str, Any]] | None = None


class WatchedGpuWorkload(GpuWorkload, frozen=True, rename="camel"):
    """A GpuWorkload whose authors are read too."""

    metadata: _ManagedMeta


@dataclass(frozen=True, slots=True)
class WorkloadRecord:
    """A GpuWorkload as the API server holds it."""

    uid: str
    namespace: str
    name: str
    resource_version: int
    object: WatchedGpuWorkload

    @classmethod
    def of(cls, workload: WatchedGpuWorkload) -> WorkloadRecord:
        """Return the record of a GpuWorkload."""
        return cls(*_identity(workload.metadata), workload)


@dataclass(frozen=True, slots=True)
class IntentRecord:
    """A Preemption without its input, at which no decision looks.

    Records of earlier versions hold up to 512 KiB of it each.
    """

    uid: str
    namespace: str
    name: str
    resource_version: int
    intent: Preemption

    @classmethod
    def of(cls, intent: Preemption) -> IntentRecord:
        """Return the record of a Preemption."""
        metadata = intent.metadata
        return cls(
            metadata.uid,
            metadata.namespace,
            metadata.name,
            version_number(metadata.resource_version),
            msgspec.structs.replace(intent, spec=msgspec.structs.replace(intent.spec, input=None)),
        )


def _identity(metadata: ObjectMeta) -> tuple[str, str, str, int]:
    return (
        metadata.uid,
        metadata.namespace,
        metadata.name,
        version_number(metadata.resource_version),
    )
