"""The status that a kubelet writes for a pod at each stage of its life.

Source: `PodStatus` of core/v1 as a kubelet fills it: waiting with ContainerCreating, running and
ready, finished with an exit code. Functions of pod, counts and time; nothing is written here.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any, Final

from kubeworld.controllers.acts import Object
from kubeworld.objects.conditions import set_condition
from kubeworld.units.instants import parse_instant

__all__ = [
    "KILLED",
    "disrupted",
    "evicted",
    "finished",
    "rejected",
    "restarted",
    "running",
    "running_since",
    "set_ready",
    "waiting",
]

KILLED: Final = 143  # 128 + SIGTERM

_Status = dict[str, Any]


def waiting(pod: Object, node_address: str, now: str, reason: str = "ContainerCreating") -> _Status:
    """Return the status of a pod whose containers do not run yet."""
    status = _base(pod, node_address, now)
    status["phase"] = "Pending"
    status["containerStatuses"] = [
        _container(c, None, state={"waiting": {"reason": reason}}, ready=False)
        for c in pod["spec"].get("containers") or ()
    ]
    for kind, value in (("Initialized", True), ("Ready", False), ("ContainersReady", False)):
        _condition(status, pod, kind, value, now, unready="ContainersNotReady")
    return status


def running(pod: Object, node_address: str, now: str) -> _Status:
    """Return the status of a pod whose containers run and are ready."""
    status = _base(pod, node_address, now)
    status["phase"] = "Running"
    address = _address(pod)
    status["podIP"] = address
    status["podIPs"] = [{"ip": address}]
    old = _old_containers(pod)
    inits = pod["spec"].get("initContainers") or ()
    if inits:
        status["initContainerStatuses"] = [
            _container(c, None, state=_init_state(c, now), ready=True) for c in inits
        ]
    status["containerStatuses"] = [
        _container(c, old.get(_name(c)), state={"running": {"startedAt": now}}, ready=True)
        for c in pod["spec"].get("containers") or ()
    ]
    for kind in ("Initialized", "Ready", "ContainersReady"):
        _condition(status, pod, kind, True, now)
    return status


def restarted(pod: Object, exit_code: int, now: str, reason: str = "") -> _Status:
    """Return the status of a running pod whose containers have exited and started again."""

    def again(container: dict[str, Any]) -> dict[str, Any]:
        return {
            **container,
            "restartCount": container.get("restartCount", 0) + 1,
            "lastState": {"terminated": _terminated(container, exit_code, now, reason)},
            "state": {"running": {"startedAt": now}},
        }

    return {**(pod.get("status") or {}), "containerStatuses": _each_container(pod, again)}


def finished(pod: Object, exit_code: int, now: str, reason: str = "") -> _Status:
    """Return the status of a pod whose containers have all ended with this exit code.

    `reason` states why each did, where Completed or Error does not.
    """
    succeeded = exit_code == 0

    def end(container: dict[str, Any]) -> dict[str, Any]:
        return {
            **container,
            "ready": False,
            "started": False,
            "state": {"terminated": _terminated(container, exit_code, now, reason)},
        }

    status = {
        **(pod.get("status") or {}),
        "phase": "Succeeded" if succeeded else "Failed",
        "conditions": [dict(c) for c in (pod.get("status") or {}).get("conditions") or ()],
        "containerStatuses": _each_container(pod, end),
    }
    unready = "PodCompleted" if succeeded else "PodFailed"
    for kind in ("Ready", "ContainersReady"):
        _condition(status, pod, kind, False, now, unready=unready)
    return status


def evicted(pod: Object, now: str) -> _Status:
    """Return the status of a pod that its kubelet has ended, as under node pressure."""
    message = "The node was told to evict the pod."
    status = disrupted(
        {**pod, "status": finished(pod, 137, now)}, "TerminationByKubelet", message, now
    )
    return {**status, "reason": "Evicted", "message": message}


def rejected(pod: Object, reason: str, message: str, now: str) -> _Status:
    """Return the status of a pod that its kubelet does not admit."""
    return {
        **_copied(pod),
        "phase": "Failed",
        "reason": reason,
        "message": f"Pod was rejected: {message}",
        "startTime": (pod.get("status") or {}).get("startTime") or now,
    }


def disrupted(pod: Object, reason: str, message: str, now: str) -> _Status:
    """Return the pod's status with the condition DisruptionTarget."""
    status = _copied(pod)
    set_condition(status, "DisruptionTarget", True, now, reason=reason, message=message)
    return status


def set_ready(pod: Object, value: bool, now: str) -> _Status:
    """Return the pod's status with another Ready condition."""
    status = _copied(pod)
    set_condition(status, "Ready", value, now)
    return status


def running_since(pod: Object) -> int:
    """Return when the pod's containers started last, by its status; 0 when it does not state it."""
    status = pod.get("status") or {}
    containers = status.get("containerStatuses") or ()
    started = [
        instant
        for container in containers
        if (instant := ((container.get("state") or {}).get("running") or {}).get("startedAt"))
    ]
    text = max(started, default=None) or status.get("startTime")
    return parse_instant(text) if text else 0


def _copied(pod: Object) -> _Status:
    old = pod.get("status") or {}
    return {**old, "conditions": [dict(c) for c in old.get("conditions") or ()]}


def _base(pod: Object, node_address: str, now: str) -> _Status:
    old = pod.get("status") or {}
    status: _Status = {
        **_copied(pod),
        **({"hostIP": node_address, "hostIPs": [{"ip": node_address}]} if node_address else {}),
        "startTime": old.get("startTime") or now,
    }
    status.pop("nominatedNodeName", None)
    set_condition(status, "PodReadyToStartContainers", True, now)
    set_condition(status, "PodScheduled", True, now)
    return status


def _condition(
    status: _Status, pod: Object, kind: str, value: bool, now: str, unready: str = ""
) -> None:
    message = ""
    if not value and unready == "ContainersNotReady":
        names = " ".join(_name(c) for c in pod["spec"].get("containers") or ())
        message = f"containers with unready status: [{names}]"
    set_condition(status, kind, value, now, reason="" if value else unready, message=message)


def _container(
    container: dict[str, Any], old: dict[str, Any] | None, *, state: dict[str, Any], ready: bool
) -> dict[str, Any]:
    status = {
        "name": _name(container),
        "image": container.get("image", ""),
        "imageID": "",
        "restartCount": (old or {}).get("restartCount", 0),
        "ready": ready,
        "started": ready,
        "state": state,
        "lastState": (old or {}).get("lastState") or {},
    }
    if ready:
        status["imageID"] = f"simulated/{container.get('image', '')}"
        status["containerID"] = f"simulated://{_name(container)}"
    return status


def _name(container: dict[str, Any]) -> str:
    """Return the name of a container; a plan's unvalidated manifests may have none."""
    return str(container.get("name") or "")


def _init_state(container: dict[str, Any], now: str) -> dict[str, Any]:
    if container.get("restartPolicy") == "Always":
        return {"running": {"startedAt": now}}
    done = {"exitCode": 0, "reason": "Completed", "startedAt": now, "finishedAt": now}
    return {"terminated": done}


def _terminated(container: dict[str, Any], exit_code: int, now: str, reason: str) -> dict[str, Any]:
    started = ((container.get("state") or {}).get("running") or {}).get("startedAt")
    return {
        "exitCode": exit_code,
        "reason": reason or ("Completed" if exit_code == 0 else "Error"),
        "startedAt": started or now,
        "finishedAt": now,
    }


def _old_containers(pod: Object) -> dict[str, dict[str, Any]]:
    return {_name(c): c for c in (pod.get("status") or {}).get("containerStatuses") or ()}


def _each_container(
    pod: Object, change: Callable[[dict[str, Any]], dict[str, Any]]
) -> list[dict[str, Any]]:
    old = _old_containers(pod)
    return [
        change(old.get(_name(c)) or _container(c, None, state={}, ready=False))
        for c in pod["spec"].get("containers") or ()
    ]


def _address(pod: Object) -> str:
    """Return an address made from the uid; two pods may share one."""
    number = zlib.crc32(pod["metadata"]["uid"].encode()) % 65_000 + 2
    return f"10.244.{number // 256}.{number % 256}"
