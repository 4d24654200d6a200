"""Which waiting pods an event concerns: the table from what happened to whom it is worth trying.

A pod that was rejected waits until something happens that one of the plugins that rejected it holds
for helpful. Each test looks at the event, the waiting pod and the labels and DeviceClasses that it
may be about, so it may return a false yes, but never no where the plugin would pass.
NodeResourcesFit requests DeviceClasses too: one may stand for an extended resource, and a node that
offers nothing of such a resource has devices instead. Source: specification 21.4 and 22, table "Who
is moved".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, Protocol, TypeAlias

from reprieve.engine.cluster.rows import AffinityTerm, Kind, Labels, NodeRow, PodRow
from reprieve.engine.cluster.storage import claim_name
from reprieve.engine.placement.profile import FilterName
from reprieve.engine.scheduling.queueing.events import GANG, GATES, Event, Happening
from reprieve.engine.scheduling.queueing.matching import (
    affinity_matches,
    node_passes,
    term_matches,
    tolerated,
)
from reprieve.engine.selectors import selects

__all__ = ["ASKED", "Known", "asks"]

_UNSCHEDULABLE_TAINT: Final = "node.kubernetes.io/unschedulable"


class Known(Protocol):
    """What hints query about the cluster as it is now."""

    def namespace_labels(self, namespace: str) -> Labels:
        """Return the labels of a namespace."""
        ...

    def device_class(self, resource: str) -> str:
        """Return the DeviceClass that stands for an extended resource, empty when none does."""
        ...


_Test: TypeAlias = Callable[[PodRow, Event, Known], bool]


def asks(plugin: str, pod: PodRow, event: Event, known: Known) -> bool:
    """Return whether `plugin`, which rejected `pod`, now wants it to be tried again."""
    test = ASKED[event.what].get(plugin)
    return test is not None and test(pod, event, known)


def _any(pod: PodRow, event: Event, _: Known) -> bool:
    return True


def _same_group(pod: PodRow, event: Event, _: Known) -> bool:
    if not pod.group:
        return False
    key = f"{pod.namespace}/{pod.group}"
    return key == event.group or key in event.tree


def _shares_port(pod: PodRow, event: Event, _: Known) -> bool:
    assert event.pod is not None
    gone = {(port.protocol, port.port) for port in event.pod.pod_class.host_ports}
    return any((port.protocol, port.port) in gone for port in pod.pod_class.host_ports)


def _spread_counts(pod: PodRow, other: PodRow) -> bool:
    return pod.namespace == other.namespace and any(
        selects(each.selector, dict(other.labels)) for each in pod.pod_class.spread if each.hard
    )


def _by_defaults(pod: PodRow) -> bool:
    """Whether only the profile's own constraints can have rejected the pod; they are unknown."""
    return not pod.pod_class.spread


def _spread(pod: PodRow, event: Event, _: Known) -> bool:
    assert event.pod is not None
    if _by_defaults(pod):
        return pod.namespace == event.pod.namespace
    return _spread_counts(pod, event.pod)


def _spread_changed(pod: PodRow, event: Event, _: Known) -> bool:
    assert event.pod is not None and event.pod_before is not None
    if _by_defaults(pod):
        return pod.namespace == event.pod.namespace
    return _spread_counts(pod, event.pod) != _spread_counts(pod, event.pod_before)


def _spread_keys(pod: PodRow, event: Event, _: Known) -> bool:
    assert event.node is not None
    hard = [each.topology_key for each in pod.pod_class.spread if each.hard]
    return all(key in event.node.labels for key in hard)


def _spread_keys_changed(pod: PodRow, event: Event, _: Known) -> bool:
    assert event.node is not None and event.node_before is not None
    now, before = event.node.labels, event.node_before.labels
    if _by_defaults(pod):
        return dict(now) != dict(before)
    hard = [each.topology_key for each in pod.pod_class.spread if each.hard]
    return any(now.get(key) != before.get(key) for key in hard)


def _spread_tolerations(pod: PodRow, event: Event, _: Known) -> bool:
    return any(each.hard and each.honor_taints for each in pod.pod_class.spread)


def _repels(pod: PodRow, other: PodRow, known: Known) -> bool:
    return any(
        term_matches(term, other, known.namespace_labels) for term in pod.pod_class.anti_affinity
    ) or any(
        term_matches(term, pod, known.namespace_labels) for term in other.pod_class.anti_affinity
    )


def _anti_affinity(pod: PodRow, event: Event, known: Known) -> bool:
    assert event.pod is not None
    return _repels(pod, event.pod, known)


def _affinity(pod: PodRow, event: Event, known: Known) -> bool:
    assert event.pod is not None
    return affinity_matches(pod, event.pod, known.namespace_labels)


def _affinity_labels(pod: PodRow, event: Event, known: Known) -> bool:
    assert event.pod is not None and event.pod_before is not None
    if affinity_matches(pod, event.pod, known.namespace_labels) and not affinity_matches(
        pod, event.pod_before, known.namespace_labels
    ):
        return True
    repelled = _repels(pod, event.pod_before, known)
    return repelled and not _repels(pod, event.pod, known)


def _affinity_node(pod: PodRow, event: Event, _: Known) -> bool:
    assert event.node is not None
    # Without affinity of its own it can only be anti-affinity that keeps the pod away.
    if pod.pod_class.anti_affinity or not pod.pod_class.affinity:
        return True
    return any(term.topology_key in event.node.labels for term in pod.pod_class.affinity)


def _affinity_node_labels(pod: PodRow, event: Event, _: Known) -> bool:
    assert event.node is not None and event.node_before is not None
    now, before = event.node.labels, event.node_before.labels

    def changed(terms: Sequence[AffinityTerm], there: Mapping[str, str]) -> bool:
        keys = (term.topology_key for term in terms)
        return any(key in there and now.get(key) != before.get(key) for key in keys)

    if changed(pod.pod_class.affinity, now) or changed(pod.pod_class.anti_affinity, before):
        return True
    # Anti-affinity of others keeps the pod away too, by keys that this event does not know.
    return dict(now) != dict(before) if not pod.pod_class.affinity else False


def _disks(pod: PodRow, event: Event, _: Known) -> bool:
    assert event.pod is not None
    ours, gone = pod.pod_class, event.pod.pod_class
    disks = {(disk.kind, disk.identity) for disk in gone.disks}
    if any((disk.kind, disk.identity) in disks for disk in ours.disks):
        return True
    claims = {claim_name(use, event.pod.name) for use in gone.volumes}
    same = pod.namespace == event.pod.namespace
    return same and any(claim_name(use, pod.name) in claims for use in ours.volumes)


def _had_claims(pod: PodRow, event: Event, _: Known) -> bool:
    return event.pod is not None and bool(event.pod.pod_class.volumes)


def _scaled_down(pod: PodRow, event: Event, _: Known) -> bool:
    assert event.pod is not None and event.pod_before is not None
    now = dict(event.pod.pod_class.requests)
    before = dict(event.pod_before.pod_class.requests)
    return any(
        amount > 0 and now.get(name, 0) < before.get(name, 0)
        for name, amount in pod.pod_class.requests
    )


def _covers_unschedulable(pod: PodRow, event: Event, _: Known) -> bool:
    return any(
        each.effect in ("", "NoSchedule")
        and (
            (each.operator == "Exists" and each.key in ("", _UNSCHEDULABLE_TAINT))
            or (each.key == _UNSCHEDULABLE_TAINT and each.value == "")
        )
        for each in pod.pod_class.tolerations
    )


def _by_devices(name: str, node: NodeRow, known: Known) -> bool:
    """Whether the node leaves a resource, of which it offers nothing itself, to its devices."""
    return node.allocatable.get(name, 0) <= 0 and _stands_in(name, known) != ""


def _stands_in(name: str, known: Known) -> str:
    return known.device_class(name) if "/" in name else ""


def _fits_empty(pod: PodRow, node: NodeRow, known: Known) -> bool:
    return all(
        amount <= node.allocatable.get(name, 0) or _by_devices(name, node, known)
        for name, amount in pod.pod_class.requests
        if amount > 0
    )


def _fits(pod: PodRow, event: Event, known: Known) -> bool:
    assert event.node is not None
    return _fits_empty(pod, event.node, known)


def _grew(pod: PodRow, event: Event, known: Known) -> bool:
    assert event.node is not None and event.node_before is not None
    if not _fits_empty(pod, event.node, known):
        return False
    now, before = event.node.allocatable, event.node_before.allocatable
    asked = [name for name, amount in pod.pod_class.requests if amount > 0]
    return any(now.get(name, 0) > before.get(name, 0) for name in ("pods", *asked)) or any(
        _by_devices(name, event.node, known) for name in asked
    )


def _node_affinity(pod: PodRow, event: Event, _: Known) -> bool:
    assert event.node is not None
    return node_passes(pod.pod_class, event.node)


def _node_affinity_now(pod: PodRow, event: Event, _: Known) -> bool:
    assert event.node is not None and event.node_before is not None
    passes = node_passes(pod.pod_class, event.node)
    return passes and not node_passes(pod.pod_class, event.node_before)


def _tolerates(pod: PodRow, event: Event, _: Known) -> bool:
    assert event.node is not None
    return tolerated(event.node.taints, pod.pod_class.tolerations)


def _tolerates_now(pod: PodRow, event: Event, _: Known) -> bool:
    assert event.node is not None and event.node_before is not None
    tolerations = pod.pod_class.tolerations
    passes = tolerated(event.node.taints, tolerations)
    return passes and not tolerated(event.node_before.taints, tolerations)


def _schedulable(pod: PodRow, event: Event, known: Known) -> bool:
    assert event.node is not None
    return not event.node.unschedulable or _covers_unschedulable(pod, event, known)


def _schedulable_now(pod: PodRow, event: Event, known: Known) -> bool:
    assert event.node is not None and event.node_before is not None
    return event.node_before.unschedulable and _schedulable(pod, event, known)


def _features(pod: PodRow, event: Event, _: Known) -> bool:
    assert event.node is not None
    return event.node.features.issuperset(pod.pod_class.features)


def _own_volume(pod: PodRow, event: Event, _: Known) -> bool:
    if event.kind is Kind.CLAIM:
        ours = event.namespace == pod.namespace
        wanted = (claim_name(use, pod.name) for use in pod.pod_class.volumes)
        return ours and event.name in wanted
    return event.kind in _VOLUME_KINDS


def _device(pod: PodRow, event: Event, _: Known) -> bool:
    if event.kind is Kind.RESOURCE_CLAIM:
        ours = event.namespace == pod.namespace
        return event.freed or (ours and any(name == event.name for _, name in pod.claims))
    return event.kind in (Kind.RESOURCE_SLICE, Kind.DEVICE_CLASS)


def _asks_for_class(pod: PodRow, event: Event, known: Known) -> bool:
    return event.kind is Kind.DEVICE_CLASS and any(
        amount > 0 and _stands_in(name, known) == event.name
        for name, amount in pod.pod_class.requests
    )


_VOLUME_KINDS: Final = frozenset(
    {
        Kind.VOLUME,
        Kind.STORAGE_CLASS,
        Kind.CSI_NODE,
        Kind.CSI_DRIVER,
        Kind.CSI_CAPACITY,
        Kind.ATTACHMENT,
    }
)
F = FilterName

#: For each event, the plugins that are queried and their test.
ASKED: Final[Mapping[Happening, Mapping[str, _Test]]] = MappingProxyType(
    {
        Happening.POD_DELETED: {
            F.NODE_RESOURCES_FIT: _any,
            F.NODE_PORTS: _shares_port,
            F.POD_TOPOLOGY_SPREAD: _spread,
            F.INTER_POD_AFFINITY: _anti_affinity,
            F.VOLUME_RESTRICTIONS: _disks,
            F.NODE_VOLUME_LIMITS: _had_claims,
        },
        Happening.POD_ADDED: {
            GANG: _same_group,
            F.POD_TOPOLOGY_SPREAD: _spread,
            F.INTER_POD_AFFINITY: _affinity,
        },
        Happening.POD_LABELS: {
            F.POD_TOPOLOGY_SPREAD: _spread_changed,
            F.INTER_POD_AFFINITY: _affinity_labels,
        },
        Happening.POD_SCALED_DOWN: {F.NODE_RESOURCES_FIT: _scaled_down},
        Happening.PENDING_ADDED: {GANG: _same_group},
        Happening.OWN_LABELS: {
            F.POD_TOPOLOGY_SPREAD: _spread_changed,
            F.INTER_POD_AFFINITY: _any,
        },
        Happening.OWN_TOLERATIONS: {
            F.TAINT_TOLERATION: _any,
            F.NODE_UNSCHEDULABLE: _covers_unschedulable,
            F.POD_TOPOLOGY_SPREAD: _spread_tolerations,
        },
        Happening.OWN_GATES: {GATES: _any},
        Happening.OWN_REQUESTS: {F.NODE_RESOURCES_FIT: _any},
        Happening.OWN_CLAIM: {F.DYNAMIC_RESOURCES: _any},
        Happening.NODE_ADDED: {
            F.NODE_NAME: _any,
            F.NODE_PORTS: _any,
            F.VOLUME_BINDING: _any,
            F.VOLUME_ZONE: _any,
            F.VOLUME_RESTRICTIONS: _any,
            F.DYNAMIC_RESOURCES: _any,
            F.NODE_AFFINITY: _node_affinity,
            F.TAINT_TOLERATION: _tolerates,
            F.NODE_UNSCHEDULABLE: _schedulable,
            F.NODE_RESOURCES_FIT: _fits,
            F.NODE_DECLARED_FEATURES: _features,
            F.POD_TOPOLOGY_SPREAD: _spread_keys,
            F.INTER_POD_AFFINITY: _affinity_node,
        },
        Happening.NODE_LABELS: {
            F.NODE_AFFINITY: _node_affinity_now,
            F.POD_TOPOLOGY_SPREAD: _spread_keys_changed,
            F.INTER_POD_AFFINITY: _affinity_node_labels,
            F.VOLUME_BINDING: _any,
            F.VOLUME_ZONE: _any,
            F.DYNAMIC_RESOURCES: _any,
        },
        Happening.NODE_TAINTS: {
            F.TAINT_TOLERATION: _tolerates_now,
            F.NODE_UNSCHEDULABLE: _schedulable_now,
            F.POD_TOPOLOGY_SPREAD: _spread_keys,
        },
        Happening.NODE_ALLOCATABLE: {
            F.NODE_RESOURCES_FIT: _grew,
            F.DYNAMIC_RESOURCES: _any,
        },
        Happening.NODE_DELETED: {F.POD_TOPOLOGY_SPREAD: _spread_keys},
        Happening.GROUP_ADDED: {GANG: _same_group},
        Happening.GROUP_LOWERED: {GANG: _same_group},
        Happening.OBJECT: {
            F.NODE_RESOURCES_FIT: _asks_for_class,
            F.VOLUME_BINDING: _own_volume,
            F.VOLUME_ZONE: _own_volume,
            F.VOLUME_RESTRICTIONS: _own_volume,
            F.NODE_VOLUME_LIMITS: _own_volume,
            F.DYNAMIC_RESOURCES: _device,
        },
    }
)
