"""What follows from an attempt of the scheduling cycle: a list of effects, made by pure functions.

| the attempt ended with | then, in this order |
| --- | --- |
| members that are bound | the queue is notified, they are bound, the rest nominated and notified |
| victims | nominations count, the members are notified, the queue waits, the victims are evicted |
| victims, not asynchronously | the same, but that members and queue are notified after it |
| neither | nominations count, the members and the groups above them are notified |

Nothing is done here: `carry_out` does it, in the order of the list, and a dry run is the same list
carried out by one that evicts and writes nothing. Gangs of the older APIs add effects of
their own (`gangs.effects`). Source: specification of the scheduling plane, sections 9, 12 and 23;
the design's "How data flows".
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from kubeworld.units.instants import Nanos
from reprieve.engine.cluster.rows import GroupRow, PodRow
from reprieve.engine.cluster.snapshot import Flag, Nomination, Snapshot
from reprieve.engine.placement.reasons import Code
from reprieve.engine.plan import Plan
from reprieve.engine.scheduling.outcome import Attempt, Deallocation, Member, Nominate, Unit
from reprieve.engine.scheduling.queueing.queue import Outcome
from reprieve.engine.scheduling.queueing.rejecting import rejecting_plugins
from reprieve.planes.scheduling.cycle.preemptor import Preemptor
from reprieve.telemetry.log import DETAIL
from reprieve.units.ids import Uid
from reprieve.wording import kube_scheduler as wording
from reprieve.wording.attempts import AttemptTexts, Wait, attempt_texts
from reprieve.wording.events import EventText
from reprieve.wording.kube_scheduler import ConditionText

__all__ = [
    "Announce",
    "Assume",
    "Effect",
    "Evict",
    "Facts",
    "GiveBack",
    "Hold",
    "Log",
    "Nominated",
    "Observe",
    "Record",
    "Remind",
    "Return",
    "WriteGroup",
    "WritePod",
    "effects_of",
    "nominated_node",
    "reminders",
]

#: Makes the input of a decision as it is recorded; this is slow.
Record: TypeAlias = Callable[[], dict[str, Any]]

#: By pod, the plugins that reject it.
Rejecting: TypeAlias = Mapping[Uid, Collection[str]]


@dataclass(frozen=True, slots=True)
class Observe:
    """Count the attempt of a scheduler name in the metrics, with its victims' rules for `-v 6`."""

    attempt: Attempt
    profile: str
    took: int  # nanoseconds


@dataclass(frozen=True, slots=True)
class Log:
    """Write a line to the log."""

    level: int
    text: str


@dataclass(frozen=True, slots=True)
class Return:
    """Give the unit back to the queue. `placed`: its pods that are being bound."""

    unit: Unit
    outcome: Outcome
    placed: Collection[Uid] = ()
    rejected_by: Rejecting = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Hold:
    """Have the queue entry wait until its victims' deletions are sent."""

    key: str


@dataclass(frozen=True, slots=True)
class Remind:
    """Try the unit again at that wall instant, also if nothing happens."""

    unit: Unit
    at: Nanos


@dataclass(frozen=True, slots=True)
class Assume:
    """Count the pods on their nodes from now on, and bind them with these annotations."""

    unit: Unit
    placed: Sequence[tuple[PodRow, Member]]
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Nominated:
    """Keep the node for a pod before the API server knows of it; empty: keep none any more."""

    uid: Uid
    node: str
    priority: int


@dataclass(frozen=True, slots=True)
class GiveBack:
    """Clear device claims that are in the way."""

    claims: Sequence[Deallocation]


@dataclass(frozen=True, slots=True)
class WritePod:
    """Write the condition and the nomination of a pod; None leaves either as it is."""

    row: PodRow
    condition: ConditionText | None
    nominated: str | None


@dataclass(frozen=True, slots=True)
class WriteGroup:
    """Write the condition of a group."""

    row: GroupRow
    condition: ConditionText


@dataclass(frozen=True, slots=True)
class Announce:
    """Send an event about a pod, in the name of a scheduler; `by`: because of whom."""

    row: PodRow
    text: EventText
    scheduler_name: str
    by: PodRow | GroupRow | None = None


@dataclass(frozen=True, slots=True)
class Evict:
    """Record the plan and evict its victims, or in a dry run record it only.

    `lower`: nominations of lower priority that it removes. `then`: what is done once the calls are
    over.
    """

    plan: Plan
    preemptor: Preemptor
    lower: Sequence[Nomination]
    record: Record | None
    then: tuple[Effect, ...] = ()


Effect: TypeAlias = (
    Observe
    | Log
    | Return
    | Hold
    | Remind
    | Assume
    | Nominated
    | GiveBack
    | WritePod
    | WriteGroup
    | Announce
    | Evict
)


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a unit when its attempt is carried out.

    `rows`: its pods that are still there. `groups`: the groups that the attempt names, by key.
    `snapshot`: that it was decided on. `condition_type`: of groups under the served version.
    `loop`: that the unit displaces others in a circle, and is held for it; empty where it is not.
    """

    rows: Mapping[Uid, PodRow]
    groups: Mapping[str, GroupRow]
    snapshot: Snapshot
    condition_type: str
    took: int = 0
    record: Record | None = None
    kep_messages: bool = False
    async_preemption: bool = True
    loop: str = ""


def effects_of(attempt: Attempt, facts: Facts) -> tuple[Effect, ...]:
    """Return what follows from an attempt of a pod, or of a pod group of Kubernetes."""
    profile = next((row.pod_class.scheduler_name for row in facts.rows.values()), "")
    texts = attempt_texts(
        attempt,
        facts.rows,
        facts.groups,
        facts.condition_type,
        kep_messages=facts.kep_messages,
        loop=facts.loop,
    )
    rejected_by = rejecting_plugins(attempt)
    effects: list[Effect] = [Observe(attempt, profile, facts.took)]
    if attempt.code is Code.SUCCESS and any(member.bind for member in attempt.members):
        effects += _placed(attempt, facts, texts, rejected_by)
    else:
        effects += _refused(attempt, facts, texts, rejected_by)
        effects += reminders(attempt.unit, texts.waits)
    return tuple(effects)


def reminders(unit: Unit, waits: Collection[Wait]) -> Iterator[Effect]:
    """Yield the next try, when the first protection ends that kept others from being preempted."""
    for each in waits:
        yield Log(DETAIL if each.usual else logging.INFO, each.line)
    if waits:
        yield Remind(unit, min(each.until for each in waits))


def _placed(
    attempt: Attempt, facts: Facts, texts: AttemptTexts, rejected_by: Rejecting
) -> Iterator[Effect]:
    unit, rows = attempt.unit, facts.rows
    placed = [(rows[m.uid], m) for m in attempt.members if m.bind and m.uid in rows]
    if unit.group:
        uids = {row.uid for row, _ in placed}
        yield Return(unit, Outcome.PLACED, uids, rejected_by)
    elif not placed:
        yield Return(unit, Outcome.REJECTED)
        return
    yield Assume(unit, placed)
    yield from _nominations(attempt, facts)
    yield from _reported(attempt, facts, texts)


def _refused(
    attempt: Attempt, facts: Facts, texts: AttemptTexts, rejected_by: Rejecting
) -> Iterator[Effect]:
    unit = attempt.unit
    outcome = Outcome.ERROR if attempt.code is Code.ERROR else Outcome.REJECTED
    reported = tuple(_reported(attempt, facts, texts))
    returned = Return(unit, outcome, rejected_by=rejected_by)
    yield from _nominations(attempt, facts)
    if attempt.deallocations:
        yield GiveBack(attempt.deallocations)
    preemptor = _preemptor(attempt, facts)
    if preemptor is None or attempt.plan is None or not _alive(facts.snapshot, attempt):
        yield from reported
        yield returned
        return
    lower = _lower(preemptor, attempt, facts)
    if not facts.async_preemption:
        yield Evict(attempt.plan, preemptor, lower, facts.record, (*reported, returned))
        return
    yield from reported
    yield Hold(preemptor.key)
    yield returned
    yield Evict(attempt.plan, preemptor, lower, facts.record)


def _lower(preemptor: Preemptor, attempt: Attempt, facts: Facts) -> list[Nomination]:
    """Return the nominations of lower priority on the node of a plain pod."""
    snapshot, group = facts.snapshot, facts.groups.get(attempt.unit.group)
    priority = group.priority if group is not None else facts.rows[attempt.unit.pods[0]].priority
    return [
        each
        for each in snapshot.nominations
        if snapshot.nodes[each.node].name == preemptor.target and each.priority < priority
    ]


def _preemptor(attempt: Attempt, facts: Facts) -> Preemptor | None:
    unit, group = attempt.unit, facts.groups.get(attempt.unit.group)
    first = next((facts.rows[uid] for uid in unit.pods if uid in facts.rows), None)
    if first is None:
        return None
    name = first.pod_class.scheduler_name
    if group is not None:
        kind = wording.PreemptorKind.GROUP
        if group.composite:
            kind = wording.PreemptorKind.COMPOSITE
        return Preemptor(unit, unit.group, kind, group.uid, name, wording.CLUSTER, group)
    node = next((m.nominate for m in attempt.members if isinstance(m.nominate, str)), "")
    kind = wording.PreemptorKind.POD
    return Preemptor(unit, first.uid, kind, first.uid, name, node, first)


def _nominations(attempt: Attempt, facts: Facts) -> Iterator[Effect]:
    group = facts.groups.get(attempt.unit.group)
    for member in attempt.members:
        row, node = facts.rows.get(member.uid), nominated_node(member)
        if row is not None and node is not None and not member.bind:
            priority = row.priority if group is None else group.priority
            yield Nominated(row.uid, node, priority)


def _reported(attempt: Attempt, facts: Facts, texts: AttemptTexts) -> Iterator[Effect]:
    """Yield the conditions, nominations and events of who was not placed, and of its groups."""
    for member in attempt.members:
        if (stated := texts.pods.get(member.uid)) is not None:
            row = facts.rows[member.uid]
            yield WritePod(row, stated.condition, nominated_node(member))
            yield Announce(row, stated.event, row.pod_class.scheduler_name)
    for key, condition in texts.groups.items():
        yield WriteGroup(facts.groups[key], condition)


def nominated_node(member: Member) -> str | None:
    """Return the node to nominate, empty to clear, None to leave it."""
    if member.nominate is Nominate.KEEP:
        return None
    return "" if member.nominate is Nominate.CLEAR else str(member.nominate)


def _alive(snapshot: Snapshot, attempt: Attempt) -> bool:
    """Whether a victim is left that is not terminating already."""
    found = attempt.preemption
    return found is not None and any(
        not snapshot.pod_flags[slot] & Flag.DELETING
        for victim in found.victims
        for slot in victim.pods
    )
