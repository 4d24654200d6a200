"""What a cluster with Kueue, or our quota plane, has run: its Workloads, as kubectl lists them.

`kubectl get workloads.kueue.x-k8s.io -A -o json` writes such a file. Of each Workload its creation
is the arrival, the devices of its admission are those that it held (extended resources, all kinds
together), and its length is from when it was admitted last to its end. The ClusterQueue is the
tenant, `spec.priority` the priority. Workloads that never got quota, or have not finished, or ended
otherwise than by finishing, are left out and reported; places are counted in the list from 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kubeworld.units.quantities import parse_quantity
from kubeworld.units.untrusted import INT32, LONGEST_NAME, Unreadable, bounded, shown
from reprieve.engine.lost_work import devices_of
from reprieve.simulation.readers.columns import gathered, instant, whole
from reprieve.simulation.readers.lines import MOST_DEVICES, json_of
from reprieve.simulation.trace import Job, Trace
from reprieve.units.errors import UsageError

__all__ = ["read_kueue", "workload_jobs"]

_ACCEPTED = "what kubectl get workloads.kueue.x-k8s.io -A -o json prints"


def read_kueue(path: Path, name: str) -> Trace:
    """Return the trace of a file.

    Raises:
        UsageError: it cannot be read, or is no list of Workloads.
    """
    document = json_of(path, _ACCEPTED)
    items = document.get("items") if isinstance(document, Mapping) else None
    if not isinstance(items, list):
        raise UsageError(f"{path}: no list; accepted: {_ACCEPTED}")
    return workload_jobs(name, items)


def workload_jobs(name: str, items: Sequence[object]) -> Trace:
    """Return the trace of Workloads; what is left out is named by its place, from 1 on."""

    def made(_line: str, number: int) -> Job | None:
        return _job(_mapping(items[number - 1], "the Workload"))

    return gathered(name, ((place, "job") for place in range(1, len(items) + 1)), made)


def _job(said: Mapping[str, Any]) -> Job | None:
    if said.get("kind") != "Workload":
        raise Unreadable(f"a {bounded(str(said.get('kind')))}, no Workload")
    metadata, spec = _mapping(said.get("metadata"), "metadata"), _mapping(said.get("spec"), "spec")
    status = _mapping(said.get("status") or {}, "status")
    true = {
        str(each.get("type")): str(each.get("lastTransitionTime"))
        for each in map(_condition, _list(status.get("conditions"), "conditions"))
        if each.get("status") == "True"
    }
    if "admission" not in status or "Admitted" not in true:
        raise Unreadable("it never got quota, or has it no more")
    if "Finished" not in true:
        raise Unreadable("it has not finished")
    admission = _mapping(status["admission"], "admission")
    wide = sum(_devices(admission))
    if not 0 <= wide <= MOST_DEVICES:
        raise Unreadable(f"devices: {shown(wide)}; accepted: 0 to {MOST_DEVICES}")
    if not wide:
        return None
    ended = instant(true["Finished"], "Finished")
    priority = spec.get("priority")
    if priority is not None and not (type(priority) is int and INT32[0] <= priority <= INT32[1]):
        raise Unreadable(
            f"priority {shown(priority)}; accepted: an integer from {INT32[0]} to {INT32[1]}"
        )
    return Job(
        id=bounded(f"{metadata.get('namespace')}/{metadata.get('name')}", LONGEST_NAME),
        arrival=instant(str(metadata.get("creationTimestamp")), "creationTimestamp"),
        devices=wide,
        duration=whole(ended - instant(true["Admitted"], "Admitted")),
        tenant=bounded(str(admission.get("clusterQueue") or ""), LONGEST_NAME),
        priority=priority,
    )


def _devices(admission: Mapping[str, Any]) -> Iterator[int]:
    for assigned in _list(admission.get("podSetAssignments"), "podSetAssignments"):
        usage = _mapping(_mapping(assigned, "a pod set").get("resourceUsage") or {}, "usage")
        amounts = {name: parse_quantity(str(amount)) for name, amount in usage.items()}
        yield devices_of(amounts.items())


def _condition(given: object) -> Mapping[str, Any]:
    return _mapping(given, "a condition")


def _mapping(given: object, what: str) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise Unreadable(f"{what} is no mapping")
    return given


def _list(given: object, what: str) -> list[Any]:
    if given is not None and not isinstance(given, list):
        raise Unreadable(f"{what} is no list")
    return given or []
