"""The mirror: what the API server holds, as far as the page shows it, and what changed.

Each kind is listed and watched once. A kind that may not be listed cluster-wide is watched in the
namespaces that were named; what cannot be seen is known, so that the page can state it. `version`
grows with every change, so that a page knows when to look again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kubeworld.units.durations import SECOND
from reprieve.api import kueue
from reprieve.api.core import Node, Pod
from reprieve.api.disruption import Disruption
from reprieve.api.kaiwo import GpuWorkload
from reprieve.api.preemption_notice import PreemptionNotice
from reprieve.api.reprieve import Preemption
from reprieve.kube.cache import Cache
from reprieve.web.history.history import History
from reprieve.web.mirror.claims import BY_CLAIM, DeviceClaims
from reprieve.web.mirror.former_units import FormerUnits
from reprieve.web.mirror.harm import HarmRead
from reprieve.web.mirror.leading import Lease, LeaseRecord, lease_record
from reprieve.web.mirror.pods import NEVER, NodeRecord, PodRecord, node_record, pod_record
from reprieve.web.mirror.queues import (
    LocalQueueRecord,
    QueueRecord,
    TopologyRecord,
    WorkloadRecord,
    cluster_queue_record,
    cohort_record,
    local_queue_record,
    topology_record,
    workload_record,
)
from reprieve.web.mirror.reported import (
    DisruptionRecord,
    IdleRecord,
    NoticeRecord,
    PreemptionRecord,
    WaitingEvent,
    WaitingRecord,
    disruption_record,
    idle_record,
    notice_record,
    preemption_record,
    waiting_record,
)
from reprieve.web.mirror.sums import NodeSum, UnitSum, node_sum, unit_sum
from reprieve.web.records.judged import Opened, Unopened

__all__ = ["Mirror", "Watched"]

#: How long a Lease is renewed before that is reported.
_HOSTNAME: Final = "kubernetes.io/hostname"
_POD: Final = "pod/"  # the ids of units that are a pod begin with it
_RENEWALS: Final = 10 * SECOND


@dataclass(frozen=True, slots=True)
class Watched:
    """How a kind is watched.

    `health`: of the reflector that fares worst. `namespaces`: 0 for all. `error`: what failed
    last, while something is wrong.
    """

    kind: str
    health: str
    namespaces: int
    objects: int
    error: str


def _claims_of(pod: PodRecord) -> Iterable[tuple[str, str]]:
    """Return the claims of a pod, by namespace and name."""
    return [(pod.namespace, name) for name, _ in pod.claims if name]


def _nodes_of(pod: PodRecord) -> tuple[str, ...]:
    return tuple(name for name in (pod.node, pod.nominated) if name)


class Mirror:
    """Caches of all kinds that the page shows, fed by reflectors (`watches`).

    Attributes:
        version: grows with every batch of changes.
        cluster: what the cluster is called.
        unseen: what the viewer of a local page may not list, in words.
        opened: records that a viewer looks at, whole and decided again.
        key: to the numbers under which work of other tenants is shown; empty where it is not known.
        watched: states how each kind is watched.
        history: what the cluster was like.
        harm: budgets of harm and their ledger.
        devices: what pods hold by claims, and nodes have for them.
        former: the units of deleted Workloads and GpuWorkloads.
    """

    def __init__(self, cluster: str = "") -> None:
        self.version = 0
        self.cluster = cluster
        self.unseen: tuple[str, ...] = ()
        self.opened: Opened = Unopened()
        self.key = b""
        self.history = History()
        self.harm = HarmRead()
        self.watched: Callable[[], Sequence[Watched]] = tuple
        self.pods: Cache[Pod, PodRecord] = Cache(
            pod_record,
            {"unit": lambda pod: (pod.unit,), "node": _nodes_of, BY_CLAIM: _claims_of},
        )
        self.nodes: Cache[Node, NodeRecord] = Cache(node_record)
        self.workloads: Cache[kueue.Workload, WorkloadRecord] = Cache(
            workload_record, {"unit": lambda workload: (workload.unit,)}
        )
        self.cluster_queues: Cache[kueue.ClusterQueue, QueueRecord] = Cache(cluster_queue_record)
        self.cohorts: Cache[kueue.Cohort, QueueRecord] = Cache(cohort_record)
        self.topologies: Cache[kueue.Topology, TopologyRecord] = Cache(topology_record)
        self.local_queues: Cache[kueue.LocalQueue, LocalQueueRecord] = Cache(local_queue_record)
        self.idle: Cache[GpuWorkload, IdleRecord] = Cache(
            idle_record, {"unit": lambda record: (record.unit,)}
        )
        self.waiting: Cache[WaitingEvent, WaitingRecord] = Cache(
            waiting_record, {"unit": lambda record: (record.unit,)}
        )
        self.preemptions: Cache[Preemption, PreemptionRecord] = Cache(preemption_record)
        self.disruptions: Cache[Disruption, DisruptionRecord] = Cache(
            disruption_record, {"unit": lambda record: (record.unit,)}
        )
        self.notices: Cache[PreemptionNotice, NoticeRecord] = Cache(
            notice_record, {"unit": lambda record: (record.unit,)}
        )
        self.leases: Cache[Lease, LeaseRecord] = Cache(lease_record)
        self._idle_pods: Counter[tuple[str, str]] = Counter()  # pages of idle work that name a pod
        self._of_pods = 0  # Workloads, each of which stands for a pod or a group of pods
        self._units: dict[str, UnitSum] = {}
        self._nodes: dict[str, NodeSum] = {}
        self._reported: list[Callable[[], None]] = []
        self.pods.subscribe(self._pod_changed, self._settled)
        self.idle.subscribe(self._idle_changed, self._settled)
        self.nodes.subscribe(self._node_changed, self._settled)
        self.devices = DeviceClaims(self.pods, self._holds_other, self._all_outdated, self._settled)
        self._levels: tuple[str, ...] | None = None
        self.topologies.subscribe(lambda old, new: self._levels_changed(), self._settled)
        rest: tuple[Cache[Any, Any], ...] = (
            *(self.workloads, self.cluster_queues, self.cohorts, self.local_queues),
            *(self.waiting, self.preemptions, self.disruptions, self.notices),
        )
        for cache in rest:
            cache.subscribe(lambda old, new: None, self._settled)
        self.workloads.subscribe(self._workload_changed, lambda: None)
        self.former = FormerUnits()
        self.former.follow(self.workloads)
        self.former.follow(self.idle)
        self._renewed: LeaseRecord | None = None
        self.leases.subscribe(self._lease_changed, lambda: None)

    def touch(self) -> None:
        """Report that there is something new that stands in no cache."""
        self._settled()

    def subscribe(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Call after every batch of changes, on the event loop; return what ends that."""
        self._reported.append(changed)
        return lambda: self._reported.remove(changed)

    def units(self) -> Iterator[UnitSum]:
        """Yield what every unit with pods is at; one that did not change is the same object."""
        for unit in self.pods.keys("unit"):
            yield self.unit(str(unit))

    def unit(self, unit: str) -> UnitSum:
        """Return what a unit is at; one without pods holds nothing."""
        self.devices.refresh()
        found = self._units.get(unit)
        if found is None:
            found = unit_sum(unit, self.pods.by("unit", unit), self._idle_pods, self.devices.of_pod)
            if found.pods:
                self._units[unit] = found
        return found

    def workloads_of(self, unit: str) -> Sequence[WorkloadRecord]:
        """Return the Workloads of a unit: its own, else those that stand for pods of it."""
        own = self.workloads.by("unit", unit)
        if own or not self._of_pods or unit.startswith(_POD):
            return own
        return [
            each
            for pod in self.pods.by("unit", unit)
            for each in self.workloads.by("unit", f"{_POD}{pod.namespace}/{pod.name}")
        ]

    def unit_of_workload(self, workload: WorkloadRecord) -> str:
        """Return the unit that a Workload is of, where it stands for a pod that of the pod."""
        if workload.unit.startswith(_POD):
            pod = self.pods.named(*workload.unit.removeprefix(_POD).split("/"))
            return workload.unit if pod is None else pod.unit
        return workload.unit

    def node_sums(self) -> Iterator[NodeSum]:
        """Yield what every node has; one that did not change is the same object."""
        self.devices.refresh()
        for node in self.nodes:
            found = self._nodes.get(node.name)
            if found is None:
                pods, free = self._on(node.name), self.devices.free_on(node.name)
                found = node_sum(node, pods, self._idle_pods, self.devices.of_pod, free)
                self._nodes[node.name] = found
            yield found

    def levels(self) -> tuple[str, ...]:
        """Return the levels of the topology that most nodes have, without the node's own name."""
        if self._levels is None:
            self._levels = self._levels_of_most()
        return self._levels

    def _levels_of_most(self) -> tuple[str, ...]:
        known = {
            each.name: tuple(level for level in each.levels if level != _HOSTNAME)
            for each in self.topologies
        }
        counts = {
            name: sum(all(level in node.labels for level in levels) for node in self.nodes)
            for name, levels in known.items()
            if levels
        }
        most = max(sorted(counts), key=lambda name: counts[name], default="")
        return known[most] if counts.get(most) else ()

    def cluster_queue_of(self, namespace: str, queue: str) -> str:
        """Return the ClusterQueue that a LocalQueue leads to, empty where that is not known."""
        found = self.local_queues.named(namespace, queue)
        return "" if found is None else found.cluster_queue

    def _on(self, node: str) -> list[PodRecord]:
        # A pod that waits is under the node that is kept for it.
        return [pod for pod in self.pods.by("node", node) if node == (pod.node or pod.nominated)]

    def _pod_changed(self, old: PodRecord | None, new: PodRecord | None) -> None:
        for pod in (old, new):
            if pod is not None:
                self._forget(pod)

    def _workload_changed(self, old: WorkloadRecord | None, new: WorkloadRecord | None) -> None:
        self._of_pods += new is not None and new.unit.startswith(_POD)
        self._of_pods -= old is not None and old.unit.startswith(_POD)

    def _node_changed(self, old: NodeRecord | None, new: NodeRecord | None) -> None:
        for node in (old, new):
            if node is not None:
                self._nodes.pop(node.name, None)
        if old is None or new is None or old.labels != new.labels:
            self._levels_changed()

    def _levels_changed(self) -> None:
        self._levels = None

    def _idle_changed(self, old: IdleRecord | None, new: IdleRecord | None) -> None:
        before, after = _idle_names(old), _idle_names(new)
        self._idle_pods.subtract(before)
        self._idle_pods.update(after)
        for key in {*before, *after}:
            if not self._idle_pods[key]:
                del self._idle_pods[key]
            pod = self.pods.named(*key)
            if pod is not None:
                self._forget(pod)

    def _lease_changed(self, old: LeaseRecord | None, new: LeaseRecord | None) -> None:
        # It is renewed every two seconds, which is no reason to make all pages anew.
        last = self._renewed
        if last is None or new is None or _is_news(last, new):
            self._renewed = new
            self._settled()

    def _holds_other(self, pods: Iterable[PodRecord], nodes: Iterable[str]) -> None:
        for pod in pods:
            self._forget(pod)
        for node in nodes:
            self._nodes.pop(node, None)

    def _all_outdated(self) -> None:
        self._units.clear()
        self._nodes.clear()

    def _forget(self, pod: PodRecord) -> None:
        self._units.pop(pod.unit, None)
        for node in _nodes_of(pod):
            self._nodes.pop(node, None)

    def _settled(self) -> None:
        self.version += 1
        for changed in tuple(self._reported):
            changed()


def _is_news(old: LeaseRecord, new: LeaseRecord) -> bool:
    if (old.holder, old.epoch) != (new.holder, new.epoch):
        return True
    return (new.renewed or NEVER) - (old.renewed or NEVER) >= _RENEWALS


def _idle_names(record: IdleRecord | None) -> Collection[tuple[str, str]]:
    if record is None or not record.idle:
        return ()
    return tuple((record.namespace, name) for name in record.pods)
