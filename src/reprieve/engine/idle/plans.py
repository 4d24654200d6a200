"""Plans of an evaluation: victims with their rule, the proof, and what has to hold still.

Source: specification of the idle plane, sections 14 and 17.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from reprieve.engine.idle.model import IdleSnapshot, Phase, Policy, Workload
from reprieve.engine.idle.outcome import RULE_ALWAYS, RULE_BESIDE_PRIORITY, RULE_HOLDS_QUOTA
from reprieve.engine.idle.search import Search
from reprieve.engine.plan import Guard, Plan, Plane, Proof, ProofLevel, Victim, plan_id
from reprieve.units.ids import Uid
from reprieve.units.references import Reference

__all__ = ["Decided", "always_plan", "mixed_plan", "plan_of", "proof_of", "releasing_plan"]


class Decided(Protocol):
    """What a plan is decided on."""

    @property
    def snapshot(self) -> IdleSnapshot:
        """Return everything that the evaluation looks at."""
        ...

    @property
    def policy(self) -> Policy:
        """Return the policy in force."""
        ...


def proof_of(search: Search, *, compatible: bool, gap: int | None = None) -> Proof:
    """Return the proof of what a search found; `gap` as in `Proof`."""
    need, incoming = search.need, search.incoming
    freed = {name: sum(v.gpus.get(name, 0) for v in search.victims) for name in need}
    free = {name: max(0, need[name] - incoming[name] - freed[name]) for name in need}
    return Proof(
        level=ProofLevel.PLACEMENT if search.pods else ProofLevel.SUM,
        need=need,
        in_flight=incoming,
        freed=freed,
        compatible=compatible,
        free={name: count for name, count in free.items() if count},
        gap=gap,
    )


def releasing_plan(
    run: Decided, demand: Workload, victims: Sequence[Workload], *, mixed: bool
) -> Plan:
    """Return the plan for a demand of the quota plane: victims hold the quota it lacks.

    `mixed`: its pods get their nodes only once work of lower priority has been evicted, too.
    """
    need = {name: count for name, count in sorted(demand.gpus.items()) if count > 0}
    freed = {name: sum(v.gpus.get(name, 0) for v in victims) for name in need}
    free = {name: max(0, need[name] - freed[name]) for name in need}
    return plan_of(
        run,
        preemptor=demand.ref,
        victims=victims,
        rule=RULE_BESIDE_PRIORITY if mixed else RULE_HOLDS_QUOTA,
        proof=Proof(
            level=ProofLevel.QUOTA,
            need=need,
            in_flight=dict.fromkeys(need, 0),
            freed=freed,
            free={name: count for name, count in free.items() if count},
        ),
        guards=(Guard(demand.ref, (Phase.PENDING_GPU,)),),
    )


def mixed_plan(
    run: Decided,
    demand: Workload,
    need: Mapping[str, int],
    victims: Sequence[Workload],
    placement: tuple[tuple[Uid, str], ...],
) -> Plan:
    """Return the idle part of a plan: the scheduling plane evicts the rest.

    What of the need the victims do not free stands as free.
    """
    freed = {name: sum(v.gpus.get(name, 0) for v in victims) for name in need}
    free = {name: max(0, need[name] - freed[name]) for name in need}
    return plan_of(
        run,
        preemptor=demand.ref,
        victims=victims,
        rule=RULE_BESIDE_PRIORITY,
        proof=Proof(
            level=ProofLevel.PLACEMENT,
            need=need,
            in_flight=dict.fromkeys(need, 0),
            freed=freed,
            free={name: count for name, count in free.items() if count},
        ),
        placement=placement,
        guards=(Guard(demand.ref, (Phase.PENDING_GPU,)),),
    )


def always_plan(run: Decided, workload: Workload) -> Plan:
    """Return the plan for work under policy Always: it is evicted for no demand."""
    return plan_of(
        run,
        preemptor=None,
        victims=[workload],
        rule=RULE_ALWAYS,
        proof=Proof(level=ProofLevel.EXEMPT, freed=dict(workload.gpus)),
    )


def plan_of(
    run: Decided,
    *,
    preemptor: Reference | None,
    victims: Sequence[Workload],
    rule: str,
    proof: Proof,
    placement: tuple[tuple[Uid, str], ...] = (),
    reprieved: Mapping[str, int] | None = None,
    guards: tuple[Guard, ...] = (),
) -> Plan:
    """Return a plan; every victim has to be Idle still, and its proof states who chose them."""
    chosen = proof if preemptor is None else replace(proof, profile=run.policy.choice)
    return Plan(
        id=plan_id(
            Plane.IDLE,
            None if preemptor is None else preemptor.uid,
            (v.root.uid for v in victims),
            run.policy.fingerprint(),
        ),
        plane=Plane.IDLE,
        revision=run.snapshot.revision,
        proof=chosen,
        preemptor=preemptor,
        victims=tuple(Victim(v.ref, v.root, dict(v.gpus), rule, unit=v.unit) for v in victims),
        placement=placement,
        reprieved=reprieved or {},
        guards=(*guards, *(Guard(v.ref, (Phase.IDLE,)) for v in victims)),
    )
