"""Answers Evictions that others requested: the pod is given its notice before it is evicted.

A pod names this responder, `reprieve.dev/notice`, in `spec.evictionResponders`. While it is active:

1. The deadline is written to the Eviction (`expectedCompletionTime`) before the pod is notified. It
   never changes, and the next leader adopts it. A pod that another plan has given a later deadline
   keeps that one.
2. A heartbeat is written once a minute.
3. Where the pod has saved, has ended, or its deadline has passed, `completionTime` is written: the
   next responder, at last the one of the cluster, evicts it. This process evicts no work here.
4. Where the eviction is canceled or its object deleted, a pod that is still there is pardoned.

A pod that requests no notice, or may have none, is answered for at once. Where the API is not
served nothing happens; that is logged once, and looked for again. Source: KEP-4563.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from kubeworld.units.clock import Clock
from kubeworld.units.durations import MINUTE, SECOND
from kubeworld.units.instants import Nanos, format_instant
from reprieve.api.core import ObjectMeta
from reprieve.api.evictions import RESPONDER, Eviction
from reprieve.api.reprieve import Preemption, Victim
from reprieve.engine.notice.granting import MOST, NoticePolicy
from reprieve.engine.notice.states import State
from reprieve.execution.evictions.asking import asking_pod, has_ended
from reprieve.execution.evictions.turns import Turn, plan_of, turn_of
from reprieve.execution.fence import Deposed, Fence
from reprieve.execution.notices import Asking, Member, Notices, Notified
from reprieve.execution.steps import each_of
from reprieve.execution.writes.statuses import StatusChange, write_status
from reprieve.kube.bodies import PatchType
from reprieve.kube.cache import Cache
from reprieve.kube.client import Client
from reprieve.kube.errors import ApiError, Conflict, NotFound
from reprieve.kube.reflector import Health, Reflector
from reprieve.kube.resource import EVICTIONS
from reprieve.kube.writes import Priority
from reprieve.wording.displacements import EVICTION

__all__ = ["EvictionResponder"]

log: Final = logging.getLogger("reprieve.execution")

_TICK: Final = SECOND
_LOOKED_AT: Final = 5 * SECOND  # how often it is read whether a pod has ended
_AGAIN: Final = 5 * SECOND  # after a failure
_AT_ONCE: Final = 16
_WAITS: Final = "the pod may save until expectedCompletionTime"
_ENDS: Final = {
    State.SAVED: "the pod has saved or ended",
    State.OVERDUE: "the deadline of the pod has passed",
}


class _Head(msgspec.Struct, frozen=True):
    """An Eviction without its content."""

    metadata: ObjectMeta


@dataclass(slots=True)
class _Answered:
    """An Eviction whose pod has notice; `heard`: the last heartbeat. Instants are monotonic."""

    turn: Turn
    plan: Preemption
    heard: int
    look: int
    ended: bool = False

    def members(self, victim: Victim) -> Sequence[Member] | None:
        """Return the pod, None where it has ended."""
        pod = victim.root
        return None if self.ended else (Member(pod.uid, speaks=True, name=pod.name),)


class EvictionResponder:
    """Answers them while the process leads; `most`: the longest notice.

    `run` works beside the planes.
    """

    def __init__(
        self, notices: Notices, client: Client, fence: Fence, clock: Clock, most: int
    ) -> None:
        self._notices = notices
        self._client = client
        self._writer = client.at(Priority.STATUS, fence.check, timeout=fence.request_timeout)
        self._fence = fence
        self._clock = clock
        self._policy = NoticePolicy(most, patience=MOST, extension=0)
        self._cache: Cache[Eviction, Turn] = Cache(turn_of)
        self._cache.subscribe(self._changed_row)
        self._reflector = Reflector(client, EVICTIONS, Eviction, self._cache, clock, report=_report)
        self._open: dict[str, _Answered] = {}
        self._plans: set[str] = set()
        self._over: set[str] = set()  # answered by this process, or before it
        self._next_try: dict[str, int] = {}  # monotonic
        self._changed = asyncio.Event()
        notices.expect(EVICTION)
        notices.observers.append(self._observed)

    async def run(self) -> None:
        """Answer until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._reflector.run())
            group.create_task(self._answer())

    def _changed_row(self, old: Turn | None, new: Turn | None) -> None:
        if new is None and old is not None:
            self._over.discard(old.uid)
            if old.uid not in self._open:
                self._next_try.pop(old.uid, None)
        self._changed.set()

    def _observed(self, notified: Notified) -> None:
        if notified.plan in self._plans:
            self._changed.set()

    async def _answer(self) -> None:
        while True:
            await self._wait()
            if not self._fence.open:
                continue
            if not self._reflector.synced.is_set():
                if self._reflector.health in (Health.NOT_SERVED, Health.FORBIDDEN):
                    self._notices.inherited(EVICTION)
                continue
            await each_of(self._due(), self._try, _AT_ONCE)
            self._notices.inherited(EVICTION)

    async def _wait(self) -> None:
        pause = asyncio.ensure_future(self._clock.sleep(_TICK))
        changed = asyncio.ensure_future(self._changed.wait())
        try:
            await asyncio.wait((pause, changed), return_when=asyncio.FIRST_COMPLETED)
        finally:
            pause.cancel()
            changed.cancel()
        self._changed.clear()

    def _due(self) -> list[str]:
        now = self._clock.monotonic()
        turns = [each for each in self._cache if each.state and each.uid not in self._over]
        uids = dict.fromkeys([*self._open, *(each.uid for each in turns)])
        return [uid for uid in uids if self._next_try.get(uid, 0) <= now]

    async def _try(self, uid: str) -> None:
        try:
            await self._look_at(uid)
            self._next_try.pop(uid, None)
        except (Deposed, ApiError) as failure:
            log.warning("the Eviction with uid %s is not answered, it is retried: %s", uid, failure)
            self._next_try[uid] = self._clock.monotonic() + _AGAIN
        except Exception:
            log.exception("the Eviction with uid %s is skipped after an internal error", uid)
            self._next_try[uid] = self._clock.monotonic() + MINUTE

    async def _look_at(self, uid: str) -> None:
        turn, known = self._cache.get(uid), self._open.get(uid)
        if known is not None:
            known.turn = turn or known.turn
            await self._go_on(known, there=turn is not None)
        elif turn is not None and turn.active:
            await self._begin(turn)
        elif turn is not None and turn.completed:
            await self._restore_completed(turn)

    # The beginning.

    async def _begin(self, turn: Turn) -> None:
        """Write the deadline, then notify the pod."""
        pod = await asking_pod(self._client, turn.namespace, turn.pod, turn.pod_uid)
        if pod is None:
            await self._complete(turn, "the pod has ended")
            return
        deadline = turn.promised
        if not deadline:
            asking = Asking(turn.pod_uid, (pod.asked,), (turn.pod_uid,), pod.allowed)
            grants = self._notices.grants(self._policy, (asking,), hurried=False)
            if not grants:
                await self._complete(turn, "the pod is given no notice")
                return
            now = self._clock.wall()
            deadline = -(-(now + grants[0].time) // SECOND) * SECOND
            await self._report(turn, _WAITS, promised=deadline)
        plan = plan_of(turn, deadline, pod.lineage)
        began = self._clock.monotonic()
        known = _Answered(turn, plan, began, began + _LOOKED_AT)
        self._open[turn.uid] = known
        self._plans.add(plan.metadata.name)
        self._notices.begin(plan, known.members)
        log.info(
            "pod %s/%s is notified of its requested eviction, deadline %s",
            turn.namespace,
            turn.pod,
            format_instant(Nanos(deadline)),
        )

    async def _restore_completed(self, turn: Turn) -> None:
        """Restore the released notice of a pod for which a former process has answered."""
        self._over.add(turn.uid)
        pod = await asking_pod(self._client, turn.namespace, turn.pod, turn.pod_uid)
        if pod is not None and turn.promised:
            plan = plan_of(turn, turn.promised, pod.lineage)
            self._notices.released_before(plan, _Answered(turn, plan, 0, 0).members)

    # The wait.

    async def _go_on(self, known: _Answered, *, there: bool) -> None:
        turn, plan = known.turn, known.plan
        now = self._clock.monotonic()
        if not there or turn.canceled or known.look <= now:
            known.ended = await has_ended(self._client, turn.namespace, turn.pod, turn.pod_uid)
            known.look = now + _LOOKED_AT
        if (turn.canceled or not there) and not known.ended:
            self._notices.pardon(plan)
            self._close(known)
            return
        self._notices.follow(plan, known.members)
        if self._notices.waits(plan):
            if turn.active and now - known.heard >= MINUTE:
                await self._report(turn, _WAITS)
                known.heard = now
            return
        if there and turn.active:
            (notified,) = self._notices.ready_of(plan)
            await self._complete(turn, _ENDS[notified.notice.state])
        self._notices.release(plan)
        self._close(known)

    def _close(self, known: _Answered) -> None:
        del self._open[known.turn.uid]
        self._plans.discard(known.plan.metadata.name)
        if known.turn.uid in self._cache:
            self._over.add(known.turn.uid)

    # What is written.

    async def _complete(self, turn: Turn, message: str) -> None:
        await self._report(turn, message, completes=True)
        self._over.add(turn.uid)

    async def _report(
        self, turn: Turn, message: str, *, promised: int = 0, completes: bool = False
    ) -> None:
        # What stands there may be of a machine whose clock was ahead, and never decreases.
        now = format_instant(Nanos(max(self._clock.wall(), turn.heard)))
        mine: dict[str, Any] = {"name": RESPONDER, "heartbeatTime": now, "message": message}
        if promised:
            mine["expectedCompletionTime"] = format_instant(Nanos(promised))
        if completes:
            mine["completionTime"] = now
        change = StatusChange(
            EVICTIONS,
            turn.namespace,
            turn.name,
            turn.uid,
            {"responders": [mine]},
            patch_type=PatchType.STRATEGIC,
        )
        try:
            await write_status(self._writer, change, _Head)
        except (NotFound, Conflict):
            log.info("Eviction %s/%s was deleted before it was answered", turn.namespace, turn.name)


def _report(trouble: Exception) -> None:
    if isinstance(trouble, NotFound):
        log.info("no requested eviction is answered: the Eviction API is not served: %s", trouble)
    else:
        log.warning("requested evictions cannot be read: %s", trouble)
