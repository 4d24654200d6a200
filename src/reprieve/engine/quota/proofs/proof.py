"""An independent look at a preemption by quota before it is carried out.

A plan is checked against two states: the snapshot on which its victims were looked for, and the one
that the cycle has by now, in which those before it have their quota. Nothing of the search is used,
and no figure of the tree: quotas are worked out anew (`reckoning`), and what a victim holds, its
priority and its timestamp are read from its Workload.

Of the preemptor: it holds no quota; what is requested is what its pod sets need, on flavors that
its ClusterQueue offers for them; something of it is *lacking*, which is worked out here.

Of each victim, on the snapshot of the search: it holds quota, is named once, is not on its way out
by another plan, and is beyond its minimum runtime; the policy of the preemptor's ClusterQueue
permits it (`withinClusterQueue`, `reclaimWithinCohort`), and it has a flavor-resource that is
lacking. One of another ClusterQueue is in the same tree, in an active queue. That queue, and every
cohort below the lowest one that it shares with the preemptor, gives only while it uses more than
its own: with all its victims evicted but one it still does. In which order victims were chosen is
not known, since those that are reprieved leave no trace; one of them was the last.

Its reason is that of the rule. Classically: from the place in the hierarchy, and from
`borrowWithinCohort` with its threshold. Who may be preempted only while the preemptor does not
borrow is no victim if it would borrow. With fair sharing: reclamation is for a preemptor within its
nominal quota, all others compare shares. A comparison was made at a moment that is not known
either, so that it is required only that one of the configured inequalities could have held: with
no other victim of its side evicted, and on the preemptor's side all evicted that may be preempted.

Of all victims together: once they are evicted the preemptor fits, on the snapshot of the search,
and on what the cycle has by now without those that are preempted already. And none of them could
stay. The reference reprieves, from the last chosen to the first, each one that is not needed, but
for the very last, without which it did not fit; capacity only grows with each eviction, so no
single victim can be reprieved afterwards, with or without fair sharing. That holds on the snapshot
of the search and within the attempt (borrowing or not) that found the victims; other plans of the
cycle may free what spares one, which the reference does not look for, and neither does this.

With profile `best` other victims may replace those that the reference chooses: they may
not cost more (`proof_cost`).

Not looked at: whether yet others should have been chosen rather, whether pods tolerate a flavor,
and pairs that are held back from each other, which are in no snapshot.

Source: promises "Feasible" and "Irreducible" of the design; specification of the quota plane,
sections 3, 6, 7 and 8.3.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import StrEnum

from kubeworld.units.durations import SECOND
from reprieve.engine.plan_faults import PlanFault
from reprieve.engine.quota.holdings.holders import Holder
from reprieve.engine.quota.holdings.reckoning import Usage
from reprieve.engine.quota.holdings.snapshot import Snapshot
from reprieve.engine.quota.model import Reason, Workload
from reprieve.engine.quota.proofs.cost import cost_of
from reprieve.engine.quota.proofs.demand import NotOffered, TooFewPods, demand_of
from reprieve.engine.quota.proofs.proof_state import (
    Preempting,
    ProofState,
    Side,
    Victim,
    effective,
)
from reprieve.engine.quota.proofs.shares import Comparisons

__all__ = ["Fault", "faults_of"]


class Fault(StrEnum):
    """What is wrong with a preemption."""

    DEMAND = "what is requested is not what the pod sets need"
    NOT_OFFERED = "the ClusterQueue offers no such flavor"
    HOLDS_QUOTA = "the preemptor holds quota already"
    NOTHING_LACKS = "the preemptor fits without a victim"
    NOT_HOLDING = "the victim holds no quota"
    NAMED_TWICE = "the victim is named twice"
    ITSELF = "the victim is the preemptor"
    ALREADY_EVICTED = "the victim is to be evicted again"
    ELSEWHERE = "the victim's ClusterQueue is inactive, or of another tree"
    FORBIDDEN = "the policy does not permit the victim"
    PROTECTED = "the victim is within its minimum runtime"
    OF_NO_USE = "the victim has nothing of what is lacking"
    WITHIN_ITS_OWN = "the ClusterQueue gives more than it, or a cohort above it, has borrowed"
    WRONG_REASON = "the reason is not that of the rule"
    NOT_WHILE_BORROWING = "the victim may not be preempted for a preemptor that borrows"
    SHARES = "no comparison of shares permits the victim"
    NOT_FEASIBLE = "the preemptor does not fit without the victims"
    NOT_PLACED = "the preemptor's pods have no places without the victims"
    NOT_NEEDED = "the preemptor fits without this victim"
    UNDERSTATED = "the cohort's stated usage is less than its members'"
    DEARER = "the victims cost more than those of the reference"


def faults_of(
    plan: Preempting,
    searched: Snapshot,
    current: Snapshot,
    holders: Mapping[str, Holder],
    leaving: Collection[Holder] = (),
) -> tuple[PlanFault, ...]:
    """Return what is wrong with a preemption; nothing for one that may be carried out.

    Args:
        plan: what is to be proven.
        searched: the snapshot on which the victims were looked for.
        current: the snapshot as the cycle has it by now.
        holders: who holds quota by now, by key; what is to be evicted by plans before is evicted.
        leaving: who is preempted already, or is replaced, and still counts in `current`.
    """
    state = ProofState(plan, searched)
    faults = [*_preemptor(state, holders), *_named(state, holders)] or [*_one_by_one(state)]
    if not faults:
        gone = _without(state, searched, ())
        faults = [*_together(state, gone)] or [*_by_now(state, current, leaving)]
    if not faults and plan.instead:
        victims = [victim.holder for victim in plan.victims]
        if cost_of(state, victims) > cost_of(state, plan.instead):
            faults = [PlanFault(Fault.DEARER, plan.workload.key)]
    return tuple(faults)


def _preemptor(state: ProofState, holders: Mapping[str, Holder]) -> Iterator[PlanFault]:
    key = state.plan.workload.key
    if key in holders:
        yield PlanFault(Fault.HOLDS_QUOTA, key)
    if not state.lacks:
        yield PlanFault(Fault.NOTHING_LACKS, key)
    yield from _demand(state)
    for cohort in state.before.understated(state.path[1:], state.lacking):
        yield PlanFault(Fault.UNDERSTATED, state.tree.names[cohort])


def _demand(state: ProofState) -> Iterator[PlanFault]:
    plan, tree = state.plan, state.tree
    if not plan.pod_sets:
        return
    asked = {tree.flavor_resources[column]: n for column, n in plan.requests.items()}
    assigned = {each.name: each for each in plan.pod_sets}
    try:
        needed = demand_of(plan.workload, state.config, state.settings, assigned)
    except NotOffered as failure:
        yield PlanFault(Fault.NOT_OFFERED, plan.workload.key, str(failure))
    except TooFewPods as failure:
        yield PlanFault(Fault.DEMAND, plan.workload.key, str(failure))
    else:
        if asked != needed:
            yield PlanFault(Fault.DEMAND, plan.workload.key)


def _named(state: ProofState, holders: Mapping[str, Holder]) -> Iterator[PlanFault]:
    """Yield what is wrong with who is named."""
    own, seen = state.plan.workload.key, set[str]()
    for victim in state.plan.victims:
        holder = victim.holder
        key = holder.key
        if key in seen:
            yield PlanFault(Fault.NAMED_TWICE, key)
        seen.add(key)
        live = holders.get(key)
        if key == own:
            yield PlanFault(Fault.ITSELF, key)
        elif live is holder:
            continue
        elif live is None or live.workload.uid != holder.workload.uid:
            yield PlanFault(Fault.NOT_HOLDING, key)
        elif live.workload.evicted is not None and holder.workload.evicted is None:
            yield PlanFault(Fault.ALREADY_EVICTED, key)


def _one_by_one(state: ProofState) -> Iterator[PlanFault]:
    """Yield what is wrong with each victim, the others aside."""
    own, fair = state.plan.queue, state.settings.fair_sharing is not None
    comparisons = Comparisons(state) if fair else None
    for alike, victims in state.alike.items():
        queue, _, columns = alike
        side = state.side(queue)
        if side is None:
            name = state.tree.names[queue]
            yield from (PlanFault(Fault.ELSEWHERE, each.holder.key, name) for each in victims)
            continue
        yield from _permitted(state, queue == own, victims)
        if state.lacking.isdisjoint(columns):
            yield from (PlanFault(Fault.OF_NO_USE, each.holder.key) for each in victims)
        for victim in victims:
            if queue == own:
                reason = Reason.IN_CLUSTER_QUEUE
            elif not fair:
                reason = _classical_reason(state, side, victim.holder.workload)
            elif state.within_nominal:
                reason = Reason.IN_COHORT_RECLAMATION
            else:
                reason = Reason.IN_COHORT_FAIR_SHARING
            if victim.reason is not reason:
                said = f"{victim.reason}, not {reason}"
                yield PlanFault(Fault.WRONG_REASON, victim.holder.key, said)
        shared = [each for each in victims if each.reason is Reason.IN_COHORT_FAIR_SHARING]
        if shared and comparisons is not None and not comparisons.permit(side, shared[0].holder):
            yield from (PlanFault(Fault.SHARES, each.holder.key) for each in shared)


def _permitted(state: ProofState, own: bool, victims: Iterable[Victim]) -> Iterator[PlanFault]:
    """Yield whom the policy, or a minimum runtime, keeps from being preempted."""
    policy = state.policy(own)
    for victim in victims:
        workload = victim.holder.workload
        if not state.permits(policy, workload):
            yield PlanFault(Fault.FORBIDDEN, victim.holder.key)
        seconds = workload.preempt_min_runtime_s if own else workload.reclaim_min_runtime_s
        if seconds and workload.reserved_at is not None and workload.evicted is None:
            left = workload.reserved_at + seconds * SECOND - state.plan.now
            if left > 0:
                yield PlanFault(Fault.PROTECTED, victim.holder.key, f"{left / SECOND:g}s")


def _classical_reason(state: ProofState, side: Side, workload: Workload) -> Reason:
    """Return the reason for a victim of another ClusterQueue."""
    if side.advantage or not state.borrows:
        return Reason.IN_COHORT_RECLAMATION
    borrow, priority = state.rules.borrow_within_cohort, effective(workload, state.settings)
    most = None if borrow is None else borrow.max_priority_threshold
    if priority >= state.priority or (most is not None and priority > most):
        return Reason.IN_COHORT_RECLAMATION
    return Reason.IN_COHORT_RECLAIM_WHILE_BORROWING


def _together(state: ProofState, gone: Usage) -> Iterator[PlanFault]:
    """Yield what is wrong with all victims together; `gone` is the usage without them."""
    sides = {queue: side for queue, *_ in state.alike if (side := state.side(queue)) is not None}
    yield from _beyond_their_own(state, gone, sides)
    attempts = _attempts(state, sides)
    if not attempts:
        yield PlanFault(Fault.NOT_WHILE_BORROWING, state.plan.workload.key)
        return
    faults: list[PlanFault] = []
    for borrowing in attempts:
        # Any attempt that may have found them is as good as another.
        found = list(_attempted(state, gone, sides, borrowing))
        if not found:
            return
        faults = faults or found
    yield from faults


def _attempted(
    state: ProofState, gone: Usage, sides: Mapping[int, Side], borrowing: bool
) -> Iterator[PlanFault]:
    """Yield what is wrong if the victims were found with, or without, borrowing."""
    if not state.fits(gone, borrowing):
        lost = not borrowing and state.fits(gone, True)
        word = Fault.NOT_WHILE_BORROWING if lost else Fault.NOT_FEASIBLE
        yield PlanFault(word, state.plan.workload.key)
        return
    if state.places is not None:
        fault = state.places.fault_without(victim.holder for victim in state.plan.victims)
        if fault:
            yield PlanFault(Fault.NOT_PLACED, state.plan.workload.key, fault)
            return
    # By flavor-resource, what is added, and where it shares its way up with the preemptor.
    needed: dict[tuple[int, int, int], bool] = {}
    for (queue, held, _), victims in state.alike.items():
        side = sides[queue]
        for column, amount in held:
            if column not in state.wanted:
                continue
            # One flavor-resource states nothing about another, so that one may be enough.
            back = column, gone.trail(column, side.below, amount)[-1], side.common
            if back not in needed:
                _, more, node = back
                gone.change(column, {node: more})
                needed[back] = not state.fits_in(gone, column, borrowing)
                gone.change(column, {node: -more})
            if needed[back]:
                break
        else:
            yield from (
                PlanFault(Fault.NOT_NEEDED, each.holder.key)
                for each in victims
                if _could_stay(state, each)
            )


def _could_stay(state: ProofState, victim: Victim) -> bool:
    """Return whether pods get their places with this victim where it is, without the others."""
    if state.places is None:
        return True
    others = (each.holder for each in state.plan.victims if each is not victim)
    return state.places.fits_without(others)


def _beyond_their_own(
    state: ProofState, gone: Usage, sides: Mapping[int, Side]
) -> Iterator[PlanFault]:
    """Yield the ClusterQueues that give what they, or cohorts above them, have not borrowed."""
    fair = state.settings.fair_sharing is not None
    exceeding: set[int] = set()  # with one victim of theirs reprieved
    for queue, held, _ in state.alike:
        below = sides[queue].below
        for column, amount in held:
            if exceeding.issuperset(below):
                break
            if fair or column in state.lacking:
                row, subtree = gone.of(column), state.reckoning.quotas(column).subtree
                for node, more in zip(below, gone.trail(column, below, amount), strict=False):
                    if row[node] + more > subtree[node]:
                        exceeding.add(node)
    for queue, side in sides.items():
        name = state.tree.names[queue]
        # For a candidate only what is lacking counts, though any flavor-resource does later on.
        if fair and side.below and not state.before.exceeds(queue, state.lacking):
            yield PlanFault(Fault.WITHIN_ITS_OWN, name, name)
        for node in side.below:
            if node not in exceeding:
                columns = state.reckoning.declared(node) if fair else state.lacking
                if not gone.exceeds(node, columns):
                    yield PlanFault(Fault.WITHIN_ITS_OWN, name, state.tree.names[node])


def _attempts(state: ProofState, sides: Mapping[int, Side]) -> tuple[bool, ...]:
    """Return whether the attempt that found these victims allowed borrowing, as far as is known."""
    if state.settings.fair_sharing is not None:
        return (True,)
    queue = state.plan.queue
    under = all(
        state.reckoning.quotas(column).subtree[queue] > state.before.of(column)[queue]
        for column in state.lacking
    )
    # Who may not preempt while it borrows, and has used up its own, only tries with borrowing.
    without = state.borrows or under
    for victim in state.plan.victims:
        side = sides[victim.holder.queue]
        if side.below and not side.advantage and victim.reason is Reason.IN_COHORT_RECLAMATION:
            return (False,) if without else ()
    return (True, False) if without else (True,)


def _by_now(
    state: ProofState, current: Snapshot, leaving: Collection[Holder]
) -> Iterator[PlanFault]:
    """Yield what is wrong with the plan in the state that the cycle has by now."""
    used, then = current.usage, state.snapshot.usage
    if not leaving and all(used[column] == then[column] for column in state.wanted):
        return
    named = {victim.holder.key for victim in state.plan.victims}
    others = [holder for holder in leaving if holder.key not in named]
    if not state.fits(_without(state, current, others), True):
        yield PlanFault(Fault.NOT_FEASIBLE, state.plan.workload.key, "by now")


def _without(state: ProofState, snapshot: Snapshot, others: Iterable[Holder]) -> Usage:
    """Return the usage without the victims and these others."""
    gone = [(queue, held, len(victims)) for (queue, held, _), victims in state.alike.items()]
    gone += [(holder.queue, holder.held, 1) for holder in others]
    totals: dict[int, dict[int, int]] = {}
    for queue, held, count in gone:
        for column, amount in held:
            of_column = totals.setdefault(column, {})
            of_column[queue] = of_column.get(queue, 0) - amount * count
    usage = Usage(state.reckoning, snapshot.usage)
    for column, amounts in totals.items():
        usage.change(column, amounts)
    return usage
