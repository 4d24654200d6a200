"""What a pod's spec states to the scheduler, as a class that all pods of one template share.

`PodClasses` hands out one object for all equal classes, found by the encoded parts of the pod that
the class is made from, so that a template is read once. Source: specification 2.5 and 21.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from typing import Any, Final, TypeAlias

import msgspec

from reprieve.api.core import NodeAffinity
from reprieve.api.scheduling import Container, ContainerStatus, PodObject, Toleration
from reprieve.engine.cluster import rows
from reprieve.engine.cluster.rows import HostPort, NodeTerm, PodClass
from reprieve.intake.cluster.affinity import (
    preferred_nodes,
    preferred_pods,
    required_nodes,
    required_pods,
    spread_constraints,
)
from reprieve.intake.cluster.extended import extended_requests
from reprieve.intake.cluster.requests import requests_of
from reprieve.intake.cluster.selectors import labels_of
from reprieve.intake.cluster.sharing import SharedLabels
from reprieve.intake.cluster.volumes import decides, disks_of, uses_of

__all__ = ["DEFAULT_SCHEDULER", "PodClasses", "PodGates", "pod_class", "toleration_row"]

DEFAULT_SCHEDULER: Final = "default-scheduler"
_ALWAYS: Final = "Always"
_COMPARING: Final = ("Gt", "Lt")
_NEVER: Final = "Never"
_POLICY: Final = "scheduling.koordinator.sh/preemption-policy"
_KEPT: Final = 20_000  # templates; more than that many at once are read again
_KEPT_TERMS: Final = 100_000  # as many as there are nodes
_KEPT_ALIKE: Final = 1_000  # controllers whose pods come one after the other
_FIELDS: Final = tuple(field.name for field in fields(PodClass))
_NODES: Final = _FIELDS.index("node_affinity")
_VALUES: Final = attrgetter(*_FIELDS)
_Stated: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class PodGates:
    """What of a pod is read behind feature gates.

    `claims`: what its claims use of the node. `policy_label`: Koordinator's label stands for the
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
        self.gates = gates or PodGates()
        self._encoder = msgspec.msgpack.Encoder(order="deterministic")
        self._found: dict[bytes, PodClass] = {}
        self._unique: dict[PodClass, PodClass] = {}
        # What one pod of a controller states and its template; most others state the very same.
        # Comparing that costs a third of the time of encoding it.
        self._alike: dict[str, tuple[_Stated, PodClass]] = {}
        # Pods of a DaemonSet differ in the node that they are pinned to, and those of a node agree
        # in it. By ids of templates and of terms.
        self._pinned: dict[tuple[int, int], PodClass] = {}
        self._terms: dict[bytes, tuple[NodeTerm, ...]] = {}
        self.labels = SharedLabels()

    def of(self, pod: PodObject, controller: str = "") -> PodClass:
        """Return the pod's class; `controller`: uid of its controller, if it has one."""
        template = self._template(pod, controller)
        affinity = pod.spec.affinity
        terms = None if affinity is None else self._required(affinity.node_affinity)
        if terms is None:
            return template
        key = (id(template), id(terms))
        found = self._pinned.get(key)
        if found is None:
            if len(self._pinned) >= _KEPT:
                self._pinned.clear()
            found = self._pinned[key] = _on_nodes(template, terms)
        return found

    def _required(self, affinity: NodeAffinity | None) -> tuple[NodeTerm, ...] | None:
        """Return what `required_nodes` does, equal terms once."""
        required = affinity and affinity.required_during_scheduling_ignored_during_execution
        if required is None:
            return None
        key = self._encoder.encode(required)
        found = self._terms.get(key)
        if found is None:
            if len(self._terms) >= _KEPT_TERMS:
                self._terms.clear()
                self._pinned.clear()  # ids of terms that may be freed
            found = self._terms[key] = required_nodes(affinity) or ()
        return found

    def _template(self, pod: PodObject, controller: str) -> PodClass:
        """Return the class without the node affinity that is required."""
        said = _stated(pod, self.gates)
        known = self._alike.get(controller) if controller else None
        if known is not None and known[0] == said:
            return known[1]
        found = self._read(pod, said)
        if controller:
            if len(self._alike) >= _KEPT_ALIKE:
                self._alike.clear()
            self._alike[controller] = said, found
        return found

    def _read(self, pod: PodObject, said: _Stated) -> PodClass:
        """Return the template, found by what was stated in as few bytes as there are."""
        *spec, statuses, of_init = said
        key = self._encoder.encode((spec, _given(statuses), _given(of_init)))
        found = self._found.get(key)
        if found is None:
            if len(self._found) >= _KEPT:
                self._found.clear()
                self._unique.clear()
                self._alike.clear()
                self._pinned.clear()  # ids of templates that may be freed
            made = replace(pod_class(pod, self.gates), node_affinity=None)
            found = self._found[key] = self._unique.setdefault(made, made)
        return found


def _on_nodes(template: PodClass, terms: tuple[NodeTerm, ...]) -> PodClass:
    """Return the class with these nodes required."""
    # `replace` names all fields and costs twice the time; a cluster has four of these for each
    # node.
    values = [*_VALUES(template)]
    values[_NODES] = terms
    return PodClass(*values)


def pod_class(pod: PodObject, gates: PodGates | None = None) -> PodClass:
    """Return what the spec states, with the requests of 21.4 and 17.2."""
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
            toleration_row(each)
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
    # No generator: this is called for every pod of a cluster.
    for condition in pod.status.conditions or ():  # noqa: SIM110
        if condition.type == "PodResizePending":
            return True
    return False


def _stated(pod: PodObject, gates: PodGates) -> _Stated:
    """Return all that `pod_class` reads, but for the nodes that are required.

    What differs between pods of a template is there only if it is read; what their containers do is
    there as well, at the end, in the statuses.
    """
    spec, status = pod.spec, pod.status
    volumes = spec.volumes or ()
    affinity = spec.affinity
    nodes = None if affinity is None else affinity.node_affinity
    return (
        None if affinity is None else pod.metadata.namespace,
        nodes and nodes.preferred_during_scheduling_ignored_during_execution,
        None if affinity is None else affinity.pod_affinity,
        None if affinity is None else affinity.pod_anti_affinity,
        _spread_labels(pod) if spec.topology_spread_constraints else None,
        spec.topology_spread_constraints,
        spec.containers,
        spec.init_containers,
        spec.resources,
        spec.overhead,
        spec.node_selector,
        spec.tolerations,
        [each for each in volumes if decides(each)],
        [each.image for each in volumes if each.image is not None],
        spec.preemption_policy,
        spec.priority_class_name,
        spec.scheduler_name,
        spec.host_network,
        spec.host_users,
        status.allocated_resources,
        status.resources,
        status.conditions if _is_resized(pod) else None,
        status.node_allocatable_resource_claim_statuses if gates.claims else None,
        (pod.metadata.labels or {}).get(_POLICY) if gates.policy_label else None,
        status.container_statuses,
        status.init_container_statuses,
    )


def _spread_labels(pod: PodObject) -> dict[str, str]:
    """Return the labels of a pod that its spread constraints request by their keys."""
    constraints, labels = pod.spec.topology_spread_constraints or (), pod.metadata.labels or {}
    keys = {key for each in constraints for key in each.match_label_keys or ()}
    return {key: labels[key] for key in keys if key in labels}


def _given(statuses: Sequence[ContainerStatus] | None) -> list[object] | None:
    """Return what containers have been given, and not what they do."""
    if statuses is None:
        return None
    return [(each.name, each.allocated_resources, each.resources) for each in statuses]


def _preempts(pod: PodObject, *, policy_label: bool) -> bool:
    policy = pod.spec.preemption_policy
    if policy_label:
        policy = (pod.metadata.labels or {}).get(_POLICY, _NEVER)
    return policy != _NEVER


def _containers(pod: PodObject) -> tuple[Container, ...]:
    return (*(pod.spec.init_containers or ()), *(pod.spec.containers or ()))


def _host_ports(pod: PodObject) -> tuple[HostPort, ...]:
    sidecars = [c for c in pod.spec.init_containers or () if c.restart_policy == _ALWAYS]
    found = {
        HostPort(port.host_port, port.protocol or "TCP", port.host_ip or "0.0.0.0")
        for container in (*sidecars, *(pod.spec.containers or ()))
        for port in container.ports or ()
        if port.host_port > 0
    }
    return tuple(sorted(found, key=lambda each: (each.port, each.protocol, each.address)))


def toleration_row(toleration: Toleration) -> rows.Toleration:
    """Return the row of a toleration."""
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
