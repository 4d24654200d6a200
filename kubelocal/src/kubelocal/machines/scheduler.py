"""A small scheduler for clusters without another: one pod at a time, no preemption, few filters.

Schedules every pod without a node, without scheduling gates and with the scheduler name
`default-scheduler`; order: (1) higher priority, (2) earlier creation, (3) earlier arrival,
(4) namespace and name. Among the nodes that accept the pod: (1) the larger free share of cpu and
memory, (2) the name. A pod that no node accepts is tried again when a pod was deleted or a node
changed.
"""

from __future__ import annotations

import copy
from bisect import insort
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from kubelocal.machines.events import EventLog, Recorder
from kubelocal.machines.feasibility import NodeState, reject
from kubelocal.machines.informer import Informer, Key, key_of
from kubelocal.machines.objects import Change, ChangeType, Object, StoreError
from kubeworld.objects.conditions import set_condition
from kubeworld.objects.pods import is_over
from kubeworld.objects.requests import pod_requests
from kubeworld.units.clock import Clock
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import format_instant

__all__ = ["SCHEDULER_NAME", "Scheduler", "with_scheduler"]

SCHEDULER_NAME: Final = "default-scheduler"
_QUEUE: Final = "queue"
_RETRY: Final = SECOND


class _Placed(NamedTuple):
    node: str
    requests: dict[str, int]


class Scheduler:
    """Binds pending pods to nodes."""

    name = "scheduler"

    def __init__(self, informer: Informer, clock: Clock, recorder: Recorder) -> None:
        self._informer = informer
        self._clock = clock
        self._recorder = recorder
        self._nodes: dict[str, NodeState] = {}
        self._names: list[str] = []  # those in `_nodes`, sorted
        # uid -> where its capacity is used, for all and only pods with a node that have not
        # finished; every row is in `used` of its node when the node is known.
        self._placed: dict[str, _Placed] = {}
        # uid -> (order of arrival, key), for all and only the pods that wait for a node.
        self._waiting: dict[str, tuple[int, Key]] = {}
        # Waiting pods that no node accepted; tried again when capacity has changed.
        self._rejected: set[str] = set()
        self._arrivals = 0

    def concerns(self, change: Change, before: Object | None) -> Iterable[str]:
        if change.resource == "nodes":
            return [_QUEUE] if self._observe_node(change, before) else []
        if change.resource == "pods":
            return [_QUEUE] if self._observe_pod(change, before) else []
        return []

    async def reconcile(self, key: str) -> int | None:
        """Try the waiting pods that have not been rejected since capacity changed."""
        again = None
        for uid in self._order():
            if uid not in self._waiting or uid in self._rejected:
                continue
            pod_key = self._waiting[uid][1]
            pod = self._informer.at(pod_key)
            if pod is None:
                continue
            try:
                await self._try(pod)
            except StoreError:
                await self._informer.refresh(pod_key)
                again = _RETRY
        return again

    def _order(self) -> list[str]:
        """Return the uids of waiting pods in the order of the module's docstring."""

        def criteria(uid: str) -> tuple[int, str, int, Key]:
            arrival, key = self._waiting[uid]
            pod = self._informer.at(key)
            assert pod is not None
            created = pod["metadata"].get("creationTimestamp", "")
            return -(pod["spec"].get("priority") or 0), created, arrival, key

        return sorted((u for u in self._waiting if u not in self._rejected), key=criteria)

    async def _try(self, pod: Object) -> None:
        requests = pod_requests(pod)
        best: tuple[float, str] | None = None
        for name in self._names:
            state = self._nodes[name]
            if reject(pod, requests, state) is None:
                score = (-free_share(requests, state), name)
                best = score if best is None else min(best, score)
        if best is not None:
            await self._informer.bind(pod, best[1])
            where = f"{pod['metadata']['namespace']}/{pod['metadata']['name']} to {best[1]}"
            self._recorder.normal(pod, "Scheduled", f"Successfully assigned {where}")
            return
        self._rejected.add(pod["metadata"]["uid"])
        updated = copy.deepcopy(pod)
        status = updated.setdefault("status", {})
        now = format_instant(self._clock.wall())
        message = f"0/{len(self._names)} nodes are available"
        set_condition(status, "PodScheduled", False, now, reason="Unschedulable", message=message)
        if status != pod.get("status"):
            await self._informer.update("pods", updated, subresource="status")
            self._recorder.warning(pod, "FailedScheduling", message)

    def _observe_node(self, change: Change, before: Object | None) -> bool:
        name = change.object["metadata"]["name"]
        if change.type is ChangeType.DELETED:
            if self._nodes.pop(name, None) is not None:
                self._names.remove(name)
        else:
            state = NodeState(change.object)
            known = self._nodes.get(name)
            if known is not None and before is not None:
                state.used = known.used
                old = NodeState(before)
                if state.allocatable == old.allocatable and _placing(change.object) == _placing(
                    before
                ):
                    self._nodes[name] = state
                    return False
            else:
                for pod in self._informer.on_node(name):
                    placed = self._placed.get(pod["metadata"]["uid"])
                    if placed is not None:
                        _add(state, placed, 1)
            if name not in self._nodes:
                insort(self._names, name)
            self._nodes[name] = state
        self._rejected.clear()
        return bool(self._waiting)

    def _observe_pod(self, change: Change, before: Object | None) -> bool:
        pod, uid = change.object, change.object["metadata"]["uid"]
        gone = change.type is ChangeType.DELETED
        was = self._placed.pop(uid, None)
        if was is not None and was.node in self._nodes:
            _add(self._nodes[was.node], was, -1)
        node = pod["spec"].get("nodeName")
        finished = is_over(pod)
        if node and not gone and not finished:
            same = was is not None and before is not None and before["spec"] == pod["spec"]
            requests = was.requests if was is not None and same else pod_requests(pod)
            placed = self._placed[uid] = _Placed(node, requests)
            if node in self._nodes:
                _add(self._nodes[node], placed, 1)
        elif was is not None:
            self._rejected.clear()
        if not gone and not node and not finished and _is_ours(pod):
            if uid not in self._waiting:
                self._arrivals += 1
                self._waiting[uid] = (self._arrivals, key_of("pods", pod))
        else:
            self._waiting.pop(uid, None)
            self._rejected.discard(uid)
        return len(self._rejected) < len(self._waiting)


def _is_ours(pod: Object) -> bool:
    spec = pod["spec"]
    return (
        (spec.get("schedulerName") or SCHEDULER_NAME) == SCHEDULER_NAME
        and not spec.get("schedulingGates")
        and not pod["metadata"].get("deletionTimestamp")
    )


def _placing(node: Object) -> tuple[object, ...]:
    spec = node.get("spec") or {}
    return spec.get("unschedulable"), spec.get("taints"), node["metadata"].get("labels")


def _add(state: NodeState, placed: _Placed, sign: int) -> None:
    for name, amount in placed.requests.items():
        state.used[name] += sign * amount
    state.used["pods"] += sign


def free_share(requests: Mapping[str, int], state: NodeState) -> float:
    """Return how empty the node would be with the pod on it: the mean free share, 0 to 1.

    Counted over cpu and memory, the names that kube-scheduler's least-allocated score counts.
    """
    total, counted = 0.0, 0
    for name in ("cpu", "memory"):
        allocatable = state.allocatable.get(name, 0)
        if allocatable:
            total += (allocatable - state.used[name] - requests.get(name, 0)) / allocatable
            counted += 1
    return total / counted if counted else 0.0


def with_scheduler(informer: Informer, clock: Clock, events: EventLog) -> Scheduler:
    """Make the scheduler, as one more of the machines."""
    return Scheduler(informer, clock, Recorder(events, SCHEDULER_NAME))
