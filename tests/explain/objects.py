"""Objects as an API server has them, in few words; the present is 14:00 on the day of `NOW`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kubeworld.units.instants import Nanos, format_instant, parse_instant

Json = dict[str, Any]

NOW = parse_instant("2026-11-20T14:00:00Z")
GPU = "nvidia.com/gpu"


def at(minutes: float) -> str:
    """Return the instant so many minutes before the present."""
    return format_instant(Nanos(NOW - round(minutes * 60) * 10**9))


def uid(name: str) -> str:
    """Return a uid of the usual form that is made of the name."""
    digits = name.encode().hex().ljust(32, "0")[-32:]
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def obj(api_version: str, kind: str, name: str, namespace: str = "team", **rest: Any) -> Json:
    """Return any object; `owner`, `labels`, `annotations` and `made` go into its metadata."""
    metadata: Json = {
        "name": name,
        "namespace": namespace,
        "uid": uid(f"{kind}{namespace}{name}"),
        "creationTimestamp": at(rest.pop("made", 30)),
    }
    owner = rest.pop("owner", None)
    if owner is not None:
        metadata["ownerReferences"] = [
            {
                "apiVersion": owner["apiVersion"],
                "kind": owner["kind"],
                "name": owner["metadata"]["name"],
                "uid": owner["metadata"]["uid"],
                "controller": True,
            }
        ]
    for key in ("labels", "annotations", "deletionTimestamp"):
        if key in rest:
            metadata[key] = rest.pop(key)
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **rest}


def condition(
    type: str, status: bool, message: str = "", reason: str = "", minutes: float = 10
) -> Json:
    """Return a condition that changed so many minutes ago."""
    return {
        "type": type,
        "status": "True" if status else "False",
        "reason": reason or type,
        "message": message,
        "lastTransitionTime": at(minutes),
    }


def template(gpus: int = 8, cpu: str = "64", memory: str = "512Gi") -> Json:
    """Return the spec of pods."""
    amounts = {GPU: str(gpus), "cpu": cpu, "memory": memory}
    return {"containers": [{"name": "work", "resources": {"requests": amounts}}]}


def pod(
    name: str,
    node: str = "",
    *,
    phase: str = "",
    gpus: int = 8,
    started: float = 12,
    conditions: Sequence[Json] = (),
    nominated: str = "",
    spec: Mapping[str, Any] | None = None,
    **rest: Any,
) -> Json:
    """Return a pod, running where it has a node."""
    status: Json = {"phase": phase or ("Running" if node else "Pending")}
    if node:
        status["startTime"] = at(started)
    if conditions:
        status["conditions"] = list(conditions)
    if nominated:
        status["nominatedNodeName"] = nominated
    whole = {**template(gpus), **(spec or {}), **({"nodeName": node} if node else {})}
    return obj("v1", "Pod", name, spec=whole, status=status, **rest)


def unscheduled(message: str, minutes: float = 9) -> Json:
    """Return the condition of a pod that has no node."""
    return condition("PodScheduled", False, message, "Unschedulable", minutes)


def job(name: str = "train", *, suspend: bool = False, pods: int = 2, **rest: Any) -> Json:
    """Return a Job."""
    status = rest.pop("status", {})
    spec = {
        "parallelism": pods,
        "completions": pods,
        "suspend": suspend,
        "template": {"spec": template()},
    }
    return obj("batch/v1", "Job", name, spec=spec, status=status, **rest)


def workload(owner: Json, *conditions: Json, status: Json | None = None, **spec: Any) -> Json:
    """Return the Workload of a job."""
    name = f"{owner['kind'].lower()}-{owner['metadata']['name']}-0a1b2"
    pod_sets = [{"name": "main", "count": 2, "template": {"spec": template()}}]
    return obj(
        "kueue.x-k8s.io/v1beta2",
        "Workload",
        name,
        owner["metadata"]["namespace"],
        owner=owner,
        spec={"queueName": "gpus", "podSets": pod_sets, "priority": 0, **spec},
        status={"conditions": list(conditions), **(status or {})},
    )


def admission(flavor: str = "h100") -> Json:
    """Return the status of an admission."""
    assigned = [{"name": "main", "flavors": {GPU: flavor}}]
    return {"admission": {"clusterQueue": "research", "podSetAssignments": assigned}}


def group(name: str = "train", minimum: int = 4, **rest: Any) -> Json:
    """Return a PodGroup of Kubernetes."""
    spec = {"schedulingPolicy": {"gang": {"minCount": minimum}}}
    return obj("scheduling.k8s.io/v1beta1", "PodGroup", name, spec=spec, **rest)


def members(number: int, name: str = "train", nodes: Sequence[str] = (), **rest: Any) -> list[Json]:
    """Return pods of a group; the first have the nodes."""
    spec = {"schedulingGroup": {"podGroupName": name}}
    return [
        pod(f"{name}-{index}", nodes[index] if index < len(nodes) else "", spec=spec, **rest)
        for index in range(number)
    ]


def gpu_workload(root: Json, phase: str, **status: Any) -> Json:
    """Return the GpuWorkload of a root."""
    metadata = root["metadata"]
    reference = {
        "apiVersion": root["apiVersion"],
        "kind": root["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
    }
    return obj(
        "kaiwo.silogen.ai/v1alpha1",
        "GpuWorkload",
        f"{root['kind'].lower()}-{metadata['name']}-0a1b2c3d",
        metadata["namespace"],
        spec={"workloadRef": reference, "gpuResources": {GPU: 16}},
        status={"phase": phase, **status},
    )


def reference(target: Json) -> Json:
    """Return an object as a record names it."""
    metadata = target["metadata"]
    return {
        "apiVersion": target["apiVersion"],
        "kind": target["kind"],
        "namespace": metadata["namespace"],
        "name": metadata["name"],
        "uid": metadata["uid"],
    }


def record(
    plane: str,
    preemptor: Json | None,
    victims: Sequence[Json],
    *,
    rule: str,
    minutes: float = 20,
    gpus: int = 8,
    unit: str = "",
    state: str = "Evicted",
    phase: str = "Completed",
    number: int = 1,
) -> Json:
    """Return the record of a preemption; a victim that is a GpuWorkload has its root evicted."""
    told: list[Json] = []
    for each in victims:
        root = reference(each)
        if each["kind"] == "GpuWorkload":
            root = {"namespace": each["metadata"]["namespace"], **each["spec"]["workloadRef"]}
        told.append(
            {
                "subject": reference(each),
                "root": root,
                "amounts": {GPU: gpus},
                "rule": rule,
                **({"unit": unit} if unit else {}),
            }
        )
    states = [
        {"uid": each["root"]["uid"], "state": state, "at": at(minutes - 0.1)} for each in told
    ]
    return obj(
        "reprieve.dev/v1alpha1",
        "Preemption",
        f"{plane}-{number}",
        "kaiwo-system",
        made=minutes,
        spec={
            "plane": plane,
            "planId": f"{number:016x}",
            "attempt": 1,
            "proof": {"level": "Placement"},
            "victims": told,
            "decidedAt": at(minutes),
            **({} if preemptor is None else {"preemptor": reference(preemptor)}),
        },
        status={
            "phase": phase,
            "victims": [] if phase == "Planned" else states,
            "startedAt": at(minutes),
            "finishedAt": at(minutes - 0.5),
        },
    )


def preemption_notice(subject: Json, *, plan: str, saved: int, asked: int) -> Json:
    """Return what a tenant is told of work that may save for five minutes from now."""
    due = at(-5)
    return obj(
        "reprieve.dev/v1alpha1",
        "PreemptionNotice",
        f"{subject['metadata']['name']}-notice",
        made=5,
        spec={
            "subject": reference(subject),
            "planId": plan,
            "plane": "scheduling",
            "rule": "lower priority",
            "preemptor": "another tenant's work #a3f1",
            "deadline": due,
            "extendUntil": due,
        },
        status={"state": "Saving", "due": due, "answered": saved, "speakers": asked},
    )


def disruption(
    name: str, lineage: str, *, minutes: float, times: int, plan: str = "", back: float = 0
) -> Json:
    """Return what a tenant is told of work that was preempted so many minutes ago."""
    subject = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "namespace": "team",
        "name": f"job-{name}",
        "uid": uid(f"former {name}"),
    }
    return obj(
        "reprieve.dev/v1alpha1",
        "Disruption",
        name,
        made=minutes,
        spec={
            "subject": subject,
            "lineage": lineage,
            "planId": plan or f"plan-{name}",
            "plane": "quota",
            "rule": "it used quota that another queue has lent and reclaims",
            "preemptor": "another tenant's work #a3f1",
            "noticedAt": at(minutes),
            "evictingAt": at(minutes),
            "endedAt": at(minutes - 0.2),
            "objects": 1,
            "lostDeviceSeconds": 40_320,
            "times": times,
            "window": "1h0m0s",
            "sparedBy": "staying within the nominal quota of its own ClusterQueue",
        },
        status={"backAt": at(back)} if back else {},
    )
