"""The page Now: who holds, who waits, the nodes, and what happened in the last hour.

Table `holders`: unit, queue, cohort, amount, idle, leaving, pods, nodes, since, state.
Table `waiters`: unit, queue, amount, resource (that of the amount), since, reason, message: all
that waits, unless a resource is requested.
Table `nodes`: node, pool, total, working, idle, leaving, claimed, free, units, cordoned, domains
(values of the topology's levels, the widest first; empty without one); empty for viewers who do not
see the whole cluster.
`at` requests an instant of the past (`then`).
Values: `resource`, `resources`, `bar` (total, working, idle, leaving, claimed, free; null for those
who may not know), `others` (what those hold whose work is not shown), `counts`, `hour`
(preemptions, units, spared, lostDeviceSeconds), `levels` (labels of the topology), `unseen`,
and of the past `sampled`: when what is shown was seen.

A total hides the work of a single tenant only where at least three tenants hold. Source:
specification of the page, "Login".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

from kubeworld.units.durations import HOUR
from kubeworld.units.instants import Nanos
from reprieve.web.history.model import Moment
from reprieve.web.mirror.mirror import Mirror
from reprieve.web.mirror.sums import NodeSum, UnitSum
from reprieve.web.pages.asked import Asked, asked_of, whole
from reprieve.web.pages.then import bar_then, holders_then, moment_asked, waiters_then
from reprieve.web.pages.waiters import Waiter, waiters
from reprieve.web.tables import Cell, Column, Kind, Page, Parameters, Table, Viewer, seconds

__all__ = ["Bar", "bar_of", "page"]

_FEWEST_TENANTS: Final = 3
_HOLDERS: Final = (
    Column("unit", Kind.UNIT),
    Column("queue", Kind.TEXT),
    Column("cohort", Kind.TEXT),
    Column("amount", Kind.NUMBER),
    Column("idle", Kind.NUMBER),
    Column("leaving", Kind.NUMBER),
    Column("pods", Kind.NUMBER),
    Column("nodes", Kind.NUMBER),
    Column("since", Kind.INSTANT),
    Column("state", Kind.WORD),
)
_WAITERS: Final = (
    Column("unit", Kind.UNIT),
    Column("queue", Kind.TEXT),
    Column("amount", Kind.NUMBER),
    Column("resource", Kind.TEXT),
    Column("since", Kind.INSTANT),
    Column("reason", Kind.WORD),
    Column("message", Kind.TEXT),
)
_NODES: Final = (
    Column("node", Kind.TEXT),
    Column("pool", Kind.TEXT),
    Column("total", Kind.NUMBER),
    Column("working", Kind.NUMBER),
    Column("idle", Kind.NUMBER),
    Column("leaving", Kind.NUMBER),
    Column("claimed", Kind.NUMBER),
    Column("free", Kind.NUMBER),
    Column("units", Kind.LIST),
    Column("cordoned", Kind.FLAG),
    Column("domains", Kind.LIST),
)
_MOST_UNITS: Final = 4  # named on one node


@dataclass(frozen=True, slots=True)
class Bar:
    """Where an amount of a resource is: parts that add up to `total`.

    `claimed` is what is kept of the free for work that has not come yet.
    """

    total: int = 0
    working: int = 0
    idle: int = 0
    leaving: int = 0
    claimed: int = 0
    free: int = 0


def page(mirror: Mirror, viewer: Viewer, parameters: Parameters, at: Nanos) -> Page:
    """Return who holds and who waits.

    Raises:
        InvalidParameter: as of `asked_of`.
    """
    asked = asked_of(mirror, parameters, viewer)
    resource = asked.resource
    if (moment := moment_asked(mirror, parameters)) is not None:
        return _then(mirror, viewer, asked, moment)
    holders = {
        unit.unit: _holder(mirror, viewer, unit, resource)
        for unit in sorted(mirror.units(), key=_largest_first(resource))
        if unit.held.get(resource) and asked.shows(viewer, unit.namespace)
    }
    waiting = {each.unit: each for each in waiters(mirror, viewer, asked)}
    sums = list(mirror.node_sums())
    levels = mirror.levels() if viewer.sees_all else ()
    nodes = (
        {each.node.name: _node(each, resource, levels) for each in sums} if viewer.sees_all else {}
    )
    return Page(
        {
            "resource": resource,
            "resources": list(asked.resources),
            "bar": _bar_shown(mirror, viewer, sums, resource),
            "others": None if viewer.sees_all else _others(mirror, viewer, resource),
            "counts": {
                "holders": len(holders),
                "waiters": len(waiting),
                "waiting": whole(
                    resource,
                    sum(each.amount for each in waiting.values() if each.resource == resource),
                ),
                "nodes": len(nodes),
            },
            "hour": _last_hour(mirror, viewer, asked, at),
            "levels": list(levels),
            "unseen": list(mirror.unseen),
        },
        {
            "holders": Table(_HOLDERS, holders),
            "waiters": Table(_WAITERS, {unit: _waiter(each) for unit, each in waiting.items()}),
            "nodes": Table(_NODES, nodes),
        },
    )


def _then(mirror: Mirror, viewer: Viewer, asked: Asked, moment: Moment) -> Page:
    """Return the page as it was."""
    holders = dict(holders_then(mirror, moment, viewer, asked))
    waiting = dict(waiters_then(moment, viewer, asked))
    tenants = {row.namespace for row in moment.rows.values() if row.resource == asked.resource}
    known = viewer.sees_all or len(tenants) >= _FEWEST_TENANTS
    amounts = [row[2] for row in waiting.values()]
    return Page(
        {
            "sampled": seconds(moment.at),
            "resource": asked.resource,
            "resources": list(asked.resources),
            "bar": bar_then(moment, asked.resource) if known else None,
            "others": None,
            "counts": {
                "holders": len(holders),
                "waiters": len(waiting),
                "waiting": sum(each for each in amounts if isinstance(each, int | float)),
                "nodes": 0,
            },
            "hour": _last_hour(mirror, viewer, asked, moment.at),
            "unseen": list(mirror.unseen),
        },
        {
            "holders": Table(_HOLDERS, holders),
            "waiters": Table(_WAITERS, waiting),
            "nodes": Table(_NODES),
        },
    )


def bar_of(sums: Iterable[NodeSum], resource: str) -> Bar:
    """Return where the resource of nodes is, added up over them."""
    total = working = idle = leaving = claimed = free = 0
    for each in sums:
        on = _bar_on(each, resource)
        total += on.total
        working += on.working
        idle += on.idle
        leaving += on.leaving
        claimed += on.claimed
        free += on.free
    return Bar(total, working, idle, leaving, claimed, free)


def _bar_on(each: NodeSum, resource: str) -> Bar:
    known: Bar | None = each.shown.get(("bar", resource))
    if known is None:
        known = each.shown["bar", resource] = _bar_made(each, resource)
    return known


def _bar_made(each: NodeSum, resource: str) -> Bar:
    held, idle = each.held.get(resource, 0), each.idle.get(resource, 0)
    leaving = each.leaving.get(resource, 0)
    # A node may offer less than is held on it, once a device is lost.
    total = max(each.total.get(resource, 0), held)
    rest = total - held
    claimed = min(each.claimed.get(resource, 0), rest)
    return Bar(total, held - idle - leaving, idle, leaving, claimed, rest - claimed)


def _bar_shown(
    mirror: Mirror, viewer: Viewer, sums: Iterable[NodeSum], resource: str
) -> dict[str, Any] | None:
    if not viewer.sees_all and len(_tenants(mirror, resource)) < _FEWEST_TENANTS:
        return None
    bar = bar_of(sums, resource)
    return {name: whole(resource, getattr(bar, name)) for name in Bar.__dataclass_fields__}


def _others(mirror: Mirror, viewer: Viewer, resource: str) -> int | float | None:
    foreign = {name for name in _tenants(mirror, resource) if not viewer.sees(name)}
    if len(foreign) < _FEWEST_TENANTS:
        return None
    return whole(
        resource,
        sum(unit.held.get(resource, 0) for unit in mirror.units() if unit.namespace in foreign),
    )


def _tenants(mirror: Mirror, resource: str) -> set[str]:
    return {unit.namespace for unit in mirror.units() if unit.held.get(resource)}


def _largest_first(resource: str) -> Any:
    def order(unit: UnitSum) -> tuple[int, str]:
        return (-unit.held.get(resource, 0), unit.unit)

    return order


def _holder(mirror: Mirror, viewer: Viewer, unit: UnitSum, resource: str) -> tuple[Cell, ...]:
    queue = cohort = ""
    for each in mirror.workloads_of(unit.unit):
        queue = each.cluster_queue or queue
    queue = queue or mirror.cluster_queue_of(unit.namespace, unit.queue)
    if viewer.sees_all and (found := mirror.cluster_queues.named("", queue)) is not None:
        cohort = found.parent
    return (
        unit.unit,
        queue,
        cohort,
        whole(resource, unit.held.get(resource, 0)),
        whole(resource, unit.idle.get(resource, 0)),
        whole(resource, unit.leaving.get(resource, 0)),
        sum(count for _, count in unit.nodes),
        len(unit.nodes),
        seconds(unit.since or None),
        _state(unit, resource),
    )


def _state(unit: UnitSum, resource: str) -> str:
    held = unit.held.get(resource, 0)
    if unit.leaving.get(resource, 0) == held:
        return "Leaving"
    if unit.idle.get(resource, 0) == held:
        return "Idle"
    return "Running" if unit.running else "Starting"


def _waiter(waiter: Waiter) -> tuple[Cell, ...]:
    return (
        waiter.unit,
        waiter.queue,
        whole(waiter.resource, waiter.amount),
        waiter.resource,
        seconds(waiter.since),
        waiter.reason,
        waiter.message,
    )


def _node(each: NodeSum, resource: str, levels: tuple[str, ...]) -> tuple[Cell, ...]:
    """Return a node's row: the same object as before, where the node is as it was."""
    key = " ".join(("row", *levels)), resource
    known: tuple[Cell, ...] | None = each.shown.get(key)
    if known is None:
        known = each.shown[key] = _node_made(each, resource, levels)
    return known


def _node_made(each: NodeSum, resource: str, levels: tuple[str, ...]) -> tuple[Cell, ...]:
    bar = _bar_on(each, resource)
    return (
        each.node.name,
        each.node.pool,
        *(whole(resource, getattr(bar, name)) for name in Bar.__dataclass_fields__),
        [unit for unit, _ in each.units[:_MOST_UNITS]],
        each.node.cordoned,
        [each.node.labels[level] for level in levels]
        if all(level in each.node.labels for level in levels)
        else [],
    )


def _last_hour(mirror: Mirror, viewer: Viewer, asked: Asked, at: Nanos) -> dict[str, Any]:
    """Return what was preempted lately; of those plans of which the viewer may see a victim."""
    began = at - HOUR
    plans = [
        each
        for each in mirror.preemptions
        if began <= each.decided <= at
        and not each.dry_run
        and any(asked.shows(viewer, namespace) for _, namespace in each.roots)
    ]
    reported = [
        each
        for each in mirror.disruptions
        if began <= each.ended <= at and asked.shows(viewer, each.namespace)
    ]
    return {
        "preemptions": len(plans),
        "units": len(reported)
        or sum(len(list(_shown(each.roots, asked, viewer))) for each in plans),
        "spared": sum(each.reprieved for each in plans) if viewer.sees_all else None,
        "lostDeviceSeconds": sum(map(attrgetter("lost_device_seconds"), reported or plans))
        if reported or viewer.sees_all
        else 0,
    }


def _shown(
    roots: Iterable[tuple[str, str]], asked: Asked, viewer: Viewer
) -> Iterator[tuple[str, str]]:
    return (each for each in roots if asked.shows(viewer, each[1]))
