"""Make a sample of a mirror: what each unit holds and waits for, and what was evicted since.

GPUs are sampled; where no work and no node has any, what the page counts by itself. An eviction is
counted by the sample after which its record states it, whenever that is, and once: what was out of
the way before the sample that was kept last had been counted by a process before this one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final

from kubeworld.units.clock import Clock
from kubeworld.units.instants import Nanos
from reprieve.api.reprieve import VictimState
from reprieve.engine.lost_work import is_device
from reprieve.kube.reflector import Health
from reprieve.web.history.model import Eviction, Moment, UnitRow
from reprieve.web.mirror.mirror import Mirror
from reprieve.web.pages.asked import Asked, asked_of, rank_of
from reprieve.web.pages.waiters import Waiter, waiters
from reprieve.web.records.victims import VictimUnit
from reprieve.web.tables import Viewer

__all__ = ["Counted", "keep_sampling", "moment_of"]

log: Final = logging.getLogger("reprieve.web")

_EVERYBODY: Final = Viewer(sees_all=True)


def moment_of(mirror: Mirror, at: Nanos) -> Moment:
    """Return what the cluster is like."""
    asked = asked_of(mirror, {}, _EVERYBODY)
    gpus = {name for name in asked.resources if rank_of(name) == 0} or {asked.resource}
    everything = Asked(asked.resource, asked.resources, frozenset())
    waiting = {each.unit: each for each in waiters(mirror, _EVERYBODY, everything)}
    rows: dict[tuple[str, str], UnitRow] = {}
    for unit in mirror.units():
        waiter = waiting.get(unit.unit)
        for resource in gpus & {*unit.held, *unit.waiting}:
            queue = waiter.queue if waiter is not None else ""
            for each in mirror.workloads_of(unit.unit):
                queue = each.cluster_queue or queue
            row = UnitRow(
                unit.unit,
                resource,
                queue or mirror.cluster_queue_of(unit.namespace, unit.queue),
                unit.held.get(resource, 0),
                unit.idle.get(resource, 0),
                unit.leaving.get(resource, 0),
                _asked(waiter, resource, unit.waiting.get(resource, 0)),
                sum(count for _, count in unit.nodes),
                len(unit.nodes),
                unit.since,
                waiter.since if waiter is not None else 0,
                waiter.reason if waiter is not None else "",
            )
            rows[row.key] = row
    for waiter in waiting.values():
        # What waits for quota may have no pods yet.
        key = (waiter.unit, waiter.resource)
        if key not in rows and waiter.resource:
            amount = waiter.amount
            about = (*key, waiter.queue, 0, 0, 0, amount, 0, 0, 0, waiter.since, waiter.reason)
            rows[key] = UnitRow(*about)
    totals: dict[str, int] = {}
    for node in mirror.node_sums():
        for resource in gpus:
            totals[resource] = totals.get(resource, 0) + node.total.get(resource, 0)
    return Moment(at, totals, rows)


def _asked(waiter: Waiter | None, resource: str, pods: int) -> int:
    """Return what a unit waits for: its Workload's, where that is more than its pods'."""
    if waiter is None:
        return 0
    return max(pods, waiter.amount) if waiter.resource == resource else pods


class Counted:
    """Which evictions have been counted; `before`: those until then have been."""

    def __init__(self, before: Nanos) -> None:
        self._before = before
        self._known: set[tuple[str, str]] = set()

    def new(self, mirror: Mirror) -> Iterator[Eviction]:
        """Yield the evictions that have not been counted, and count them."""
        present: set[tuple[str, str]] = set()
        for record in mirror.preemptions:
            for unit in () if record.dry_run else record.units:
                if unit.state is not VictimState.EVICTED:
                    continue
                key = (record.uid, unit.subject.uid)
                present.add(key)
                at = unit.at or record.finished or record.decided
                if key not in self._known and at > self._before:
                    yield _eviction(mirror, unit)
        self._known = present


def _eviction(mirror: Mirror, unit: VictimUnit) -> Eviction:
    devices = sorted((name for name in unit.amounts if is_device(name)), key=_first)
    resource = devices[0] if devices else ""
    return Eviction(resource, unit.namespace, _queue_of(mirror, unit), unit.lost or 0)


def _queue_of(mirror: Mirror, unit: VictimUnit) -> str:
    """Return the ClusterQueue of a victim: its own, else the only one of its namespace."""
    named = mirror.workloads.named(unit.namespace, unit.subject.name)
    for each in (*mirror.workloads_of(unit.unit), *((named,) if named else ())):
        if queue := each.cluster_queue or mirror.cluster_queue_of(each.namespace, each.queue):
            return queue
    if queue := mirror.cluster_queue_of(unit.namespace, mirror.unit(unit.unit).queue):
        return queue
    doors = {each.cluster_queue for each in mirror.local_queues if each.namespace == unit.namespace}
    return doors.pop() if len(doors) == 1 else ""


def _first(resource: str) -> tuple[int, str]:
    return rank_of(resource), resource


async def keep_sampling(mirror: Mirror, clock: Clock) -> None:
    """Make a sample at once and then at regular times, until cancelled."""
    history = mirror.history
    counted = Counted(history.newest or Nanos(clock.wall() - history.every))
    while True:
        try:
            if _is_current(mirror):
                moment = moment_of(mirror, clock.wall())
                history.add(moment, list(counted.new(mirror)))
        except Exception:
            log.exception("history: a sample failed")
        await clock.sleep(history.every)


def _is_current(mirror: Mirror) -> bool:
    """Return whether pods are watched: of a cluster that does not answer nothing is known."""
    return all(each.health == Health.WATCHING for each in mirror.watched() if each.kind == "pods")
