"""A pod into its row, and what its spec says to the scheduler into a class.

Pods of one template have equal classes; `PodClasses` hands out one object for all of them, found by
the encoded parts of the pod that the class is made from, so that a template is read once. Source:
specification 2.5, 7.2 and 21.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from sys import intern
from typing import Final, TypeVar

import msgspec

from reprieve.api.scheduling import (
    Affinity,
    Container,
    ContainerStatus,
    PodObject,
    PodSpec,
    Toleration,
)
from reprieve.engine.cluster import rows
from reprieve.engine.cluster.rows import HostPort, NodeTerm, PodClass, PodRow
from reprieve.intake.cluster.affinity import (
    preferred_nodes,
    preferred_pods,
    required_nodes,
    required_pods,
    spread_constraints,
)
from reprieve.intake.cluster.extended import extended_requests
from reprieve.intake.cluster.failures import disrupted_by, failed_at, is_stuck
from reprieve.intake.cluster.metadata import (
    checkpoint_of,
    claims_of,
    controller_of,
    created_of,
    disruption_of,
    min_runtime_of,
    protection_of,
    seconds_of,
    uid_of,
    version_of,
)
from reprieve.intake.cluster.requests import NOTHING, Requests, requests_of
from reprieve.intake.cluster.selectors import labels_of
from reprieve.intake.cluster.sharing import SharedLabels
from reprieve.intake.cluster.volumes import disks_of, uses_of
from reprieve.intake.gangs import gang_annotations, gang_name, left_by_gang

__all__ = ["PodClasses", "PodGates", "counted_pod_row", "pod_class", "pod_row"]

T = TypeVar("T")

DEFAULT_SCHEDULER: Final = "default-scheduler"
_FINISHED: Final = ("Succeeded", "Failed")
_WORKLOAD: Final = "kueue.x-k8s.io/workload"
_GROUP: Final = "kueue.x-k8s.io/pod-group-name"  # of a Workload with the same name
_ALWAYS: Final = "Always"
_COMPARING: Final = ("Gt", "Lt")
_NEVER: Final = "Never"
_POLICY: Final = "scheduling.koordinator.sh/preemption-policy"
_KEPT: Final = 20_000  # templates; more than that many at once are read again


@dataclass(frozen=True, slots=True)
class PodGates:
    """What of a pod is read behind feature gates.

    `claims`: what its claims take of the node. `policy_label`: Koordinator's label stands for the
    preemption policy, `Never` without it. `comparisons`: tolerations with `Gt` and `Lt`, which are
    none otherwise.
    """

    claims: bool = False
    policy_label: bool = False
    comparisons: bool = False


class PodClasses:
    """The classes seen lately, one object for each.

    `gates`: what of `pod_class` is switched on.
    """

    def __init__(self, gates: PodGates | None = None) -> None:
        self._gates = gates or PodGates()
        self._encoder = msgspec.msgpack.Encoder(order="deterministic")
        self._found: dict[bytes, PodClass] = {}
        self._unique: dict[PodClass, PodClass] = {}
        # Pods of a DaemonSet differ in the node that they are pinned to.
        self._pinned: dict[tuple[int, tuple[NodeTerm, ...]], PodClass] = {}
        self.labels = SharedLabels()

    def of(self, pod: PodObject) -> PodClass:
        """Return the pod's class."""
        template = self._template(pod)
        affinity = pod.spec.affinity
        terms = required_nodes(affinity.node_affinity) if affinity is not None else None
        if terms is None:
            return template
        key = (id(template), terms)
        found = self._pinned.get(key)
        if found is None:
            if len(self._pinned) >= _KEPT:
                self._pinned.clear()
            found = self._pinned[key] = replace(template, node_affinity=terms)
        return found

    def _template(self, pod: PodObject) -> PodClass:
        """Return the class without the node affinity that is required."""
        gates, status = self._gates, pod.status
        taken = status.node_allocatable_resource_claim_statuses if gates.claims else None
        said = (pod.metadata.labels or {}).get(_POLICY) if gates.policy_label else None
        key = self._encoder.encode((_parts(pod), taken, said))
        found = self._found.get(key)
        if found is None:
            if len(self._found) >= _KEPT:
                self._found.clear()
                self._unique.clear()
                self._pinned.clear()  # ids of templates that may be gone
            made = replace(pod_class(pod, gates), node_affinity=None)
            found = self._found[key] = self._unique.setdefault(made, made)
        return found


def pod_row(pod: PodObject, classes: PodClasses | None = None) -> PodRow:
    """Return the row of a pod; `classes` spares reading a template again.

    Names that many pods mention are kept once.
    """
    metadata, spec, status = pod.metadata, pod.spec, pod.status
    deleting = metadata.deletion_timestamp is not None
    group = spec.scheduling_group
    labels, notes = metadata.labels or {}, metadata.annotations or {}
    gang = gang_name(labels, notes) if labels or notes else ""
    kind, owner, controller = controller_of(metadata)
    return PodRow(
        uid=uid_of(metadata),
        namespace=intern(metadata.namespace),
        name=metadata.name,
        version=version_of(metadata),
        pod_class=pod_class(pod) if classes is None else classes.of(pod),
        labels=labels_of(metadata.labels)
        if classes is None
        else classes.labels.of(metadata.labels),
        node=intern(spec.node_name or ""),
        nominated=status.nominated_node_name or "",
        priority=spec.priority or 0,
        group=intern(group.pod_group_name or "") if group is not None else "",
        start=seconds_of(status.start_time),
        created=created_of(metadata),
        deleting=deleting,
        preempted=deleting and _is_preempted(pod),
        finished=status.phase in _FINISHED,
        gates=tuple(gate.name for gate in spec.scheduling_gates) if spec.scheduling_gates else (),
        claims=claims_of(spec.resource_claims, status.resource_claim_statuses),
        owner=(kind, owner),
        gang=f"{metadata.namespace}/{gang}" if gang else "",
        gang_says=gang_annotations(notes) if gang else (),
        released=left_by_gang(notes) if notes else (),
        phase=(status.phase or "") if gang else "",
        owners=tuple(each.name for each in metadata.owner_references or ()) if gang else (),
        workload=_workload(pod),
        checkpoint=checkpoint_of(metadata) if notes else 0,
        protection=protection_of(metadata) if notes else "",
        disruption=disruption_of(metadata) if notes else "",
        min_runtime=min_runtime_of(metadata) if notes else None,
        generation=metadata.generation,
        controller=controller,
        failed=failed_at(pod),
        stuck=is_stuck(pod),
        disrupted=disrupted_by(pod),
    )


def counted_pod_row(pod: PodObject) -> PodRow:
    """Return what must not be lost of a pod that `pod_row` fails to read.

    That is what it takes of its node, whom it goes with and whose victim it may be; a part of this
    that cannot be read either counts as not said. A pod that waits is not placed, since where it
    may go is unknown.
    """
    metadata, spec, status = pod.metadata, pod.spec, pod.status
    group = spec.scheduling_group
    kind, owner, controller = _or(("", "", ""), lambda: controller_of(metadata))
    return PodRow(
        uid=uid_of(metadata),
        namespace=metadata.namespace,
        name=metadata.name,
        version=_or(0, lambda: version_of(metadata)),
        pod_class=_counted_class(_or(NOTHING, lambda: requests_of(pod)), spec),
        labels=_or((), lambda: labels_of(metadata.labels)),
        node=spec.node_name or "",
        priority=spec.priority or 0,
        group=(group.pod_group_name or "") if group is not None else "",
        start=_or(None, lambda: seconds_of(status.start_time)),
        created=_or(0, lambda: created_of(metadata)),
        deleting=metadata.deletion_timestamp is not None,
        finished=status.phase in _FINISHED,
        owner=(kind, owner),
        controller=controller,
    )


def _counted_class(requests: Requests, spec: PodSpec) -> PodClass:
    return PodClass(
        requests=requests.amounts,
        scored_cpu=requests.scored[0],
        scored_memory=requests.scored[1],
        scheduler_name=spec.scheduler_name or DEFAULT_SCHEDULER,
        priority_class=spec.priority_class_name or "",
        unsupported="a part of it that cannot be read",
    )


def _or(otherwise: T, read: Callable[[], T]) -> T:
    try:
        return read()
    except Exception:
        return otherwise


def _workload(pod: PodObject) -> str:
    """Return the key of the Kueue Workload that a pod was started for, or is gated for."""
    labels, annotations = pod.metadata.labels or {}, pod.metadata.annotations or {}
    name = annotations.get(_WORKLOAD) or annotations.get(_GROUP) or labels.get(_GROUP)
    return f"{pod.metadata.namespace}/{name}" if name else ""


def pod_class(pod: PodObject, gates: PodGates | None = None) -> PodClass:
    """Return what the spec says, with the requests of 21.4 and 17.2."""
    gates = gates or PodGates()
    spec, namespace = pod.spec, pod.metadata.namespace
    affinity = spec.affinity
    nodes = affinity.node_affinity if affinity else None
    pods = affinity.pod_affinity if affinity else None
    apart = affinity.pod_anti_affinity if affinity else None
    requests = requests_of(pod, with_claims=gates.claims)
    incoming = requests.scored_incoming
    return PodClass(
        requests=requests.amounts,
        scored_cpu=requests.scored[0],
        scored_memory=requests.scored[1],
        scored_incoming=None if incoming == requests.scored else incoming,
        host_ports=_host_ports(pod),
        node_selector=labels_of(spec.node_selector),
        node_affinity=required_nodes(nodes),
        preferred_node_affinity=preferred_nodes(nodes),
        tolerations=tuple(
            _toleration(each)
            for each in spec.tolerations or ()
            if gates.comparisons or each.operator not in _COMPARING
        ),
        spread=spread_constraints(spec.topology_spread_constraints, pod.metadata.labels or {}),
        affinity=required_pods(pods, namespace),
        anti_affinity=required_pods(apart, namespace),
        preferred_affinity=preferred_pods(pods, namespace),
        preferred_anti_affinity=preferred_pods(apart, namespace),
        volumes=uses_of(spec.volumes),
        disks=disks_of(spec.volumes),
        extended=extended_requests(spec),
        images=_images(pod),
        features=_features(pod),
        scheduler_name=spec.scheduler_name or DEFAULT_SCHEDULER,
        preempts=_preempts(pod, policy_label=gates.policy_label),
        priority_class=spec.priority_class_name or "",
    )


def _is_resized(pod: PodObject) -> bool:
    # No generator: this is asked of every pod of a cluster.
    for condition in pod.status.conditions or ():  # noqa: SIM110
        if condition.type == "PodResizePending":
            return True
    return False


def _parts(pod: PodObject) -> tuple[object, ...]:
    """Return all that `pod_class` reads, but for the nodes that are required.

    What differs between pods of a template is there only if it is read.
    """
    spec, status = pod.spec, pod.status
    volumes = [each for each in spec.volumes or () if uses_of([each]) or disks_of([each])]
    mounted = [each.image for each in spec.volumes or () if each.image is not None]
    keys = {
        key
        for each in spec.topology_spread_constraints or ()
        for key in each.match_label_keys or ()
    }
    labels = pod.metadata.labels or {}
    resized = _is_resized(pod)
    return (
        pod.metadata.namespace if spec.affinity is not None else None,
        {key: labels[key] for key in keys if key in labels},
        spec.containers,
        spec.init_containers,
        spec.resources,
        spec.overhead,
        spec.node_selector,
        spec.tolerations,
        _preferences(spec.affinity),
        spec.topology_spread_constraints,
        volumes,
        mounted,
        spec.preemption_policy,
        spec.priority_class_name,
        spec.scheduler_name,
        spec.host_network,
        spec.host_users,
        _given(status.container_statuses),
        _given(status.init_container_statuses),
        status.allocated_resources,
        status.resources,
        status.conditions if resized else None,
    )


def _given(statuses: Sequence[ContainerStatus] | None) -> list[object] | None:
    """Return what containers have been given, and not what they do."""
    if statuses is None:
        return None
    return [(each.name, each.allocated_resources, each.resources) for each in statuses]


def _preferences(affinity: Affinity | None) -> tuple[object, ...] | None:
    """Return what an affinity says besides the nodes that it requires."""
    if affinity is None:
        return None
    nodes = affinity.node_affinity
    preferred = nodes and nodes.preferred_during_scheduling_ignored_during_execution
    return preferred, affinity.pod_affinity, affinity.pod_anti_affinity


def _preempts(pod: PodObject, *, policy_label: bool) -> bool:
    policy = pod.spec.preemption_policy
    if policy_label:
        policy = (pod.metadata.labels or {}).get(_POLICY, _NEVER)
    return policy != _NEVER


def _containers(pod: PodObject) -> tuple[Container, ...]:
    return (*(pod.spec.init_containers or ()), *(pod.spec.containers or ()))


def _is_preempted(pod: PodObject) -> bool:
    for condition in pod.status.conditions or ():
        if condition.type == "DisruptionTarget":
            return condition.status == "True" and condition.reason == "PreemptionByScheduler"
    return False


def _host_ports(pod: PodObject) -> tuple[HostPort, ...]:
    sidecars = [c for c in pod.spec.init_containers or () if c.restart_policy == _ALWAYS]
    found = {
        HostPort(port.host_port, port.protocol or "TCP", port.host_ip or "0.0.0.0")
        for container in (*sidecars, *(pod.spec.containers or ()))
        for port in container.ports or ()
        if port.host_port > 0
    }
    return tuple(sorted(found, key=lambda each: (each.port, each.protocol, each.address)))


def _toleration(toleration: Toleration) -> rows.Toleration:
    return rows.Toleration(
        toleration.key,
        toleration.operator,
        toleration.value,
        toleration.effect,
    )


def _images(pod: PodObject) -> tuple[str, ...]:
    mounted = (each.image.reference for each in pod.spec.volumes or () if each.image is not None)
    names = (*(each.image for each in _containers(pod)), *mounted)
    return tuple(_tagged(name) for name in names)


def _tagged(name: str) -> str:
    """Return the name with a tag: a colon after the last slash starts one, or a digest."""
    return name if ":" in name.rpartition("/")[2] else f"{name}:latest"


def _features(pod: PodObject) -> tuple[str, ...]:
    """Return what the node has to declare for this pod, of what release 1.37 knows."""
    containers = _containers(pod)
    found = []
    if _any_rule(containers, "RestartAllContainers"):
        found.append("RestartAllContainersOnContainerExits")
    if pod.spec.host_network and pod.spec.host_users is False:
        found.append("UserNamespacesHostNetworkSupport")
    if any(mount.bind_mount_options for c in containers for mount in c.volume_mounts or ()):
        found.append("VolumeBindMountOptions")
    return tuple(found)


def _any_rule(containers: Iterable[Container], action: str) -> bool:
    return any(rule.action == action for c in containers for rule in c.restart_policy_rules or ())
