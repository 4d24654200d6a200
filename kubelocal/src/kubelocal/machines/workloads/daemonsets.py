"""The DaemonSet controller: one pod on every node that takes it.

Source: `apps/v1` DaemonSets. Each pod is tied to its node by a node affinity, tolerates what a node
agent must, and is bound by the scheduler. RollingUpdate replaces `maxUnavailable` pods of an older
template at a time, OnDelete none. Not imitated: maxSurge, history of revisions.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterable
from typing import Any, Final

from kubelocal.machines.events import Recorder
from kubelocal.machines.feasibility import NodeState, reject
from kubelocal.machines.informer import Informer, Key, key_of
from kubelocal.machines.objects import Change, Object
from kubelocal.machines.workloads.replicas import availability, by_controller, matching, same_status
from kubeworld.objects.owners import child, suffix, template_hash
from kubeworld.objects.pods import is_active, is_ready
from kubeworld.units.clock import Clock
from kubeworld.units.percents import scaled

__all__ = ["DaemonSetController"]

_DAEMON_SETS: Final = "daemonsets.apps"
_HASH: Final = "controller-revision-hash"
_NODE_NAME: Final = "metadata.name"
_TOLERATED: Final = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)


class DaemonSetController:
    """Runs DaemonSets."""

    name = "daemonsets"

    def __init__(
        self, informer: Informer, clock: Clock, recorder: Recorder, generator: random.Random
    ) -> None:
        self._informer = informer
        self._clock = clock
        self._recorder = recorder
        self._generator = generator

    def concerns(self, change: Change, before: Object | None) -> Iterable[Key]:
        if change.resource == "nodes":
            return [key_of(_DAEMON_SETS, owner) for owner in self._informer.all(_DAEMON_SETS)]
        return by_controller(change, _DAEMON_SETS, "DaemonSet", "pods")

    async def reconcile(self, key: Key) -> int | None:
        owner = self._informer.at(key)
        if owner is None or owner["metadata"].get("deletionTimestamp"):
            return None
        digest = template_hash(owner["spec"]["template"])
        eligible, staying = self._nodes(owner)
        held: dict[str, Object] = {}
        for pod in matching(self._informer, owner, "pods"):
            node = _node_of(pod)
            if pod["metadata"].get("deletionTimestamp"):
                held.setdefault(node, pod)  # the next one waits until it has gone
            elif node in staying and is_active(pod) and node not in held:
                held[node] = pod
            else:
                await self._delete(owner, pod)
        for node in sorted(eligible - held.keys()):
            await self._create(owner, node, digest)
        await self._roll(owner, held, len(eligible), digest)
        return await self._report(owner, eligible, digest)

    def _nodes(self, owner: Object) -> tuple[set[str], set[str]]:
        """Return the nodes that take a pod, and those on which one may stay.

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

    async def _roll(self, owner: Object, held: dict[str, Object], count: int, digest: str) -> None:
        """Delete pods of an older template as far as enough of all `count` pods are ready."""
        strategy = owner["spec"].get("updateStrategy") or {}
        if strategy.get("type") == "OnDelete":
            return
        most = (strategy.get("rollingUpdate") or {}).get("maxUnavailable", 1)
        ready = sum(is_active(pod) and is_ready(pod) for pod in held.values())
        may_go = max(1, scaled(most, count) or 0) - (count - ready)
        old = [held[node] for node in sorted(held) if _revision(held[node]) != digest]
        for pod in [pod for pod in old if is_active(pod)][: max(0, may_go)]:
            await self._delete(owner, pod)

    async def _create(self, owner: Object, node: str, digest: str) -> None:
        name = f"{owner['metadata']['name']}-{suffix(self._generator)}"
        template = owner["spec"]["template"]
        pod = child(owner, "v1", "Pod", name, template, labels={_HASH: digest})
        pod["spec"] = _with_tolerations(pod["spec"])
        field = {"key": _NODE_NAME, "operator": "In", "values": [node]}
        affinity = pod["spec"].setdefault("affinity", {}).setdefault("nodeAffinity", {})
        required = affinity.setdefault("requiredDuringSchedulingIgnoredDuringExecution", {})
        terms = required.get("nodeSelectorTerms") or [{}]
        required["nodeSelectorTerms"] = [{**term, "matchFields": [field]} for term in terms]
        await self._informer.create("pods", pod)
        self._recorder.normal(owner, "SuccessfulCreate", f"Created pod: {name}")

    async def _delete(self, owner: Object, pod: Object) -> None:
        await self._informer.delete("pods", pod)
        name = pod["metadata"]["name"]
        self._recorder.normal(owner, "SuccessfulDelete", f"Deleted pod: {name}")

    async def _report(self, owner: Object, eligible: set[str], digest: str) -> int | None:
        pods = [p for p in matching(self._informer, owner, "pods") if is_active(p)]
        wanted = [pod for pod in pods if _node_of(pod) in eligible]
        seconds = int(owner["spec"].get("minReadySeconds") or 0)
        ready, available, again = availability(wanted, seconds, self._clock.wall())
        status: dict[str, Any] = {
            **(owner.get("status") or {}),
            "currentNumberScheduled": len(wanted),
            "desiredNumberScheduled": len(eligible),
            "numberMisscheduled": len(pods) - len(wanted),
            "numberReady": ready,
            "numberAvailable": available,
            "numberUnavailable": len(eligible) - available,
            "updatedNumberScheduled": sum(_revision(pod) == digest for pod in wanted),
            "observedGeneration": owner["metadata"].get("generation", 1),
        }
        if not same_status(owner, status):
            fresh = self._informer.at(key_of(_DAEMON_SETS, owner)) or owner
            await self._informer.update(
                _DAEMON_SETS, {**fresh, "status": status}, subresource="status"
            )
        return again


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


def _revision(pod: Object) -> str:
    return str((pod["metadata"].get("labels") or {}).get(_HASH, ""))
