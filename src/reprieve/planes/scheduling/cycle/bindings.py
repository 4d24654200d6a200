"""Binds what was placed: one call per pod, nothing is ever unbound.

1. The nominations of a group's members are written before the first call.
2. Volumes and devices that a pod uses are written before its call, and its volumes waited for. The
   calls are sent in the order of the members; one that fails does not stop the others.
3. A failed member loses its assumed place but keeps its nomination, and returns to the queue; so
   its share of the node stays reserved.
4. The group's condition becomes true once its minimum is bound, and those of the composite groups
   above it.

A plain pod stays in flight in the queue until its call is over. Source: specification 23.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kubeworld.units.durations import MILLISECOND, MINUTE, SECOND
from reprieve.engine.cluster.devices import extended_classes
from reprieve.engine.cluster.rows import GroupRow, PodRow
from reprieve.engine.cluster.trees import Way
from reprieve.engine.scheduling.outcome import Deallocation, Member, Unit
from reprieve.engine.scheduling.queueing.queue import Outcome
from reprieve.execution.turns import NodeTurns
from reprieve.execution.writes.bind import Binding, Bound, bind
from reprieve.execution.writes.reserve import Refused, Reservations
from reprieve.kube.bodies import NO_ANNOTATIONS
from reprieve.kube.errors import ApiError
from reprieve.planes.scheduling.context import SchedulingContext, log
from reprieve.planes.scheduling.references import pod_reference
from reprieve.planes.scheduling.state import ClusterState
from reprieve.planes.scheduling.statuses import Statuses
from reprieve.units.ids import Uid
from reprieve.wording import kube_scheduler as wording
from reprieve.wording.attempts import group_scheduled

__all__ = ["ASSUMED_FOR", "Bindings"]

#: How long a pod counts on its node without having been seen there.
ASSUMED_FOR: Final = 15 * MINUTE
_AGAIN: Final = SECOND
_LOOK: Final = 50 * MILLISECOND


@dataclass(frozen=True, slots=True)
class _Placed:
    row: PodRow
    member: Member
    mark: int  # of its node, when the decision was committed
    annotations: Mapping[str, str]  # that the pod gets with its node

    @property
    def node(self) -> str:
        return self.member.bind


class Bindings:
    """The binding calls of one plane. `spawn` runs a task; `condition_type` names the condition."""

    def __init__(
        self,
        context: SchedulingContext,
        state: ClusterState,
        statuses: Statuses,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        condition_type: Callable[[], str],
        turns: NodeTurns | None = None,
    ) -> None:
        self._context = context
        self._state = state
        self._statuses = statuses
        self._spawn = spawn
        self._condition_type = condition_type
        self._turns = turns
        # Pods of groups that we bound and have not seen there yet.
        self._unseen: set[Uid] = set()
        self._reservations = Reservations(context.full_client, context.fence)

    def assume(
        self,
        unit: Unit,
        placed: Sequence[tuple[PodRow, Member]],
        annotations: Mapping[str, str] = NO_ANNOTATIONS,
    ) -> None:
        """Count the pods on their nodes from now on, and bind them with these annotations."""
        clock = self._context.clock
        pods = [
            _Placed(row, member, self._mark(member.bind), annotations) for row, member in placed
        ]
        for pod in pods:
            self._state.reserved.reserve(pod.member)
            deadline = clock.monotonic() + ASSUMED_FOR
            self._state.cluster.assume(pod.row.uid, pod.node, deadline)
        if unit.group:
            self._spawn(self._bind_group(unit.group, pods))
        else:
            self._spawn(self._bind_pod(unit, pods[0]))

    def give_back(self, given_up: Sequence[Deallocation]) -> None:
        """Clear device claims that are in the way of a unit that could not be placed."""
        if given_up and not self._context.dry_run:
            self._spawn(self._deallocate(given_up))

    async def _deallocate(self, given_up: Sequence[Deallocation]) -> None:
        try:
            await self._reservations.deallocate(given_up)
        except ApiError as failure:
            log.warning("device claims stay allocated: %s", failure)

    async def _bind_pod(self, unit: Unit, pod: _Placed) -> None:
        found = await self._call(pod)
        now = self._context.clock.monotonic()
        if found.bound is Bound.CHOSEN:
            # What was missed is not here yet: deciding again at once would end like this again.
            await self._context.clock.sleep(_LOOK)
            self._state.queue.done(unit, Outcome.AGAIN, self._context.clock.monotonic())
            return
        if found.bound is not Bound.FAILED:
            self._state.queue.done(unit, Outcome.PLACED, now, placed=unit.pods)
            return
        self._failed(pod, found)
        self._state.queue.done(unit, Outcome.ERROR, now)

    async def _bind_group(self, key: str, pods: list[_Placed]) -> None:
        row = self._state.group(key)
        if row is not None and not self._context.dry_run:
            written = []
            for pod in pods:
                deadline = self._context.clock.monotonic() + ASSUMED_FOR
                self._state.cluster.nominate(pod.row.uid, pod.node, row.priority, deadline)
                written.append(self._statuses.pod(pod.row, nominated=pod.node).wait())
            await asyncio.gather(*written)
        await asyncio.gather(*(self._bind_member(key, pod) for pod in pods))

    async def _bind_member(self, key: str, pod: _Placed) -> None:
        found = await self._call(pod)
        if found.bound is Bound.HERE:
            self._unseen.add(pod.row.uid)
            placed = pod.row
            self._report_group(f"{placed.namespace}/{placed.group}" if placed.group else key)
        elif found.bound in (Bound.FAILED, Bound.CHOSEN):
            if found.bound is Bound.FAILED:
                self._failed(pod, found)
            # It comes back as an entry that is ready at once, so this pause is its backoff.
            await self._context.clock.sleep(_AGAIN)
            row = self._state.pod(pod.row.uid)
            if row is not None and self._state.ours(row):
                self._state.queue.add(row, self._context.clock.monotonic())

    def _report_group(self, key: str) -> None:
        """Write that the group is scheduled once its minimum is bound, and those above it."""
        way, _ = self._state.root(key)
        while (row := self._state.group(key)) is not None:
            if not row.scheduled:
                if not self._bound(row):
                    return
                self._statuses.group(row, group_scheduled(row, self._condition_type()))
            if way is not Way.ROOT or not self._state.forest.has_parent(row):
                return
            key = row.parent_key

    def _bound(self, row: GroupRow) -> bool:
        """Whether the group has its minimum: bound pods, or children that have theirs."""
        if row.composite:
            children = (self._state.group(key) for key in self._state.children(row.key))
            got = sum(child is not None and self._bound(child) for child in children)
        else:
            pods = self._state.members(row.key)
            got = sum(bool(pod.node) or pod.uid in self._unseen for pod in pods)
        return got >= (1 if row.min_count is None else row.min_count)

    async def _call(self, pod: _Placed) -> Binding:
        row, context = pod.row, self._context
        if context.dry_run:
            log.info("dry run: %s/%s would be bound to %s", row.namespace, row.name, pod.node)
            return Binding(Bound.HERE)
        if self._turns is not None and not await self._turns.announce(
            pod.node, row.uid, pod.mark, self._state.known_pod
        ):
            # Another scheduler was faster on this node: decided again on what is there now.
            self._state.cluster.forget(row.uid)
            self._state.reserved.unreserve(pod.member)
            context.scheduler_metrics.stale_plans.inc()
            return Binding(Bound.CHOSEN)
        failure = await self._prepare(pod)
        if failure:
            return Binding(Bound.FAILED, failure)
        found = await bind(
            context.full_client,
            context.fence,
            row.namespace,
            row.name,
            row.uid,
            pod.node,
            pod.annotations,
        )
        if found.bound is Bound.HERE:
            text = wording.scheduled(row.namespace, row.name, pod.node)
            context.announce(pod_reference(row), text, row.pod_class.scheduler_name)
            self._statuses.forget(row.uid)
        elif found.bound is not Bound.FAILED:
            self._state.unassume(row)
        return found

    def _mark(self, node: str) -> int:
        return self._turns.mark(node) if self._turns is not None else 0

    async def _prepare(self, pod: _Placed) -> str:
        """Write what the pod uses and wait for its volumes; return what failed."""
        member, clock = pod.member, self._context.clock
        try:
            left = [key for key in pod.row.released if key not in pod.annotations]
            if left:
                await self._reservations.strip(pod.row, left)
            if member.claims:
                await self._reservations.claims(pod.row, member.claims, self._class_of)
            if not member.volumes:
                return ""
            await self._reservations.volumes(member.volumes)
        except (ApiError, Refused) as failure:
            return str(failure)
        profile = self._context.policy.profile(pod.row.pod_class.scheduler_name)
        seconds = 0 if profile is None else profile.volume_bind_seconds
        end = clock.monotonic() + seconds * SECOND
        while not self._state.reserved.bound(member):
            if clock.monotonic() >= end:
                return "binding volumes: timed out waiting for the condition"
            row = self._state.pod(pod.row.uid)
            if row is None or row.deleting:
                return "the pod was deleted"
            await clock.sleep(_LOOK)
        return ""

    def _class_of(self, resource: str) -> str:
        return extended_classes(self._state.cluster.snapshot().tables)[resource].name

    def _failed(self, pod: _Placed, found: Binding) -> None:
        row, context = pod.row, self._context
        self._state.unassume(row)
        self._state.reserved.unreserve(pod.member)
        log.warning("%s/%s to %s: %s", row.namespace, row.name, pod.node, found.detail)
        condition = wording.ConditionText(
            wording.POD_SCHEDULED, "False", wording.SCHEDULER_ERROR, found.detail
        )
        self._statuses.pod(row, condition)
        context.announce(
            pod_reference(row),
            wording.failed_scheduling(found.detail),
            row.pod_class.scheduler_name,
        )

    def seen(self, uid: Uid) -> None:
        """The pod was seen bound or deleted."""
        self._unseen.discard(uid)
