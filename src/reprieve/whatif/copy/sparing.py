"""Without preemption: the same submission on the same cluster, with preemption switched off.

1. Pods and groups that are submitted, and pods of submitted templates, get `preemptionPolicy:
   Never`.
2. Every ClusterQueue preempts no work, neither its own work nor that of its cohort. That is set
   after the cluster has come to rest, so that what was there has preempted what it may preempt.

Source: the API's `preemptionPolicy`; specification of the quota plane, section 6.
"""

from __future__ import annotations

from typing import Any, Final

from reprieve.kube.bodies import Json
from reprieve.whatif.copy.overlay import Overlay

__all__ = ["preempting_nobody", "stop_preempting"]

_QUEUES: Final = ("kueue.x-k8s.io", "clusterqueues")
_NEVER: Final = {
    "withinClusterQueue": "Never",
    "reclaimWithinCohort": "Never",
    "borrowWithinCohort": {"policy": "Never"},
}


def preempting_nobody(obj: Json) -> Json:
    """Return the object with every pod in it, and a group itself, preempting nothing."""
    found: Json = _spared(obj)
    if obj["kind"] == "PodGroup":
        found = {**found, "spec": {**(found.get("spec") or {}), "preemptionPolicy": "Never"}}
    return found


def stop_preempting(overlay: Overlay) -> None:
    """Stop all ClusterQueues from preempting."""
    resource = overlay.table(*_QUEUES)
    if resource is None:
        return
    for queue in list(overlay.all(resource)):
        overlay.change(resource, {**queue, "spec": {**queue["spec"], "preemption": _NEVER}})


def _spared(value: Any) -> Any:
    if isinstance(value, list):
        return [_spared(each) for each in value]
    if not isinstance(value, dict):
        return value
    found = {name: _spared(each) for name, each in value.items()}
    if isinstance(value.get("containers"), list):
        found["preemptionPolicy"] = "Never"
    return found
