"""Writes conditions and nominations of pods and conditions of groups, the newest wish per object.

A wish that equals what stands there already is not written, one that is overtaken while it waits
neither. `PodGroupInitiallyScheduled` never leaves `True`, nor does that of a composite group.
Writes fail softly: a refused one is logged once an hour and dropped, others are tried again.
Source: specification 9.5, 12.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from reprieve.engine.cluster.rows import GroupRow, PodRow
from reprieve.execution.fence import Deposed
from reprieve.execution.statuses import patch_scheduling_status
from reprieve.kube.bodies import Json
from reprieve.kube.errors import (
    ApiError,
    Conflict,
    NotFound,
)
from reprieve.kube.objects import version_number
from reprieve.kube.resource import PODS, Resource
from reprieve.kube.retry import AWAY, retried
from reprieve.kube.writes import Priority
from reprieve.planes.scheduling.context import SchedulingContext, log
from reprieve.planes.scheduling.served import COMPOSITE_GROUPS
from reprieve.planes.scheduling.state import ClusterState
from reprieve.units.ids import Uid
from reprieve.units.instants import format_instant
from reprieve.wording.kube_scheduler import ConditionText

__all__ = ["Statuses"]

_WRITERS: Final = 8


@dataclass(frozen=True, slots=True)
class _PodWish:
    """`nominated` None leaves the nomination as it is, empty takes it away."""

    condition: ConditionText | None
    nominated: str | None


@dataclass(frozen=True, slots=True)
class _GroupWish:
    condition: ConditionText


@dataclass(frozen=True, slots=True)
class _Sent:
    version: int = -1
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
        self._client = context.client.at(Priority.STATUS, context.fence.check)
        # What is wanted and not being written yet, and of which object.
        self._wishes: dict[Uid, _PodWish | _GroupWish] = {}
        self._known: dict[Uid, PodRow | GroupRow] = {}
        # What was written, by uid; it counts until the watch shows that version.
        self._sent: dict[Uid, _Sent] = {}
        self._order: asyncio.Queue[Uid] = asyncio.Queue()
        self._busy: dict[Uid, asyncio.Event] = {}

    def pod(
        self, row: PodRow, condition: ConditionText | None = None, nominated: str | None = None
    ) -> asyncio.Event:
        """Ask for a condition and a nomination of a pod; the event is set when that is over."""
        before = self._wishes.get(row.uid)
        if isinstance(before, _PodWish):
            condition = condition or before.condition
            nominated = before.nominated if nominated is None else nominated
        return self._ask(row, _PodWish(condition, nominated))

    def group(self, row: GroupRow, condition: ConditionText) -> None:
        """Ask for the condition of a group."""
        self._ask(row, _GroupWish(condition))

    def forget(self, uid: Uid) -> None:
        """The object is gone or bound: nothing more is written."""
        self._wishes.pop(uid, None)
        self._known.pop(uid, None)
        self._sent.pop(uid, None)

    async def run(self) -> None:
        """Write until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(_WRITERS):
                group.create_task(self._work())

    def _ask(self, row: PodRow | GroupRow, wish: _PodWish | _GroupWish) -> asyncio.Event:
        uid = row.uid
        self._known[uid] = row
        waiting = uid in self._wishes
        self._wishes[uid] = wish
        done = self._busy.get(uid)
        if done is None or done.is_set():
            done = self._busy[uid] = asyncio.Event()
        if not waiting:
            self._order.put_nowait(uid)
        return done

    async def _work(self) -> None:
        while True:
            uid = await self._order.get()
            wish, row = self._wishes.pop(uid, None), self._known.pop(uid, None)
            done = self._busy.get(uid)
            try:
                if wish is not None and row is not None and not self._context.dry_run:
                    await self._write(row, wish)
            except ApiError as failure:
                log.warning("status of %s/%s: %s", row and row.namespace, row and row.name, failure)
            except Deposed:
                raise
            except Exception:
                log.exception("status of %s/%s", row and row.namespace, row and row.name)
            finally:
                if done is not None and uid not in self._wishes:
                    done.set()
                    self._busy.pop(uid, None)

    async def _write(self, row: PodRow | GroupRow, wish: _PodWish | _GroupWish) -> None:
        async def once() -> None:
            if isinstance(row, PodRow) and isinstance(wish, _PodWish):
                await self._pod(row, wish)
            elif isinstance(row, GroupRow) and isinstance(wish, _GroupWish):
                await self._group(row, wish)

        # Where it is gone, or another object has its name, nobody waits for a status.
        with contextlib.suppress(NotFound, Conflict):
            await retried(once, self._client.transport.pause, AWAY)

    async def _pod(self, row: PodRow, wish: _PodWish) -> None:
        seen = self._state.pod(row.uid)
        if seen is None or seen.node:
            return
        written = self._state.written.get(row.uid)
        sent = self._still_sent(row.uid, seen.version)
        stands = sent.condition or (written.condition if written is not None else None)
        node = seen.nominated if sent.nominated is None else sent.nominated
        status: Json = {}
        text = _triple(wish.condition)
        if wish.condition is not None and text != stands:
            status["conditions"] = [self._condition(row.uid, wish.condition, stands)]
        if wish.nominated is not None and wish.nominated != node:
            status["nominatedNodeName"] = wish.nominated or None
        if not status:
            return
        version = await self._patch(PODS, row, status)
        self._sent[row.uid] = _Sent(
            version,
            sent.condition if text is None else text,
            sent.nominated if wish.nominated is None else wish.nominated,
        )

    async def _group(self, row: GroupRow, wish: _GroupWish) -> None:
        resource = COMPOSITE_GROUPS if row.composite else self._groups()
        seen = self._state.group(row.key)
        if resource is None or seen is None or seen.uid != row.uid or seen.scheduled:
            return
        sent = self._still_sent(row.uid, seen.version)
        written = self._state.written.get(row.uid)
        stands = sent.condition or (written.condition if written is not None else None)
        text = _triple(wish.condition)
        if text == stands or (stands is not None and stands[0] == "True"):
            return
        condition = self._condition(row.uid, wish.condition, stands)
        version = await self._patch(resource, row, {"conditions": [condition]})
        self._sent[row.uid] = _Sent(version, text)

    def _still_sent(self, uid: Uid, seen: int) -> _Sent:
        sent = self._sent.get(uid)
        if sent is None or sent.version <= seen:
            self._sent.pop(uid, None)
            return _Sent()
        return sent

    async def _patch(self, resource: Resource, row: PodRow | GroupRow, status: Json) -> int:
        answer = await patch_scheduling_status(
            self._client, resource, row.namespace, row.name, row.uid, status
        )
        return version_number(answer["metadata"]["resourceVersion"])

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


def _triple(condition: ConditionText | None) -> tuple[str, str, str] | None:
    if condition is None:
        return None
    return condition.status, condition.reason, condition.message
