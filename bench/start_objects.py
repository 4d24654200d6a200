"""The objects of `bench.start`: a full cluster of GPU nodes, as an API server sends it.

Each node runs four pods of DaemonSets, which are pinned to it by name, and six of Jobs, which
hold its eight GPUs. The last node lacks a Job's pod that holds one GPU, so that the one pod that
waits fits there and nowhere else. The members of a Job, `JOB` or fewer, are a PodGroup and share a
claim. Objects are JSON of usual size, with managedFields; a node lists fifty images.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any, Final

from bench.made_on_request import managed_fields, running_status, template_text

__all__ = [
    "NAMESPACES",
    "PODS_PER_NODE",
    "SCHEDULER",
    "WAITING",
    "group_text",
    "groups_of",
    "namespace_of",
    "node_name",
    "node_text",
    "pod_text",
]

SCHEDULER: Final = "reprieve-scheduler"
WAITING: Final = "waiting"
NAMESPACES: Final = 200
PODS_PER_NODE: Final = 10
JOB: Final = 64
_DAEMONS: Final = ("kube-proxy", "network", "device-plugin", "metrics-exporter")
_GPUS: Final = (2, 2, 1, 1, 1, 1)
_SIZES: Final = {1: ("12", "120Gi"), 2: ("24", "240Gi")}
_CREATED: Final = "2026-03-04T08:59:00Z"
_WORDS: Final = (
    *("NODE", "INDEX", "ZONE", "JOB", "NAMESPACE", "DAEMON", "SUFFIX", "NUMBER", "OWNER"),
    *("GPUS", "CPU", "MEMORY"),
)


def node_name(number: int) -> str:
    return f"gpu-{number // 1_000:02}-{number % 1_000:03}.cluster.example"


def namespace_of(job: int) -> str:
    return f"team-{job % NAMESPACES:03}"


def groups_of(nodes: int) -> int:
    """Return how many Jobs there are on so many nodes."""
    return -(-nodes * len(_GPUS) // JOB)


def node_text(number: int) -> str:
    """Return a node as JSON."""
    first = number * 7
    images = ",".join(_image((first + index * 3) % 400) for index in range(50))
    return _filled(_node, NODE=node_name(number), INDEX=number, IMAGES=images, ZONE=number % 12)


def group_text(job: int) -> str:
    """Return a PodGroup as JSON."""
    return _filled(_group, JOB=_job_name(job), NAMESPACE=namespace_of(job), INDEX=job)


def pod_text(index: int, nodes: int) -> str:
    """Return a pod as JSON; the last of all is the one that waits."""
    number, place = divmod(index, PODS_PER_NODE)
    node = node_name(number)
    if place < len(_DAEMONS):
        name = _DAEMONS[place]
        return _filled(_daemon, DAEMON=name, NODE=node, INDEX=index, SUFFIX=_suffix(index))
    if index == nodes * PODS_PER_NODE - 1:
        return _filled(_waiting, INDEX=index)
    member = number * len(_GPUS) + place - len(_DAEMONS)
    job = member // JOB
    gpus = _GPUS[place - len(_DAEMONS)]
    cpu, memory = _SIZES[gpus]
    return _filled(
        _member,
        JOB=_job_name(job),
        NAMESPACE=namespace_of(job),
        NODE=node,
        INDEX=index,
        SUFFIX=_suffix(index),
        NUMBER=member % JOB,
        OWNER=job,
        GPUS=gpus,
        CPU=cpu,
        MEMORY=memory,
    )


def _job_name(job: int) -> str:
    return f"training-run-{job:05}"


def _suffix(index: int) -> str:
    letters = "bcdfghjklmnpqrstvwxz2456789"
    return "".join(letters[index // len(letters) ** power % len(letters)] for power in range(5))


def _filled(template: Callable[[], dict[str, Any]], **values: object) -> str:
    return _text(template) % values


@functools.cache
def _text(template: Callable[[], dict[str, Any]]) -> str:
    text = template_text(template(), _WORDS).replace('"@@IMAGES@@"', "[%(IMAGES)s]")
    return text.replace("@UID@", "%(INDEX)031x")


@functools.cache
def _image(number: int) -> str:
    name = f"registry.example/team-{number % 40}/image-{number}"
    names = [f"{name}@sha256:{number:064x}", f"{name}:2026.{number % 12}"]
    return json.dumps({"names": names, "sizeBytes": 1_000_000 * (number + 1)})


def _metadata(name: str, kind: str, **more: object) -> dict[str, Any]:
    return {
        "name": name,
        # Of the form of a real one; no two kinds have equal ones.
        "uid": f"{kind}-@UID@",
        "resourceVersion": "1@INDEX@",
        "creationTimestamp": _CREATED,
        **more,
        "managedFields": managed_fields(),
    }


def _owner(kind: str, version: str, name: str, uid: str) -> dict[str, Any]:
    return {
        "apiVersion": version,
        "kind": kind,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _node() -> dict[str, Any]:
    amounts = {
        "cpu": "128",
        "memory": "1031536Mi",
        "ephemeral-storage": "900Gi",
        "hugepages-1Gi": "0",
        "hugepages-2Mi": "0",
        "nvidia.com/gpu": "8",
        "pods": "110",
    }
    labels = {
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "kubernetes.io/hostname": "@NODE@",
        "node.kubernetes.io/instance-type": "gpu-8x",
        "topology.kubernetes.io/region": "region-1",
        "topology.kubernetes.io/zone": "zone-@ZONE@",
        **{f"feature.node.example/cpu-flag-{n}": "true" for n in range(14)},
    }
    conditions = [
        {
            "type": kind,
            "status": status,
            "reason": f"Kubelet{kind}",
            "message": "kubelet says so",
            "lastHeartbeatTime": "2026-03-04T09:30:00Z",
            "lastTransitionTime": "2026-03-04T09:00:00Z",
        }
        for kind, status in (
            ("MemoryPressure", "False"),
            ("DiskPressure", "False"),
            ("PIDPressure", "False"),
            ("Ready", "True"),
        )
    ]
    annotations = {"node.alpha.kubernetes.io/ttl": "0", "network.example/address": "10.1.2.@ZONE@"}
    return {
        "metadata": _metadata("@NODE@", "node", labels=labels, annotations=annotations),
        "spec": {"podCIDR": "10.2.3.0/24", "providerID": "cloud:///@NODE@"},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": conditions,
            "addresses": [{"type": "Hostname", "address": "@NODE@"}],
            "images": "@@IMAGES@@",
            "nodeInfo": {"kubeletVersion": "v1.37.1", "osImage": "Linux", "machineID": "@UID@"},
        },
    }


def _group() -> dict[str, Any]:
    condition = {"type": "PodGroupInitiallyScheduled", "status": "True", "reason": "Scheduled"}
    return {
        "metadata": _metadata("@JOB@", "pgrp", namespace="@NAMESPACE@"),
        "spec": {"schedulingPolicy": {"gang": {"minCount": JOB}}, "disruptionMode": {"all": {}}},
        "status": {"conditions": [condition]},
    }


def _daemon() -> dict[str, Any]:
    only = {"key": "metadata.name", "operator": "In", "values": ["@NODE@"]}
    terms = {"nodeSelectorTerms": [{"matchFields": [only]}]}
    spec = {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}},
        "containers": [_container("@DAEMON@", {"cpu": "100m", "memory": "200Mi"})],
        "volumes": [{"name": "token", "projected": {"sources": [{"serviceAccountToken": {}}]}}],
        "nodeName": "@NODE@",
        "priority": 2_000_001_000,
        "priorityClassName": "system-node-critical",
        "tolerations": [
            {"key": f"node.kubernetes.io/{taint}", "operator": "Exists", "effect": "NoExecute"}
            for taint in ("not-ready", "unreachable", "disk-pressure", "memory-pressure")
        ],
    }
    labels = {
        "app": "@DAEMON@",
        "controller-revision-hash": "6f5c8d7b9",
        "pod-template-generation": "3",
    }
    owner = _owner("DaemonSet", "apps/v1", "@DAEMON@", "0f8fad5b-d9cb-469f-a165-@DAEMON@")
    name = "@DAEMON@-@SUFFIX@"
    return _pod(name, "kube-system", labels, owner, spec)


def _member() -> dict[str, Any]:
    requests = {"cpu": "@CPU@", "memory": "@MEMORY@", "nvidia.com/gpu": "@GPUS@"}
    spec = {
        "containers": [_container("training", requests)],
        "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": "data-@JOB@"}},
            {"name": "token", "projected": {"sources": [{"serviceAccountToken": {}}]}},
        ],
        "nodeName": "@NODE@",
        "priority": 1_000,
        "priorityClassName": "training",
        "schedulingGroup": {"podGroupName": "@JOB@"},
        "tolerations": [
            {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
            *(
                {
                    "key": f"node.kubernetes.io/{taint}",
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 300,
                }
                for taint in ("not-ready", "unreachable")
            ),
        ],
    }
    labels = {
        "app": "training",
        "batch.kubernetes.io/controller-uid": "5e3a51b0-7b1f-4c7e-9f43-@OWNER@",
        "batch.kubernetes.io/job-completion-index": "@NUMBER@",
        "batch.kubernetes.io/job-name": "@JOB@",
    }
    owner = _owner("Job", "batch/v1", "@JOB@", "5e3a51b0-7b1f-4c7e-9f43-@OWNER@")
    return _pod("@JOB@-@NUMBER@-@SUFFIX@", "@NAMESPACE@", labels, owner, spec)


def _waiting() -> dict[str, Any]:
    requests = {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "1"}
    pod = _pod(
        WAITING,
        "team-000",
        {"app": WAITING},
        None,
        {
            "containers": [_container("main", requests)],
            "priority": 0,
            "tolerations": [{"operator": "Exists"}],
        },
    )
    pod["spec"]["schedulerName"] = SCHEDULER
    pod["status"] = {"phase": "Pending"}
    return pod


def _container(name: str, requests: dict[str, str]) -> dict[str, Any]:
    return {
        "name": name,
        "image": f"registry.example/team/{name}:2026.03",
        "command": ["python", "-m", "training"],
        "env": [{"name": f"TRAINING_OPTION_{n}", "value": f"value-{n}"} for n in range(12)],
        "resources": {"requests": requests, "limits": requests},
        "volumeMounts": [
            {"name": "data", "mountPath": "/data"},
            {"name": "token", "mountPath": "/var/run/secrets/kubernetes.io", "readOnly": True},
        ],
        "imagePullPolicy": "IfNotPresent",
        "terminationMessagePath": "/dev/termination-log",
    }


def _pod(
    name: str,
    namespace: str,
    labels: dict[str, str],
    owner: dict[str, Any] | None,
    spec: dict[str, Any],
) -> dict[str, Any]:
    times = {"lastProbeTime": None, "lastTransitionTime": "2026-03-04T09:00:00Z"}
    container = spec["containers"][0]
    more = {} if owner is None else {"ownerReferences": [owner]}
    return {
        "metadata": _metadata(
            name,
            "pods",
            namespace=namespace,
            labels=labels,
            annotations={"team.example/contact": "training@example.com"},
            **more,
        ),
        "spec": {
            "restartPolicy": "Never",
            "serviceAccountName": "default",
            "schedulerName": "default-scheduler",
            "dnsPolicy": "ClusterFirst",
            "enableServiceLinks": True,
            "preemptionPolicy": "PreemptLowerPriority",
            **spec,
        },
        "status": running_status(
            container["name"],
            container["image"],
            "10.2.3.4",
            times,
            allocatedResources=container["resources"]["requests"],
            resources=container["resources"],
        ),
    }
