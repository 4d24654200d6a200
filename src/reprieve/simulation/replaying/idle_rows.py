"""Jobs as the idle plane sees them: a GpuWorkload each, its root a Job, with the pods on nodes.

All are opted in with the settings of the policy. The devices of a pod show one utilization, that
was polled just now: what polls are late by is not replayed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from kubeworld.units.instants import Nanos
from reprieve.engine.cluster.rows import PodRow as ClusterPod
from reprieve.engine.idle.lifecycle import step
from reprieve.engine.idle.lifecycle_facts import Facts, Present
from reprieve.engine.idle.model import NodeRow, PodRow, Policy, Settings, Status, Workload
from reprieve.engine.idle.samples import Reading, merge, track
from reprieve.engine.plan import Proof, ProofLevel
from reprieve.simulation.replaying.node_cluster import node_rows
from reprieve.simulation.replaying.quota_cluster import DEVICE
from reprieve.simulation.trace import Job
from reprieve.units.ids import Uid
from reprieve.units.references import Reference

__all__ = ["BUSY", "free_rows", "idle_pods", "idle_workload", "polled", "proof_text", "stepped"]

BUSY: Final = 100.0  # percent


def idle_pods(job: Job, pods: Sequence[ClusterPod], of_a_node: int) -> tuple[PodRow, ...]:
    """Return a job's pods; they wait for a node, or run.

    One that waits is a demand unless the scheduling plane has nominated a node for it already.
    """
    whole, rest = divmod(job.devices, of_a_node)
    widths = [of_a_node] * whole + [rest] * bool(rest)
    return tuple(
        PodRow(
            pod.uid,
            pod.name,
            "Running" if pod.node else "Pending",
            {DEVICE: width},
            pod.node or None,
            demand=not pod.node and not pod.nominated,
            terminating=pod.deleting,
        )
        for pod, width in zip(pods, widths, strict=True)
    )


def idle_workload(
    job: Job,
    number: int,
    settings: Settings,
    status: Status,
    pods: tuple[PodRow, ...],
    precedence: int = 0,
    queued: int | None = None,
) -> Workload:
    """Return the row of a job's GpuWorkload; `number` is its place in the order of arrivals."""
    uid = f"{number:012}"
    return Workload(
        Reference("kaiwo.silogen.ai/v1alpha1", "GpuWorkload", job.tenant, job.id, Uid(f"g-{uid}")),
        Reference("batch/v1", "Job", job.tenant, job.id, Uid(uid)),
        Nanos(job.arrival),
        {DEVICE: job.devices},
        settings,
        status,
        pods,
        precedence=precedence,
        queued=queued,
    )


def polled(
    status: Status, pods: Iterable[PodRow], percent: float, now: Nanos, policy: Policy
) -> Status:
    """Return the status after a poll in which the devices of all running pods show so much."""
    running = [pod for pod in pods if pod.phase == "Running"]
    known = replace(status, tracked_pods=track(status.tracked_pods, running))
    readings = {pod.name: [Reading("0", percent)] for pod in running}
    return merge(known, readings, now, policy).status


def stepped(row: Workload, policy: Policy, now: Nanos, *, quota_short: bool = False) -> Status:
    """Return the status after the engine's own step through its table of phases."""
    facts = Facts(Present(row.root.uid), quota_short=quota_short)
    return step(row, facts, policy, now).status


def free_rows(nodes: tuple[int, int], pods: Iterable[PodRow]) -> tuple[NodeRow, ...]:
    """Return what is free of each node, with these pods on them."""
    count, devices = nodes
    used: Counter[str] = Counter()
    for pod in pods:
        if pod.node is not None:
            used[pod.node] += pod.gpus[DEVICE]
    return tuple(
        NodeRow(node.name, {DEVICE: devices - used[node.name]})
        for node in node_rows(count, devices)
    )


def proof_text(proof: Proof) -> str:
    """Return what a plan's proof states, in a line."""
    if proof.level is ProofLevel.EXEMPT:
        return f"{proof.freed.get(DEVICE, 0)} {DEVICE} become free, for no particular demand"
    need, free = proof.need.get(DEVICE, 0), proof.free.get(DEVICE, 0)
    there = proof.in_flight.get(DEVICE, 0)
    how = "every pod has a node" if proof.level is ProofLevel.PLACEMENT else "by their sum"
    return (
        f"needs {need} {DEVICE}: {free} free, {there} on their way, "
        f"{proof.freed.get(DEVICE, 0)} of idle work; {how}"
    )
