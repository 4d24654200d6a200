"""What the record of a plan is called, and what it states of the plan.

The name is made of plane, preemptor uid (or `always`) and attempt, so that creating it twice is
harmless: the second create meets the first. Source: the design's "Intent log and executor", step 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos, format_instant
from reprieve.api.reprieve import (
    Action,
    Guard,
    ObjectRef,
    Placement,
    PreemptionSpec,
    Proof,
    Victim,
    VictimNotice,
)
from reprieve.engine.demands import Beside
from reprieve.engine.notice.granting import NO_GRANT, Grant
from reprieve.engine.plan import Plan
from reprieve.records.beside import stored_beside, with_joint
from reprieve.records.plans.at_stake import AtStake, with_stakes

__all__ = ["intent_name", "intent_spec"]


def intent_name(plan: Plan, attempt: int, *, dry_run: bool = False) -> str:
    """Return the object name; a dry run's is made of the plan, so that it is written once."""
    if dry_run:
        return f"{plan.plane}-dry-run-{plan.id}"
    return f"{plan.plane}-{plan.preemptor.uid if plan.preemptor else 'always'}-{attempt}"


def intent_spec(
    plan: Plan,
    attempt: int,
    now: Nanos,
    *,
    actions: Sequence[Action] = (),
    dry_run: bool = False,
    decision_input: dict[str, Any] | None = None,
    at_stake: AtStake | None = None,
    beside: Beside | None = None,
    notices: Sequence[Grant] = (),
) -> PreemptionSpec:
    """Return the spec that records `plan`; `actions` are parallel to its victims.

    `beside`: what was known of other planes, which stands in the input, too. `notices`: what each
    victim is given, parallel to the victims; empty for no work.
    """
    chosen = actions or [Action.DELETE] * len(plan.victims)
    victims = [
        Victim(
            subject=ObjectRef.of(victim.subject),
            root=ObjectRef.of(victim.root),
            amounts=dict(victim.amounts),
            rule=victim.rule,
            reason=victim.reason,
            action=action,
            unit=victim.unit,
            notice=_notice(now, reported),
            notice_withheld=reported.withheld or "",
        )
        for victim, action, reported in zip(
            plan.victims, chosen, notices or [NO_GRANT] * len(plan.victims), strict=True
        )
    ]
    spec = PreemptionSpec(
        plane=plan.plane,
        plan_id=plan.id,
        attempt=attempt,
        proof=Proof(
            level=plan.proof.level,
            compatible=plan.proof.compatible,
            need=dict(plan.proof.need),
            in_flight=dict(plan.proof.in_flight),
            freed=dict(plan.proof.freed),
            free=dict(plan.proof.free),
            profile=plan.proof.profile,
            gap=plan.proof.gap,
        ),
        victims=victims if at_stake is None else with_stakes(victims, at_stake.victims),
        decided_at=format_instant(now),
        preemptor=ObjectRef.of(plan.preemptor) if plan.preemptor else None,
        revision=plan.revision,
        reprieved=dict(plan.reprieved),
        guards=[Guard(ObjectRef.of(guard.subject), list(guard.phases)) for guard in plan.guards],
        placement=[Placement(uid, node) for uid, node in plan.placement],
        dry_run=dry_run,
        input=None if decision_input is None else {**decision_input, **stored_beside(beside)},
        preemptor_lineage="" if at_stake is None else at_stake.preemptor,
    )
    return with_joint(spec, plan, beside)


def _notice(now: Nanos, reported: Grant) -> VictimNotice | None:
    """Return until when a victim may save: whole seconds, and not a moment less."""
    if not reported.time:
        return None
    deadline = Nanos(now + reported.time + SECOND - 1)
    return VictimNotice(
        format_instant(deadline), format_instant(Nanos(deadline + reported.extension))
    )
