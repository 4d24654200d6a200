"""Why no workload is preempted for a demand in the idle plane.

Idle work that holds what a demand requests stays for one of three reasons that pass: it is within
its grace period, it is evicted for another demand, or its metrics are too old. Which of them is in
the way is found by deciding again as if they were not, the fewest at once first; if the demand does
not fit even without all of them, no change of them would help. `counted_reasons` answers for all
demands of an evaluation at once, by sums alone, so that it costs no decision. Source: specification
of the idle plane, sections 11, 14 and 17.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from typing import Final

from kubeworld.units.instants import Nanos, format_instant
from reprieve.engine.diagnosis.causes import CAUSE, Cause
from reprieve.engine.diagnosis.model import Blocker, Diagnosis
from reprieve.engine.diagnosis.reasons import Reason, dominant
from reprieve.engine.idle import outcome
from reprieve.engine.idle.evaluation import evaluate
from reprieve.engine.idle.model import IdleSnapshot, Phase, Policy, Workload
from reprieve.engine.idle.outcome import Declined, Evaluation
from reprieve.engine.idle.samples import freshness
from reprieve.engine.idle.search import covered
from reprieve.engine.plan import Plane
from reprieve.units import counts
from reprieve.units.ids import GpuWorkloadKey, Uid
from reprieve.units.references import Reference

__all__ = ["IdleFacts", "counted", "counted_reasons", "diagnose_demand"]

#: What keeps an idle workload from being preempted, and passes.
_PASSING: Final[Mapping[outcome.Reason, Reason]] = {
    outcome.Reason.WITHIN_GRACE: Reason.NOT_IDLE_YET,
    outcome.Reason.NO_TIMER: Reason.NOT_IDLE_YET,
    outcome.Reason.CLAIMED: Reason.HELD_BY_CLAIM,
    outcome.Reason.NOT_FRESH: Reason.STALE_METRICS,
    outcome.Reason.HELD: Reason.VICTIMS_PROTECTED,
    outcome.Reason.PART_OF_GANG: Reason.NOT_IDLE_YET,
    outcome.Reason.SHARES_DEVICES: Reason.NOT_IDLE_YET,
}
_KINDS: Final = (
    Reason.NOT_IDLE_YET,
    Reason.HELD_BY_CLAIM,
    Reason.STALE_METRICS,
    Reason.VICTIMS_PROTECTED,
)
#: The fewest at once first.
_SETS: Final = tuple(
    frozenset(chosen) for size in range(len(_KINDS) + 1) for chosen in combinations(_KINDS, size)
)
_UNSERVED: Final = (
    outcome.Reason.SHORT,
    outcome.Reason.NO_PLACEMENT,
    outcome.Reason.NO_PENDING_POD,
)
#: No plan is due yet, and the cause of that.
_LATER: Final[Mapping[outcome.Reason, Cause]] = {
    outcome.Reason.DELAYED: Cause.NOT_YET,
    outcome.Reason.SPACED: Cause.SPACED,
}
#: Another plane answers for it, or capacity is no help.
_NOT_ITS_DEMAND: Final = (
    outcome.Reason.NO_PENDING_POD,
    outcome.Reason.OWNED,
    outcome.Reason.NO_QUOTA,
    outcome.Reason.DISPLACED,
    outcome.Reason.NOT_CONFIRMED,
)
_NAMED: Final = 20  # blockers
_BUDGETS: Final = 3
_TRIES: Final = 20  # instants at which more work will have been idle for long enough
_IN_USE: Final = "in use"
_NOT_ENOUGH: Final = "not enough"


@dataclass(frozen=True)
class IdleFacts:
    """What there is to know about the demands of one evaluation.

    `busy`: what followed work that uses its GPUs holds, which is no part of a snapshot.
    """

    snapshot: IdleSnapshot
    policy: Policy
    now: Nanos
    evaluation: Evaluation
    busy: Mapping[Reference, Mapping[str, int]] = field(default_factory=dict)

    @cached_property
    def kept(self) -> Mapping[Reference, Declined]:
        """Why each idle workload stays, and why each demand has no victims."""
        return {each.subject: each for each in self.evaluation.declined}

    @cached_property
    def protected(self) -> Sequence[tuple[Workload, Declined]]:
        """The idle workloads that the governor or a harm budget protects, with their holds."""
        found = ((each, self.kept.get(each.ref)) for each in self.snapshot.workloads)
        return [(each, kept) for each, kept in found if kept and kept.reason is outcome.Reason.HELD]

    @cached_property
    def workloads(self) -> Mapping[Reference, Workload]:
        """All workloads, by reference."""
        return {each.ref: each for each in self.snapshot.workloads}


def diagnose_demand(
    facts: IdleFacts, key: GpuWorkloadKey, pods: Collection[Uid] = ()
) -> Diagnosis | None:
    """Return why no workload is preempted for a GpuWorkload.

    Args:
        facts: of an evaluation of now.
        key: `namespace/name` of the GpuWorkload.
        pods: its pods, for one that another member of its gang speaks for.

    None: a workload is preempted for it, or what it needs is free or on its way.
    """
    demand = _demand(facts.snapshot, key, pods)
    kept = facts.kept
    if demand is None:
        return Diagnosis(Plane.IDLE, Reason.NO_PRESSURE)
    if _is_served(facts.evaluation, demand):
        return None
    declined = kept.get(demand.ref)
    if declined is None or declined.reason in _NOT_ITS_DEMAND:
        return Diagnosis(Plane.IDLE, Reason.NO_PRESSURE)
    if declined.reason in _LATER and declined.until is not None:
        return _delayed(declined.reason, declined.until)
    idle = _idle(facts.snapshot, demand)
    blockers, refused = _blockers(facts, demand, idle, kept)
    found = Diagnosis(Plane.IDLE, Reason.NOBODY_IDLE, blockers=blockers, refused=refused)
    if not idle:
        reason = Reason.NOBODY_IDLE if blockers else Reason.NOT_OPTED_IN
        return replace(found, reason=reason, deficit=_deficit(declined))
    for kinds in _SETS[1:]:
        if _is_served(_tried(facts, demand, kinds, kept), demand):
            return _passing(facts, demand, idle, kinds, found)
    alone = _tried(facts, demand, _KINDS, kept, alone=True)
    if _is_served(alone, demand):
        # The idle work that would suffice is evicted for older demands.
        return _passing(facts, demand, idle, frozenset((Reason.HELD_BY_CLAIM,)), found)
    last = next((each for each in alone.declined if each.subject == demand.ref), declined)
    return replace(found, reason=Reason.WOULD_NOT_HELP, deficit=_deficit(last))


def counted(facts: IdleFacts, ref: Reference, reason: Reason) -> Diagnosis:
    """Return what is reported of a demand that was counted for a reason."""
    declined = facts.kept.get(ref)
    if declined is not None and declined.reason in _LATER and declined.until:
        return _delayed(declined.reason, declined.until)
    demand = facts.workloads.get(ref)
    if reason is Reason.VICTIMS_PROTECTED and demand is not None:
        values, earliest = _protection(facts, demand)
        return Diagnosis(Plane.IDLE, reason, values, earliest=earliest)
    return Diagnosis(Plane.IDLE, reason)


def _protection(facts: IdleFacts, demand: Workload) -> tuple[dict[str, str], Nanos | None]:
    """Return when the first protection of what a demand requests ends, and by which budgets."""
    held = [declined for each, declined in facts.protected if _held(each.gpus, demand)]
    earliest = min((each.until for each in held if each.until is not None), default=None)
    values = {} if earliest is None else {"until": format_instant(earliest)}
    budgets = sorted({each.budget for each in held if each.budget})
    if budgets:
        more = len(budgets) - _BUDGETS
        beside = f" and {counts.counted(more, 'other')}" if more > 0 else ""
        values["budgets"] = ", ".join(budgets[:_BUDGETS]) + beside
    return values, earliest


def _delayed(reason: outcome.Reason, until: Nanos) -> Diagnosis:
    values = {CAUSE: _LATER[reason], "until": format_instant(until)}
    return Diagnosis(Plane.IDLE, Reason.VICTIMS_PROTECTED, values, earliest=until)


def counted_reasons(facts: IdleFacts) -> dict[Reference, Reason]:
    """Return why no workload is preempted, by each demand without victims.

    It adds up what idle work holds, for each demand as if it waited alone: where it would have to
    be looked at whether that fits on nodes, it counts as one for which it would not help.
    """
    kept = facts.kept
    used = {victim.root.uid for plan in facts.evaluation.plans for victim in plan.victims}
    sums: dict[Reason | None, Counter[str]] = {}
    for workload in facts.snapshot.workloads:
        declined = kept.get(workload.ref)
        if workload.status.phase is Phase.IDLE:
            kind = _PASSING.get(declined.reason) if declined is not None else None
            if workload.root.uid in used:
                kind = Reason.HELD_BY_CLAIM
            sums.setdefault(kind, Counter()).update(workload.gpus)
    names = {name for gpus in facts.busy.values() for name, count in gpus.items() if count > 0}
    found = {}
    for workload in facts.snapshot.workloads:
        declined = kept.get(workload.ref)
        waits = workload.status.phase is Phase.PENDING_GPU
        if waits and declined is not None and declined.reason in _LATER:
            found[workload.ref] = Reason.VICTIMS_PROTECTED
        elif waits and declined is not None and declined.reason in _UNSERVED:
            found[workload.ref] = _by_sums(workload, declined, sums, names)
    return found


def _by_sums(
    demand: Workload,
    declined: Declined,
    sums: Mapping[Reason | None, Counter[str]],
    busy: Collection[str],
) -> Reason:
    if declined.reason is outcome.Reason.NO_PENDING_POD:
        return Reason.NO_PRESSURE
    need = {name: count for name, count in demand.gpus.items() if count > 0}
    if not any(amounts[name] for amounts in sums.values() for name in need):
        return Reason.NOT_OPTED_IN if need.keys().isdisjoint(busy) else Reason.NOBODY_IDLE
    # The evaluation has already counted what is free or on its way.
    short = declined.amounts if declined.reason is outcome.Reason.SHORT else need
    for kinds in _SETS[1:]:
        amounts = [sums[kind] for kind in kinds if kind in sums]
        if len(amounts) == len(kinds) and covered(short, *amounts):
            return dominant(Plane.IDLE, kinds) or Reason.WOULD_NOT_HELP
    return Reason.WOULD_NOT_HELP


def _demand(snapshot: IdleSnapshot, key: GpuWorkloadKey, pods: Collection[Uid]) -> Workload | None:
    for workload in snapshot.workloads:
        if workload.status.phase is Phase.PENDING_GPU and (
            workload.key == key or any(pod.uid in pods for pod in workload.pods)
        ):
            return workload
    return None


def _is_served(evaluation: Evaluation, demand: Workload) -> bool:
    return any(plan.preemptor == demand.ref for plan in evaluation.plans) or any(
        each.subject == demand.ref and each.reason is outcome.Reason.COVERED
        for each in evaluation.declined
    )


def _idle(snapshot: IdleSnapshot, demand: Workload) -> list[Workload]:
    """Return the idle workloads that hold something of what a demand requests."""
    return [
        workload
        for workload in snapshot.workloads
        if workload.status.phase is Phase.IDLE and _held(workload.gpus, demand)
    ]


def _held(gpus: Mapping[str, int], demand: Workload) -> dict[str, int]:
    wanted = demand.gpus
    return {name: count for name, count in gpus.items() if count > 0 and wanted.get(name, 0) > 0}


def _tried(
    facts: IdleFacts,
    demand: Workload,
    kinds: Collection[Reason],
    kept: Mapping[Reference, Declined],
    until: Nanos | None = None,
    *,
    alone: bool = False,
) -> Evaluation:
    """Return the evaluation as if these reasons were past.

    Of the grace periods, those that end by `until`, all by default; `alone`: of all demands there
    is this one only.
    """
    snapshot, policy = facts.snapshot, facts.policy
    rows, claims = [], dict(snapshot.claims)
    for workload in snapshot.workloads:
        if alone and workload.status.phase is Phase.PENDING_GPU and workload is not demand:
            continue
        declined = kept.get(workload.ref)
        kind = _PASSING.get(declined.reason) if declined is not None else None
        if workload.status.phase is Phase.IDLE and kind in kinds:
            late = until is not None and (
                declined is None or declined.until is None or declined.until > until
            )
            if kind is Reason.NOT_IDLE_YET and not late:
                since = workload.status.idle_since
                status = replace(workload.status, idle_since=facts.now if since is None else since)
                settings = replace(workload.settings, grace_period=0)
                workload = replace(workload, status=status, settings=settings)
            elif kind is Reason.HELD_BY_CLAIM:
                claims.pop(workload.root.uid, None)
        rows.append(workload)
    if Reason.STALE_METRICS in kinds:
        policy = replace(policy, literal=replace(policy.literal, missing_metrics_are_zero=True))
    holds = {} if Reason.VICTIMS_PROTECTED in kinds else snapshot.holds
    without = replace(snapshot, workloads=tuple(rows), claims=claims, holds=holds)
    return evaluate(without, policy, facts.now)


def _passing(
    facts: IdleFacts,
    demand: Workload,
    idle: Sequence[Workload],
    kinds: frozenset[Reason],
    found: Diagnosis,
) -> Diagnosis:
    """Return the diagnosis where these reasons, and no fewer, are in the way."""
    kept = facts.kept
    declined = [kept[each.ref] for each in idle if each.ref in kept]
    reason = dominant(Plane.IDLE, kinds)
    assert reason is not None
    others = tuple(each for each in reversed(_KINDS) if each in kinds and each is not reason)
    values: dict[str, str] = {}
    earliest = None
    if reason is Reason.NOT_IDLE_YET:
        earliest = _idle_at(facts, demand, declined)
        if earliest is not None:
            values["until"] = format_instant(earliest)
    elif reason is Reason.VICTIMS_PROTECTED:
        values, earliest = _protection(facts, demand)
    elif reason is Reason.HELD_BY_CLAIM:
        claims = facts.snapshot.claims
        whose = {str(claims[each.root.uid] or "") for each in idle if each.root.uid in claims}
        whose |= {
            f"{plan.preemptor.namespace}/{plan.preemptor.name}"
            for plan in facts.evaluation.plans
            if plan.preemptor is not None
        }
        values["claim"] = ", ".join(sorted(whose - {""})[:3])
    else:
        values["since"] = _stale_since(facts, [each for each in idle if each.ref in kept])
    return replace(found, reason=reason, values=values, others=others, earliest=earliest)


def _idle_at(facts: IdleFacts, demand: Workload, declined: Iterable[Declined]) -> Nanos | None:
    """Return when enough of it will have been idle for long enough, if nothing else changes.

    None where that is further away than the instants that are tried. They are tried one after the
    other: with more idle work an older demand may use what a younger one could have had.
    """
    for end in sorted({each.until for each in declined if each.until is not None})[:_TRIES]:
        evaluation = _tried(facts, demand, (Reason.NOT_IDLE_YET,), facts.kept, end)
        if _is_served(evaluation, demand):
            return end
    return None


def _stale_since(facts: IdleFacts, idle: Iterable[Workload]) -> str:
    """Return since when nothing was heard of the work whose metrics are too old."""
    heard = [
        freshness(workload, facts.policy, facts.now).since
        for workload in idle
        if facts.kept[workload.ref].reason is outcome.Reason.NOT_FRESH
    ]
    known = [instant for instant in heard if instant is not None]
    return format_instant(min(known)) if known else ""


def _blockers(
    facts: IdleFacts,
    demand: Workload,
    idle: Iterable[Workload],
    kept: Mapping[Reference, Declined],
) -> tuple[tuple[Blocker, ...], dict[str, int]]:
    """Return who holds what a demand requests, the largest first; and counts by rule."""
    found = []
    for workload in idle:
        declined = kept.get(workload.ref)
        kind = _PASSING.get(declined.reason) if declined is not None else None
        rule = _NOT_ENOUGH if kind is None else str(kind)
        if declined is not None and declined.budget:
            rule = f"harm budget {declined.budget}"
        found.append(Blocker(workload.ref, _held(workload.gpus, demand), rule))
    for ref, gpus in facts.busy.items():
        held = _held(gpus, demand)
        if held and ref != demand.ref:
            found.append(Blocker(ref, held, _IN_USE))
    found.sort(key=lambda e: (-max(e.amounts.values()), e.holder.namespace, e.holder.name))
    refused = Counter(each.rule for each in found)
    return tuple(found[:_NAMED]), dict(sorted(refused.items()))


def _deficit(declined: Declined) -> dict[tuple[str, str], int]:
    if declined.reason is not outcome.Reason.SHORT:
        return {}
    return {("", name): count for name, count in declined.amounts.items()}
