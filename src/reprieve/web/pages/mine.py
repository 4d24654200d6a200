"""The page My work: what a tenant needs first, from the objects of his namespaces alone.

Table `queues`, a row for each LocalQueue, flavor and resource: queue, namespace, clusterQueue,
flavor, resource, used, reserved (with what waits for checks), nominal (of its ClusterQueue, where
all that lead to it are the viewer's), pending, admitted, message (why it accepts nothing).
Table `notified`, work that may save before it is evicted, the first to be due first: unit, due (it
is evicted at the latest), answered (how many pods have), requested, state, by, rule, message. Table
`running`: unit, queue, amount, idle, since, state. Table `waiting`: unit, queue, position, amount,
resource, since, reason, message, step. Table `preempted`, of the last day, the newest
first: unit, at, by, rule, lost, state (Running, Waiting, Gone), back (it ran again at), tried (not
before), position, preemption.
Values: `resource`, `resources`, `namespaces` (whose work is shown, empty for all), `counts`
(running, waiting, preempted, notified), `unseen`.

Use and numbers of a queue are those of the LocalQueue's status: no right beyond the namespace is
needed for any of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kubeworld.units.durations import HOUR
from kubeworld.units.instants import Nanos, instant_or_none
from reprieve.api.reprieve import VictimState
from reprieve.web.mirror.mirror import Mirror
from reprieve.web.mirror.queues import LocalQueueRecord
from reprieve.web.mirror.sums import UnitSum
from reprieve.web.pages.asked import Asked, asked_of, rank_of, whole
from reprieve.web.pages.waiters import Waiter, waiters, what_helps
from reprieve.web.records.called import called, masking_of
from reprieve.web.records.masking import address_of
from reprieve.web.tables import Cell, Column, Kind, Page, Parameters, Table, Viewer, seconds
from reprieve.wording.displacements import rule_text

__all__ = ["page"]

_DAY: Final = 24 * HOUR
_MOST: Final = 200
_QUEUES: Final = (
    Column("queue", Kind.TEXT),
    Column("namespace", Kind.TEXT),
    Column("clusterQueue", Kind.TEXT),
    Column("flavor", Kind.TEXT),
    Column("resource", Kind.TEXT),
    Column("used", Kind.NUMBER),
    Column("reserved", Kind.NUMBER),
    Column("nominal", Kind.NUMBER),
    Column("pending", Kind.NUMBER),
    Column("admitted", Kind.NUMBER),
    Column("message", Kind.TEXT),
)
_REPORTED: Final = (
    Column("unit", Kind.UNIT),
    Column("due", Kind.INSTANT),
    Column("answered", Kind.NUMBER),
    Column("requested", Kind.NUMBER),
    Column("state", Kind.WORD),
    Column("by", Kind.TEXT),
    Column("rule", Kind.TEXT),
    Column("message", Kind.TEXT),
)
_OVER: Final = frozenset({"Released", "Pardoned"})
_RUNNING: Final = (
    Column("unit", Kind.UNIT),
    Column("queue", Kind.TEXT),
    Column("amount", Kind.NUMBER),
    Column("resource", Kind.TEXT),
    Column("idle", Kind.NUMBER),
    Column("since", Kind.INSTANT),
    Column("state", Kind.WORD),
)
_WAITING: Final = (
    Column("unit", Kind.UNIT),
    Column("queue", Kind.TEXT),
    Column("position", Kind.NUMBER),
    Column("amount", Kind.NUMBER),
    Column("resource", Kind.TEXT),
    Column("since", Kind.INSTANT),
    Column("reason", Kind.WORD),
    Column("message", Kind.TEXT),
    Column("step", Kind.TEXT),
)
_PREEMPTED: Final = (
    Column("unit", Kind.UNIT),
    Column("at", Kind.INSTANT),
    Column("by", Kind.UNIT),
    Column("rule", Kind.TEXT),
    Column("lost", Kind.NUMBER),
    Column("state", Kind.WORD),
    Column("back", Kind.INSTANT),
    Column("tried", Kind.INSTANT),
    Column("position", Kind.NUMBER),
    Column("preemption", Kind.TEXT),
)

_Row = tuple[Cell, ...]


def page(mirror: Mirror, viewer: Viewer, parameters: Parameters, at: Nanos) -> Page:
    """Return the work of the namespaces that the viewer sees, or names.

    Raises:
        InvalidParameter: as of `asked_of`.
    """
    asked = asked_of(mirror, parameters, viewer)
    waiting = {each.unit: each for each in waiters(mirror, viewer, asked)}
    running = dict(_running(mirror, viewer, asked))
    preempted = dict(_preempted(mirror, viewer, asked, waiting, at))
    namespaces = asked.namespaces or viewer.namespaces
    return Page(
        {
            "resource": asked.resource,
            "resources": list(asked.resources),
            "namespaces": sorted(filter(viewer.sees, namespaces)),
            "counts": {
                "running": len(running),
                "waiting": len(waiting),
                "preempted": len(preempted),
                "notified": sum(1 for _ in _reported(mirror, viewer, asked)),
            },
            "unseen": list(mirror.unseen),
        },
        {
            "notified": Table(_REPORTED, dict(_reported(mirror, viewer, asked))),
            "queues": Table(_QUEUES, dict(_queues(mirror, viewer, asked))),
            "running": Table(_RUNNING, running),
            "waiting": Table(_WAITING, {unit: _waiting(each) for unit, each in waiting.items()}),
            "preempted": Table(_PREEMPTED, preempted),
        },
    )


def _reported(mirror: Mirror, viewer: Viewer, asked: Asked) -> Iterator[tuple[str, _Row]]:
    """Yield what may save before it is evicted."""
    found = [
        each
        for each in mirror.notices
        if each.state not in _OVER and asked.shows(viewer, each.namespace)
    ]
    for each in sorted(found, key=lambda each: (each.due, each.uid)):
        yield (
            each.uid,
            (
                each.unit,
                seconds(each.due),
                each.answered,
                each.speakers,
                each.state,
                each.preemptor,
                each.rule,
                each.message,
            ),
        )


def _queues(mirror: Mirror, viewer: Viewer, asked: Asked) -> Iterator[tuple[str, _Row]]:
    doors = [each for each in mirror.local_queues if asked.shows(viewer, each.namespace)]
    for door in sorted(doors, key=lambda each: (each.namespace, each.name)):
        nominal = _nominal(mirror, viewer, door)
        used = {(flavor, name): amount for flavor, name, amount in door.used}
        reserved = {(flavor, name): amount for flavor, name, amount in door.reserved}
        known = {*used, *reserved, *nominal}
        keys = sorted(known, key=lambda key: (rank_of(key[1]), key)) or [("", asked.resource)]
        for flavor, resource in keys:
            amounts = (used.get((flavor, resource)), reserved.get((flavor, resource)))
            cells = (*amounts, nominal.get((flavor, resource)))
            yield (
                f"{door.namespace}/{door.name}/{flavor}/{resource}",
                (
                    door.name,
                    door.namespace,
                    door.cluster_queue,
                    flavor,
                    resource,
                    *(None if cell is None else whole(resource, cell) for cell in cells),
                    door.pending,
                    door.admitted,
                    "it is stopped: spec.stopPolicy" if door.stopped else door.message,
                ),
            )


def _nominal(mirror: Mirror, viewer: Viewer, door: LocalQueueRecord) -> dict[tuple[str, str], int]:
    """Return the quota of a ClusterQueue that only the viewer uses."""
    queue = mirror.cluster_queues.named("", door.cluster_queue)
    alike = [each for each in mirror.local_queues if each.cluster_queue == door.cluster_queue]
    if queue is None or not all(viewer.sees(each.namespace) for each in alike):
        return {}
    return {(each.flavor, each.resource): each.nominal for each in queue.quotas}


def _running(mirror: Mirror, viewer: Viewer, asked: Asked) -> Iterator[tuple[str, _Row]]:
    for unit in sorted(mirror.units(), key=lambda each: (each.since, each.unit)):
        if not asked.shows(viewer, unit.namespace) or not unit.nodes:
            continue
        resource = _resource_of(unit, asked)
        if resource is None:
            continue
        queue = mirror.cluster_queue_of(unit.namespace, unit.queue)
        for each in mirror.workloads_of(unit.unit):
            queue = each.cluster_queue or queue
        held, idle = unit.held.get(resource, 0), unit.idle.get(resource, 0)
        state = "Running" if unit.running else "Starting"
        if held and unit.leaving.get(resource, 0) == held:
            state = "Leaving"
        elif held and idle == held:
            state = "Idle"
        amounts = (whole(resource, held), resource, whole(resource, idle))
        yield unit.unit, (unit.unit, queue, *amounts, seconds(unit.since or None), state)


def _resource_of(unit: UnitSum, asked: Asked) -> str | None:
    """Return by which resource a unit is shown; None where it has none of what is requested."""
    if asked.chosen:
        return asked.resource if unit.held.get(asked.resource) else None
    named = [name for name, amount in unit.held.items() if amount and name != "memory"]
    return min(named, key=lambda name: (rank_of(name), name), default="")


def _waiting(waiter: Waiter) -> _Row:
    return (
        waiter.unit,
        waiter.queue,
        waiter.position or None,
        whole(waiter.resource, waiter.amount),
        waiter.resource,
        seconds(waiter.since),
        waiter.reason,
        waiter.message,
        what_helps(waiter),
    )


def _preempted(
    mirror: Mirror, viewer: Viewer, asked: Asked, waiting: dict[str, Waiter], at: Nanos
) -> Iterator[tuple[str, _Row]]:
    """Yield what was preempted within a day, the newest first, and what became of it."""
    found: list[tuple[Nanos, str, _Row]] = []
    reported: set[tuple[str, str]] = set()
    records = {each.plan_id: each for each in mirror.preemptions}
    for each in mirror.disruptions:
        spec = each.disruption.spec
        began = instant_or_none(spec.evicting_at) or each.ended
        if not asked.shows(viewer, each.namespace) or at - began >= _DAY:
            continue
        reported.add((each.plan_id, each.namespace))
        unit = called(mirror, spec.subject, spec.lineage)
        record = records.get(each.plan_id)
        address = each.plan_id if record is None else address_of(record.record, viewer)
        back = instant_or_none(each.disruption.status.back_at)
        preemptor = spec.preemptor
        if record is not None:
            known = masking_of(mirror, viewer, record.record, each.namespace)
            preemptor = known.preemptor(record.record, spec.preemptor).text
        facts = (preemptor, rule_text(each.plane, spec.rule), spec.lost_device_seconds)
        row = (unit, seconds(began), *facts, *_now(mirror, unit, waiting, back), address)
        found.append((began, each.uid, row))
    for record in mirror.preemptions:
        for victim in () if record.dry_run else record.units:
            began = victim.at or record.decided
            seen = asked.shows(viewer, victim.namespace) and at - began < _DAY
            gone = victim.state in (VictimState.EVICTED, VictimState.PENDING)
            if not seen or not gone or (record.plan_id, victim.namespace) in reported:
                continue
            unit = called(mirror, victim.subject, victim.lineage)
            by = masking_of(mirror, viewer, record.record, victim.namespace)
            facts = (
                by.preemptor(record.record, "").text,
                rule_text(record.plane, victim.rule),
                victim.lost or 0,
            )
            row = (
                unit,
                seconds(began),
                *facts,
                *_now(mirror, unit, waiting, None),
                address_of(record.record, viewer),
            )
            found.append((began, f"{record.uid}/{victim.subject.uid}", row))
    found.sort(key=lambda each: (-each[0], each[1]))
    for _, key, row in found[:_MOST]:
        yield key, row


def _now(
    mirror: Mirror, unit: str, waiting: dict[str, Waiter], back: Nanos | None
) -> tuple[Cell, ...]:
    """Return what became of a unit: its state, when it ran again, is tried, and its place."""
    waiter = waiting.get(unit)
    tried = position = None
    if waiter is not None:
        position = waiter.position or None
        for each in mirror.workloads_of(unit):
            tried = each.requeued
        return "Waiting", seconds(back), seconds(tried), position
    total = mirror.unit(unit)
    if total.nodes:
        state = "Running" if total.running else "Starting"
        return state, seconds(back or total.since or None), None, None
    return "Gone", seconds(back), None, None
