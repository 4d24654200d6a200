"""All that is stated of one attempt of the scheduling cycle, made in one pass.

These are conditions, events and log lines. The effects of a cycle, and of a gang's, arrange these
texts and make none of their own. Source: specification of the scheduling plane, sections 9 and 12,
and of gang jobs, sections 5 and 9.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos, format_instant
from reprieve.engine.cluster.rows import GroupRow, PodRow
from reprieve.engine.placement.reasons import Code
from reprieve.engine.scheduling.gangs.job import JobReason
from reprieve.engine.scheduling.outcome import Attempt, GangCycle, Member
from reprieve.units.counts import counted
from reprieve.units.ids import Uid
from reprieve.wording import koordinator, kube_scheduler
from reprieve.wording.disruptions import held_text
from reprieve.wording.events import EventText
from reprieve.wording.kube_scheduler import ConditionText
from reprieve.wording.plans import unit_text

__all__ = [
    "AttemptTexts",
    "GangOf",
    "GangTexts",
    "PodTexts",
    "Wait",
    "attempt_texts",
    "gang_texts",
    "group_scheduled",
    "not_scheduled",
]


@dataclass(frozen=True, slots=True)
class PodTexts:
    """What is stated of a pod that is not placed: its condition, and the event with its message."""

    condition: ConditionText
    event: EventText


@dataclass(frozen=True, slots=True)
class Wait:
    """Until when an attempt is not made again, as a log line; `usual`: not worth a line of INFO."""

    line: str
    until: Nanos
    usual: bool


@dataclass(frozen=True, slots=True)
class AttemptTexts:
    """What is stated of an attempt of a pod, or of a pod group of Kubernetes.

    `pods`: by uid, of those that are not bound and of which something is stated. `groups`: by key,
    of those that it did not place.
    """

    pods: Mapping[Uid, PodTexts]
    groups: Mapping[str, ConditionText]
    waits: tuple[Wait, ...]


@dataclass(frozen=True, slots=True)
class GangOf:
    """The gang of a pod. `plain`: a PodGroup of scheduler-plugins stands behind it."""

    id: str
    minimum: int
    plain: bool


@dataclass(frozen=True, slots=True)
class GangTexts:
    """What is stated of a gang's cycle.

    `line`: for the log, how its preemption ended; empty where it has none. `job`: the message of
    its preemption, `reason`: Koordinator's constant for it. `pods`: by uid, of the members of a
    cycle that binds none. `rejected`: of those that waited in Permit and no longer do, None where
    nothing is stated of them.
    """

    line: str
    job: str
    reason: str
    pods: Mapping[Uid, PodTexts]
    rejected: PodTexts | None
    waits: tuple[Wait, ...]


def attempt_texts(
    attempt: Attempt,
    rows: Mapping[Uid, PodRow],
    groups: Mapping[str, GroupRow],
    condition_type: str,
    *,
    kep_messages: bool,
    loop: str,
) -> AttemptTexts:
    """Return what is stated of an attempt.

    `rows`: its pods that are still there. `groups`: those that it names, by key. `condition_type`:
    of pod groups under the served version. `loop`: that the unit displaces others in a circle.
    """
    held, more = attempt.held, []
    if held is not None:
        more.append(f"{held_text(held.pods, held.rule, held.until, held.budget)}.")
    if loop:
        more.append(f"{loop}.")
    pods = {}
    for member in attempt.members:
        if member.uid not in rows or (attempt.code is Code.SUCCESS and member.bind):
            continue
        condition = kube_scheduler.pod_condition(attempt, member, kep_messages=kep_messages)
        if condition.message:
            message = " ".join((condition.message, *more))
            pods[member.uid] = _pod_texts(replace(condition, message=message))
    stated = _group_conditions(attempt, groups, condition_type, kep_messages)
    return AttemptTexts(pods, dict(stated), tuple(_waits(attempt, rows)))


def _group_conditions(
    attempt: Attempt, groups: Mapping[str, GroupRow], condition_type: str, kep_messages: bool
) -> Iterator[tuple[str, ConditionText]]:
    """Yield the groups that an attempt did not place: itself, or parts of its tree.

    Those that it placed are notified once their minimum is bound (`group_scheduled`).
    """
    placed = attempt.code is Code.SUCCESS
    for part in attempt.parts or (None,):
        key = attempt.unit.group if part is None else part.key
        row = groups.get(key)
        failed = part is not None and part.failure is not None
        if row is not None and (failed or (not placed and attempt.status)):
            own = kube_scheduler.COMPOSITE_SCHEDULED if row.composite else condition_type
            yield key, kube_scheduler.group_condition(attempt, own, part, kep_messages=kep_messages)


def group_scheduled(row: GroupRow, condition_type: str) -> ConditionText:
    """Return the condition of a group whose minimum is bound."""
    own = kube_scheduler.COMPOSITE_SCHEDULED if row.composite else condition_type
    return ConditionText(own, "True", "Scheduled", "")


def _waits(attempt: Attempt, rows: Mapping[Uid, PodRow]) -> Iterator[Wait]:
    """Yield what protects others from the unit, and until when."""
    spared, held, called = attempt.spared, attempt.held, unit_text(attempt.unit, rows)
    if spared is not None:
        until = Nanos(spared.until * SECOND)
        text = (
            f"{counted(spared.pods, 'pod')} of lower priority within the minimum runtime,"
            f" the first until {format_instant(until)}"
        )
        yield Wait(f"{called}: {text}", until, usual=True)
    if held is not None:
        text = held_text(held.pods, held.rule, held.until, held.budget)
        yield Wait(f"{called}: {text}", held.until, usual=False)
    if attempt.delayed is not None:
        text = f"nothing is evicted for it before {format_instant(attempt.delayed)}"
        yield Wait(f"{called}: {text}", attempt.delayed, usual=True)


def gang_texts(
    attempt: Attempt,
    cycle: GangCycle,
    rows: Mapping[Uid, PodRow],
    gangs: Mapping[Uid, GangOf],
) -> GangTexts:
    """Return what is stated of a gang's cycle.

    `rows`: pods of the unit that are still there. `gangs`: by pod, those of the unit.
    """
    job, line, said, why = cycle.job, "", "", ""
    if job is not None:
        said = koordinator.job_message(job, cycle.waiting, cycle.pods)
        why = koordinator.job_reason(job.reason)
        line = f"{cycle.key}: preemption: {said}"
        if job.reason is JobReason.SUCCESS:
            line = f"{cycle.key} preempts {counted(len(job.slots), 'pod')}"
    pods = {}
    if not any(member.bind for member in attempt.members):
        error = attempt.code is Code.ERROR
        reason = kube_scheduler.SCHEDULER_ERROR if error else kube_scheduler.UNSCHEDULABLE
        pods = {
            member.uid: not_scheduled(_message(attempt, cycle, member, said, rows, gangs), reason)
            for member in attempt.members
            if member.uid in rows
        }
    rejected = _rejected(cycle, said, rows, gangs)
    return GangTexts(line, said, why, pods, rejected, tuple(_waits(attempt, rows)))


def not_scheduled(message: str, reason: str = kube_scheduler.UNSCHEDULABLE) -> PodTexts:
    """Return that a pod is not scheduled, and why."""
    return _pod_texts(ConditionText(kube_scheduler.POD_SCHEDULED, "False", reason, message))


def _pod_texts(condition: ConditionText) -> PodTexts:
    return PodTexts(condition, kube_scheduler.failed_scheduling(condition.message))


def _message(
    attempt: Attempt,
    cycle: GangCycle,
    member: Member,
    said: str,
    rows: Mapping[Uid, PodRow],
    gangs: Mapping[Uid, GangOf],
) -> str:
    """Return the message of a member: its own, or that of the member that did not fit.

    `said`: the message of the cycle's preemption.
    """
    gang = gangs.get(member.uid)
    if member.diagnosis is not None:
        text = kube_scheduler.fit_text(member.diagnosis)
        if cycle.job is not None:
            return f"{text} {koordinator.post_filter_message(said)}"
        if not cycle.gave_back or gang is None:
            return text
        if gang.plain:
            return f"{text} {koordinator.rejected_pod_group(gang.id, rows[member.uid].name)}"
        return f"{text} {koordinator.rejected_gang(gang.id)}"
    trigger = rows.get(cycle.trigger) if cycle.trigger is not None else None
    if trigger is None:
        minimum = gang.minimum if gang else 0
        return koordinator.waiting_message(cycle.key, cycle.waiting, minimum)
    diagnosis = next(m.diagnosis for m in attempt.members if m.uid == cycle.trigger)
    fit = kube_scheduler.fit_text(diagnosis) if diagnosis is not None else ""
    key = f"{trigger.namespace}/{trigger.name}"
    return koordinator.cycle_failure(cycle.key, key, fit, cycle.waiting)


def _rejected(
    cycle: GangCycle, said: str, rows: Mapping[Uid, PodRow], gangs: Mapping[Uid, GangOf]
) -> PodTexts | None:
    """Return what is stated of pods that waited in Permit before a member did not fit."""
    if cycle.trigger is None or cycle.trigger not in rows or cycle.trigger not in gangs:
        return None
    gang = gangs[cycle.trigger]
    if cycle.job is not None and not cycle.gave_back:
        return not_scheduled(said)
    if gang.plain:
        return not_scheduled(koordinator.OPTIMISTIC_REJECTION)
    return not_scheduled(koordinator.rejected_gang(gang.id))
