"""What follows from a node's Ready condition: taints, pods that are not ready, evictions.

Source: the node lifecycle and taint eviction controllers. A node that is not ready (or of which
nothing is known) gets the taints `node.kubernetes.io/not-ready` (`unreachable`) with NoSchedule and
NoExecute; its pods' Ready condition becomes false. A pod that does not tolerate a NoExecute taint
of its node is deleted at once, one that tolerates it for a time when the shortest of these times is
over. A node that has a Lease and renews it no more becomes Unknown. Not imitated: the rate of
evictions.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any, Final

from kubelocal.machines.events import Recorder
from kubelocal.machines.informer import Informer, Key, key_of
from kubelocal.machines.objects import Change, ChangeType, Object
from kubeworld.controllers import pod_statuses
from kubeworld.objects.conditions import condition, set_condition
from kubeworld.objects.pods import is_ready
from kubeworld.objects.selectors import tolerates_one
from kubeworld.units.clock import Clock
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import format_instant, parse_instant

__all__ = ["NodeLifecycle", "TaintEviction"]

_TAINTS: Final = {
    "False": "node.kubernetes.io/not-ready",
    "Unknown": "node.kubernetes.io/unreachable",
}
_LEASES: Final = "leases.coordination.k8s.io"
_LEASE_NAMESPACE: Final = "kube-node-lease"
_GRACE: Final = 40 * SECOND
_LOOKS: Final = 20 * SECOND
_REASON_SILENT: Final = "NodeStatusUnknown"
_SILENT: Final = "Kubelet stopped posting node status."
_REASON: Final = "DeletionByTaintManager"
_MESSAGE: Final = "Taint manager: deleting due to NoExecute taint"


class NodeLifecycle:
    """Keeps the taints of every node, and the readiness of its pods, as its condition has it."""

    name = "node-lifecycle"

    def __init__(self, informer: Informer, clock: Clock) -> None:
        self._informer = informer
        self._clock = clock
        # node -> its last sign of life, and when (monotonic) that was first seen.
        self._seen: dict[str, tuple[tuple[str | None, str], int]] = {}

    def concerns(self, change: Change, before: Object | None) -> Iterable[str]:
        if change.resource != "nodes":
            return []
        if change.type is ChangeType.DELETED:
            self._seen.pop(change.object["metadata"]["name"], None)
            return []
        return [change.object["metadata"]["name"]]

    async def reconcile(self, name: str) -> int | None:
        node = self._informer.get("nodes", "", name)
        if node is None:
            return None
        again = await self._judge(name, node)
        await self._follow(name, self._informer.get("nodes", "", name) or node)
        return again

    async def _judge(self, name: str, node: Object) -> int | None:
        """Make a node Unknown whose Lease stands still; one without a Lease is left as it is."""
        lease = await self._informer.objects.get(_LEASES, _LEASE_NAMESPACE, name)
        ready, now = condition(node, "Ready") or {}, self._clock.monotonic()
        renewed = None if lease is None else str(lease["spec"].get("renewTime"))
        sign = renewed, str(ready.get("lastHeartbeatTime"))
        last, since = self._seen.get(name, (None, now))
        if sign != last:
            self._seen[name], since = (sign, now), now
        if now - since < _GRACE:
            return _LOOKS
        if lease is None:
            return None  # no kubelet gives it one
        if ready.get("status") == "Unknown":
            return _LOOKS
        status = copy.deepcopy(node.get("status") or {})
        wall = format_instant(self._clock.wall())
        kinds = [one["type"] for one in status.get("conditions") or ()] or ["Ready"]
        for kind in kinds:
            set_condition(status, kind, None, wall, reason=_REASON_SILENT, message=_SILENT)
        await self._informer.update("nodes", {**node, "status": status}, subresource="status")
        return _LOOKS

    async def _follow(self, name: str, node: Object) -> None:
        ready = condition(node, "Ready")
        wanted = _TAINTS.get(ready["status"], "") if ready else ""
        now = format_instant(self._clock.wall())
        taints = (node.get("spec") or {}).get("taints") or []
        kept = [t for t in taints if t.get("key") not in _TAINTS.values() or t["key"] == wanted]
        if wanted and not any(t["key"] == wanted for t in kept):
            kept += [
                {"key": wanted, "effect": effect, "timeAdded": now}
                for effect in ("NoSchedule", "NoExecute")
            ]
        if kept != taints:
            spec = {**(node.get("spec") or {}), "taints": kept}
            await self._informer.update("nodes", {**node, "spec": spec})
        for pod in self._informer.on_node(name) if wanted else ():
            if is_ready(pod):
                status = pod_statuses.set_ready(pod, False, now)
                await self._informer.update("pods", {**pod, "status": status}, subresource="status")


class TaintEviction:
    """Deletes pods that do not tolerate a NoExecute taint of their node, or not any longer."""

    name = "taint-eviction"

    def __init__(self, informer: Informer, clock: Clock, recorder: Recorder) -> None:
        self._informer = informer
        self._clock = clock
        self._recorder = recorder

    def concerns(self, change: Change, before: Object | None) -> Iterable[Key]:
        if change.type is ChangeType.DELETED:
            return []
        if change.resource == "nodes":
            if before is not None and _no_execute(before) == _no_execute(change.object):
                return []
            pods = self._informer.on_node(change.object["metadata"]["name"])
            return [key_of("pods", pod) for pod in pods]
        if change.resource == "pods" and self._taints(change.object):
            return [key_of("pods", change.object)]
        return []

    async def reconcile(self, key: Key) -> int | None:
        pod = self._informer.at(key)
        if pod is None or pod["metadata"].get("deletionTimestamp"):
            return None
        rests = [self._rest(pod, taint) for taint in self._taints(pod)]
        rest = min((r for r in rests if r is not None), default=None)
        if rest is None or rest > 0:
            return rest
        now = format_instant(self._clock.wall())
        status = pod_statuses.disrupted(pod, _REASON, _MESSAGE, now)
        pod = await self._informer.update("pods", {**pod, "status": status}, subresource="status")
        text = f"Marking for deletion Pod {key.namespace}/{key.name}"
        self._recorder.normal(pod, "TaintManagerEviction", text)
        await self._informer.delete("pods", pod)
        return None

    def _taints(self, pod: Object) -> list[dict[str, Any]]:
        node = self._informer.get("nodes", "", pod["spec"].get("nodeName") or "")
        return [] if node is None else _no_execute(node)

    def _rest(self, pod: Object, taint: dict[str, Any]) -> int | None:
        """Return the nanoseconds until the pod no longer tolerates the taint, None for never."""
        tolerations = pod["spec"].get("tolerations") or ()
        matching = [t for t in tolerations if tolerates_one(t, taint)]
        if not matching:
            return 0
        seconds = [int(t["tolerationSeconds"]) for t in matching if "tolerationSeconds" in t]
        if not seconds:
            return None
        since = parse_instant(taint["timeAdded"]) if "timeAdded" in taint else self._clock.wall()
        return since + max(0, min(seconds)) * SECOND - self._clock.wall()


def _no_execute(node: Object) -> list[dict[str, Any]]:
    taints = (node.get("spec") or {}).get("taints") or ()
    return [taint for taint in taints if taint.get("effect") == "NoExecute"]
