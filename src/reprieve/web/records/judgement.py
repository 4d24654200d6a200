"""A record's decision, made again: the same plan or not, does its proof hold, who was looked at.

The decision is made from what the record stores, by the code that decides; the proof is that which
every plan passes before it is carried out. Pure. Source: promises "Feasible", "Irreducible",
"Deterministic" and "Explained" of the design.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from reprieve.answers.preemptions.recorded import Replays, judged
from reprieve.api.reprieve import Preemption
from reprieve.engine.idle.check import check
from reprieve.engine.idle.claims import before_each
from reprieve.engine.scheduling.gangs.job import VictimGangs
from reprieve.engine.scheduling.nodes.nominations import nominations_of
from reprieve.engine.scheduling.proofs.proof import faults_of
from reprieve.records.quota.replay import QuotaReplay
from reprieve.records.scheduling.record import holds_of
from reprieve.records.scheduling.replay import SchedulingReplay
from reprieve.web.records.candidates import candidates_of, order_of
from reprieve.web.records.judged import Again, Candidate, Fate, Judgement

__all__ = ["MOST_CANDIDATES", "judgement_of"]

#: Most candidates of one fate that are kept one by one, victims aside; all are counted.
MOST_CANDIDATES: Final = 1_000


def judgement_of(record: Preemption) -> Judgement:
    """Return what deciding again states of a whole record."""
    replay, text, upheld = judged(record)
    if replay is None:
        return Judgement(Again.IMPOSSIBLE, text)
    again = Again.SAME if upheld else Again.DIFFERS
    faults = _faults(record, replay)
    kept: list[Candidate] = []
    counts: Counter[str] = Counter()
    by_fate: Counter[Fate] = Counter()
    for each in candidates_of(replay):
        counts[f"{each.fate}/{each.rule}"] += 1
        by_fate[each.fate] += 1
        if each.fate is Fate.MADE_WAY or by_fate[each.fate] <= MOST_CANDIDATES:
            kept.append(each)
    return Judgement(
        again,
        text,
        faults or [],
        faults is not None,
        kept,
        dict(sorted(counts.items())),
        order_of(replay),
    )


def _faults(record: Preemption, replay: Replays) -> list[str] | None:
    """Return what the plane's proof states against the plan, None where there is none to check.

    The quota plane runs it within the cycle: a plan that fails there is never issued.
    """
    plan_id = record.spec.plan_id
    if isinstance(replay, QuotaReplay):
        plan = replay.plan(record.spec.revision)
        return [] if plan is not None and plan.id == plan_id else None
    if isinstance(replay, SchedulingReplay):
        if replay.plan is None or replay.plan.id != plan_id:
            return None
        policy, now = replay.decided_on.policy, replay.decided_on.now
        found = faults_of(
            replay.snapshot,
            policy,
            replay.attempt,
            now,
            nominations_of(replay.snapshot, policy),
            VictimGangs.ALL,
            holds_of(replay.decided_on),
            overdue=replay.decided_on.overdue,
        )
        return [str(each) for each in found]
    decided_on = replay.decided_on
    for plan, seen in before_each(
        replay.evaluation.plans, decided_on.snapshot, replay.evaluation.reservations
    ):
        if plan.id == plan_id:
            faults = check(plan, seen, decided_on.policy, decided_on.now)
            return [str(each.fault) for each in faults]
    return None
