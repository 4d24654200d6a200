"""Who is preempted for whom: one run of the global evaluation.

1. Workloads under policy Always that have been idle for their grace period: each is its own plan,
   without a preemptor.
2. Demands (phase PendingGpu), oldest first; where other planes of the process decide as well, by
   priority before that (`claims.demand_order`). What is in flight for a demand is credited, then
   what is in flight for no work, unless it was free before the demand came (its pods found it
   used): GPUs freed under policy Always, and those freed for a demand that waits no longer. What
   remains is collected from eligible OnPressure workloads, oldest idle first, over all resource
   names at once, leaving out those that add nothing, until every pending pod has a node (fit Node),
   or the sum reaches the need (fit Sum, and for demands that wait for quota). If that never comes
   about, no workload is evicted.
3. Of these the set is chosen, and another one where the scheduling plane has not confirmed the
   plan of a set (`choice`); victims of a plan that was refused are left to later demands.

Eligible: Idle with a timer that has reached the grace period, not claimed by a plan, and (unless a
literal switch states otherwise) with fresh samples of all running GPU pods. A workload that the
governor of disruptions holds from a demand is not evicted for it, and under policy Always for no
work. Demands and victims are identified by namespace/name and root uid. Same input, in any order,
same result.

For a demand that waits for quota of queues that are known (`snapshot.owned`: the quota plane owns
it, or this plane does where another Kueue decides) exactly those are evicted that were named for it
(`snapshot.released`), and so are those that the scheduling plane named where it evicts others as
well (`snapshot.mixed`). For work that returns after it was displaced no more is evicted than its
debt allows (`snapshot.debts`).

Source: specification of the idle plane, sections 14 and 17 (H4, H8); texts are made by wording.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.engine.disruptions.questions import budget_of
from reprieve.engine.idle.choice import Choice, choices
from reprieve.engine.idle.claims import demand_order
from reprieve.engine.idle.flights import idle_for, in_flight, overdue_from
from reprieve.engine.idle.gangs import SHARED_CLAIM, units_of, whole_units
from reprieve.engine.idle.model import (
    Debt,
    Fit,
    IdleSnapshot,
    Phase,
    PodRow,
    Policy,
    PreemptionPolicy,
    Reservation,
    Workload,
)
from reprieve.engine.idle.outcome import (
    RULE_NOT_NEEDED,
    Declined,
    Evaluation,
    Reason,
)
from reprieve.engine.idle.placement import Room, leave, pending_pods
from reprieve.engine.idle.plans import always_plan, mixed_plan, plan_of, proof_of, releasing_plan
from reprieve.engine.idle.resources import add
from reprieve.engine.idle.samples import SampleState, freshness
from reprieve.engine.idle.search import Search
from reprieve.engine.pace import UNHURRIED, Pace
from reprieve.engine.plan import Guard, Plan, Plane
from reprieve.units.ids import GpuWorkloadKey, Uid

__all__ = ["evaluate"]


@dataclass(slots=True)
class _Run:
    """One evaluation in progress."""

    snapshot: IdleSnapshot
    policy: Policy
    now: Nanos
    plans: list[Plan] = field(default_factory=list)
    declined: list[Declined] = field(default_factory=list)
    due: list[Nanos] = field(default_factory=list)
    idle: list[Workload] = field(default_factory=list)  # eligible, OnPressure, oldest idle first
    # The same as units, each with its members, by the root of the first member.
    units: dict[Uid, tuple[Workload, tuple[Workload, ...]]] = field(default_factory=dict)
    reprieved: set[Uid] = field(default_factory=set)  # roots that were reprieved
    held: dict[Uid, Nanos] = field(default_factory=dict)  # roots left alone, until when
    budgets: dict[Uid, str] = field(default_factory=dict)
    roots: set[Uid] = field(default_factory=set)  # of eligible workloads: each counts once
    chosen: set[Uid] = field(default_factory=set)  # roots claimed in this run
    waiting: set[str] = field(default_factory=set)  # keys and names of all demands
    served: set[str] = field(default_factory=set)  # keys and names of the snapshot's served
    flights: dict[str, list[Workload]] = field(default_factory=dict)  # by _reclaimed_for()
    pool: dict[str, int] = field(default_factory=dict)  # freed for no work, not credited yet
    pool_members: list[Workload] = field(default_factory=list)
    placed: list[Reservation] = field(default_factory=list)  # by this run
    covered: list[Reservation] = field(default_factory=list)  # those of them without a plan


def evaluate(
    snapshot: IdleSnapshot, policy: Policy, now: Nanos, pace: Pace = UNHURRIED
) -> Evaluation:
    """Return the plans of one run, in the order in which they are to be committed.

    `pace` is notified whose eligibility and whose demand is looked at.
    """
    run = _Run(snapshot, policy, now)
    workloads = sorted(snapshot.workloads, key=lambda workload: workload.key)
    demands = (w for w in workloads if w.status.phase is Phase.PENDING_GPU)
    run.waiting = {name for demand in demands for name in (demand.key, demand.ref.name)}
    run.served = {name for key in snapshot.served for name in (key, key.partition("/")[2])}
    for workload in workloads:
        pace.begin(workload.key)
        whom = _reclaimed_for(run, workload)
        if whom is not None:
            run.flights.setdefault(whom, []).append(workload)
            _note_settling(run, workload)
    eligible = []
    for workload in sorted(workloads, key=_oldest_idle_first):
        pace.begin(workload.key)
        if _eligible(run, workload):
            eligible.append(workload)
    eligible, torn = whole_units(workloads, eligible, snapshot.busy_units)
    for each in torn:
        by_claim = each.unit.startswith(SHARED_CLAIM)
        why = Reason.SHARES_DEVICES if by_claim else Reason.PART_OF_GANG
        run.declined.append(Declined(each.ref, why))
    always = [w for w in eligible if w.settings.policy is PreemptionPolicy.ALWAYS]
    for workload in always:
        if _held(run, "", workload):
            run.declined.append(_declined(run, workload, Reason.HELD))
    always = [w for w in always if w.root.uid not in run.held]
    run.idle = [w for w in eligible if w.settings.policy is PreemptionPolicy.ON_PRESSURE]
    run.units = {each.root.uid: (each, of) for each, of in units_of(run.idle)}
    for workload in always:
        run.chosen.add(workload.root.uid)
        run.plans.append(always_plan(run, workload))
    if not policy.literal.always_not_credited:
        run.pool_members = [*always, *run.flights.get("", ())]
        run.pool = add(*(w.gpus for w in run.pool_members))
    for demand in sorted(workloads, key=demand_order):
        if demand.status.phase is Phase.PENDING_GPU:
            pace.begin(demand.key)
            _serve(run, demand)
    for workload in run.idle:
        root = workload.root.uid
        if root not in run.chosen:
            spared = Reason.REPRIEVED if root in run.reprieved else Reason.NO_DEMAND
            spared = Reason.HELD if root in run.held else spared
            run.declined.append(_declined(run, workload, spared))
    return Evaluation(
        tuple(run.plans),
        tuple(run.declined),
        min(run.due, default=None),
        tuple(run.covered),
    )


def _reclaimed_for(run: _Run, workload: Workload) -> str | None:
    """Return for whom its GPUs are on their way now: "" for the next demand that waits.

    They may be for a demand that waits no longer, or was placed elsewhere. Once the pods have
    ended, a demand that waits no longer because it runs has the capacity; a deleted one has left it
    behind.
    """
    whom = in_flight(workload, run.snapshot, run.policy, run.now)
    if not whom or whom in run.waiting:
        return whom
    return None if not workload.pods and whom in run.served else ""


def _eligible(run: _Run, workload: Workload) -> bool:
    status, now = workload.status, run.now
    if status.phase is not Phase.IDLE:
        return False
    if workload.root.uid in run.snapshot.claims or workload.root.uid in run.roots:
        return _spared(run, workload, Reason.CLAIMED)
    if status.idle_since is None:
        return _spared(run, workload, Reason.NO_TIMER)
    if idle_for(workload, now) < workload.settings.grace_period:
        until = Nanos(min(now, status.idle_since) + workload.settings.grace_period)
        run.due.append(until)
        return _spared(run, workload, Reason.WITHIN_GRACE, until)
    literal = run.policy.literal
    if not literal.missing_metrics_are_zero:
        state = freshness(workload, run.policy, now).state
        if state is not SampleState.FRESH:
            return _spared(run, workload, Reason.NOT_FRESH)
    run.roots.add(workload.root.uid)
    return True


def _spared(run: _Run, workload: Workload, reason: Reason, until: Nanos | None = None) -> bool:
    run.declined.append(Declined(workload.ref, reason, until=until))
    return False


def _serve(run: _Run, demand: Workload) -> None:
    debt = run.snapshot.debts.get(demand.key)
    if demand.key in run.snapshot.displaced and debt is None:
        run.declined.append(_displaced(demand))
        return
    if demand.key in run.snapshot.owned:
        _release(run, demand)
        return
    waiting = pending_pods(demand)
    on_nodes = run.policy.fit is Fit.NODE and not _waits_for_quota(demand, waiting)
    if on_nodes and not waiting:
        run.declined.append(Declined(demand.ref, Reason.NO_PENDING_POD))
        return
    if demand.key in run.snapshot.mixed and on_nodes and demand.preempts_from <= run.now:
        _mix(run, demand, waiting)
        return
    _withdraw(run, demand)
    pods = waiting if on_nodes else ()
    search, credit = _search(run, demand, pods)
    if _covers(run, demand, search, credit) or _delays(run, demand):
        return
    idle = _candidates(run, demand, debt)
    trim = on_nodes or run.policy.trims
    found = choices(search, idle, lambda: _search(run, demand, pods)[0], run.policy, trim=trim)
    choice = next(found, None)
    if choice is None:
        run.declined.append(search.declined(idle) if debt is None else _displaced(demand))
        return
    while choice is not None:
        if debt is not None and choice.search.gpus > debt.devices:
            run.declined.append(_displaced(demand))
            return
        plan = _plan_of(run, demand, choice)
        if plan.id not in run.snapshot.refused:
            _commit(run, choice, plan, credit)
            return
        choice = next(found, None)
    run.declined.append(Declined(demand.ref, Reason.NOT_CONFIRMED))


def _plan_of(run: _Run, demand: Workload, choice: Choice) -> Plan:
    """Return the plan that evicts a choice of idle work for a demand."""
    search = choice.search
    spared = _roots(run, choice.spare) if choice.trimmed else set()
    compatible = bool(choice.spare) and not choice.trimmed
    return plan_of(
        run,
        preemptor=demand.ref,
        victims=[each for v in search.victims for each in run.units[v.root.uid][1]],
        rule=choice.rule,
        proof=proof_of(search, compatible=compatible, gap=choice.gap),
        placement=search.placement,
        reprieved={RULE_NOT_NEEDED: len(spared)} if spared else {},
        guards=(Guard(demand.ref, (Phase.PENDING_GPU,)),),
    )


def _commit(run: _Run, choice: Choice, plan: Plan, credit: Mapping[str, int]) -> None:
    """Add a plan, and keep its victims and what they free from later demands."""
    if choice.trimmed:
        run.reprieved.update(_roots(run, choice.spare))
    _keep_capacity(run, choice.search, credit)
    run.chosen.update(victim.root.uid for victim in plan.victims)
    run.plans.append(plan)


def _covers(run: _Run, demand: Workload, search: Search, credit: Mapping[str, int]) -> bool:
    """Return whether what is free or on its way is enough for a demand; then it is kept for it."""
    if not search.fits():
        return False
    run.covered.extend(_keep_capacity(run, search, credit))
    run.declined.append(Declined(demand.ref, Reason.COVERED, search.incoming))
    return True


def _delays(run: _Run, demand: Workload) -> bool:
    """Return whether no plan is due for a demand yet; then it is evaluated again."""
    until = demand.preempts_from
    if until <= run.now:
        return False
    run.due.append(until)
    reason = Reason.SPACED if demand.spaced else Reason.DELAYED
    run.declined.append(Declined(demand.ref, reason, until=until))
    return True


def _candidates(run: _Run, demand: Workload, debt: Debt | None) -> list[Workload]:
    """Return the units that may be evicted for a demand, oldest idle first."""
    held = {each.root.uid for each in run.idle if _held(run, demand.key, each)}
    return [
        unit
        for unit, members in run.units.values()
        if held.isdisjoint(each.root.uid for each in members)
        and (debt is None or all(map(debt.allows, members)))
    ]


def _displaced(demand: Workload) -> Declined:
    """Return that no work is evicted for returning work, which has no debt of so much."""
    return Declined(demand.ref, Reason.DISPLACED)


def _release(run: _Run, demand: Workload) -> None:
    """Evict the idle work that holds the quota which is lacking, where all of it still may be."""
    if _delays(run, demand):
        return
    released = run.snapshot.released.get(demand.key)
    roots = () if released is None else released.roots
    victims = _named(run, demand, roots)
    if released is None or not victims:
        own = run.snapshot.owned[demand.key] is Plane.IDLE
        run.declined.append(Declined(demand.ref, Reason.NO_QUOTA if own else Reason.OWNED))
        return
    run.chosen.update(roots)
    run.plans.append(releasing_plan(run, demand, victims, mixed=released.mixed))


def _mix(run: _Run, demand: Workload, waiting: tuple[PodRow, ...]) -> None:
    """Evict the idle work that the scheduling plane named beside others, where it still may be."""
    mixed = run.snapshot.mixed[demand.key]
    victims = _named(run, demand, mixed.roots)
    if not victims:
        run.declined.append(Declined(demand.ref, Reason.SHORT))
        return
    asked = add(*(pod.gpus for pod in waiting))
    need = {name: count for name, count in sorted(asked.items()) if count > 0}
    plan = mixed_plan(run, demand, need, victims, mixed.placement)
    if plan.id in run.snapshot.refused:
        run.declined.append(Declined(demand.ref, Reason.NOT_CONFIRMED))
        return
    run.chosen.update(mixed.roots)
    demanded = {pod.uid: pod.amounts for pod in waiting}
    run.placed.extend(
        Reservation(demand.key, uid, node, demanded[uid])
        for uid, node in mixed.placement
        if uid in demanded
    )
    run.plans.append(plan)


def _named(run: _Run, demand: Workload, roots: Sequence[Uid]) -> list[Workload]:
    """Return the idle work of these roots; nothing where not all of it may be evicted."""
    victims = [each for each in run.idle if each.root.uid in roots]
    free = [v for v in victims if not _held(run, demand.key, v) and v.root.uid not in run.chosen]
    return victims if len(free) == len(roots) else []


def _roots(run: _Run, units: Iterable[Workload]) -> set[Uid]:
    """Return the roots of all members of these units."""
    return {each.root.uid for unit in units for each in run.units[unit.root.uid][1]}


def _declined(run: _Run, workload: Workload, why: Reason) -> Declined:
    """Return why an idle workload stays; of one that is held until when, and by which budget."""
    root = workload.root.uid
    budget = run.budgets.get(root, "")
    return Declined(workload.ref, why, until=run.held.get(root), budget=budget)


def _held(run: _Run, demand: str, workload: Workload) -> bool:
    """Whether the governor holds the workload from a demand; it is looked at again then."""
    root = workload.root.uid
    until = run.snapshot.held_until(demand, root, run.now)
    if until is None or root in run.chosen:
        return False
    run.held[root] = min(until, run.held.get(root, until))
    if budget := budget_of(run.snapshot.holds[demand][root]):
        run.budgets[root] = budget
    run.due.append(until)
    return True


def _waits_for_quota(demand: Workload, waiting: Sequence[PodRow]) -> bool:
    """Whether it lacks more than capacity on nodes: it has no pods yet, or they are gated."""
    return not any(pod.live for pod in demand.pods) or any(pod.gated for pod in waiting)


def _search(run: _Run, demand: Workload, pods: tuple[PodRow, ...]) -> tuple[Search, dict[str, int]]:
    """Return the search for a demand, and its credit of what is freed for no demand."""
    asked = add(*(pod.gpus for pod in pods)) if pods else demand.gpus
    need = {name: count for name, count in sorted(asked.items()) if count > 0}
    flying = [*run.flights.get(demand.key, ()), *run.flights.get(demand.ref.name, ())]
    flight = add(*(w.gpus for w in flying))
    credit = {
        name: min(max(0, count - flight.get(name, 0)), run.pool.get(name, 0))
        for name, count in need.items()
    }
    incoming = {name: flight.get(name, 0) + credit[name] for name in need}
    room = _room(run, demand, flying) if pods else {}
    return Search(demand, pods, need, incoming, room, run.chosen), credit


def _withdraw(run: _Run, demand: Workload) -> None:
    """Remove from the pool what was free already when the demand came.

    Its pods were not placed on it, so other pods were. Demands come in the order of creation.
    """
    members = [w for w in run.pool_members if not _was_free_before(w, demand)]
    if len(members) < len(run.pool_members):
        run.pool_members = members
        left = add(*(w.gpus for w in members))
        run.pool = {name: min(count, left.get(name, 0)) for name, count in run.pool.items()}


def _was_free_before(workload: Workload, demand: Workload) -> bool:
    if workload.status.phase is not Phase.PREEMPTED or workload.pods:
        return False
    since = workload.released if workload.released is not None else workload.status.preempted_at
    # Creation has whole seconds.
    return since is not None and since // SECOND <= demand.created // SECOND


def _keep_capacity(run: _Run, search: Search, credit: Mapping[str, int]) -> list[Reservation]:
    """Keep what this demand uses from the demands after it; return its places."""
    for name, count in credit.items():
        if count:
            run.pool[name] -= count
    demanded = {pod.uid: pod.amounts for pod in search.pods}
    places = [
        Reservation(search.demand.key, uid, node, demanded[uid]) for uid, node in search.placement
    ]
    run.placed.extend(places)
    return places


def _note_settling(run: _Run, workload: Workload) -> None:
    status = workload.status
    if status.phase is not Phase.PREEMPTED:
        return
    found = (overdue_from(pod, status.preempted_at, run.policy) for pod in workload.pods)
    ends = [end for end in found if end is not None]
    if ends and len(ends) == len(workload.pods):
        run.due.append(Nanos(max(ends) + 1))
    since = workload.released if workload.released is not None else status.preempted_at
    if not workload.pods and since is not None:
        run.due.append(Nanos(since + run.policy.settling))


def _room(run: _Run, demand: Workload, flying: Iterable[Workload]) -> Room:
    """Return what is free for this demand before victims are chosen, per node.

    What leaves for it, or for no work, counts; what earlier plans placed does not.
    """
    room: Room = {node.name: dict(node.free) for node in run.snapshot.nodes}
    for workload in (*flying, *run.pool_members):
        leave(room, workload.pods)
    for held in (*run.snapshot.reservations, *run.placed):
        if held.demand != demand.key and held.node in room:
            node = room[held.node]
            for name, count in held.amounts.items():
                node[name] = node.get(name, 0) - count
    return room


def _oldest_idle_first(workload: Workload) -> tuple[int, int, GpuWorkloadKey]:
    """Order: 1. the rank that others gave; 2. start of the idle stretch; 3. namespace/name."""
    since = workload.status.idle_since
    return (workload.rank, 0 if since is None else since, workload.key)
