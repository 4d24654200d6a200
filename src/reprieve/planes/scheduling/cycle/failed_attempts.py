"""What `-v 6` logs of a group whose attempt failed, and what is always logged of a plugin that did.

Node by node: which filter refuses a pod of the group as the node is, and without all pods of lower
priority. Unit by unit: the units of lower priority, and why none of them was evicted: preemption
was not permitted, was not searched for, or does not help. It is worked out only where it is logged.
Source: specification 14.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

import numpy as np

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos, format_instant
from reprieve.engine.cluster.arrays import I64, U8
from reprieve.engine.cluster.snapshot import Flag, Pending, Snapshot
from reprieve.engine.placement.profile import Policy
from reprieve.engine.placement.reasons import PLUGIN, Code, Rejection
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.scheduling.gangs.job import JobReason
from reprieve.engine.scheduling.outcome import Attempt, Sentence, with_inner
from reprieve.engine.scheduling.victims.hierarchy import effective_priority
from reprieve.planes.scheduling.context import log
from reprieve.telemetry.log import DETAIL
from reprieve.units.counts import counted
from reprieve.wording.koordinator import job_message
from reprieve.wording.kube_scheduler import explanation_text

__all__ = ["log_failed"]

_MOST_LINES: Final = 200  # of nodes, and of units
_NO_HELP: Final = "evicting all of them does not help"


def log_failed(attempt: Attempt, snapshot: Snapshot, policy: Policy) -> None:
    """Log a plugin that failed, and with `-v 6` why a group was neither placed nor preempts."""
    name = attempt.unit.group or attempt.unit.name
    for said in with_inner(attempt.status):
        if said.sentence is Sentence.PLUGIN_FAILED:
            plugin, *why = said.values
            log.error("PodGroupPostFilter plugin %s failed for %s: %s", plugin, name, *why or [""])
    if attempt.code is Code.SUCCESS or not log.isEnabledFor(DETAIL):
        return
    if not attempt.unit.group and attempt.gang is None:
        return
    found = attempt.preemption
    if found is not None and found.code is Code.SUCCESS:
        return  # who was preempted is logged, with the filters that keep them from returning
    queued = [snapshot.pending[uid] for uid in attempt.unit.pods if uid in snapshot.pending]
    reason = _why_none(attempt)
    for pending in {each.pod_class: each for each in reversed(queued)}.values():
        _log_pod(name, pending, snapshot, policy, reason)


def _why_none(attempt: Attempt) -> str:
    """Return why the attempt evicts no unit of lower priority."""
    found, gang = attempt.preemption, attempt.gang
    if attempt.delayed is not None:
        return f"preemption is delayed until {format_instant(attempt.delayed)} (preemptionDelay)"
    if gang is not None and gang.job is not None and gang.job.reason is not JobReason.NOT_HELPFUL:
        return job_message(gang.job, gang.waiting, gang.pods)
    if found is not None and not found.evaluated:
        return f"no victims were searched for: {explanation_text(found.explanation)}"
    if found is None and (gang is None or gang.job is None):
        return "no victims were searched for"
    left = _left_alone(attempt)
    return f"evicting those that may be does not help: {left}" if left else _NO_HELP


def _left_alone(attempt: Attempt) -> str:
    """Return how many pods of lower priority may not be evicted, by rule; empty for none."""
    spared, held, found = attempt.spared, attempt.held, []
    if spared is not None:
        ends = format_instant(Nanos(spared.until * SECOND))
        found.append(f"{spared.pods} within the minimum run time, the first until {ends}")
    if held is not None:
        rule = f"harm budget {held.budget}" if held.budget else f"governor, rule {held.rule}"
        found.append(f"{held.pods} held until {format_instant(held.until)} ({rule})")
    if attempt.protected:
        found.append(f"{attempt.protected} protected by the preemption priority of their class")
    if attempt.gang is not None and attempt.gang.job is not None and attempt.gang.job.protected:
        found.append(f"{attempt.gang.job.protected} protected by a quota, a budget or their gang")
    return ", ".join(found)


def _log_pod(name: str, pending: Pending, snapshot: Snapshot, policy: Policy, why: str) -> None:
    entry = snapshot.classes[pending.pod_class]
    profile = None if entry is None else policy.profile(entry.scheduler_name)
    if profile is None:
        return
    simulation = Simulation(snapshot, policy, profile)
    before = simulation.codes(pending).copy()
    lower = effective_priority(snapshot, policy) < pending.row.priority
    slots: I64 = np.flatnonzero(simulation.present & (snapshot.pod_node >= 0) & lower)
    simulation.remove(slots)
    after = simulation.codes(pending)
    pod = f"{pending.row.namespace}/{pending.row.name}"
    for node in islice(snapshot.nodes, _MOST_LINES):
        number = snapshot.node_index[node.name]
        log.log(
            DETAIL,
            "node %s for %s of %s: %s; without pods of lower priority: %s",
            node.name,
            pod,
            name,
            _verdict(before, number),
            _verdict(after, number),
        )
    _log_more(len(snapshot.nodes), "nodes")
    units = list(_units(snapshot, slots))
    for text, size, place in units[:_MOST_LINES]:
        log.log(
            DETAIL,
            "%s, a unit of %d on %s, is of lower priority than %s: %s",
            text,
            size,
            place,
            name,
            why,
        )
    _log_more(len(units), "units")


def _log_more(number: int, what: str) -> None:
    if number > _MOST_LINES:
        log.log(DETAIL, "and %d more %s", number - _MOST_LINES, what)


def _verdict(codes: U8, node: int) -> str:
    rejection = Rejection(int(codes[node])) if codes[node] else None
    return "accepts it" if rejection is None else str(PLUGIN.get(rejection, rejection.name))


def _units(snapshot: Snapshot, slots: I64) -> Iterator[tuple[str, int, str]]:
    """Yield each unit of these pods: its name, its size, and its node or how many nodes."""
    groups: dict[int, list[int]] = {}
    for slot in slots.tolist():
        together = snapshot.pod_flags[slot] & Flag.WITH_GROUP
        groups.setdefault(int(snapshot.pod_group[slot]) if together else -1 - slot, []).append(slot)
    for group, pods in groups.items():
        nodes = {snapshot.nodes[int(snapshot.pod_node[slot])].name for slot in pods}
        place = nodes.pop() if len(nodes) == 1 else counted(len(nodes), "node")
        name = snapshot.group_keys[group] if group >= 0 else snapshot.pod_keys[pods[0]]
        yield name, len(pods), place
