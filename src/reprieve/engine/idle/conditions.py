"""When each condition of the table of transitions holds (`transitions`).

They are evaluated on one view of the workload, with pods and samples brought up to date. The
literal switches, by which a rule of the reference is followed to the letter, are honoured here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from kubeworld.units.instants import Nanos
from reprieve.engine.idle.lifecycle_facts import DeleteOutcome, Facts, Missing, Present, Unreadable
from reprieve.engine.idle.model import Phase, Policy, Workload
from reprieve.engine.idle.samples import Freshness, SampleState, aggregate, fresh_only, freshness
from reprieve.engine.idle.transitions import Condition

__all__ = ["HOLDS", "View", "root_is_ours", "view_of"]


@dataclass(frozen=True, slots=True)
class View:
    """The workload with pods and samples brought up to date, and what follows from them."""

    workload: Workload
    facts: Facts
    policy: Policy
    now: Nanos
    freshness: Freshness
    utilization: float | None


def view_of(workload: Workload, facts: Facts, policy: Policy, now: Nanos) -> View:
    """Return what the conditions are evaluated on."""
    status = workload.status
    known = freshness(workload, policy, now)
    pods = status.tracked_pods
    if not policy.literal.missing_metrics_are_zero:
        pods = fresh_only(pods, policy, now)
    threshold, how = workload.settings.threshold, workload.settings.aggregation
    utilization = aggregate(pods, how)
    if utilization is not None and utilization < threshold:
        # Samples of GPUs that its pods do not hold must not make a workload look idle.
        asked = {pod.name: sum(pod.gpus.values()) for pod in workload.pods}
        held = aggregate(pods, how, asked)
        utilization = held if held is not None and held >= threshold else utilization
    return View(workload, facts, policy, now, known, utilization)


def root_is_ours(facts: Facts, workload: Workload) -> bool:
    """Return whether the root that was read is the one that the workload is of."""
    return isinstance(facts.root, Present) and facts.root.uid == workload.root.uid


def _root_gone(view: View) -> bool:
    root = view.facts.root
    return isinstance(root, Missing) or (
        isinstance(root, Present) and root.uid != view.workload.root.uid
    )


def _root_deleted(view: View) -> bool:
    outcome = view.facts.delete
    if outcome in (
        DeleteOutcome.ACCEPTED,
        DeleteOutcome.NOT_FOUND,
        DeleteOutcome.UID_CONFLICT,
    ):
        return True
    if outcome is not None:
        return False
    if view.policy.literal.delete_without_uid:
        return isinstance(view.facts.root, Missing)
    return _root_gone(view)


def _revived(view: View) -> bool:
    root, since = view.facts.root, view.workload.status.preempted_at
    if not isinstance(root, Present) or root.terminating or since is None:
        return False
    # Instants have whole seconds: a pod of the same second counts as a new one, since the pods
    # before it were created a grace period earlier.
    return root.uid == view.workload.root.uid and any(
        pod.live and pod.created is not None and pod.created >= since for pod in view.workload.pods
    )


def _ttl_over(view: View) -> bool:
    finished = view.workload.status.finished_at
    return finished is not None and view.now - finished >= view.workload.settings.ttl


def _keeps_phase_without_pods(view: View) -> bool:
    literal = view.policy.literal
    if view.workload.status.phase is Phase.PENDING_GPU:
        return literal.podless_demand_stays
    return literal.podless_idle_stays


def _demand(view: View) -> bool:
    return any(
        pod.phase == "Pending"
        and pod.demand
        and (pod.live or view.policy.literal.podless_demand_stays)
        for pod in view.workload.pods
    )


def _not_running(view: View) -> bool:
    return not any(
        pod.phase == "Running" and (pod.live or view.policy.literal.podless_idle_stays)
        for pod in view.workload.pods
    )


def _no_live_pod(view: View) -> bool:
    pods = view.workload.pods
    if pods and view.policy.literal.podless_idle_stays:
        return False
    return not any(pod.live for pod in pods)


def _busy(view: View) -> bool:
    threshold = view.workload.settings.threshold
    if view.utilization is not None:
        return view.utilization >= threshold
    return view.policy.literal.missing_metrics_are_zero and threshold <= 0


def _idle(view: View) -> bool:
    if view.policy.literal.missing_metrics_are_zero:
        return True
    return view.freshness.state is SampleState.FRESH


def _silent_long(view: View) -> bool:
    if view.policy.literal.silence_counts_as_idle_time or view.workload.status.idle_since is None:
        return False
    since = view.freshness.since
    return since is None or since > view.now or view.now - since > 2 * view.policy.freshness


#: The table evaluates them in the order of its rows.
HOLDS: Final[Mapping[Condition, Callable[[View], bool]]] = MappingProxyType(
    {
        Condition.UNDECIDED: lambda view: view.facts.delete is None,
        Condition.ROOT_DELETED: _root_deleted,
        Condition.DELETE_FORBIDDEN: lambda view: view.facts.delete is DeleteOutcome.FORBIDDEN,
        Condition.DELETE_FAILED: lambda view: view.facts.delete is DeleteOutcome.FAILED,
        Condition.REVIVED: _revived,
        Condition.KEPT_FOREVER: lambda view: (
            view.workload.settings.ttl == 0 or view.workload.status.finished_at is None
        ),
        Condition.TTL_OVER: _ttl_over,
        Condition.TTL_RUNNING: lambda _: True,
        Condition.ROOT_GONE: _root_gone,
        Condition.ROOT_UNREADABLE: lambda view: isinstance(view.facts.root, Unreadable),
        Condition.NO_POD: lambda view: not view.workload.pods,
        Condition.NO_POD_QUOTA_SHORT: lambda view: (
            not view.workload.pods and view.facts.quota_short
        ),
        Condition.NO_LIVE_POD: _no_live_pod,
        Condition.NO_POD_LITERAL: lambda view: (
            not view.workload.pods and _keeps_phase_without_pods(view)
        ),
        Condition.DEMAND: _demand,
        Condition.NOT_RUNNING: _not_running,
        Condition.BUSY: _busy,
        Condition.IDLE: _idle,
        Condition.SILENT_FIRST: lambda _: True,
        Condition.SILENT_LONG: _silent_long,
        Condition.SILENT: lambda _: True,
    }
)
