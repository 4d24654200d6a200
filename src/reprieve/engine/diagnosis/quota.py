"""Why a workload waits in the quota plane.

What can be known without deciding is looked up (`standing`): its queue, itself, its checks, its
pause, its place. For the rest the engine decides once more about the workload alone, on the state
of now and from the first flavor (`quota_trial`). All reasons that hold are collected, and the first
of the order of `reasons` is reported. Source: specification of the quota plane, sections 4, 5, 8
and 9.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kubeworld.units.instants import Nanos, format_instant
from reprieve.engine.diagnosis.causes import CAUSE, Cause, cause_in
from reprieve.engine.diagnosis.model import Diagnosis
from reprieve.engine.diagnosis.quota_causes import flavors_cause, holding_cause
from reprieve.engine.diagnosis.quota_holders import held_by
from reprieve.engine.diagnosis.quota_never import named_pod_sets, no_flavor, too_much
from reprieve.engine.diagnosis.quota_places import place_shortage
from reprieve.engine.diagnosis.quota_shortages import shortages
from reprieve.engine.diagnosis.quota_trial import QuotaFacts, Trial, attempt, severity
from reprieve.engine.diagnosis.quota_usage import usage_text
from reprieve.engine.diagnosis.reasons import Reason, dominant
from reprieve.engine.plan import Plane
from reprieve.engine.quota.assigning.assignment import Mode, NoFitReason
from reprieve.engine.quota.assigning.checks import required_checks
from reprieve.engine.quota.entries import Entry, Outcome
from reprieve.engine.quota.heads import RequeueReason
from reprieve.engine.quota.holdings.state import Holdings
from reprieve.engine.quota.model import (
    Check,
    Configuration,
    FlavorResource,
    LabelSelector,
    QueueingStrategy,
    StopPolicy,
    Workload,
)
from reprieve.engine.quota.targets.candidates import preemptor
from reprieve.engine.quota.waiting.queues import Queues
from reprieve.engine.selectors import requirement_text

__all__ = ["Standing", "delayed_values", "diagnose", "reason_of", "standing"]

#: Reasons of `NoFit` that no time changes.
_NEVER = {
    NoFitReason.NO_MATCHING_FLAVOR: Reason.NO_FLAVOR_MATCHES,
    NoFitReason.EXCEEDS_MAX_QUOTA: Reason.NEVER_FITS,
    NoFitReason.TOPOLOGY_PLACEMENT_FAILED: Reason.NO_PLACES,
}
_OUTCOMES = {
    Outcome.PREEMPTING: Reason.VICTIMS_LEAVING,
    Outcome.DEFERRED: Reason.VICTIMS_LEAVING,
    Outcome.NO_CANDIDATES: Reason.HELD_BY_OTHERS,
    Outcome.UNPROVEN: Reason.HELD_BY_OTHERS,
    Outcome.AWAITS_IDLE: Reason.HELD_BY_OTHERS,
    Outcome.SKIPPED: Reason.HELD_BY_OTHERS,
    Outcome.GATED: Reason.CHECKS_OPEN,
    Outcome.DELAYED: Reason.HELD_BY_OTHERS,
    Outcome.BLOCKED: Reason.PODS_NOT_READY,
    Outcome.FAULT: Reason.SET_ASIDE,
}
#: What keeps those from being preempted who have the places that are requested.
_OF_PLACES = {
    Cause.PROTECTION: Cause.PLACES_PROTECTED,
    Cause.PRIORITY: Cause.PLACES_BY_PRIORITY,
    Cause.POLICY: Cause.PLACES_BY_POLICY,
    Cause.NOT_RECLAIMABLE: Cause.PLACES_NOT_RECLAIMABLE,
}
_SHOWN = 3  # names in one sentence


@dataclass(frozen=True, slots=True)
class Standing:
    """Reasons that hold whatever the quota is, each with the values of its sentence."""

    found: Mapping[Reason, Mapping[str, str]]
    until: Nanos | None = None

    @property
    def reported(self) -> Diagnosis | None:
        """Return the diagnosis as far as it is known, None without a reason."""
        return _diagnosis(self.found, self.until)


def diagnose(facts: QuotaFacts, workload: Workload) -> Diagnosis | None:
    """Return why a workload waits.

    None: it has its quota and all checks, is finished, or nothing is in its way any more and it is
    decided about next.
    """
    if workload.finished:
        return None
    stands = standing(facts, workload)
    found = dict(stands.found)
    local = facts.configuration.local_queues.get(workload.queue)
    if workload.admission is not None or local is None or workload.invalid:
        return _diagnosis(found, stands.until)
    trial = attempt(facts, workload)
    if trial is None:
        return _diagnosis(found, stands.until)
    known = _diagnosis(found, stands.until)
    judged = _judge(facts, workload, trial)
    if judged is not None:
        found.setdefault(judged.reason, judged.values)
    elif known is None and facts.entry is not None:
        # It would get its quota if it were alone.
        reason = reason_of(facts.entry, facts.holdings)
        if reason is not None:
            skipped = facts.entry.outcome is Outcome.SKIPPED
            found[reason] = _kept_for_heads(facts, trial) if skipped else {}
    whole = _diagnosis(found, stands.until)
    if whole is None or judged is None:
        return whole
    earliest = whole.earliest
    if whole.reason is judged.reason:
        earliest = earliest or judged.earliest
    return replace(
        whole,
        deficit=judged.deficit,
        blockers=judged.blockers,
        refused=judged.refused,
        earliest=earliest,
    )


def _kept_for_heads(facts: QuotaFacts, trial: Trial) -> dict[str, str]:
    """Return the heads for which cycles keep what is free of the cohort, where there are any.

    The head of a queue with StrictFIFO keeps it in each cycle until it fits, those of others only
    where they preempt.
    """
    tree, heads = trial.snapshot.tree, []
    for name, node in sorted(tree.queues.items()):
        head = facts.queues.head(name)
        if node == trial.queue or head is None or tree.root(node) != tree.root(trial.queue):
            continue
        strict = facts.configuration.cluster_queues[name].strategy is QueueingStrategy.STRICT_FIFO
        if strict or facts.queues.awaits_preemption(head.key):
            heads.append(f"{head.key} of ClusterQueue {name}")
    return {CAUSE: Cause.KEPT_FOR_HEADS, "heads": _some(heads)} if heads else {}


def reason_of(entry: Entry, holdings: Holdings) -> Reason | None:
    """Return why a head got no quota, as its cycle stated it; None where it got it.

    It costs no search, so it may be called for each head of a cycle.
    """
    workload = entry.workload
    if entry.outcome is Outcome.INADMISSIBLE:
        if any(state in (Check.RETRY, Check.REJECTED) for state in workload.checks.values()):
            return Reason.CHECKS_OPEN
        if workload.invalid:
            return Reason.INVALID
        other = entry.requeue is RequeueReason.NAMESPACE_MISMATCH
        return Reason.NAMESPACE_NOT_ALLOWED if other else Reason.INACTIVE
    if entry.outcome is Outcome.NO_FIT:
        known = entry.assignment.no_fit_reason if entry.assignment is not None else None
        if known is not NoFitReason.WAITING_FOR_QUOTA:
            # A scan that continues has not seen all flavors, nor one of all pods the fewest.
            known = severity(holdings, workload, entry.cluster_queue)
        return _NEVER.get(known, Reason.HELD_BY_OTHERS)
    reason = _OUTCOMES.get(entry.outcome)
    lacks_places = entry.assignment is not None and entry.assignment.lacks_places
    if reason is Reason.HELD_BY_OTHERS and lacks_places:
        return Reason.PLACES_TAKEN
    return reason


def delayed_values(workload: Workload) -> dict[str, str]:
    """Return the text about one that has not waited for long enough to preempt."""
    return {CAUSE: Cause.DELAYED, "until": format_instant(workload.preempts_from)}


def standing(facts: QuotaFacts, workload: Workload) -> Standing:
    """Return what keeps a workload from its quota that can be looked up, without a decision."""
    found: dict[Reason, Mapping[str, str]] = {}
    configuration, queues = facts.configuration, facts.queues
    if workload.admission is not None:
        waits = _open_checks(configuration, workload)
        return Standing({Reason.CHECKS_OPEN: {"checks": _some(waits)}} if waits else {})
    name = _of_queue(found, configuration, queues, workload)
    if not workload.active:
        found[Reason.STOPPED] = _deactivated(workload)
    if workload.invalid:
        found[Reason.INVALID] = {"why": workload.invalid}
    failed = [n for n, s in workload.checks.items() if s in (Check.RETRY, Check.REJECTED)]
    gates = list(workload.closed_gates)
    if workload.admission_gated:
        found[Reason.CHECKS_OPEN] = {"checks": "its admission gate"}
    elif failed:
        found[Reason.CHECKS_OPEN] = {"checks": _some(sorted(failed))}
    elif gates and facts.entry is not None and facts.entry.outcome is Outcome.GATED:
        found[Reason.CHECKS_OPEN] = {"checks": _some(gates)}
    until = _of_time(found, facts, workload)
    if name and not found.keys() & {Reason.STOPPED, Reason.BACKOFF, Reason.SET_ASIDE}:
        _of_place(found, facts, workload, name)
    return Standing(found, until)


def _of_queue(
    found: dict[Reason, Mapping[str, str]],
    configuration: Configuration,
    queues: Queues,
    workload: Workload,
) -> str:
    """Record what is wrong with its queues; return its ClusterQueue, empty if it accepts none."""
    local = configuration.local_queues.get(workload.queue)
    door = workload.queue.partition("/")[2]
    if local is None:
        known = [
            key.partition("/")[2] for key in configuration.local_queues if _is_in(key, workload)
        ]
        found[Reason.INACTIVE] = {
            "missing": door,
            "namespace": workload.namespace,
            "known": _some(sorted(known)) or "none",
        }
        return ""
    if local.stop_policy is not StopPolicy.NONE:
        found[Reason.STOPPED] = {
            "queue": f"LocalQueue {door}",
            "policy": str(local.stop_policy),
        }
    name = local.cluster_queue
    queue = configuration.cluster_queues.get(name)
    if queue is None:
        found[Reason.INACTIVE] = {"cluster_queue": name, "why": "it does not exist"}
        return ""
    if queue.stop_policy is not StopPolicy.NONE:
        stopped = {"queue": f"ClusterQueue {name}", "policy": str(queue.stop_policy)}
        found.setdefault(Reason.STOPPED, stopped)
    elif name in queues.inactive:
        found[Reason.INACTIVE] = {"cluster_queue": name, "why": queues.inactive[name]}
    if queue.selector is None or not queue.selector.matches(
        configuration.namespaces.get(workload.namespace, {})
    ):
        found[Reason.NAMESPACE_NOT_ALLOWED] = {
            "cluster_queue": name,
            "namespaces": _selected(queue.selector),
        }
    return "" if name in queues.inactive else name


def _is_in(local_queue: str, workload: Workload) -> bool:
    return local_queue.partition("/")[0] == workload.namespace


def _selected(selector: LabelSelector | None) -> str:
    """Return which namespaces a ClusterQueue accepts."""
    if selector is None:
        return "no namespace: it has no namespaceSelector"
    terms = [requirement_text(e.key, e.operator, e.values) for e in selector.expressions]
    return f"namespaces with {' and '.join(terms)}"


def _deactivated(workload: Workload) -> dict[str, str]:
    """Return what deactivated a workload: a user, or the operator, and why."""
    values = {CAUSE: Cause.DEACTIVATED, "workload": workload.name}
    prefix, _, why = (workload.evicted.reason if workload.evicted else "").partition("DueTo")
    if prefix == "Deactivated" and why:
        return {**values, CAUSE: Cause.DEACTIVATED_BY_OPERATOR, "why": why}
    return values


def _of_time(
    found: dict[Reason, Mapping[str, str]], facts: QuotaFacts, workload: Workload
) -> Nanos | None:
    """Note what ends by itself; return when, where that is known."""
    until = facts.queues.set_aside_until(workload.key, facts.now)
    if until is not None:
        entry = facts.entry
        why = f"{type(entry.failure).__name__}" if entry and entry.failure is not None else ""
        found[Reason.SET_ASIDE] = {"why": why, "until": format_instant(until)}
        return until
    back = workload.requeue_at
    if back is not None and back > facts.now:
        found[Reason.BACKOFF] = {"until": format_instant(back)}
        return back
    if not workload.requeued:
        found[Reason.BACKOFF] = {}
    return None


def _of_place(
    found: dict[Reason, Mapping[str, str]], facts: QuotaFacts, workload: Workload, name: str
) -> None:
    """Note whether it waits for its victims, or behind another one."""
    queues, entry = facts.queues, facts.entry
    if queues.awaits_preemption(workload.key):
        names = [] if entry is None else [target.holder.key for target in entry.targets]
        saved = None if entry is None else entry.saves_until
        found[Reason.VICTIMS_LEAVING] = (
            {"victims": _some(names)}
            if saved is None
            else {"saving": _some(names), "saved": format_instant(saved)}
        )
        return
    if entry is not None and entry.outcome is Outcome.DEFERRED:
        found[Reason.VICTIMS_LEAVING] = {}
    head = queues.head(name)
    if head is None or head.key == workload.key or not queues.is_queued(workload.key):
        return
    strict = facts.configuration.cluster_queues[name].strategy is QueueingStrategy.STRICT_FIFO
    if strict or queues.awaits_preemption(head.key):
        found[Reason.BEHIND_HEAD] = {"head": head.key}


def _judge(facts: QuotaFacts, workload: Workload, trial: Trial) -> Diagnosis | None:
    """Return the decision about it alone; None where it would get its quota."""
    assignment = trial.assignment
    if assignment.mode is Mode.FIT:
        blocked = facts.configuration.settings.block_admission and not facts.holdings.all_ready
        return _stated(Reason.PODS_NOT_READY, {}) if blocked else None
    if assignment.mode is Mode.PREEMPT and trial.targets:
        if workload.preempts_from > facts.now:
            said = _stated(Reason.HELD_BY_OTHERS, delayed_values(workload))
            return replace(said, earliest=workload.preempts_from)
        if facts.entry is None or not all(target.holder.evicted for target in trial.targets):
            return None
        if reason_of(facts.entry, facts.holdings) is Reason.VICTIMS_LEAVING:
            names = [target.holder.key for target in trial.targets]
            return _stated(Reason.VICTIMS_LEAVING, {"victims": _some(names)})
        # They leave for another one.
        return _held(workload, trial)
    name = trial.snapshot.tree.names[trial.queue]
    never = _NEVER.get(severity(facts.holdings, workload, name))
    if never is Reason.NO_FLAVOR_MATCHES:
        return _stated(never, no_flavor(trial, workload))
    if never is Reason.NEVER_FITS:
        return _too_much(facts, workload, trial)
    if never is Reason.NO_PLACES:
        return _stated(never, _no_places(workload, trial))
    if assignment.lacks_places:
        return _shortages(workload, trial)
    return _held(workload, trial)


def _too_much(facts: QuotaFacts, workload: Workload, trial: Trial) -> Diagnosis:
    """Return that it requests too much: in any flavors, in those of its queue, or for now."""
    empty = attempt(facts, workload, facts.holdings.holders.values())
    if empty is None:
        return _stated(Reason.NEVER_FITS, too_much(trial, workload))
    if empty.assignment.mode is Mode.FIT:
        # What others hold decides which flavors its first pod sets use.
        return _held(workload, trial)
    chosen = flavors_cause(empty, workload)
    return _stated(Reason.NEVER_FITS, chosen or too_much(trial, workload))


def _no_places(workload: Workload, trial: Trial) -> Mapping[str, str]:
    """Return where its pods would lack capacity even if no workload held places."""
    lacks = place_shortage(trial, workload, empty=True)
    if lacks is None:
        return {"why": trial.assignment.message}
    wider = "wider" in lacks.values
    return {**lacks.values, **({CAUSE: Cause.WIDER_LEVEL} if wider else {})}


def _shortages(workload: Workload, trial: Trial) -> Diagnosis:
    """Return where its pods lack capacity though its quota is free, and which workloads use it."""
    snapshot = trial.snapshot
    lacks = place_shortage(trial, workload, empty=False)
    who = preemptor(workload, trial.queue, snapshot.settings)
    known = {} if trial.targets else holding_cause(trial, workload)
    cause = cause_in(known)
    values = dict(known)
    values.pop(CAUSE, None)
    if cause in _OF_PLACES:
        values[CAUSE] = _OF_PLACES[cause]
    pairs = [snapshot.tree.flavor_resources[column] for column in trial.assignment.need]
    among = () if lacks is None else lacks.holders
    held = held_by(snapshot, who, trial.spared, pairs, cause, among)
    until = trial.spared.until if trial.spared is not None else None
    return Diagnosis(
        Plane.QUOTA,
        Reason.PLACES_TAKEN,
        values | (dict(lacks.values) if lacks is not None else {"why": trial.assignment.message}),
        blockers=held.blockers,
        refused=held.refused,
        earliest=until,
    )


def _held(workload: Workload, trial: Trial) -> Diagnosis:
    """Return who has what it lacks."""
    snapshot = trial.snapshot
    lacks = shortages(snapshot, workload, trial.queue)
    who = preemptor(workload, trial.queue, snapshot.settings)
    # Victims that are found leave for another one.
    values = {} if trial.targets else holding_cause(trial, workload)
    missing = [FlavorResource(each.flavor, name) for each in lacks for name in each.missing]
    held = held_by(snapshot, who, trial.spared, missing, cause_in(values))
    deficit: dict[tuple[str, str], int] = {}
    for each in lacks:
        for name, amount in each.missing.items():
            key = each.flavor, name
            deficit[key] = max(deficit.get(key, 0), amount)
    until = trial.spared.until if trial.spared is not None else None
    return Diagnosis(
        Plane.QUOTA,
        Reason.HELD_BY_OTHERS,
        values
        | {"usage": usage_text(snapshot, trial.queue, lacks)}
        | named_pod_sets(workload, (name for each in lacks for name in each.pod_sets)),
        deficit=deficit,
        blockers=held.blockers,
        refused=held.refused,
        earliest=until,
    )


def _open_checks(configuration: Configuration, workload: Workload) -> list[str]:
    """Return the checks that keep what has its quota from being admitted."""
    assert workload.admission is not None
    queue = configuration.cluster_queues.get(workload.admission.cluster_queue)
    if queue is None:
        return []
    required = required_checks(queue, workload.admission)
    return [name for name in required if workload.checks.get(name) is not Check.READY]


def _stated(reason: Reason, values: Mapping[str, str]) -> Diagnosis:
    return Diagnosis(Plane.QUOTA, reason, values)


def _diagnosis(found: Mapping[Reason, Mapping[str, str]], until: Nanos | None) -> Diagnosis | None:
    reason = dominant(Plane.QUOTA, found)
    if reason is None:
        return None
    rest = set(found) - {reason}
    others = []
    while rest:
        following = dominant(Plane.QUOTA, rest)
        assert following is not None
        others.append(following)
        rest.discard(following)
    timed = reason in (Reason.BACKOFF, Reason.SET_ASIDE)
    return Diagnosis(
        Plane.QUOTA, reason, found[reason], tuple(others), earliest=until if timed else None
    )


def _some(names: list[str]) -> str:
    """Return the first names, and how many more there are."""
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
