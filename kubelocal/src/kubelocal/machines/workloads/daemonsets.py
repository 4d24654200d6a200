"""The DaemonSet controller: one pod on every node that accepts it.

Source: `apps/v1` DaemonSets. Each pod is tied to its node by a node affinity, tolerates what a node
agent must, and is bound by the scheduler. RollingUpdate replaces `maxUnavailable` pods of an older
template at a time, OnDelete none. Not imitated: maxSurge, history of revisions.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import Any, Final

from kubelocal.machines.feasibility import NodeState, reject
from kubelocal.machines.informer import Key, key_of
from kubelocal.machines.objects import Change, Object
from kubelocal.machines.workloads.driver import Driver, Rule, Stage
from kubeworld.controllers.acts import Act, Create, Delete, Event, Outcome, Suffix
from kubeworld.controllers.replicas import availability, revision_of, with_status
from kubeworld.objects.owners import child, template_hash
from kubeworld.objects.pods import is_active, is_ready
from kubeworld.units.instants import Nanos
from kubeworld.units.percents import scaled

__all__ = ["DaemonSetController"]

_DAEMON_SETS: Final = "daemonsets.apps"
_NODE_NAME: Final = "metadata.name"
_TOLERATED: Final = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)


class DaemonSetController(Driver):
    """Runs DaemonSets."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(Rule("daemonsets", _DAEMON_SETS, "DaemonSet", "pods", self._step), stage)

    def concerns(self, change: Change, before: Object | None) -> Iterable[Key]:
        if change.resource == "nodes":
            return [key_of(_DAEMON_SETS, owner) for owner in self._informer.all(_DAEMON_SETS)]
        return super().concerns(change, before)

    def _step(self, owner: Object, pods: Sequence[Object], now: Nanos, suffix: Suffix) -> Outcome:
        digest = template_hash(owner["spec"]["template"])
        eligible, staying = self._nodes(owner)
        held: dict[str, Object] = {}
        deleted: list[Object] = []
        for pod in pods:
            node = _node_of(pod)
            if pod["metadata"].get("deletionTimestamp"):
                held.setdefault(node, pod)  # the next one waits until it is deleted
            elif node in staying and is_active(pod) and node not in held:
                held[node] = pod
            else:
                deleted.append(pod)
        made = [_pod(owner, node, digest, suffix) for node in sorted(eligible - held.keys())]
        deleted += _rolled(owner, held, len(eligible), digest)
        acts: list[Act] = []
        for pod in deleted:
            text = f"Deleted pod: {pod['metadata']['name']}"
            acts += [Delete(pod), Event("SuccessfulDelete", text)]
        for pod in made:
            text = f"Created pod: {pod['metadata']['name']}"
            acts += [Create(pod), Event("SuccessfulCreate", text)]
        left = [pod for pod in pods if is_active(pod) and pod not in deleted]
        return _with_status(acts, owner, [*left, *made], eligible, digest, now)

    def _nodes(self, owner: Object) -> tuple[set[str], set[str]]:
        """Return the nodes that accept a pod, and those on which one may stay.

        NoSchedule, a cordon among it, keeps new ones out only.
        """
        pattern = {"spec": _with_tolerations(owner["spec"]["template"]["spec"])}
        eligible, staying = set(), set()
        for node in self._informer.all("nodes"):
            name, spec = node["metadata"]["name"], node.get("spec") or {}
            taints = [t for t in spec.get("taints") or () if t.get("effect") == "NoExecute"]
            if reject(pattern, {}, NodeState(node)) is None:
                eligible.add(name)
            if reject(pattern, {}, NodeState({**node, "spec": {"taints": taints}})) is None:
                staying.add(name)
        return eligible, staying


def _rolled(owner: Object, held: dict[str, Object], count: int, digest: str) -> list[Object]:
    """Return pods of an older template, as far as enough of all `count` pods are ready."""
    strategy = owner["spec"].get("updateStrategy") or {}
    if strategy.get("type") == "OnDelete":
        return []
    most = (strategy.get("rollingUpdate") or {}).get("maxUnavailable", 1)
    ready = sum(is_active(pod) and is_ready(pod) for pod in held.values())
    may_go = max(1, scaled(most, count) or 0) - (count - ready)
    old = [held[node] for node in sorted(held) if revision_of(held[node]) != digest]
    return [pod for pod in old if is_active(pod)][: max(0, may_go)]


def _pod(owner: Object, node: str, digest: str, suffix: Suffix) -> Object:
    stem = f"{owner['metadata']['name']}-"
    template, labels = owner["spec"]["template"], {"controller-revision-hash": digest}
    pod = child(owner, "v1", "Pod", stem + suffix(stem), template, labels=labels)
    pod["spec"] = _with_tolerations(pod["spec"])
    field = {"key": _NODE_NAME, "operator": "In", "values": [node]}
    affinity = pod["spec"].setdefault("affinity", {}).setdefault("nodeAffinity", {})
    required = affinity.setdefault("requiredDuringSchedulingIgnoredDuringExecution", {})
    terms = required.get("nodeSelectorTerms") or [{}]
    required["nodeSelectorTerms"] = [{**term, "matchFields": [field]} for term in terms]
    return pod


def _with_status(
    acts: list[Act],
    owner: Object,
    pods: Sequence[Object],
    eligible: set[str],
    digest: str,
    now: Nanos,
) -> Outcome:
    wanted = [pod for pod in pods if _node_of(pod) in eligible]
    ready, available, again = availability(owner, wanted, now)
    status = {
        "observedGeneration": owner["metadata"].get("generation", 1),
        "currentNumberScheduled": len(wanted),
        "desiredNumberScheduled": len(eligible),
        "numberMisscheduled": len(pods) - len(wanted),
        "numberReady": ready,
        "numberAvailable": available,
        "numberUnavailable": len(eligible) - available,
        "updatedNumberScheduled": sum(revision_of(pod) == digest for pod in wanted),
    }
    return Outcome(with_status(acts, owner, status), again)


def _with_tolerations(spec: dict[str, Any]) -> dict[str, Any]:
    added = [{"key": k, "operator": "Exists", "effect": effect} for k, effect in _TOLERATED]
    return {**copy.deepcopy(spec), "tolerations": [*(spec.get("tolerations") or ()), *added]}


def _node_of(pod: Object) -> str:
    """Return the node to which the pod is tied, bound to it already or not."""
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    for term in required.get("nodeSelectorTerms") or ():
        for field in term.get("matchFields") or ():
            if field.get("key") == _NODE_NAME:
                return str(field["values"][0])
    return str(pod["spec"].get("nodeName") or "")
