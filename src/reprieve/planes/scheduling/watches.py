"""The watches of the scheduling plane: each list and event continues to the state as rows.

Kinds that may be absent (`kinds`) count as empty while they are not served; PodGroups are read in
the newest version that is served, also when that changes. Source: the design's "How data flows".
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, Final, Generic, TypeVar

from kubeworld.units.durations import SECOND
from reprieve.api.scheduling import PodObject
from reprieve.engine.cluster.rows import Gone, Kind, PodRow
from reprieve.execution.turns import NodeTurns
from reprieve.intake.cluster.pods import counted_pod_row
from reprieve.kube.errors import ApiError, NotFound
from reprieve.kube.objects import identity_of
from reprieve.kube.reflector import Health
from reprieve.kube.resource import Resource
from reprieve.planes.common.mirrors.mirror import Followed
from reprieve.planes.common.mirrors.stated_limits import QueueLimits, on_other_delays, queue_of
from reprieve.planes.common.mirrors.troubles import Troubles
from reprieve.planes.common.mirrors.watching import Watcher, settled, start
from reprieve.planes.common.persistent import persistent
from reprieve.planes.scheduling.context import SchedulingContext, log
from reprieve.planes.scheduling.kinds import (
    Converted,
    Watched,
    group_condition_type,
    kinds,
    pod_group_kind,
)
from reprieve.planes.scheduling.served import pod_groups
from reprieve.planes.scheduling.state import ClusterState
from reprieve.units.ids import Uid
from reprieve.units.references import Reference
from reprieve.wording.kube_scheduler import not_read

__all__ = ["Watches"]

_LOOK_AGAIN: Final = 30 * SECOND

W = TypeVar("W")


class _Sink(Generic[W]):
    """Hands what a reflector reads on to the state.

    An object that a fault of ours keeps from being read is reported, in the log and on the object.
    A pod counts with what can be read of it and is not placed; anything else is left out, and what
    is known of it stays until the next list.

    The pages of the first list are passed on one by one, since nothing is decided before it is
    complete: read at once, the pods of 65,000 nodes would keep the event loop from its turn for
    longer than the lease keeper waits. Later lists replace what is known as one batch, and so do
    all of a kind that may be absent: it can be counted as complete and empty at any moment of its
    first list.
    """

    def __init__(
        self,
        context: SchedulingContext,
        watched: Watched[W],
        state: ClusterState,
        listed: asyncio.Event,
    ) -> None:
        self._context = context
        self._watched = watched
        self._state = state
        self._listed = listed
        self._by_pages = not watched.optional and not listed.is_set()

    def received(self, objects: list[W]) -> list[Converted] | list[Uid]:
        found = (self._read(obj) for obj in objects)
        page = [converted for converted in found if converted is not None]
        if not self._by_pages:
            return page
        self._state.apply_page(page)
        return [row.uid for row, _ in page]

    def replaced(self, objects: list[Any], resource_version: str) -> None:
        if self._by_pages:
            self._by_pages = False
            self._state.complete(self._watched.kind, set(objects))
        else:
            self._state.replace(self._watched.kind, objects)
        self._listed.set()

    def applied(self, obj: W) -> None:
        converted = self._read(obj)
        if converted is not None:
            self._state.apply(*converted)

    def deleted(self, obj: W) -> None:
        uid, namespace, name, _ = identity_of(obj)
        known = Uid(uid or f"{namespace}/{name}")
        self._state.apply(Gone(self._watched.kind, known, namespace, name))

    def _read(self, obj: W) -> Converted | None:
        try:
            return self._watched.convert(obj)
        except Exception as fault:
            uid, namespace, name, version = identity_of(obj)
            where = f"{namespace}/{name}".lstrip("/")
            log.exception("%s %s cannot be read", self._watched.kind.value, where)
            row = counted_pod_row(obj) if isinstance(obj, PodObject) else None
            about = self._watched.resource
            self._context.announce(
                Reference(about.api_version, about.kind, namespace, name, Uid(uid), str(version)),
                not_read(type(fault).__name__, counted=row is not None),
                next(iter(sorted(self._context.scheduler_names)), ""),
            )
            return None if row is None else (row, None)


class Watches:
    """All watches of one plane."""

    def __init__(
        self, context: SchedulingContext, state: ClusterState, turns: NodeTurns | None = None
    ) -> None:
        self._context = context
        self._state = state
        self._followed: dict[Kind, Followed[Any]] = {}
        self._optional: set[Kind] = set()
        self._listed: dict[Kind, asyncio.Event] = {}
        self._troubles = Troubles(context.clock)
        self._groups: tuple[Resource, asyncio.Task[None]] | None = None
        self._kinds = kinds(context.policy, turns, classes=context.settings.reads_classes)
        for watched in self._kinds:
            self._add(watched)
        self._queues = QueueLimits(Watcher(context.mirror, self._report, self._restarted))
        if context.settings.reads_classes:
            state.queue_limits = self._limits_of
            on_other_delays(self._queues, state.delays_changed)
        self._listed[Kind.GROUP] = asyncio.Event()

    @property
    def groups(self) -> Resource | None:
        """The resource of PodGroups, None while none are served."""
        return None if self._groups is None else self._groups[0]

    @property
    def condition_type(self) -> str:
        """The type of a group's condition under the served version."""
        return group_condition_type(self.groups)

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            for watched in self._kinds:
                followed = self._followed[watched.kind]
                group.create_task(followed.run(), name=f"watch {watched.resource.qualified}")
            clock = self._context.clock
            if self._context.settings.reads_classes:
                start(self._queues, group)
            group.create_task(persistent(self._absent, clock, log, "looking for kinds"))
            follow = partial(self._follow_groups, group)
            group.create_task(persistent(follow, clock, log, "looking for PodGroups"))

    async def synced(self) -> None:
        """Wait until every kind was listed, or is known not to be served."""
        for listed in self._listed.values():
            await listed.wait()
        if self._context.settings.reads_classes:
            await settled(self._queues, self._context.clock)

    @property
    def ready(self) -> bool:
        """Whether every kind was listed."""
        return all(listed.is_set() for listed in self._listed.values())

    def troubles(self) -> list[str]:
        """Return one line for each kind that cannot be read, but for those that may be absent."""
        return self._troubles.lines(
            followed
            for kind, followed in self._followed.items()
            if not (kind in self._optional and followed.health is Health.NOT_SERVED)
        )

    def _limits_of(self, row: PodRow) -> tuple[int | None, int]:
        return self._queues.of(row.namespace, queue_of(dict(row.labels)))

    def _report(self, trouble: Exception) -> None:
        log.warning("%s", trouble)

    def _restarted(self, kind: str, why: str) -> None:
        self._context.metrics.watch_restarts.labels(kind, why).inc()

    def _add(self, watched: Watched[Any]) -> Followed[Any]:
        listed = self._listed.setdefault(watched.kind, asyncio.Event())

        def report(trouble: Exception) -> None:
            if not (watched.optional and isinstance(trouble, NotFound)):
                self._report(trouble)

        followed: Followed[Any] = self._context.mirror.follow(
            watched.resource,
            watched.type,
            _Sink(self._context, watched, self._state, listed),
            report=report,
            restarted=partial(self._restarted, watched.resource.qualified),
        )
        self._followed[watched.kind] = followed
        if watched.optional:
            self._optional.add(watched.kind)
        return followed

    async def _absent(self) -> None:
        """Count optional kinds that are not served as listed and empty, and name them once."""
        absent: list[str] = []
        while not all(self._listed[kind].is_set() for kind in self._optional):
            for kind in self._optional:
                listed, followed = self._listed[kind], self._followed[kind]
                if followed.health is Health.NOT_SERVED and not listed.is_set():
                    self._state.replace(kind, [])
                    listed.set()
                    absent.append(f"{followed.resource.kind} ({followed.resource.api_version})")
            await self._context.clock.sleep(SECOND // 10)
        if absent:
            kinds = ", ".join(sorted(absent))
            log.info("the API server does not serve %s: none is counted until it does", kinds)

    async def _follow_groups(self, group: asyncio.TaskGroup) -> None:
        """Watch PodGroups in the newest version that is served, and look for another one."""
        while True:
            try:
                resource = await pod_groups(self._context.client, self._context.clock)
            except ApiError as failure:
                log.warning("scheduling.k8s.io: %s", failure)
                await self._context.clock.sleep(SECOND)
                continue
            before = self.groups
            if resource != before or not self._listed[Kind.GROUP].is_set():
                await self._change_groups(group, resource)
            await self._context.clock.sleep(_LOOK_AGAIN)

    async def _change_groups(self, group: asyncio.TaskGroup, resource: Resource | None) -> None:
        if self._groups is not None:
            task = self._groups[1]
            task.cancel()
            await asyncio.wait((task,))
            self._groups = None
        if resource is None:
            log.info("no version of PodGroup is served: pods are scheduled one by one")
            self._context.group_version = ""
            self._followed.pop(Kind.GROUP, None)
            self._state.replace(Kind.GROUP, [])
            self._listed[Kind.GROUP].set()
            return
        log.info("PodGroups are read as %s", resource.api_version)
        self._context.group_version = resource.api_version
        followed = self._add(pod_group_kind(resource))
        self._groups = resource, group.create_task(followed.run(), name="watch podgroups")
