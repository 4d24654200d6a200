"""What admission sets on pods: node labels and tolerations of flavors, and requests of checks.

Source: specification of the quota plane, section 10.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from kubeworld.objects.paths import Json
from kubeworld.units.names import DNS_LABEL, LONGEST_LABEL
from kubeworld.units.untrusted import Form
from reprieve.api.kueue import TopologyRequest, Workload
from reprieve.api.kueue_topology import UNCONSTRAINED
from reprieve.jobs.pods import TOPOLOGY_GATE
from reprieve.jobs.writing import WORKLOAD, Conflicting, Injection
from reprieve.planes.quota.watches import Watches

__all__ = ["POD_SET", "injections", "mark_of"]

#: Label of pods: the pod set that they are of.
POD_SET: Final = "kueue.x-k8s.io/podset"
_LOCAL_QUEUE: Final = "kueue.x-k8s.io/local-queue-name"
_CLUSTER_QUEUE: Final = "kueue.x-k8s.io/cluster-queue-name"
# Names may be longer than values of labels, and the reference gives the ClusterQueue's only where
# it is a DNS label.
_VALUE: Final = Form(r"[^/]++", LONGEST_LABEL)


def injections(watches: Watches, workload: Workload) -> Mapping[str, Injection]:
    """Return what the pods of an admitted Workload get, by name of the pod set.

    Raises:
        Conflicting: a check requests what a flavor, or another check, states otherwise.
    """
    admission = workload.status.admission
    assert admission is not None
    updates: dict[str, list[Mapping[str, Any]]] = {}
    for check in workload.status.admission_checks or ():
        for update in check.pod_set_updates or ():
            updates.setdefault(update["name"], []).append(update)
    queues = {}
    for label, name, form in (
        (_LOCAL_QUEUE, workload.spec.queue_name, _VALUE),
        (_CLUSTER_QUEUE, admission.cluster_queue, DNS_LABEL),
    ):
        if form.fullmatch(name):
            queues[label] = name
    asking = {each.name for each in workload.spec.pod_sets if _asks(each.topology_request)}
    reported = {}
    for assigned in admission.pod_set_assignments:
        selector: dict[str, str] = {}
        tolerations: list[Json] = []
        labels = {POD_SET: assigned.name, **queues}
        annotations = {WORKLOAD: workload.metadata.name}
        for flavor in dict.fromkeys((assigned.flavors or {}).values()):
            held = watches.flavors.cache.named("", flavor)
            if held is not None:
                selector.update(held.object.spec.node_labels or {})
                tolerations += [_given(t) for t in held.object.spec.tolerations or ()]
        for asked in updates.get(assigned.name, ()):
            for name, into in (
                ("annotations", annotations),
                ("labels", labels),
                ("nodeSelector", selector),
            ):
                _merge(name, into, asked.get(name) or {})
            tolerations += list(asked.get("tolerations") or ())
        gates: tuple[str, ...] = ()
        if assigned.topology_assignment is not None:
            gates = (TOPOLOGY_GATE,)
            if assigned.name not in asking:
                annotations.setdefault(UNCONSTRAINED, "true")
        reported[assigned.name] = Injection(
            assigned.count, selector, tolerations, labels, annotations, gates
        )
    return reported


def mark_of(workload: Workload) -> tuple[str, str]:
    """Return a label of all pods that the Workload's admission marked, and its value if it has one.

    Pods of other Workloads may have it, too; their annotation names another Workload.
    """
    queue = workload.spec.queue_name
    return (_LOCAL_QUEUE, queue) if _VALUE.fullmatch(queue) else (POD_SET, "")


def _asks(request: TopologyRequest | None) -> bool:
    """Return whether the pods' own annotations state already that a topology places them."""
    return request is not None and (
        bool(request.required or request.preferred) or request.unconstrained is not None
    )


def _merge(name: str, into: dict[str, str], asked: Mapping[str, str]) -> None:
    for key, value in asked.items():
        if into.setdefault(key, value) != value:
            raise Conflicting(
                f"invalid admission check PodSetUpdate: conflict for {name}: "
                f"conflict for key={key}, value1={into[key]}, value2={value}"
            )


def _given(toleration: Any) -> Json:
    found: Json = msgspec.to_builtins(toleration)
    return {**found, "operator": toleration.operator or "Equal"}
