"""What `kubectl get pods` shows of a pod: ready containers, the status word and restarts.

The status word is the phase unless something more specific is known: a reason of the pod, a gate,
the container that holds it up, a deletion under way. Source: the printed forms of a 1.37 server.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kubelocal.server.printing.ages import age
from kubeworld.objects.pods import OVER
from kubeworld.units.instants import Nanos

__all__ = ["pod_ready", "pod_restarts", "pod_status"]

Object = Mapping[str, Any]


@dataclass(slots=True)
class _Restarts:
    count: int = 0
    latest: str = ""

    def add(self, status: Object) -> None:
        self.count += int(status.get("restartCount", 0))
        ended = ((status.get("lastState") or {}).get("terminated") or {}).get("finishedAt") or ""
        self.latest = max(self.latest, ended)


def pod_status(pod: Object) -> str:
    """Return the status word."""
    status = pod.get("status") or {}
    word = status.get("reason") or status.get("phase") or ""
    conditions = {each.get("type"): each for each in status.get("conditions") or ()}
    if (conditions.get("PodScheduled") or {}).get("reason") == "SchedulingGated":
        word = "SchedulingGated"
    word = _initializing(pod) or _by_containers(
        status, word, ready=_is_true(conditions.get("Ready"))
    )
    if pod["metadata"].get("deletionTimestamp"):
        if status.get("reason") == "NodeLost":
            return "Unknown"
        if status.get("phase") not in OVER:
            return "Terminating"
    return str(word)


def _is_true(condition: Object | None) -> bool:
    return condition is not None and condition.get("status") == "True"


def _is_sidecar(container: Object) -> bool:
    return container.get("restartPolicy") == "Always"


def _initializing(pod: Object) -> str:
    """Return the status word of a pod whose init containers are not done, else nothing."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    declared = {each.get("name"): each for each in spec.get("initContainers") or ()}
    for index, container in enumerate(status.get("initContainerStatuses") or ()):
        state = container.get("state") or {}
        ended, waiting = state.get("terminated"), state.get("waiting")
        if ended is not None and ended.get("exitCode", 0) == 0:
            continue
        if _is_sidecar(declared.get(container.get("name"), {})) and container.get("started"):
            continue
        if ended is not None:
            return f"Init:{_ending(ended)}"
        if waiting is not None and waiting.get("reason") not in (None, "", "PodInitializing"):
            return f"Init:{waiting['reason']}"
        return f"Init:{index}/{len(declared)}"
    return ""


def _ending(ended: Object) -> str:
    if ended.get("reason"):
        return str(ended["reason"])
    if ended.get("signal"):
        return f"Signal:{ended['signal']}"
    return f"ExitCode:{ended.get('exitCode', 0)}"


def _by_containers(status: Object, word: str, *, ready: bool) -> str:
    running = False
    # The first container has the last word.
    for container in reversed(status.get("containerStatuses") or ()):
        state = container.get("state") or {}
        waiting, ended = state.get("waiting") or {}, state.get("terminated")
        if waiting.get("reason"):
            word = waiting["reason"]
        elif ended is not None:
            word = _ending(ended)
        elif container.get("ready") and state.get("running") is not None:
            running = True
    if word == "Completed" and running:
        return "Running" if ready else "NotReady"
    return word


def pod_ready(pod: Object) -> str:
    """Ready containers of all that are to be, sidecars among them."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    sidecars = {each.get("name") for each in spec.get("initContainers") or () if _is_sidecar(each)}
    total = len(spec.get("containers") or ()) + len(sidecars)
    ready = sum(
        1
        for each in status.get("containerStatuses") or ()
        if each.get("ready") and (each.get("state") or {}).get("running") is not None
    )
    ready += sum(
        1
        for each in status.get("initContainerStatuses") or ()
        if each.get("name") in sidecars and each.get("ready")
    )
    return f"{ready}/{total}"


def pod_restarts(pod: Object, now: Nanos) -> str:
    """How often containers were started again, and when the last of them had ended."""
    status = pod.get("status") or {}
    restarts = _Restarts()
    sidecars = {
        each.get("name")
        for each in (pod.get("spec") or {}).get("initContainers") or ()
        if _is_sidecar(each)
    }
    initializing = bool(_initializing(pod))
    for each in status.get("initContainerStatuses") or ():
        if initializing or each.get("name") in sidecars:
            restarts.add(each)
    if not initializing:
        for each in status.get("containerStatuses") or ():
            restarts.add(each)
    if restarts.count and restarts.latest:
        return f"{restarts.count} ({age(restarts.latest, now)} ago)"
    return str(restarts.count)
