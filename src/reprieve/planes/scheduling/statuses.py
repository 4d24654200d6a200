"""What the scheduling plane writes into statuses: conditions of pods and groups, and nominations.

A wish that equals what stands there already is not written. `PodGroupInitiallyScheduled` never
leaves `True`, nor does that of a composite group. Writes fail softly: one that is refused is
dropped, since the next attempt requests it again. Source: specification 9.5, 12.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from kubeworld.units.instants import format_instant
from reprieve.engine.cluster.rows import GroupRow, PodRow
from reprieve.engine.plan import Plane
from reprieve.execution.writes.statuses import StatusChange
from reprieve.kube.bodies import Json, PatchType
from reprieve.kube.objects import version_number
from reprieve.kube.overlay import Unseen
from reprieve.kube.resource import PODS, Resource
from reprieve.kube.writes import Priority
from reprieve.planes.common.status_writer import StatusWriter
from reprieve.planes.scheduling.context import SchedulingContext, log
from reprieve.planes.scheduling.served import COMPOSITE_GROUPS
from reprieve.planes.scheduling.state import ClusterState
from reprieve.units.ids import Uid
from reprieve.wording.kube_scheduler import ConditionText

__all__ = ["Statuses"]


@dataclass(frozen=True, slots=True)
class _PodWish:
    """`nominated` None leaves the nomination as it is, empty removes it."""

    row: PodRow
    condition: ConditionText | None
    nominated: str | None


@dataclass(frozen=True, slots=True)
class _GroupWish:
    row: GroupRow
    condition: ConditionText


_Wish: TypeAlias = _PodWish | _GroupWish


@dataclass(frozen=True, slots=True)
class _Sent:
    condition: tuple[str, str, str] | None = None
    nominated: str | None = None


class Statuses:
    """All that this process writes into statuses. `groups` names the resource of PodGroups."""

    def __init__(
        self,
        context: SchedulingContext,
        state: ClusterState,
        groups: Callable[[], Resource | None],
    ) -> None:
        self._context = context
        self._state = state
        self._groups = groups
        self._sent: Unseen[Uid, _Sent] = Unseen()
        self._writer: StatusWriter[Uid, _Wish, Json] = StatusWriter(
            context.full_client.at(Priority.STATUS, context.fence.check),
            context.clock,
            change=self._change,
            wire=dict,
            written=self._wrote,
            failed=lambda uid, wish: None,
            fault=context.metrics.status_faults.labels(Plane.SCHEDULING.value).inc,
            reported=log,
            writes=lambda: not context.dry_run,
        )

    def pod(
        self, row: PodRow, condition: ConditionText | None = None, nominated: str | None = None
    ) -> asyncio.Event:
        """Request a condition and a nomination of a pod; the event is set when that is over."""
        before = self._writer.wish(row.uid)
        if isinstance(before, _PodWish):
            condition = condition or before.condition
            nominated = before.nominated if nominated is None else nominated
        return self._writer.ask(row.uid, _PodWish(row, condition, nominated))

    def group(self, row: GroupRow, condition: ConditionText) -> None:
        """Request the condition of a group."""
        self._writer.ask(row.uid, _GroupWish(row, condition))

    def forget(self, uid: Uid) -> None:
        """The object is deleted or bound: nothing more is written."""
        self._writer.forget(uid)
        self._sent.forget(uid)

    async def run(self) -> None:
        """Write until cancelled."""
        await self._writer.run()

    def _change(self, uid: Uid, wish: _Wish) -> StatusChange | None:
        match wish:
            case _PodWish(row):
                resource: Resource | None = PODS
                status = self._pod(wish)
            case _GroupWish(row):
                resource = COMPOSITE_GROUPS if row.composite else self._groups()
                status = self._group(wish)
        if resource is None or not status:
            return None
        return StatusChange(
            resource, row.namespace, row.name, uid, status, patch_type=PatchType.STRATEGIC
        )

    def _pod(self, wish: _PodWish) -> Json:
        uid = wish.row.uid
        seen = self._state.pod(uid)
        if seen is None or seen.node:
            return {}
        sent, stands = self._standing(uid, seen.version)
        node = seen.nominated if sent.nominated is None else sent.nominated
        status: Json = {}
        if wish.condition is not None and _triple(wish.condition) != stands:
            status["conditions"] = [self._condition(uid, wish.condition, stands)]
        if wish.nominated is not None and wish.nominated != node:
            status["nominatedNodeName"] = wish.nominated or None
        return status

    def _group(self, wish: _GroupWish) -> Json:
        row = wish.row
        seen = self._state.group(row.key)
        if seen is None or seen.uid != row.uid or seen.scheduled:
            return {}
        _, stands = self._standing(row.uid, seen.version)
        if _triple(wish.condition) == stands or (stands is not None and stands[0] == "True"):
            return {}
        return {"conditions": [self._condition(row.uid, wish.condition, stands)]}

    def _wrote(self, uid: Uid, wish: _Wish, answer: Json) -> None:
        """Remember what was written until the watch shows it; of deleted objects, nothing."""
        if not self._is_there(uid, wish):
            return
        sent = self._sent.get(uid) or _Sent()
        nominated = wish.nominated if isinstance(wish, _PodWish) else None
        written = _Sent(
            sent.condition if wish.condition is None else _triple(wish.condition),
            sent.nominated if nominated is None else nominated,
        )
        version = version_number(answer["metadata"]["resourceVersion"])
        self._sent.wrote(uid, version, written)

    def _is_there(self, uid: Uid, wish: _Wish) -> bool:
        if isinstance(wish, _PodWish):
            return self._state.pod(uid) is not None
        group = self._state.group(wish.row.key)
        return group is not None and group.uid == uid

    def _standing(self, uid: Uid, seen: int) -> tuple[_Sent, tuple[str, str, str] | None]:
        """Return what was written and not seen yet, and the condition that stands there."""
        sent, written = self._sent.over(uid, seen) or _Sent(), self._state.written.get(uid)
        return sent, sent.condition or (written.condition if written is not None else None)

    def _condition(
        self, uid: Uid, text: ConditionText, stands: tuple[str, str, str] | None
    ) -> Json:
        written = self._state.written.get(uid)
        now = format_instant(self._context.clock.wall())
        since = now
        if stands is not None and stands[0] == text.status and written is not None:
            since = written.since or now
        condition: Json = {
            "type": text.type,
            "status": text.status,
            "reason": text.reason,
            "message": text.message,
            "lastTransitionTime": since,
        }
        if written is not None and written.generation:
            condition["observedGeneration"] = written.generation
        return condition


def _triple(condition: ConditionText) -> tuple[str, str, str]:
    return condition.status, condition.reason, condition.message
