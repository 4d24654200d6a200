"""Small clusters for the pages: objects as the API server sends them, put into a mirror."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from typing import Any

import msgspec

from kubeworld.units.instants import Nanos, format_instant, parse_instant
from reprieve.api import kueue
from reprieve.api.core import Node, Pod
from reprieve.api.devices import DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice
from reprieve.api.disruption import Disruption
from reprieve.api.kaiwo import GpuWorkload
from reprieve.api.preemption_notice import PreemptionNotice
from reprieve.api.reprieve import Preemption
from reprieve.web.mirror.mirror import Mirror
from reprieve.web.mirror.reported import WaitingEvent
from reprieve.web.tables import Page

GPU = "amd.com/gpu"
START = parse_instant("2026-11-23T12:00:00Z")
Json = dict[str, Any]
_VERSIONS = count(1)


def at(seconds: int) -> str:
    """Return an instant so many seconds after the start, as the API has it."""
    return format_instant(Nanos(START + seconds * 1_000_000_000))


def meta(name: str, namespace: str = "", created: int = 0, **more: Any) -> Json:
    """Return metadata of the newest version."""
    version = str(next(_VERSIONS))
    uid = more.pop("uid", f"uid-{namespace}-{name}")
    return {
        "name": name,
        "namespace": namespace,
        "uid": uid,
        "resourceVersion": version,
        "creationTimestamp": at(created),
        **more,
    }


def owner(kind: str, name: str) -> Json:
    """Return what a controller's child carries."""
    return {
        "apiVersion": "x/v1",
        "kind": kind,
        "name": name,
        "uid": f"uid-{name}",
        "controller": True,
    }


def node(name: str, gpus: int = 8, **more: Any) -> Json:
    """Return a node."""
    return {
        "kind": "Node",
        "metadata": meta(name, labels=more.pop("labels", {})),
        "spec": {"unschedulable": more.pop("cordoned", False)},
        "status": {"allocatable": {GPU: str(gpus), "cpu": "64"}},
    }


def pod(
    name: str,
    namespace: str = "team-a",
    gpus: int = 8,
    *,
    on: str = "",
    kept: str = "",
    job: str = "",
    leaving: bool = False,
    phase: str = "",
    created: int = 0,
    why: str = "",
    gated: bool = False,
    labels: dict[str, str] | None = None,
) -> Json:
    """Return a pod: `on` a node, or waiting, with one `kept` for it; `why`: what is said of it."""
    said = []
    if why or gated:
        reason = "SchedulingGated" if gated else "Unschedulable"
        said.append({"type": "PodScheduled", "status": "False", "reason": reason, "message": why})
    return {
        "kind": "Pod",
        "metadata": meta(
            name,
            namespace,
            created,
            labels=labels or {},
            ownerReferences=[owner("Job", job)] if job else [],
            deletionTimestamp=at(created + 60) if leaving else None,
        ),
        "spec": {
            "nodeName": on or None,
            "containers": [{"resources": {"requests": {GPU: str(gpus)}}}],
        },
        "status": {
            "phase": phase or ("Running" if on else "Pending"),
            "conditions": said,
            "startTime": at(created + 1) if on else None,
            "nominatedNodeName": kept or None,
        },
    }


def workload(
    job: str,
    namespace: str = "team-a",
    gpus: int = 8,
    pods: int = 1,
    *,
    queue: str = "main",
    admitted_to: str = "",
    priority: int = 0,
    created: int = 0,
    why: str = "",
) -> Json:
    """Return a Workload of a Job, with quota of flavor `default` in a ClusterQueue or waiting."""
    conditions = [] if not why else [_condition("QuotaReserved", "False", why, created)]
    admission = None
    if admitted_to:
        conditions = [
            _condition(kind, "True", "", created + 1) for kind in ("QuotaReserved", "Admitted")
        ]
        admission = {
            "clusterQueue": admitted_to,
            "podSetAssignments": [
                {
                    "name": "main",
                    "flavors": {GPU: "default"},
                    "resourceUsage": {GPU: str(gpus * pods)},
                    "count": pods,
                }
            ],
        }
    asked = {"containers": [{"name": "c", "resources": {"requests": {GPU: str(gpus)}}}]}
    return {
        "kind": "Workload",
        "metadata": meta(f"job-{job}", namespace, created, ownerReferences=[owner("Job", job)]),
        "spec": {
            "queueName": queue,
            "priority": priority,
            "podSets": [{"name": "main", "count": pods, "template": {"spec": asked}}],
        },
        "status": {"conditions": conditions, "admission": admission},
    }


def topology(name: str, *levels: str) -> Json:
    """Return a Topology."""
    return {
        "kind": "Topology",
        "metadata": meta(name),
        "spec": {"levels": [{"nodeLabel": each} for each in levels]},
    }


def cluster_queue(name: str, nominal: int, cohort: str = "", weight: str = "1") -> Json:
    """Return a ClusterQueue with a quota of flavor `default`."""
    quota = {"name": GPU, "nominalQuota": str(nominal)}
    return {
        "kind": "ClusterQueue",
        "metadata": meta(name),
        "spec": {
            "cohortName": cohort,
            "fairSharing": {"weight": weight},
            "resourceGroups": [
                {"coveredResources": [GPU], "flavors": [{"name": "default", "resources": [quota]}]}
            ],
        },
    }


def local_queue(
    namespace: str, leads_to: str, name: str = "main", *, used: int | None = None
) -> Json:
    """Return a LocalQueue; `used`: what its status says of flavor `default`."""
    usage = [{"name": "default", "resources": [{"name": GPU, "total": str(used)}]}]
    return {
        "kind": "LocalQueue",
        "metadata": meta(name, namespace),
        "spec": {"clusterQueue": leads_to},
        "status": {} if used is None else {"flavorsUsage": usage, "flavorsReservation": usage},
    }


def idle(job: str, pods: Iterable[str], namespace: str = "team-a", phase: str = "Idle") -> Json:
    """Return the GpuWorkload of a Job."""
    return {
        "kind": "GpuWorkload",
        "metadata": meta(f"job-{job}", namespace),
        "spec": {
            "workloadRef": {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "name": job,
                "uid": f"u-{job}",
            },
            "gpuResources": {GPU: 8},
        },
        "status": {"phase": phase, "trackedPods": [{"podName": each} for each in pods]},
    }


def waiting_event(kind: str, name: str, reason: str, note: str, namespace: str = "team-a") -> Json:
    """Return our event about work that waits."""
    return {
        "kind": "Event",
        "metadata": meta(f"{name}.{reason}", namespace),
        "involvedObject": {"kind": kind, "namespace": namespace, "name": name},
        "reason": "Waiting",
        "action": reason,
        "message": f"{reason}: {note}",
        "lastTimestamp": at(0),
    }


def mirror(*objects: Json) -> Mirror:
    """Return a mirror of a cluster with these objects."""
    found = Mirror("test")
    for each in objects:
        put(found, each)
    return found


def put(into: Mirror, obj: Json) -> None:
    """Have the mirror see an object, new or changed."""
    cache, kind = _of(into, obj)
    cache.applied(msgspec.convert(obj, kind, strict=False))


def take(out_of: Mirror, obj: Json) -> None:
    """Have the mirror see an object go."""
    cache, kind = _of(out_of, obj)
    cache.deleted(msgspec.convert(obj, kind, strict=False))


def rows(page: Page, table: str) -> list[Json]:
    """Return the rows of a table as objects by column."""
    found = page.tables[table]
    names = [column.name for column in found.columns]
    return [dict(zip(names, row, strict=True)) for row in found.rows.values()]


def notice(
    name: str,
    namespace: str = "team-a",
    *,
    due: int = 600,
    state: str = "Saving",
    answered: int = 0,
) -> Json:
    """Return a PreemptionNotice of a job of two pods, `due` in so many seconds."""
    subject = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": name,
        "uid": f"uid-{name}",
        "namespace": namespace,
    }
    return {
        "kind": "PreemptionNotice",
        "metadata": {
            "name": f"{name}-1",
            "namespace": namespace,
            "uid": f"notice-{name}",
            "resourceVersion": "1",
            "creationTimestamp": at(0),
        },
        "spec": {
            "subject": subject,
            "planId": f"plan-{name}",
            "plane": "quota",
            "rule": "lower priority",
            "preemptor": "workload #1 of another namespace",
            "deadline": at(due),
            "extendUntil": at(due),
        },
        "status": {
            "state": state,
            "due": at(due),
            "speakers": 2,
            "answered": answered,
            "message": "step 1200",
        },
    }


def _of(found: Mirror, obj: Json) -> tuple[Any, type[Any]]:
    table: dict[str, tuple[Any, type[Any]]] = {
        "Pod": (found.pods, Pod),
        "Node": (found.nodes, Node),
        "Workload": (found.workloads, kueue.Workload),
        "ClusterQueue": (found.cluster_queues, kueue.ClusterQueue),
        "Cohort": (found.cohorts, kueue.Cohort),
        "Topology": (found.topologies, kueue.Topology),
        "LocalQueue": (found.local_queues, kueue.LocalQueue),
        "GpuWorkload": (found.idle, GpuWorkload),
        "ResourceClaim": (found.devices.claims, ResourceClaim),
        "ResourceClaimTemplate": (found.devices.templates, ResourceClaimTemplate),
        "DeviceClass": (found.devices.classes, DeviceClass),
        "ResourceSlice": (found.devices.slices, ResourceSlice),
        "Event": (found.waiting, WaitingEvent),
        "Preemption": (found.preemptions, Preemption),
        "Disruption": (found.disruptions, Disruption),
        "PreemptionNotice": (found.notices, PreemptionNotice),
    }
    return table[obj["kind"]]


def _condition(kind: str, status: str, message: str, when: int) -> Json:
    return {
        "type": kind,
        "status": status,
        "reason": "Told",
        "message": message,
        "lastTransitionTime": at(when),
    }
