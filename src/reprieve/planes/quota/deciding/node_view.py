"""Nodes, and the pods of workloads on them, for the option `proveNodes` and for notices.

The state is that of the scheduling plane where this process runs it too; otherwise pods, nodes and
namespaces are watched here. Nothing is decided before they are listed, or while they cannot be
read: what is not seen is no capacity. Source: the quota plane's own options; the design's "Where
the planes meet".
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final, Generic, TypeVar

from kubeworld.units.instants import Nanos
from reprieve.api.core import Namespace
from reprieve.api.scheduling import NodeObject, PodObject
from reprieve.engine.cluster.cluster import Cluster, NotSynced
from reprieve.engine.cluster.rows import Change, Gone, Kind, NodeRow, PodRow
from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.quota.model import Workload
from reprieve.engine.quota.proofs.node_proof import NodeProof
from reprieve.engine.quota.proofs.pods_wanted import Template
from reprieve.intake.cluster.nodes import node_row
from reprieve.intake.cluster.pod_classes import PodClasses
from reprieve.intake.cluster.pods import pod_row
from reprieve.intake.cluster.policies import namespace_entry
from reprieve.intake.cluster.sharing import SharedNodes
from reprieve.kube.objects import identity_of
from reprieve.kube.reflector import Health
from reprieve.kube.resource import NAMESPACES, NODES, PODS, Resource
from reprieve.planes.common.mirrors.cluster_view import ClusterView
from reprieve.planes.common.mirrors.mirror import Followed
from reprieve.planes.common.persistent import alone
from reprieve.planes.quota.context import QuotaContext, log
from reprieve.units.ids import Uid

__all__ = ["NodeView"]

_KINDS: Final = (Kind.POD, Kind.NODE, Kind.NAMESPACE)

W = TypeVar("W")
Templates = Callable[[Workload], dict[str, Template]]


class _Sink(Generic[W]):
    """Hands what a reflector reads on as rows."""

    def __init__(
        self,
        kind: Kind,
        convert: Callable[[W], Change],
        replace: Callable[[Kind, list[Change]], None],
        apply: Callable[[Change], None],
    ) -> None:
        self._kind = kind
        self._convert = convert
        self._replace = replace
        self._apply = apply

    def received(self, objects: list[W]) -> list[Change]:
        found = []
        for obj in objects:
            with alone(log, f"{self._kind.value} {identity_of(obj).name}"):
                found.append(self._convert(obj))
        return found

    def replaced(self, objects: list[Change], resource_version: str) -> None:
        self._replace(self._kind, objects)

    def applied(self, obj: W) -> None:
        self._apply(self._convert(obj))

    def deleted(self, obj: W) -> None:
        row: Any = self._convert(obj)
        self._apply(Gone(self._kind, row.uid, getattr(row, "namespace", ""), row.name))


class NodeView:
    """What the proof reads; without the option nothing is watched and nothing is proven."""

    def __init__(
        self, context: QuotaContext, templates: Templates, shared: ClusterView | None
    ) -> None:
        self._context = context
        self._templates = templates
        self._shared = shared
        self._cluster = Cluster(_KINDS) if shared is None else shared.cluster
        self._followed: list[Followed[Any]] = []
        self._rows: dict[Uid, PodRow] = {}  # pods that run for a workload
        self._pods: dict[str, frozenset[Uid]] = {}  # of them those that have not finished
        self._all: dict[str, set[Uid]] = {}
        self._freed = 0
        # Called with each Workload one of whose pods was seen.
        self.seen: Callable[[str], None] = lambda workload: None
        self._placing = False
        self._group: asyncio.TaskGroup | None = None
        self._observing = False
        self._pods_of: asyncio.TaskGroup | None = None
        self._pods_listed = False
        # ClusterQueues in which a workload was refused, and what had come free by then.
        self._refused: dict[str, int] = {}

    @property
    def wanted(self) -> bool:
        """Whether proofs look at nodes: by option, and where this process places the pods."""
        return self._context.options.prove_nodes or self._joins

    @property
    def _joins(self) -> bool:
        return self._shared is not None and self._context.joint.scheduling is not None

    @property
    def _who_needs(self) -> str:
        return "proveNodes needs" if self.wanted else "topologies need"

    def start(self, group: asyncio.TaskGroup) -> None:
        """Follow the cluster until the group ends, once a caller wants it."""
        self._group, self._observing = group, False
        if self.wanted or self._placing:
            self._observe(group)
        elif self._context.options.notice.most:
            self._observe_pods(group)

    def place(self) -> None:
        """Follow the cluster from now on: flavors have topologies, whose pods are placed."""
        self._placing = True
        if self._group is not None and not self._observing:
            self._observe(self._group)

    def cluster(self) -> Snapshot | None:
        """Return nodes and pods as they are now, None before they are listed."""
        try:
            return self._cluster.snapshot()
        except NotSynced:
            return None

    def node(self, name: str) -> NodeRow | None:
        """Return a node as it is now, None where there is none."""
        return self._cluster.node(name)

    def pods_of(self, workload: str) -> frozenset[Uid]:
        """Return the pods of a workload that have not finished."""
        return self._pods.get(workload, frozenset())

    def rows_of(self, workload: str) -> list[PodRow]:
        """Return the pods of a workload, also those that have finished and are still there."""
        return [self._rows[uid] for uid in self._all.get(workload, ())]

    def row(self, uid: Uid) -> PodRow | None:
        """Return a pod of a workload."""
        return self._rows.get(uid)

    def _observe(self, group: asyncio.TaskGroup) -> None:
        self._observing = True
        self._observe_pods(group)
        if self._shared is not None:
            return
        nodes = SharedNodes()
        self._watch(group, Kind.NODE, NODES, NodeObject, lambda node: node_row(node, nodes))
        self._watch(group, Kind.NAMESPACE, NAMESPACES, Namespace, namespace_entry)

    def _observe_pods(self, group: asyncio.TaskGroup) -> None:
        """Follow the pods of workloads, once in each group."""
        if self._pods_of is group:
            return
        self._pods_of = group
        if self._shared is not None:
            self._shared.observers.append(self._pod_changed)
            for row in self._shared.pods():
                self._pod_changed(None, row)
            return
        classes = PodClasses()
        self._watch(group, Kind.POD, PODS, PodObject, lambda pod: pod_row(pod, classes))

    def troubles(self) -> list[str]:
        """Return one line for each kind that cannot be read."""
        return [
            f"{each.resource.qualified}, which {self._who_needs}: {each.health}: {each.error}"
            for each in self._followed
            if each.health in (Health.FORBIDDEN, Health.NOT_SERVED)
        ]

    def held_back(self) -> str:
        """Return why nothing may be decided; empty when all facts are at hand."""
        if not self.wanted:
            waits = self._pods_of is not None and self._shared is None and not self._pods_listed
            return "pods, which notices need, are not listed yet" if waits else ""
        try:
            self._cluster.snapshot()
        except NotSynced as missing:
            return f"proveNodes: {missing}"
        return next(iter(self.troubles()), "")

    def proof(self, now: Nanos) -> NodeProof | None:
        """Return the proof for one run; None where nodes are not looked at.

        Without the option a workload is not refused if, once it has its quota, the scheduling plane
        would preempt or idle work would be evicted for it.
        """
        if not self.wanted:
            return None
        idle = self._context.joint.idle
        lenient = not self._context.options.prove_nodes
        return NodeProof(
            self._cluster.snapshot(),
            dict(self._pods),
            self._templates,
            now,
            scheduler_preempts=lenient,
            reclaimable=idle.reclaimable() if lenient and idle is not None else (),
            moves=self._joins,
            opted=self._opted,
        )

    def _opted(self, workload: Workload) -> bool:
        """Whether idle work may be evicted for a workload, as far as is known."""
        idle = self._context.joint.idle
        return idle is not None and idle.has_opted_in(Uid(workload.uid))

    def joint_proof(self, now: Nanos, idle: Collection[Uid]) -> NodeProof | None:
        """Return the proof for idle work that is evicted for a workload; None without nodes.

        `idle`: the pods of all idle work that may be evicted now; one within its grace may work
        again.
        """
        if not self.wanted:
            return None
        snapshot, pods = self._cluster.snapshot(), dict(self._pods)
        return NodeProof(snapshot, pods, self._templates, now, reclaimable=idle)

    def refused(self, cluster_queue: str) -> None:
        """Record that a workload was refused in a ClusterQueue for want of nodes."""
        self._context.metrics.unproven.labels(cluster_queue).inc()
        self._refused[cluster_queue] = self._version

    def to_try_again(self) -> list[str]:
        """Return the ClusterQueues for which something may have come free, each once."""
        version = self._version
        due = [queue for queue, then in self._refused.items() if then != version]
        for queue in due:
            del self._refused[queue]
        return due

    @property
    def _version(self) -> int:
        return self._freed if self._shared is None else self._shared.disturbed

    def _watch(
        self,
        group: asyncio.TaskGroup,
        kind: Kind,
        resource: Resource,
        wire: type[W],
        convert: Callable[[W], Change],
    ) -> None:
        context = self._context
        followed = context.mirror.follow(
            resource,
            wire,
            _Sink(kind, convert, self._replace, self._apply),
            report=lambda trouble: log.warning("what %s is not read: %s", self._who_needs, trouble),
            restarted=lambda why: context.metrics.watch_restarts.labels(
                resource.qualified, why
            ).inc(),
        )
        self._followed.append(followed)
        group.create_task(followed.run(), name=f"watch {resource} for nodes")

    def _replace(self, kind: Kind, listed: list[Change]) -> None:
        self._cluster.replace(kind, listed)
        self._freed += 1
        if kind is Kind.POD:
            self._pods_listed = True
            rows = [row for row in listed if isinstance(row, PodRow)]
            self._forget(self._rows.keys() - {row.uid for row in rows})
            for row in rows:
                self._pod_changed(self._rows.get(row.uid), row)

    def _apply(self, change: Change) -> None:
        self._cluster.apply((change,))
        if isinstance(change, PodRow):
            self._pod_changed(self._rows.get(change.uid), change)
        elif isinstance(change, Gone) and change.kind is Kind.POD:
            self._freed += 1
            self._forget((change.uid,))
        else:
            self._freed += 1

    def _forget(self, uids: Iterable[Uid]) -> None:
        for uid in tuple(uids):
            self._pod_changed(self._rows.get(uid), None)

    def _pod_changed(self, old: PodRow | None, new: PodRow | None) -> None:
        self._freed += new is None or new.finished
        for row, there in ((old, False), (new, True)):
            if row is None or not row.workload:
                continue
            known = self._pods.get(row.workload, frozenset())
            stays = there and not row.finished
            left = known | {row.uid} if stays else known - {row.uid}
            if left:
                self._pods[row.workload] = left
            else:
                self._pods.pop(row.workload, None)
            if there:
                self._rows[row.uid] = row
                self._all.setdefault(row.workload, set()).add(row.uid)
                self.seen(row.workload)
            else:
                self._rows.pop(row.uid, None)
                self._all.get(row.workload, set()).discard(row.uid)
                if not self._all.get(row.workload):
                    self._all.pop(row.workload, None)
