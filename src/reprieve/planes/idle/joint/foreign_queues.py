"""Which work holds quota and which waits where another Kueue decides, to answer a release query.

That Kueue states of a demand only that it lacks quota. Which idle work holds quota of the demand's
cohort and flavors is worked out here by the same search that our quota plane answers with
(`engine.quota.release`), on the queues and Workloads as they are stored. Nothing is followed before
the first query, so that clusters without such a demand have no watch of it.

An answer stands until quota or usage changes: what has been freed is either enough for the demand,
or used by another workload by then. Conditions of that Kueue that are not stored in objects (its
fair sharing, its feature gates) count as their defaults; admission checks count as passed, and
where the demand's ClusterQueue is not known no work is evicted. Source: the design's "Where the
planes meet".
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from kubeworld.units.clock import Clock
from reprieve.api import kueue
from reprieve.api.kueue_conversion import convert
from reprieve.engine.quota.holdings.state import Holdings
from reprieve.engine.quota.model import ClusterQueue, Configuration, LabelSelector, Workload
from reprieve.engine.quota.release import IdleUnit, Promise, Release, Standing, release
from reprieve.engine.quota.waiting.queues import Queues
from reprieve.intake.quota import (
    Unusable,
    cluster_queue_row,
    cohort_row,
    local_queue_row,
    resource_flavor_row,
)
from reprieve.intake.quota_workloads import PodSetRows, is_condition_true, workload_row
from reprieve.kube.bodies import Json
from reprieve.kube.objects import identity_of
from reprieve.kube.reflector import Health
from reprieve.kube.resource import Resource
from reprieve.planes.common.mirrors.watching import Watch, start
from reprieve.planes.common.solve import Solver
from reprieve.planes.idle.context import log
from reprieve.planes.idle.watches import Watches

__all__ = ["ForeignQueues"]

_UNREAD: Final = "the queues of Kueue are not read yet"

W = TypeVar("W")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class _Held:
    """The row of one object, None where it cannot be meant as it is written."""

    uid: str
    namespace: str
    name: str
    resource_version: int
    row: Any


@dataclass(frozen=True, slots=True)
class _Kinds:
    """What is followed, once a plane has queried."""

    cluster_queues: Watch[Any, _Held]
    local_queues: Watch[Any, _Held]
    cohorts: Watch[Any, _Held]
    flavors: Watch[Any, _Held]
    workloads: Watch[Any, _Held]

    def __iter__(self) -> Iterator[Watch[Any, _Held]]:
        yield self.cluster_queues
        yield self.local_queues
        yield self.cohorts
        yield self.flavors
        yield self.workloads


class ForeignQueues:
    """Answers which idle work holds the quota that a demand of another Kueue lacks.

    `tasks`: where the plane runs what it follows. `changed` is called when something has changed
    that an answer was made of.
    """

    def __init__(
        self,
        watches: Watches,
        clock: Clock,
        *,
        tasks: Callable[[], asyncio.TaskGroup | None],
        changed: Callable[[], None],
        solver: Callable[[], Solver],
    ) -> None:
        self._watches = watches
        self._clock = clock
        self._tasks = tasks
        self._changed = changed
        self._solver = solver
        self._kinds: _Kinds | None = None
        self._rows = PodSetRows()
        self._built: tuple[Holdings, Queues] | None = None
        self._revision = 0

    @property
    def served(self) -> bool:
        """Whether there are ClusterQueues at all, as far as is known."""
        return self._kinds is None or not self._kinds.cluster_queues.absent

    async def release(
        self, workload: str, units: Sequence[IdleUnit], promised: Sequence[Promise]
    ) -> Release:
        """Return which units of idle work, oldest first, to evict for a pending Workload."""
        unread = self._unread()
        if unread:
            return Release(why=unread, waits=True)
        holdings, queues = self._built or await self._build()
        standing = Standing(holdings, queues, promised=promised, now=self._clock.wall())
        return await self._solver().run(release, standing, workload, units)

    def _unread(self) -> str:
        """Return why there is no answer yet; empty if all kinds are read."""
        tasks = self._tasks()
        if tasks is None:
            return _UNREAD
        if self._kinds is None:
            self._kinds = self._follow()
            start(self._kinds, tasks)
            for watch in self._kinds:
                watch.cache.subscribe(self._note)
        if not self.served:
            return "there are no ClusterQueues"
        for watch in self._kinds:
            reflector = watch.reflector
            if reflector.health is Health.NOT_SERVED or reflector.synced.is_set():
                continue
            return f"{_UNREAD}: {reflector.error}" if reflector.error else _UNREAD
        return ""

    def _note(self, old: _Held | None, new: _Held | None) -> None:
        if old is None or new is None or old.row != new.row:
            self._built = None
            self._revision += 1
            self._changed()

    async def _build(self) -> tuple[Holdings, Queues]:
        """Return what is held and queued now; thousands of Workloads are added in the thread."""
        assert self._kinds is not None
        kinds, revision = self._kinds, self._revision
        configuration = Configuration(
            cluster_queues={row.name: row for row in _rows(kinds.cluster_queues)},
            cohorts={row.name: row for row in _rows(kinds.cohorts)},
            flavors={row.name: row for row in _rows(kinds.flavors)},
            local_queues={row.key: row for row in _rows(kinds.local_queues)},
        )
        workloads = tuple(_rows(kinds.workloads))
        built = await self._solver().run(_holdings_and_queues, configuration, workloads)
        if revision == self._revision:
            self._built = built
        return built

    def _follow(self) -> _Kinds:
        version, watcher = self._watches.kueue_version, self._watches.watcher

        def watch(
            plural: str,
            kind: str,
            wire: type[W],
            row: Callable[[W], R | None],
            *,
            namespaced: bool = False,
        ) -> Watch[Any, _Held]:
            resource = Resource(kueue.GROUP, version, plural, kind, namespaced)
            return watcher.watch(resource, wire, _holding(row), required=False)

        return _Kinds(
            watch(
                "clusterqueues", "ClusterQueue", dict[str, Any], partial(_cluster_queue, version)
            ),
            watch("localqueues", "LocalQueue", kueue.LocalQueue, local_queue_row, namespaced=True),
            watch("cohorts", "Cohort", kueue.Cohort, cohort_row),
            watch(
                "resourceflavors",
                "ResourceFlavor",
                kueue.ResourceFlavor,
                lambda flavor: replace(resource_flavor_row(flavor), topology=""),
            ),
            watch("workloads", "Workload", kueue.Workload, self._workload, namespaced=True),
        )

    def _workload(self, workload: kueue.Workload) -> Workload | None:
        if is_condition_true(workload, "Finished"):
            return None
        return workload_row(workload, self._rows)


def _cluster_queue(version: str, stored: Json) -> ClusterQueue:
    """Return the row of a ClusterQueue of either version.

    Its namespace selector is not checked, as the demand has its Workload already.
    """
    typed = {"apiVersion": f"{kueue.GROUP}/{version}", "kind": "ClusterQueue", **stored}
    queue = msgspec.convert(convert(typed, kueue.API_VERSION), kueue.ClusterQueue)
    strategy = queue.spec.admission_checks_strategy
    checks = () if strategy is None else strategy.admission_checks
    row = cluster_queue_row(queue, {check.name for check in checks})
    return replace(row, selector=LabelSelector(()))


def _holding(row: Callable[[W], R | None]) -> Callable[[W], _Held]:
    """Return the conversion of an object into its row."""

    def held(obj: W) -> _Held:
        identity = identity_of(obj)
        try:
            return _Held(*identity, row(obj))
        except (Unusable, msgspec.ValidationError) as problem:
            log.warning("%s is left out of the quota that is free: %s", identity[2], problem)
            return _Held(*identity, None)

    return held


def _holdings_and_queues(
    configuration: Configuration, workloads: Sequence[Workload]
) -> tuple[Holdings, Queues]:
    holdings, queues = Holdings(configuration), Queues(configuration)
    for row in workloads:
        if row.admission is not None:
            holdings.hold(row)
        else:
            queues.push(row)
    return holdings, queues


def _rows(watch: Watch[Any, _Held]) -> Iterator[Any]:
    """Yield the rows in the order of their names."""
    for held in sorted(watch.cache, key=lambda each: (each.namespace, each.name)):
        if held.row is not None:
            yield held.row
