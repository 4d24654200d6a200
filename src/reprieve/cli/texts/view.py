"""The live view of `reprieve up`: nodes, GPUs, queues with their shares, workloads, preemptions.

Pure: it makes a rich renderable of an `Observer`. Shown is what the running planes are
about: what is idle with the idle plane, groups of pods with the scheduling plane, queues with the
quota plane. Extended resources count as GPUs, since a node of the embedded cluster has no others;
a node without them shows its pods. A GPU is idle when its pod belongs to a workload in phase Idle.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from kubeworld.objects.pods import is_over
from kubeworld.units.durations import SECOND, format_duration
from kubeworld.units.instants import Nanos, format_instant, parse_instant
from kubeworld.units.quantities import InvalidQuantity, parse_quantity
from reprieve.scenarios.observer import (
    CLUSTER_QUEUES,
    GPUWORKLOADS,
    Observer,
    Transition,
    phase_of,
    root_of,
)

__all__ = ["event_line", "headline", "queue_line", "render"]

_STYLES: Final = {
    "PendingGpu": "yellow",
    "PendingOther": "dim",
    "Active": "green",
    "Idle": "cyan",
    "Preempting": "red",
    "Preempted": "bold red",
    "Deleted": "dim",
}
_GANG: Final = "gang.scheduling.koordinator.sh/name"
_GROUP_LABELS: Final = ("scheduling.x-k8s.io/pod-group", "pod-group.scheduling.sigs.k8s.io")
_LAST_PREEMPTIONS: Final = 5
_LAST_LINES: Final = 6


def render(
    observer: Observer,
    now: Nanos,
    log: Sequence[str] = (),
    progress: str = "",
    planes: Collection[str] = ("idle", "scheduling", "quota"),
) -> RenderableType:
    """Return the whole view; `log` are lines of the operator, `progress` stands on top."""
    parts: list[RenderableType] = [Text(progress)] if progress else []
    parts.append(_nodes(observer, idle="idle" in planes))
    if observer.all(CLUSTER_QUEUES):
        parts.append(_queues(observer))
    if "scheduling" in planes and (groups := _groups(observer)):
        parts.append(groups)
    if "idle" in planes and ("scheduling" not in planes or observer.all(GPUWORKLOADS)):
        parts.append(_workloads(observer, now))
    parts.append(_preemptions(observer))
    if log:
        lines = Text("\n".join(log[-_LAST_LINES:]), no_wrap=True, overflow="ellipsis", style="dim")
        parts.append(Panel(lines, title="operator", title_align="left", border_style="dim"))
    return Group(*parts)


def headline(transition: Transition) -> str:
    """Return a transition as one line: time, workload, phases, reason."""
    line = (
        f"{format_instant(transition.at)} {transition.namespace}/{transition.name} "
        f"{transition.old or '-'} -> {transition.new or '-'}"
    )
    return f"{line}  {transition.reason}" if transition.reason else line


def _nodes(observer: Observer, idle: bool) -> Table:
    columns = ("Node", "Resource", "Total", "Used", *(("Idle",) if idle else ()))
    table = Table(*columns, title_justify="left", expand=True)
    idle_pods = {
        (item["metadata"]["namespace"], pod["podName"])
        for item in observer.all(GPUWORKLOADS)
        if phase_of(item) == "Idle"
        for pod in item.get("status", {}).get("trackedPods", ())
    }
    used: Counter[tuple[str, str]] = Counter()
    unused: Counter[tuple[str, str]] = Counter()
    for pod in observer.all("pods"):
        node = pod.get("spec", {}).get("nodeName")
        if node and not is_over(pod):
            for resource, amount in {**_gpus_of(pod), "pods": 1}.items():
                used[node, resource] += amount
                if (pod["metadata"]["namespace"], pod["metadata"]["name"]) in idle_pods:
                    unused[node, resource] += amount
    for node in observer.all("nodes"):
        name = node["metadata"]["name"]
        allocatable = node.get("status", {}).get("allocatable", {})
        for resource in sorted(filter(_is_gpu, allocatable)) or ["pods"]:
            row = (name, resource, str(allocatable.get(resource, "")), str(used[name, resource]))
            count = unused[name, resource]
            last = (Text(str(count), style="cyan" if count else ""),) if idle else ()
            table.add_row(*row, *last)
    return table


def _groups(observer: Observer) -> Table | None:
    """Return how far the pods of each group are, None where no pod is in one."""
    found: dict[tuple[str, str], Counter[str]] = {}
    for pod in observer.all("pods"):
        name = _group_of(pod)
        if name:
            status = pod.get("status") or {}
            ending = bool(pod["metadata"].get("deletionTimestamp"))
            waits = not (pod.get("spec") or {}).get("nodeName")
            state = "Ending" if ending else "Waiting" if waits else status.get("phase", "Pending")
            found.setdefault((pod["metadata"]["namespace"], name), Counter())[state] += 1
    if not found:
        return None
    table = Table("Namespace", "Group", "Pods", "Running", "Waiting", "Ending", expand=True)
    for (namespace, name), states in sorted(found.items()):
        cells = [str(states[state]) for state in ("Running", "Waiting", "Ending")]
        table.add_row(namespace, name, str(states.total()), *cells)
    return table


def _group_of(pod: Mapping[str, Any]) -> str:
    """Return the group that a pod names, in any of the ways that gangs are named."""
    named = ((pod.get("spec") or {}).get("schedulingGroup") or {}).get("podGroupName")
    labels = pod["metadata"].get("labels") or {}
    annotations = pod["metadata"].get("annotations") or {}
    for found in (named, *map(labels.get, _GROUP_LABELS), annotations.get(_GANG)):
        if found:
            return str(found)
    return ""


def _workloads(observer: Observer, now: Nanos) -> Table:
    table = Table("Namespace", "GpuWorkload", "Owner", "Phase", "GPU %", "Idle for", expand=True)
    for item in observer.all(GPUWORKLOADS):
        status = item.get("status", {})
        phase = phase_of(item)
        percent = status.get("aggregatedUtilization")
        table.add_row(
            item["metadata"]["namespace"],
            item["metadata"]["name"],
            root_of(item),
            Text(phase or "-", style=_STYLES.get(phase, "")),
            "" if percent is None else f"{percent:g}",
            _idle_for(status, now),
        )
    return table


def queue_line(queue: Mapping[str, Any]) -> str:
    """Return what a ClusterQueue holds as one line; empty before its first status."""
    status = queue.get("status") or {}
    if "flavorsReservation" not in status:
        return ""
    held = "; ".join(f"{name}: {', '.join(texts)}" for name, *texts in _quotas(queue))
    share = _share(queue)
    line = f"ClusterQueue {queue['metadata']['name']}: {held}"
    counts = f"; {status.get('admittedWorkloads', 0)} admitted, {_waiting(status)} waiting"
    return line + counts + (f"; share {share}" if share else "")


def _queues(observer: Observer) -> Table:
    head = ("ClusterQueue", "Cohort", "Quota", "Admitted", "Waiting", "Share")
    table = Table(*head, expand=True)
    for queue in observer.all(CLUSTER_QUEUES):
        status = queue.get("status") or {}
        table.add_row(
            queue["metadata"]["name"],
            queue["spec"].get("cohortName", ""),
            "\n".join(f"{name}: {', '.join(texts)}" for name, *texts in _quotas(queue)),
            str(status.get("admittedWorkloads", 0)),
            str(_waiting(status)),
            _share(queue),
        )
    return table


def _quotas(queue: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield a resource, how much of its quota is reserved, and what of that is borrowed."""
    held = {
        (flavor["name"], resource["name"]): resource
        for flavor in (queue.get("status") or {}).get("flavorsReservation") or ()
        for resource in flavor["resources"]
    }
    for group in queue["spec"].get("resourceGroups") or ():
        for flavor in group["flavors"]:
            for quota in flavor["resources"]:
                found = held.get((flavor["name"], quota["name"])) or {}
                used = f"{found.get('total', 0)} of {quota['nominalQuota']}"
                borrowed = str(found.get("borrowed") or "0")
                more = () if borrowed == "0" else (f"{borrowed} borrowed",)
                yield quota["name"], used, *more


def _share(queue: Mapping[str, Any]) -> str:
    share = ((queue.get("status") or {}).get("fairSharing") or {}).get("weightedShare")
    return "" if share is None else str(share)


def _waiting(status: Mapping[str, Any]) -> int:
    return int(status.get("pendingWorkloads") or 0)


def event_line(event: Mapping[str, Any]) -> str:
    """Return a preemption or an admission as one line: time, who, for whom; empty for others."""
    kind = (event.get("involvedObject") or {}).get("kind")
    reported = (event.get("reason"), event.get("action"))
    if reported != ("Preempted", "Preempting") and not (
        kind == "Workload" and reported[0] in ("Preempted", "Admitted")
    ):
        return ""
    about = event.get("involvedObject") or {}
    seen = (event.get("series") or {}).get("lastObservedTime") or event["eventTime"]
    at = format_instant(parse_instant(seen))
    return f"{at} {about.get('namespace')}/{about.get('name')}  {event.get('message')}"


def _preemptions(observer: Observer) -> Table:
    table = Table("Time", "Preempted", "Reason", expand=True)
    done = [
        (format_instant(each.at), f"{each.namespace} {each.root}", each.reason)
        for each in observer.transitions
        if each.new == "Preempted"
    ]
    for event in observer.all("events"):
        line = event_line(event)
        if line and event.get("reason") == "Preempted":
            about = event["involvedObject"]
            name = f"{about.get('namespace')} {about.get('kind')}/{about.get('name')}"
            done.append((line.partition(" ")[0], name, event["message"]))
    for row in sorted(done)[-_LAST_PREEMPTIONS:]:
        table.add_row(*row)
    return table


def _idle_for(status: Mapping[str, Any], now: Nanos) -> str:
    since = status.get("idleSince")
    if not since:
        return ""
    elapsed = max(0, now - parse_instant(since))
    return format_duration(elapsed // SECOND * SECOND)


def _gpus_of(pod: Mapping[str, Any]) -> Counter[str]:
    total: Counter[str] = Counter()
    for container in pod.get("spec", {}).get("containers", ()):
        resources = container.get("resources", {})
        wanted = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
        for resource, amount in wanted.items():
            if _is_gpu(resource):
                try:
                    total[resource] += parse_quantity(amount)
                except InvalidQuantity:
                    continue
    return total


def _is_gpu(resource: str) -> bool:
    """Whether a resource name is an extended one; those of Kubernetes itself have no domain."""
    domain, slash, _ = resource.partition("/")
    return bool(slash) and not domain.endswith("kubernetes.io")
