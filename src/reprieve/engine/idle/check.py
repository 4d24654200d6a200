"""An independent look at an idle plan before it is carried out.

`check` is given the plan and the snapshot it was decided on (or a newer one) with the claims of
the plans before it (`idle.claims.before_each`), and recounts everything from the rows; it shares no
code with the evaluation beyond the freshness of samples. `check_all` does so for the plans of a
run. The executor refuses a plan with violations: a defect of ours or a world that has changed.

Verified: victims are known, idle for their grace period, fresh, unclaimed and named once; the need
is the whole demand, at proof level Placement that of its pending pods; in-flight credit is no less
than what is on its way to the demand, and no more than that and what is on its way to no demand, or
to one that waits no longer; at level Sum need <= in flight + freed for every name, at level
Placement every pending pod has an admitted node with capacity.

No victim could stay while all others are evicted, around the placement where there is one: a
workload is evicted or stays as a whole, and nothing but amounts counts, so that every victim is
checked for this. For a demand that the quota plane owns exactly those are evicted that it named,
and so are those that the scheduling plane named where it evicts work of lower priority as well.
Where the compatible order is in force a plan may have too many victims, and then has to state
`compatible`; where placements are proven, or victims trimmed, none may. Of what is on its way to no
demand, demands before this one may have used any part, so that too little credit of that is not
noticed. Source: promises "Feasible", "Irreducible" and "Silence is not idleness" of the design.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeAlias

from kubeworld.objects.pods import OVER
from kubeworld.units.instants import Nanos
from reprieve.engine.idle.claims import before_each
from reprieve.engine.idle.model import (
    Fit,
    IdleSnapshot,
    Phase,
    PodRow,
    Policy,
    PreemptionPolicy,
    Reservation,
    Workload,
)
from reprieve.engine.idle.samples import SampleState, freshness
from reprieve.engine.plan import Plan, Plane, Proof, ProofLevel, Victim, plan_id
from reprieve.units.ids import GpuWorkloadKey, Uid
from reprieve.units.references import Reference

__all__ = ["Fault", "Violation", "check", "check_all"]

_Place: TypeAlias = tuple[str, str]  # node, resource name


class Fault(StrEnum):
    """What is wrong with a plan."""

    NOT_IDLE_PLANE = "the plan is not one of the idle plane"
    WRONG_ID = "the id is not that of the plan"
    UNKNOWN_PREEMPTOR = "the preemptor is not in the snapshot, or not PendingGpu"
    UNKNOWN_VICTIM = "the victim is not in the snapshot, or its root or amounts differ"
    NAMED_TWICE = "the root is named twice"
    CLAIMED = "another plan has claimed the victim"
    HELD = "the governor holds the victim from the preemptor"
    NOT_IDLE = "the victim is not Idle"
    WITHIN_GRACE = "the victim has not been idle for its grace period"
    NOT_FRESH = "the victim's metrics are missing or out of date"
    WRONG_POLICY = "the victim's policy does not allow it"
    WRONG_LEVEL = "the proof level is not that of the policy"
    WRONG_NEED = "the need is not the demand's total"
    WRONG_SUM = "the freed amounts are not those of the victims"
    OVERSTATED_FLIGHT = "more is credited than is on its way"
    UNDERSTATED_FLIGHT = "less is credited than is on its way to the demand"
    NOT_FEASIBLE = "need exceeds what is in flight and freed"
    NOT_PLACED = "a pending pod has no admitted node with capacity"
    REDUCIBLE = "a victim can be reprieved, and the plan does not state it"
    WRONGLY_COMPATIBLE = "the plan states that it may evict too many, and may not, or does not"
    UNGUARDED = "a guard is missing"
    BEYOND_DEBT = "the preemptor was displaced, and the victim exceeds what it lost"
    TORN_GANG = "a gang that is evicted as a whole is not named as a whole"


@dataclass(frozen=True, slots=True)
class Violation:
    """One fault; `subject` is the object concerned, `detail` numbers or names."""

    fault: Fault
    subject: str = ""
    detail: str = ""


def check(plan: Plan, snapshot: IdleSnapshot, policy: Policy, now: Nanos) -> tuple[Violation, ...]:
    """Return what is wrong with the plan; nothing for a plan that may be carried out."""
    if plan.plane is not Plane.IDLE:
        return (Violation(Fault.NOT_IDLE_PLANE, plan.plane),)
    workloads = {workload.key: workload for workload in snapshot.workloads}
    return (
        *_identity(plan, policy),
        *_victims(plan, workloads, snapshot, policy, now),
        *_guards(plan),
        *_proof(plan, workloads, snapshot, policy, now),
    )


def check_all(
    plans: Iterable[Plan],
    snapshot: IdleSnapshot,
    policy: Policy,
    now: Nanos,
    reservations: Iterable[Reservation] = (),
) -> tuple[Violation, ...]:
    """Return what is wrong with the plans of one run, each seen after those before it.

    `reservations`: the evaluation's own, for demands that needed no plan.
    """
    return tuple(
        violation
        for plan, seen in before_each(plans, snapshot, reservations)
        for violation in check(plan, seen, policy, now)
    )


def _identity(plan: Plan, policy: Policy) -> Iterator[Violation]:
    preemptor = None if plan.preemptor is None else plan.preemptor.uid
    roots = [victim.root.uid for victim in plan.victims]
    if plan.id != plan_id(Plane.IDLE, preemptor, roots, policy.fingerprint()):
        yield Violation(Fault.WRONG_ID, detail=plan.id)
    for uid in sorted(uid for uid, times in Counter(roots).items() if times > 1):
        yield Violation(Fault.NAMED_TWICE, uid)


def _victims(
    plan: Plan,
    workloads: Mapping[GpuWorkloadKey, Workload],
    snapshot: IdleSnapshot,
    policy: Policy,
    now: Nanos,
) -> Iterator[Violation]:
    yield from _within_debt(plan, workloads, snapshot)
    for victim in plan.victims:
        key = _key(victim.subject)
        workload = workloads.get(key)
        if workload is None or not _is_row_of(victim, workload):
            yield Violation(Fault.UNKNOWN_VICTIM, key)
            continue
        if victim.root.uid in snapshot.claims:
            yield Violation(Fault.CLAIMED, key)
        demand = "" if plan.preemptor is None else _key(plan.preemptor)
        if snapshot.held_until(demand, victim.root.uid, now) is not None:
            yield Violation(Fault.HELD, key)
        status, settings = workload.status, workload.settings
        if status.phase is not Phase.IDLE or status.idle_since is None:
            yield Violation(Fault.NOT_IDLE, key, status.phase)
        elif max(0, now - status.idle_since) < settings.grace_period:
            yield Violation(Fault.WITHIN_GRACE, key)
        if not _measured(workload, policy, now):
            yield Violation(Fault.NOT_FRESH, key)
        always = settings.policy is PreemptionPolicy.ALWAYS
        if always is not (plan.preemptor is None):
            yield Violation(Fault.WRONG_POLICY, key, settings.policy)


def _within_debt(
    plan: Plan, workloads: Mapping[GpuWorkloadKey, Workload], snapshot: IdleSnapshot
) -> Iterator[Violation]:
    """Yield the victims that may not be evicted for the return of displaced work."""
    key = "" if plan.preemptor is None else _key(plan.preemptor)
    if key not in snapshot.displaced:
        return
    debt = snapshot.debts.get(GpuWorkloadKey(key))
    found = [workloads[each] for v in plan.victims if (each := _key(v.subject)) in workloads]
    devices = sum(sum(each.gpus.values()) for each in found)
    if debt is None or devices > debt.devices:
        yield Violation(Fault.BEYOND_DEBT, key, f"{devices} of {debt.devices if debt else 0}")
    else:
        for victim in found:
            if not debt.allows(victim):
                yield Violation(Fault.BEYOND_DEBT, victim.key)


def _guards(plan: Plan) -> Iterator[Violation]:
    guarded = {(guard.subject, guard.phases) for guard in plan.guards}
    wanted = [(victim.subject, (Phase.IDLE,)) for victim in plan.victims]
    if plan.preemptor is not None:
        wanted.append((plan.preemptor, (Phase.PENDING_GPU,)))
    for subject, phases in wanted:
        if (subject, phases) not in guarded:
            yield Violation(Fault.UNGUARDED, _key(subject))


def _proof(
    plan: Plan,
    workloads: Mapping[GpuWorkloadKey, Workload],
    snapshot: IdleSnapshot,
    policy: Policy,
    now: Nanos,
) -> Iterator[Violation]:
    proof = plan.proof
    if plan.preemptor is None:
        if proof.level is not ProofLevel.EXEMPT or len(plan.victims) != 1:
            yield Violation(Fault.WRONG_LEVEL, detail=proof.level)
        return
    key = _key(plan.preemptor)
    demand = workloads.get(key)
    if demand is None or demand.status.phase is not Phase.PENDING_GPU:
        yield Violation(Fault.UNKNOWN_PREEMPTOR, key)
        return
    if key in snapshot.owned or (key in snapshot.mixed and policy.fit is Fit.NODE):
        held_against = _released if key in snapshot.owned else _mixed
        yield from held_against(plan, demand, workloads, snapshot)
        return
    waiting = _waiting(demand)
    for_quota = not any(pod.live for pod in demand.pods) or any(pod.gated for pod in waiting)
    on_nodes = policy.fit is Fit.NODE and not for_quota
    if proof.level is not (ProofLevel.PLACEMENT if on_nodes else ProofLevel.SUM):
        yield Violation(Fault.WRONG_LEVEL, key, proof.level)
    need = _need([pod.gpus for pod in waiting] if on_nodes else [demand.gpus])
    if dict(proof.need) != need:
        yield Violation(Fault.WRONG_NEED, key)
    known = _demands_of(snapshot)
    incoming = [w for w in snapshot.workloads if _incoming(w, demand, known, snapshot, policy, now)]
    for name, count in need.items():
        freed = sum(victim.amounts.get(name, 0) for victim in plan.victims)
        flight = proof.in_flight.get(name, 0)
        bound = sum(w.gpus.get(name, 0) for w in incoming)
        own = sum(w.gpus.get(name, 0) for w in incoming if _own(w, demand, snapshot, policy, now))
        if freed != proof.freed.get(name, 0):
            yield Violation(Fault.WRONG_SUM, key, name)
        if flight > bound:
            yield Violation(Fault.OVERSTATED_FLIGHT, key, f"{name}: {flight} of {bound}")
        if flight < own:
            yield Violation(Fault.UNDERSTATED_FLIGHT, key, f"{name}: {flight} of {own}")
        if not on_nodes and flight + freed < count:
            yield Violation(Fault.NOT_FEASIBLE, key, f"{name}: {flight} + {freed} < {count}")
    leaving = [pod for w in incoming for pod in w.pods]
    victims = [workloads[_key(v.subject)] for v in plan.victims if _key(v.subject) in workloads]
    yield from _torn(victims, snapshot)
    victims = _units(victims)
    spare = _spare_of_sum(proof, need, victims)
    if on_nodes:
        pods = [pod for w in victims for pod in w.pods]
        left = _left(plan, demand, snapshot, [*leaving, *pods])
        if left is None:
            yield Violation(Fault.NOT_PLACED, key)
        spare = [] if left is None else _spare_on_nodes(left, victims)
    if proof.compatible and (on_nodes or policy.trims or not spare):
        yield Violation(Fault.WRONGLY_COMPATIBLE, key)
    elif not proof.compatible:
        for victim in spare:
            yield Violation(Fault.REDUCIBLE, victim.key)


def _need(asked: Iterable[Mapping[str, int]]) -> dict[str, int]:
    need: Counter[str] = Counter()
    for each in asked:
        need.update({name: count for name, count in each.items() if count > 0})
    return dict(need)


def _released(
    plan: Plan,
    demand: Workload,
    workloads: Mapping[GpuWorkloadKey, Workload],
    snapshot: IdleSnapshot,
) -> Iterator[Violation]:
    """Hold a plan for a demand of the quota plane against what that plane named."""
    proof, key = plan.proof, demand.key
    if proof.level is not ProofLevel.QUOTA or proof.compatible:
        yield Violation(Fault.WRONG_LEVEL, key, proof.level)
    if dict(proof.need) != _need([demand.gpus]):
        yield Violation(Fault.WRONG_NEED, key)
    named = snapshot.released[key].roots if key in snapshot.released else ()
    yield from _as_named(plan, key, named, workloads, snapshot)


def _mixed(
    plan: Plan,
    demand: Workload,
    workloads: Mapping[GpuWorkloadKey, Workload],
    snapshot: IdleSnapshot,
) -> Iterator[Violation]:
    """Hold a plan beside work of lower priority against what the scheduling plane named."""
    proof, key, mixed = plan.proof, demand.key, snapshot.mixed[demand.key]
    if proof.level is not ProofLevel.PLACEMENT or proof.compatible:
        yield Violation(Fault.WRONG_LEVEL, key, proof.level)
    waiting = _waiting(demand)
    if dict(proof.need) != _need([pod.gpus for pod in waiting]):
        yield Violation(Fault.WRONG_NEED, key)
    placed = {uid for uid, _ in plan.placement}
    if plan.placement != mixed.placement or not placed.issuperset(pod.uid for pod in waiting):
        yield Violation(Fault.NOT_PLACED, key)
    yield from _as_named(plan, key, mixed.roots, workloads, snapshot)


def _as_named(
    plan: Plan,
    key: GpuWorkloadKey,
    named: Collection[Uid],
    workloads: Mapping[GpuWorkloadKey, Workload],
    snapshot: IdleSnapshot,
) -> Iterator[Violation]:
    """Hold the victims of a plan against those that another plane named."""
    proof = plan.proof
    going = Counter(victim.root.uid for victim in plan.victims)
    for root in sorted(set(named) - going.keys()):
        yield Violation(Fault.NOT_FEASIBLE, key, root)
    for root in sorted(going.keys() - set(named)):
        yield Violation(Fault.REDUCIBLE, root)
    for name, count in proof.freed.items():
        if count != sum(victim.amounts.get(name, 0) for victim in plan.victims):
            yield Violation(Fault.WRONG_SUM, key, name)
    known = (_key(victim.subject) for victim in plan.victims)
    yield from _torn([workloads[each] for each in known if each in workloads], snapshot)


def _torn(victims: Sequence[Workload], snapshot: IdleSnapshot) -> Iterator[Violation]:
    """Yield the units of which some member is not named, or is known to stay."""
    named = Counter(each.unit for each in victims if each.unit)
    there = Counter(each.unit for each in snapshot.workloads if each.unit in named)
    for unit in sorted(named):
        if unit in snapshot.busy_units or named[unit] != there[unit]:
            yield Violation(Fault.TORN_GANG, unit, f"{named[unit]}/{there[unit]}")


def _units(victims: Sequence[Workload]) -> list[Workload]:
    """Return each unit as one workload: its members are evicted and stay together."""
    found: dict[str, Workload] = {}
    for each in victims:
        unit = each.unit or f"/{each.root.uid}"
        first = found.get(unit)
        if first is None:
            found[unit] = each
            continue
        gpus = Counter(first.gpus)
        gpus.update(each.gpus)
        found[unit] = replace(first, gpus=dict(gpus), pods=(*first.pods, *each.pods))
    return list(found.values())


def _spare_of_sum(
    proof: Proof, need: Mapping[str, int], victims: Sequence[Workload]
) -> list[Workload]:
    """Return which could stay while all others are evicted."""
    over = {
        name: proof.in_flight.get(name, 0) + sum(w.gpus.get(name, 0) for w in victims) - count
        for name, count in need.items()
    }
    return [w for w in victims if all(w.gpus.get(name, 0) <= over[name] for name in need)]


def _spare_on_nodes(left: Mapping[_Place, int], victims: Sequence[Workload]) -> list[Workload]:
    """Return which could stay while all others are evicted, given what is left on nodes."""
    spare = []
    for victim in victims:
        held: Counter[_Place] = Counter()
        for place, count in _held(victim.pods):
            held[place] += count
        if all(count <= left[place] for place, count in held.items() if place in left):
            spare.append(victim)
    return spare


def _is_row_of(victim: Victim, workload: Workload) -> bool:
    return (
        victim.subject == workload.ref
        and victim.root == workload.root
        and dict(victim.amounts) == dict(workload.gpus)
    )


def _measured(workload: Workload, policy: Policy, now: Nanos) -> bool:
    if policy.literal.missing_metrics_are_zero:
        return True
    return freshness(workload, policy, now).state is SampleState.FRESH


@dataclass(frozen=True, slots=True)
class _Demands:
    """Keys and names of demands that wait, and of those that have used what was for them."""

    named: frozenset[str]
    served: frozenset[str]


def _demands_of(snapshot: IdleSnapshot) -> _Demands:
    demands = [w for w in snapshot.workloads if w.status.phase is Phase.PENDING_GPU]
    return _Demands(
        frozenset(name for each in demands for name in (each.key, each.ref.name)),
        frozenset(name for key in snapshot.served for name in (key, key.split("/")[1])),
    )


def _incoming(
    workload: Workload,
    demand: Workload,
    demands: _Demands,
    snapshot: IdleSnapshot,
    policy: Policy,
    now: Nanos,
) -> bool:
    """Whether these GPUs may be credited to the demand: freed for it, or for no demand."""
    status = workload.status
    nobody_counts = not policy.literal.always_not_credited

    def to_it(whom: str, *ours: str) -> bool:
        if whom in ours:
            return True
        # For no demand, or for one that waits no longer and does not use the capacity.
        if whom and (whom in demands.named or (whom in demands.served and not workload.pods)):
            return False
        return nobody_counts

    if workload.root.uid in snapshot.claims and status.phase is not Phase.DELETED:
        whom = snapshot.claims[workload.root.uid]
        ours = to_it(whom or "", demand.key)
    elif status.phase in (Phase.PREEMPTING, Phase.PREEMPTED):
        ours = to_it(status.preempted_for, demand.ref.name)
    else:
        # Victims under policy Always of the same run.
        return (
            nobody_counts
            and status.phase is Phase.IDLE
            and status.idle_since is not None
            and workload.settings.policy is PreemptionPolicy.ALWAYS
            and max(0, now - status.idle_since) >= workload.settings.grace_period
            and _measured(workload, policy, now)
        )
    if status.phase is not Phase.PREEMPTED:
        return ours
    ended = workload.released if workload.released is not None else status.preempted_at
    on_its_way = ended is not None and 0 <= now - ended < policy.settling
    on_its_way = _leaves(workload, policy, now) if workload.pods else on_its_way
    return ours and on_its_way and not policy.literal.preempted_not_in_flight


def _own(
    workload: Workload, demand: Workload, snapshot: IdleSnapshot, policy: Policy, now: Nanos
) -> bool:
    """Whether these GPUs, which are on their way, are for the demand and no other, for sure."""
    status = workload.status
    claimed = workload.root.uid in snapshot.claims
    whom = snapshot.claims[workload.root.uid] if claimed else status.preempted_for
    if whom not in (demand.key, demand.ref.name):
        return False
    return status.phase is not Phase.PREEMPTED or _leaves(workload, policy, now)


def _leaves(workload: Workload, policy: Policy, now: Nanos) -> bool:
    """Whether a pod of an evicted root need not have ended by now, or none is left."""
    since = workload.status.preempted_at or now
    short, longest = since + policy.unended, since + policy.longest_grace
    ends = [short if pod.ends is None else min(pod.ends, longest) for pod in workload.pods]
    return not ends or any(now <= end + policy.slack for end in ends)


def _left(
    plan: Plan, demand: Workload, snapshot: IdleSnapshot, leaving: Iterable[PodRow]
) -> dict[_Place, int] | None:
    """Return what the placement leaves of all that it uses; None where it does not hold."""
    waiting = {pod.uid: pod for pod in _waiting(demand)}
    places: dict[Uid, str] = dict(plan.placement)
    if len(places) != len(plan.placement) or places.keys() != waiting.keys() or not waiting:
        return None
    room = {(node.name, name): c for node in snapshot.nodes for name, c in node.free.items()}
    for place, count in _held(leaving):
        room[place] = room.get(place, 0) + count
    for held in snapshot.reservations:
        if held.demand != demand.key:
            for name, count in held.amounts.items():
                room[(held.node, name)] = room.get((held.node, name), 0) - count
    known = {node.name for node in snapshot.nodes}
    asked: set[_Place] = set()
    for uid, node in places.items():
        pod = waiting[uid]
        if node not in known or (pod.nodes is not None and node not in pod.nodes):
            return None
        for name, count in pod.amounts.items():
            asked.add((node, name))
            room[(node, name)] = room.get((node, name), 0) - count
    left = {place: room[place] for place in asked}
    return left if all(count >= 0 for count in left.values()) else None


def _held(pods: Iterable[PodRow]) -> Iterator[tuple[_Place, int]]:
    for pod in pods:
        if pod.node is not None and pod.phase not in OVER:
            for name, count in pod.amounts.items():
                yield (pod.node, name), count


def _waiting(demand: Workload) -> list[PodRow]:
    return [
        pod
        for pod in demand.pods
        if pod.phase == "Pending" and pod.node is None and pod.live and pod.gpus
    ]


def _key(ref: Reference) -> GpuWorkloadKey:
    return GpuWorkloadKey(f"{ref.namespace}/{ref.name}")
