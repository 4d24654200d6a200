"""What follows from a gang's cycle: a list of effects, made by pure functions.

| the cycle ended with | then, in this order |
| --- | --- |
| every gang has its minimum | all with a node are bound, those that waited too |
| members short of the minimum | those with a node wait in Permit |
| a member that does not fit | it gets its own message, its siblings that of the cycle |
| victims | nominations are kept and written, the victims deleted; those in Permit only rejected |
| no way, even with victims | all nominations of the group are cleared |

Which members wait in Permit is known once those of this cycle do, so that what follows from a cycle
that binds no pod is worked out then (`Park`). Nothing is done here: `carry_out` does it. Source:
specification of gang jobs, sections 5, 8 and 9; the design's "How data flows".
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from reprieve.engine.cluster.rows import PodRow
from reprieve.engine.cluster.snapshot import Flag, Snapshot
from reprieve.engine.placement.reasons import Code
from reprieve.engine.plan import Plan
from reprieve.engine.scheduling.gangs.job import JobReason
from reprieve.engine.scheduling.outcome import Attempt, GangCycle, Member
from reprieve.engine.scheduling.queueing.queue import Outcome
from reprieve.engine.scheduling.queueing.rejecting import rejecting_plugins
from reprieve.planes.scheduling.cycle.effects import (
    Announce,
    Assume,
    Effect,
    Evict,
    GiveBack,
    Hold,
    Log,
    Nominated,
    Rejecting,
    Return,
    WritePod,
    nominated_node,
    reminders,
)
from reprieve.planes.scheduling.cycle.preemptor import Preemptor
from reprieve.planes.scheduling.gangs.audited import Audited, audited
from reprieve.settings.coscheduling import CoschedulingSettings
from reprieve.units.counts import counted
from reprieve.units.ids import Uid
from reprieve.wording import koordinator as wording
from reprieve.wording.attempts import GangOf, GangTexts, PodTexts, gang_texts, not_scheduled
from reprieve.wording.kube_scheduler import PreemptorKind

__all__ = [
    "GangEffect",
    "GangFacts",
    "HoldBack",
    "InPermit",
    "ObserveCycle",
    "Park",
    "Release",
    "Satisfy",
    "Unpark",
    "gang_effects",
]


@dataclass(frozen=True, slots=True)
class InPermit:
    """A member that waits in Permit for `node`, with a node counted for it.

    `row`: as it came there. `now`: as it is, None if deleted. `ours`: it can be queued again.
    """

    row: PodRow
    node: str
    now: PodRow | None
    ours: bool


@dataclass(frozen=True, slots=True)
class GangFacts:
    """What is known of a gang group when its attempt is carried out.

    `rows`: pods of the unit that are still there. `gangs`: by pod, those of the unit. `permit`: who
    waited before this cycle. `snapshot`: that it was decided on.
    """

    rows: Mapping[Uid, PodRow]
    gangs: Mapping[Uid, GangOf]
    permit: Mapping[Uid, InPermit]
    snapshot: Snapshot
    settings: CoschedulingSettings
    took: int = 0  # nanoseconds


@dataclass(frozen=True, slots=True)
class ObserveCycle:
    """Count the cycle in the metrics, and its job's preemption."""

    attempt: Attempt
    cycle: GangCycle
    took: int  # nanoseconds


@dataclass(frozen=True, slots=True)
class Park:
    """Members that have a node wait in Permit, but for a dry run.

    `then`: what follows once it is known who of `about` waits.
    """

    cycle: GangCycle
    about: Collection[Uid]
    then: Callable[[Mapping[Uid, InPermit]], Iterable[GangEffect]]


@dataclass(frozen=True, slots=True)
class Unpark:
    """Members wait no longer, as they are bound."""

    uids: Collection[Uid]


@dataclass(frozen=True, slots=True)
class Release:
    """Members wait no longer, and return to the queue."""

    uids: Collection[Uid]


@dataclass(frozen=True, slots=True)
class Satisfy:
    """The group has its minimum from now on."""

    key: str


@dataclass(frozen=True, slots=True)
class HoldBack:
    """The group is not tried for a while, where it is set so."""

    key: str


GangEffect: TypeAlias = (
    Effect | ObserveCycle | Audited | Park | Unpark | Release | Satisfy | HoldBack
)


def gang_effects(attempt: Attempt, cycle: GangCycle, facts: GangFacts) -> Iterator[GangEffect]:
    """Yield what follows from an attempt of a gang, or of a pod that preempts as a job of one."""
    texts = gang_texts(attempt, cycle, facts.rows, facts.gangs)
    rejected_by = rejecting_plugins(attempt)
    yield ObserveCycle(attempt, cycle, facts.took)
    if texts.line:
        preempts = cycle.job is not None and cycle.job.reason is JobReason.SUCCESS
        yield Log(logging.INFO if preempts else logging.DEBUG, texts.line)
    placement = str(facts.settings.policy.placement)
    yield from audited(attempt, cycle, facts.rows, facts.snapshot, placement, texts)
    if any(member.bind for member in attempt.members):
        yield from _bound(attempt, cycle, facts)
    else:
        victims = [each.root.uid for each in attempt.plan.victims] if attempt.plan else []
        about = [*(uid for uid, _ in cycle.parked), *cycle.rejected, *victims]
        yield Park(cycle, about, partial(_refused, attempt, cycle, facts, texts, rejected_by))
    yield from reminders(attempt.unit, texts.waits)


def _bound(attempt: Attempt, cycle: GangCycle, facts: GangFacts) -> Iterator[GangEffect]:
    unit, rows = attempt.unit, facts.rows
    placed = [(rows[m.uid], m) for m in attempt.members if m.bind and m.uid in rows]
    waited = [facts.permit[uid] for uid, _ in cycle.bound_before if uid in facts.permit]
    before = [(each.row, Member(each.row.uid, bind=each.node)) for each in waited]
    together = [*placed, *before]
    yield Unpark([each.row.uid for each in waited])
    yield Return(unit, Outcome.PLACED, {row.uid for row, _ in placed})
    yield Assume(unit, together, wording.released(cycle.key, len(together)))
    yield Satisfy(unit.group)
    yield Log(logging.INFO, f"gang {cycle.key}: bind {counted(len(together), 'pod')} together")


def _refused(
    attempt: Attempt,
    cycle: GangCycle,
    facts: GangFacts,
    texts: GangTexts,
    rejected_by: Rejecting,
    permit: Mapping[Uid, InPermit],
) -> Iterator[GangEffect]:
    """Yield what follows where no pod is bound; `permit`: which wait by now."""
    yield from _nominations(attempt, facts)
    if attempt.deallocations:
        yield GiveBack(attempt.deallocations)
    for member in attempt.members:
        if (stated := texts.pods.get(member.uid)) is not None:
            yield from _stated(facts.rows[member.uid], stated, nominated_node(member))
    preemptor, plan = _preemptor(attempt, cycle, facts), None
    if attempt.plan is not None and preemptor is not None:
        yield from _victims_in_permit(attempt.plan, preemptor, permit)
        plan = _left(attempt.plan, permit, facts.snapshot)
        victims = {each.root.uid for each in attempt.plan.victims}
        permit = {uid: each for uid, each in permit.items() if uid not in victims}
    if plan is not None and preemptor is not None:
        yield Hold(preemptor.key)
    yield from _returned(attempt, cycle, permit, rejected_by)
    waited = {uid: permit[uid] for uid in cycle.rejected if uid in permit}
    yield Release(list(waited))
    if texts.rejected is not None:
        for each in waited.values():
            if each.now is not None and each.ours:
                yield from _stated(each.now, texts.rejected)
    if plan is not None and preemptor is not None:
        for each in waited.values():
            if each.now is not None:
                # Who waited before this cycle keeps its node as a nomination.
                yield Nominated(each.now.uid, each.node, each.now.priority)
                yield WritePod(each.now, None, each.node)
        wanted = set(cycle.job.lower) if cycle.job is not None else set()
        lower = [each for each in facts.snapshot.nominations if each.uid in wanted]
        yield Evict(plan, preemptor, lower, None)


def _returned(
    attempt: Attempt, cycle: GangCycle, permit: Mapping[Uid, InPermit], rejected_by: Rejecting
) -> Iterator[GangEffect]:
    """Yield what the queue gets."""
    unit = attempt.unit
    outcome = Outcome.ERROR if attempt.code is Code.ERROR else Outcome.REJECTED
    waits = {uid for uid, _ in cycle.parked if uid in permit}
    if waits and cycle.trigger is None:
        outcome = Outcome.PLACED
    yield Return(unit, outcome, waits, rejected_by)
    if cycle.trigger is not None and attempt.plan is None and not waits and unit.group:
        kept = cycle.job is not None and cycle.job.reason is JobReason.TERMINATING
        if not kept:
            yield HoldBack(unit.group)


def _victims_in_permit(
    plan: Plan, preemptor: Preemptor, permit: Mapping[Uid, InPermit]
) -> Iterator[GangEffect]:
    """Yield how victims that wait in Permit are rejected, since there is nothing to delete."""
    waiting = [permit[v.root.uid] for v in plan.victims if v.root.uid in permit]
    yield Release([each.row.uid for each in waiting])
    for each in waiting:
        assert preemptor.preempted is not None, "jobs have words of their own"
        said, name = preemptor.preempted(each.node), preemptor.scheduler_name
        yield Announce(each.row, said, name, preemptor.about)
        yield from _stated(each.row, not_scheduled(wording.PREEMPTED))


def _left(plan: Plan, permit: Mapping[Uid, InPermit], snapshot: Snapshot) -> Plan | None:
    """Return the plan for who does not wait in Permit, None where all of them end already."""
    victims = tuple(v for v in plan.victims if v.root.uid not in permit)
    slots = {uid: slot for slot, uid in enumerate(snapshot.pod_uids)}
    alive = any(not snapshot.pod_flags[slots[v.root.uid]] & Flag.DELETING for v in victims)
    return replace(plan, victims=victims) if alive else None


def _stated(row: PodRow, texts: PodTexts, nominated: str | None = None) -> Iterator[GangEffect]:
    """Write on a pod that it is not scheduled; `nominated`: as in `WritePod`."""
    yield WritePod(row, texts.condition, nominated)
    yield Announce(row, texts.event, row.pod_class.scheduler_name)


def _preemptor(attempt: Attempt, cycle: GangCycle, facts: GangFacts) -> Preemptor | None:
    trigger = _trigger(cycle, facts)
    if trigger is None:
        return None
    name = trigger.pod_class.scheduler_name
    key = f"{trigger.namespace}/{trigger.name}"
    return Preemptor(
        attempt.unit,
        attempt.unit.group or trigger.uid,
        PreemptorKind.POD,
        trigger.uid,
        name,
        "",
        trigger,
        message=wording.disruption_message(name, cycle.key, key, facts.settings.spelling),
        preempted=lambda node: wording.preempted(trigger.uid, node),
    )


def _trigger(cycle: GangCycle, facts: GangFacts) -> PodRow | None:
    return facts.rows.get(cycle.trigger) if cycle.trigger is not None else None


def _nominations(attempt: Attempt, facts: GangFacts) -> Iterator[GangEffect]:
    for member in attempt.members:
        row, node = facts.rows.get(member.uid), nominated_node(member)
        if row is not None and node is not None:
            yield Nominated(row.uid, node, row.priority)
