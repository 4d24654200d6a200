"""The nodes of a simulated cluster, and jobs as gangs of pods on them.

Nodes are all alike and offer devices alone. A job is a PodGroup of pods that fill a node each, and
one for the rest: all of them run or none, and all are evicted together (disruption mode `all`).
Pods are made anew when a job waits again, as a job controller does, so that their uids state how
often.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final

from kubeworld.units.durations import SECOND
from reprieve.engine.cluster.rows import (
    PODS,
    Entry,
    GroupRow,
    Kind,
    NodeRow,
    NoticeRow,
    PodClass,
    PodRow,
)
from reprieve.engine.notice.expected import Terms
from reprieve.simulation.domains import NO_DOMAINS, Domains, node_names
from reprieve.simulation.replaying.quota_cluster import DEVICE, key_of
from reprieve.simulation.trace import Job
from reprieve.units.ids import Uid

__all__ = ["class_of", "group_of", "node_rows", "notice_name", "notice_row", "pods_of"]

_MOST_PODS: Final = 1_000_000  # no limit: devices are what is short


def node_rows(count: int, devices: int, domains: Domains = NO_DOMAINS) -> list[NodeRow]:
    """Return the nodes, each with so many devices, and labels of its domains."""
    return [
        NodeRow(
            Uid(name),
            name,
            0,
            {PODS: _MOST_PODS, DEVICE: devices},
            {"kubernetes.io/hostname": name, **domains.of_node(number)},
        )
        for number, name in enumerate(node_names(count))
    ]


def group_of(job: Job, number: int, size: int, version: int, preempts: bool) -> GroupRow:
    """Return the PodGroup of a job; `number` is its place in the order of arrivals."""
    return GroupRow(
        Uid(f"group-{number:012}"),
        job.tenant,
        job.id,
        version,
        min_count=size,
        all_or_nothing=True,
        priority=job.priority or 0,
        preempts=preempts,
        topology_key=job.required,
    )


def pods_of(
    job: Job, number: int, again: int, of_a_node: int, scheduler: str, preempts: bool
) -> list[PodRow]:
    """Return a job's pods, the widest first; `again` is how often it waited before."""
    whole, rest = divmod(job.devices, of_a_node)
    widths = [of_a_node] * whole + [rest] * bool(rest)
    return [
        PodRow(
            Uid(f"{number:012}-{again}-{place:05}"),
            job.tenant,
            f"{job.id}-{again}-{place}",
            0,
            _class(width, scheduler, preempts),
            priority=job.priority or 0,
            group=job.id,
            workload=key_of(job),
        )
        for place, width in enumerate(widths)
    ]


def class_of(amounts: Mapping[str, int], scheduler: str, preempts: bool) -> PodClass:
    """Return what a scheduler sees of the pods of a pod set."""
    return _class(amounts[DEVICE], scheduler, preempts)


@cache
def _class(devices: int, scheduler: str, preempts: bool) -> PodClass:
    return PodClass(((DEVICE, devices),), scheduler_name=scheduler, preempts=preempts)


def notice_name(pod: PodRow) -> tuple[Uid, str, str]:
    """Return by what the notice of a pod is known: its uid, namespace and name."""
    return Uid(f"notice/{pod.uid}"), pod.namespace, pod.name


def notice_row(pod: PodRow, terms: Terms) -> Entry:
    """Return what a pod would be granted, as the plane notes it."""
    uid, namespace, name = notice_name(pod)
    times = terms.time // SECOND, terms.save // SECOND
    row = NoticeRow(uid, namespace, name, 0, *times, terms.credit)
    return Entry(Kind.NOTICE, uid, namespace, name, 0, row)
