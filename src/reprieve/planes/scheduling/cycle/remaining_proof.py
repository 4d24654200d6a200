"""Whether a plan that a fault interrupted is finished: the proof made again for what is left of it.

The victims that the plan evicted were evicted in vain if the others stay and capacity is looked for
elsewhere. So the others are evicted, too, if a pod of the preemptor still waits, every pod that was
to get a node gets that node once they have ended (`engine.scheduling.proofs.proof`, compiled anew),
and not without that. A pod that has left meanwhile drops no plan. The claims of other open plans
count, and so their victims do. Pure. Source: the design's "Intent log and executor" and "Recovery".
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from reprieve.api.reprieve import Preemption, Victim
from reprieve.engine.cluster.rows import PodRow
from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.placement.profile import Policy
from reprieve.engine.placement.reasons import Code
from reprieve.engine.plan import Plan, Plane, Proof, ProofLevel
from reprieve.engine.plan import Victim as PlannedVictim
from reprieve.engine.scheduling import outcome
from reprieve.engine.scheduling.proofs.proof import feasibility_faults_of
from reprieve.engine.scheduling.session import Session
from reprieve.units.ids import PlanId, Uid

__all__ = ["FITS", "fits_by_now", "why_not_finished"]

FITS: Final = "its preemptor fits without it by now"

_FOUND = outcome.Preemption(
    Code.SUCCESS, outcome.Explanation(outcome.Sentence.FOUND_GROUP), victims=()
)


def why_not_finished(
    intent: Preemption,
    rest: Sequence[Victim],
    waiting: Sequence[PodRow],
    snapshot: Snapshot,
    policy: Policy,
    now: int,
    overdue: Collection[Uid],
    beside: Collection[Uid] = (),
) -> str:
    """Return why the rest of the victims stays, empty where it has to be evicted.

    `waiting`: the pods of the plan's placement that still wait for a node; `now`: Unix seconds.
    `beside`: victims of other plans that leave. A plan that holds only with these is still needed.
    """
    if not waiting:
        return "no pod of its preemptor waits any more"
    uids = {row.uid for row in waiting}
    unit = _unit(waiting, snapshot)
    placement = tuple(
        (Uid(place.uid), place.node) for place in intent.spec.placement if place.uid in uids
    )
    there = set(snapshot.pod_uids)
    gone = [each for each in intent.spec.victims if each not in rest]

    def faults(victims: Sequence[Victim], beside: Collection[Uid] = ()) -> Sequence[object]:
        plan = Plan(
            PlanId(intent.spec.plan_id),
            Plane.SCHEDULING,
            intent.spec.revision,
            Proof(ProofLevel.PLACEMENT),
            None,
            tuple(map(_planned, victims)),
            placement,
        )
        attempt = outcome.Attempt(unit, Code.UNSCHEDULABLE, (), preemption=_FOUND, plan=plan)
        return feasibility_faults_of(snapshot, policy, attempt, now, overdue, beside)

    leaving = [each for each in gone if each.root.uid in there]
    left = [each for each in rest if each.root.uid in there]
    found = faults([*leaving, *left], beside)
    if found:
        return f"its plan does not hold any more: {found[0]}"
    if not faults(leaving):
        return FITS
    return ""


def fits_by_now(
    unit: outcome.Unit,
    snapshot: Snapshot,
    policy: Policy,
    now: int,
    overdue: Collection[Uid],
) -> bool:
    """Return whether a preemptor, its whole tree where it is one, fits without what leaves."""
    session = Session(snapshot, policy, overdue=overdue, now=now)
    return session.places_all([unit])


def _unit(waiting: Sequence[PodRow], snapshot: Snapshot) -> outcome.Unit:
    first = waiting[0]
    group = f"{first.namespace}/{first.group}" if first.group else ""
    if group not in snapshot.group_index:
        group = ""
    return outcome.Unit(tuple(row.uid for row in waiting), group)


def _planned(victim: Victim) -> PlannedVictim:
    return PlannedVictim(
        victim.subject.reference,
        victim.root.reference,
        victim.amounts,
        victim.rule,
        victim.reason,
        victim.unit,
    )
