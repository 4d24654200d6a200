"""What an attempt counts for in the metrics, and what `-v 6` logs of it (specification 14)."""

from __future__ import annotations

from kubeworld.units.durations import SECOND
from reprieve.engine.cluster.rows import COMPOSITE
from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.placement.profile import Policy
from reprieve.engine.placement.reasons import Code
from reprieve.engine.scheduling.outcome import Attempt, Preemption
from reprieve.planes.scheduling.context import log
from reprieve.records.scheduling.refusals import refusals
from reprieve.telemetry.log import DETAIL
from reprieve.telemetry.scheduling import SchedulingMetrics
from reprieve.wording.kube_scheduler import PreemptorKind

__all__ = ["log_refused", "observe"]


def observe(metrics: SchedulingMetrics, attempt: Attempt, profile: str, took: int) -> None:
    """Count an attempt of so many nanoseconds; `profile` is the scheduler's name."""
    seconds = took / SECOND
    if attempt.unit.group:
        result = _group_result(attempt)
        metrics.group_attempts.labels(result, profile).inc()
        metrics.group_seconds.labels(result, profile).observe(seconds)
        metrics.group_algorithm_seconds.observe(seconds)
        _observe_placements(metrics, attempt, profile, seconds)
    else:
        result = _pod_result(attempt)
        metrics.schedule_attempts.labels(result, profile).inc()
        metrics.scheduling_seconds.labels(result, profile).observe(seconds)
    if attempt.preemption is not None:
        _observe_preemption(metrics, attempt.preemption, attempt.unit.group, seconds)


def log_refused(attempt: Attempt, snapshot: Snapshot, policy: Policy) -> None:
    """Log each unit that was not reprieved, with its rule and the filter that refused (`-v 6`)."""
    found = attempt.preemption
    if found is None or not log.isEnabledFor(DETAIL):
        return
    victims = attempt.plan.victims if attempt.plan is not None else ()
    rules = {victim.root.uid: victim.rule for victim in victims}
    sizes = {victim.pods[0]: len(victim.pods) for victim in found.victims}
    waiting = [snapshot.pending[uid].row for uid in attempt.unit.pods if uid in snapshot.pending]
    preemptor = attempt.unit.group or ", ".join(f"{row.namespace}/{row.name}" for row in waiting)
    for slot, filter_name in refusals(snapshot, policy, attempt).items():
        log.log(
            DETAIL,
            "%s, a unit of %d, is a victim of %s (%s): %s refuses its reprieve",
            snapshot.pod_keys[slot],
            sizes.get(slot, 1),
            preemptor,
            rules.get(snapshot.pod_uids[slot], ""),
            filter_name,
        )


def _observe_preemption(
    metrics: SchedulingMetrics, found: Preemption, group: str, seconds: float
) -> None:
    pods = sum(len(victim.pods) for victim in found.victims)
    chosen = found.evaluated and found.code is Code.SUCCESS
    kind = PreemptorKind.GROUP if group else PreemptorKind.POD
    if found.evaluated:
        metrics.evaluation_seconds.labels(kind, found.code).observe(seconds)
    if group.startswith(COMPOSITE):
        kind = PreemptorKind.COMPOSITE
    if found.violating and chosen:
        metrics.violations.labels(kind).inc(found.violating)
    if found.group_disruptions and chosen:
        metrics.workload_disruptions.labels(kind).observe(found.group_disruptions)
    if found.gap is not None and chosen:
        metrics.preemption_gap.observe(found.gap / 100)
    if not group:
        metrics.preemption_attempts.inc()
        if chosen:
            metrics.preemption_victims.observe(pods)
        return
    metrics.workload_attempts.labels(found.code).inc()
    word = {Code.SUCCESS: "success", Code.ERROR: "error"}.get(found.code, "unschedulable")
    metrics.kep_attempts.labels(word).inc()
    metrics.kep_seconds.labels(word).observe(seconds)
    metrics.kep_reprieved.inc(sum(number for _, number in found.reprieved))
    if chosen:
        metrics.workload_victims.observe(pods)
        metrics.kep_victims.observe(pods)


def _observe_placements(
    metrics: SchedulingMetrics, attempt: Attempt, profile: str, seconds: float
) -> None:
    """Count the placements that were examined; each counts with its share of the time."""
    number = sum(attempt.placements)
    metrics.generated_placements.labels(profile).inc(number)
    for result, count in zip(("feasible", "infeasible"), attempt.placements, strict=True):
        metrics.placement_evaluations.labels(result, profile).inc(count)
        for _ in range(count):
            metrics.placement_seconds.labels(result, profile).observe(seconds / number)


def _group_result(attempt: Attempt) -> str:
    if attempt.code is Code.SUCCESS:
        return "scheduled"
    if attempt.code is Code.ERROR:
        return "error"
    found = attempt.preemption
    waiting = found is not None and found.code is Code.SUCCESS
    return "waiting_on_preemption" if waiting else "unschedulable"


def _pod_result(attempt: Attempt) -> str:
    words = {Code.SUCCESS: "scheduled", Code.ERROR: "error"}
    return words.get(attempt.code, "unschedulable")
