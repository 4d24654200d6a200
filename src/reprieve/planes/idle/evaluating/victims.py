"""What a victim of the idle plane is: a GpuWorkload that is marked, and its root that is evicted.

The marks are those of Kaiwo (`marks`). A root is deleted, scaled to zero or suspended
(`execution.writes.evict`), and has ended when its pods have. All victims of a plan are marked or
none is evicted, but by the literal switch `partialSetsMarked`. Victims that were notified before
are pardoned as soon as a guard does not hold, the demand is served, or their users keep them. After
a crash marks are finished, since their owners may have been notified; the rest is marked only while
every guard still holds. Source: specification of the idle plane, sections 11, 12 and 14; the
design's "Intent log and executor".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from kubeworld.units.durations import MINUTE, SECOND, format_duration
from kubeworld.units.instants import Nanos
from reprieve.api.reprieve import (
    ObjectRef,
    Preemption,
    Victim,
    VictimState,
    VictimStatus,
)
from reprieve.engine.idle.model import Phase
from reprieve.engine.plan import Plan
from reprieve.execution.letting_save import Depth
from reprieve.execution.not_evictable import NotEvictable
from reprieve.execution.notices import Member
from reprieve.execution.takeover import LET_GO
from reprieve.execution.victims import Manner, Marked, Reading, Standing, VictimResult
from reprieve.execution.writes.contest import Contest
from reprieve.execution.writes.evict import Result, evict, obstacle
from reprieve.kube.errors import ApiError, Conflict, Forbidden
from reprieve.kube.retry import is_silent, retried
from reprieve.planes.idle.context import IdleContext, log
from reprieve.planes.idle.evaluating.marks import Marks, root_of
from reprieve.planes.idle.kept import Kept
from reprieve.planes.idle.records import PodRecord
from reprieve.planes.idle.workloads import TrackedWorkloads
from reprieve.units.ids import GpuWorkloadKey
from reprieve.units.references import Reference
from reprieve.wording.events import EventText
from reprieve.wording.kube_scheduler import eviction_refused

__all__ = ["IdleVictims"]

_ATTEMPTS: Final = 5  # at marking
_REFUSALS: Final = 4  # after as many others are looked for
_OVERDUE: Final = 5 * MINUTE


class _RefusedMark(Exception):
    """A mark was refused, not yet often enough for others to be looked for."""


class IdleVictims:
    """The victims of one plane.

    `plans` gives a plan of this process by its id; `lost_with` the device-seconds of work that are
    lost with a root as it stands; `pods_left` whether pods of a root still exist; `pods_of` gives
    its pods; `kept`: who was kept.
    """

    def __init__(
        self,
        context: IdleContext,
        workloads: TrackedWorkloads,
        plans: Callable[[str], Plan | None],
        changed: Callable[[GpuWorkloadKey], None],
        lost_with: Callable[[Reference], int],
        pods_left: Callable[[Reference], bool],
        not_evictable: NotEvictable,
        pods_of: Callable[[Reference], Sequence[PodRecord]],
        kept: Kept,
    ) -> None:
        self._pods_of = pods_of
        self._kept = kept
        literal = context.start.policy.literal
        self.manner = Manner(
            marked_at_once=1,
            all_or_nobody=not literal.partial_sets_marked,
            rest_is_marked=True,
        )
        self._by_name = literal.delete_without_uid
        self._context = context
        self._workloads = workloads
        self._pods_left = pods_left
        self._marks = Marks(context, workloads, plans, changed, lost_with)
        self._not_evictable = not_evictable
        self._refusals: dict[tuple[str, str], int] = {}  # by record and root
        self._overdue: set[str] = set()  # records whose overdue victims were reported
        # Since when evicted roots are waited for, by record and root: monotonic.
        self._leaving: dict[tuple[str, str], int] = {}

    def forget(self, intent: Preemption) -> None:
        """A plan is over."""
        self._overdue.discard(intent.metadata.name)
        self._marks.forget(intent)
        name = intent.metadata.name
        self._refusals = {key: n for key, n in self._refusals.items() if key[0] != name}
        self._leaving = {key: since for key, since in self._leaving.items() if key[0] != name}

    def overdue_at(self, intent: Preemption) -> int | None:
        """Return when the next victim that is waited for is overdue: monotonic, None for none."""
        victims = (each for each in intent.spec.victims if self._leaves(intent, each))
        return min((self._deadline(intent, each) for each in victims), default=None)

    # What the executor queries.

    def gets_notice(self, victim: Victim) -> bool:
        return True

    async def stale(self, intent: Preemption, victims: Sequence[Victim]) -> str:
        everybody = intent.spec.victims
        if not self.manner.all_or_nobody and len(victims) == len(everybody):
            victims = ()  # Each for itself, as it is marked.
        considered = {each.subject.uid for each in everybody} - {v.subject.uid for v in victims}
        for guard in intent.spec.guards:
            if guard.subject.uid in considered:
                continue
            shown = await self._marks.read(guard.subject, intent)
            if shown.found is None or shown.phase not in guard.phases:
                return _not_as_planned(guard.subject, shown.phase or "gone", guard.phases)
        client, mapper = self._context.full_client, self._context.mapper
        for victim in victims:
            if why := self._too_long(intent, victim):
                return why
            blocked = await obstacle(client, mapper, victim, ask=len(everybody) > 1)
            if blocked is not None:
                if blocked.result is not Result.FAILED:
                    if not blocked.rule:
                        # Who grants a right that is missing need not wait for it.
                        now = self._context.clock.wall()
                        self._not_evictable.refused(victim.root.uid, now)
                    await self._marks.settle(intent, victim, blocked)
                return f"{victim.root.kind}/{victim.root.name}: {blocked.detail}"
        return ""

    def _too_long(self, intent: Preemption, victim: Victim) -> str:
        """Return why others are looked for first, empty where the grace period is no reason."""
        grace = max((pod.grace for pod in self._pods_of(victim.root.reference)), default=0)
        longest, uid = self._context.start.policy.longest_grace, victim.root.uid
        if intent.spec.preemptor is None or grace * SECOND <= longest or uid in self._not_evictable:
            return ""
        until = self._not_evictable.refused(uid, self._context.clock.wall())
        why = f"its grace period of {grace} s is longer than {format_duration(longest)}"
        subject = victim.subject
        text = eviction_refused(subject.namespace, subject.name, why, until, subject.namespace)
        self._context.announce(subject.reference, text, intent.spec.plan_id)
        return f"{victim.root.kind}/{victim.root.name}: {why}"

    async def mark(self, intent: Preemption, victim: Victim) -> Marked[None] | VictimResult:
        subject = victim.subject
        name = f"{subject.namespace}/{subject.name}"
        changed = f"{name} changed before it was marked"
        phases = next((g.phases for g in intent.spec.guards if g.subject == subject), None)

        contest, refusals = Contest(), 0

        async def once() -> Marked[None] | VictimResult:
            nonlocal refusals
            shown = await self._marks.read(subject, intent)
            if shown.marked:
                return Marked(None)
            if shown.found is None or (phases is not None and shown.phase not in phases):
                return VictimResult(VictimState.SPARED, changed)
            try:
                await self._marks.mark(intent, victim, shown.found, by_uid=contest.lost)
            except ApiError as failure:
                if isinstance(failure, Conflict) or not self._is_refusal(victim, failure):
                    raise
                if not (isinstance(failure, Forbidden) and failure.rule):
                    refusals += 1
                    if refusals < _REFUSALS and not is_silent(failure):
                        raise _RefusedMark from failure
                    # Who grants a right that is missing need not wait for it.
                    self._not_evictable.refused(victim.root.uid, self._context.clock.wall())
                why = f"{name} cannot be marked: {failure}"
                return VictimResult(VictimState.FAILED, why)
            return Marked(None)

        pause, again = self._context.client.transport.pause, (Conflict, _RefusedMark)
        try:
            return await retried(contest.of(once), pause, again, _ATTEMPTS, soon=True)
        except (Conflict, _RefusedMark):
            if contest.lost and self._marks.stays_idle(victim):
                # Its root is what is evicted, and decides by its uid.
                return Marked(None)
            return VictimResult(VictimState.SPARED, changed)

    def _is_refusal(self, victim: Victim, failure: ApiError) -> bool:
        """Count a write that failed; return whether that is about its object."""
        if not is_silent(failure):
            return True
        unanswered = self._not_evictable.unanswered
        unanswered.failed(victim.root.uid, failure)
        return unanswered.is_refused(victim.root.uid)

    async def spare(self, intent: Preemption, victim: Victim, mark: None, why: str) -> None:
        contest = Contest()

        async def once() -> None:
            shown = await self._marks.read(victim.subject, intent)
            if shown.found is None:
                return
            if shown.marked:
                found, by_uid = shown.found, contest.lost
                await self._marks.remove(intent, victim, found, why, by_uid=by_uid)
            else:
                await self._marks.touch(intent, shown.found)

        self._marks.spared(victim)
        await retried(contest.of(once), self._context.client.transport.pause, (Conflict,))

    async def evict(
        self, intent: Preemption, victim: Victim, mark: None, *, again: bool
    ) -> VictimResult:
        context = self._context
        eviction = await evict(
            context.full_client, context.mapper, context.fence, victim, by_name=self._by_name
        )
        if eviction.result is Result.FAILED:
            key = intent.metadata.name, victim.root.uid
            refusals = self._refusals[key] = self._refusals.get(key, 0) + (not eviction.away)
            failure = eviction.failure
            silent = eviction.away and failure is not None and self._is_refusal(victim, failure)
            if refusals < _REFUSALS and not silent:
                return VictimResult(VictimState.PENDING, eviction.detail, away=eviction.away)
            eviction = replace(eviction, result=Result.FORBIDDEN)
        if eviction.result in (Result.FORBIDDEN, Result.REFUSED):
            # Who grants a right that is missing need not wait for it.
            lacking = await obstacle(context.full_client, context.mapper, victim, ask=True)
            if lacking is None or not lacking.rule:
                self._not_evictable.refused(victim.root.uid, context.clock.wall())
        elif eviction.over:
            self._not_evictable.forget(victim.root.uid)
        # A root that is found ended after an earlier call was evicted by that call, though that
        # could not be recorded then.
        evicted = eviction.result is Result.EVICTED or (eviction.over and again)
        await self._marks.settle(intent, victim, eviction, evicted=evicted)
        if evicted:
            state = VictimState.EVICTED
        else:
            state = VictimState.GONE if eviction.over else VictimState.FAILED
        return VictimResult(state, eviction.detail)

    async def read(self, intent: Preemption, victim: Victim, *, elsewhere: bool) -> Reading[None]:
        shown = await self._marks.read(victim.subject, intent)
        if shown.evicted:
            return Reading(Standing.EVICTED)
        return Reading(Standing.MARKED if shown.marked else Standing.UNTOUCHED)

    def needed(self, intent: Preemption) -> bool:
        return True

    def observe(
        self, intent: Preemption, victim: Victim, state: VictimStatus | None
    ) -> VictimResult | None:
        assert state is not None, "a root is on its way because of what its eviction came to"
        if not self._pods_left(victim.root.reference):
            self._leaving.pop((intent.metadata.name, victim.root.uid), None)
            return VictimResult(state.state, state.message)
        if self._context.clock.monotonic() <= self._deadline(intent, victim):
            return None
        self._leaving.pop((intent.metadata.name, victim.root.uid), None)
        why = "its pods have not ended in time, and other idle work may be evicted instead"
        self._report_overdue(intent, [(victim, why)])
        return VictimResult(state.state, why, remains=True)

    def _leaves(self, intent: Preemption, victim: Victim) -> bool:
        return (intent.metadata.name, victim.root.uid) in self._leaving

    def _deadline(self, intent: Preemption, victim: Victim) -> int:
        """Return by when the pods of an evicted root should be deleted: monotonic."""
        key, policy = (intent.metadata.name, victim.root.uid), self._context.start.policy
        since = self._leaving.setdefault(key, self._context.clock.monotonic())
        allowed = (
            min(pod.grace * SECOND, policy.longest_grace) if pod.row.terminating else policy.unended
            for pod in self._pods_of(victim.root.reference)
        )
        return since + max(allowed, default=0) + policy.slack

    def served(self, intent: Preemption) -> bool:
        preemptor = intent.spec.preemptor
        if preemptor is None:
            return True
        demand = self._workloads.standing_for(preemptor)
        return demand is None or demand.status.phase is not Phase.PENDING_GPU

    # Notice.

    def members(self, victim: Victim) -> Sequence[Member] | None:
        if not self._workloads.of_root(victim.root.uid):
            return None
        pods = self._pods_of(victim.root.reference)
        return [Member(pod.uid, pod.speaks, not pod.occupies, pod.name) for pod in pods]

    @property
    def keeps(self) -> bool:
        return self._context.start.notice.keep > 0

    def keep(self, victims: Sequence[Victim]) -> str:
        until = Nanos(self._context.clock.wall() + self._context.start.notice.keep)
        granted = [each for each in victims if self._kept.keep(each.root.uid, until)]
        if not granted:
            return ""
        return f"the users of {granted[0].root.kind}/{granted[0].root.name} keep it"

    def why_pardoned(self, intent: Preemption, depth: Depth) -> str:
        if intent.spec.preemptor is not None and self.served(intent):
            return LET_GO
        for guard in intent.spec.guards:
            subject = guard.subject
            held = self._workloads.standing_for(subject, root_of(subject, intent))
            phase = "gone" if held is None else held.status.phase.value
            if phase not in guard.phases:
                return _not_as_planned(subject, phase, guard.phases)
        return ""

    def held_up(self, intent: Preemption, left: Sequence[tuple[Victim, str]], since: int) -> None:
        if since <= _OVERDUE or intent.metadata.name in self._overdue:
            return
        self._overdue.add(intent.metadata.name)
        self._report_overdue(intent, left)

    def _report_overdue(self, intent: Preemption, left: Sequence[tuple[Victim, str]]) -> None:
        for victim, why in left:
            message = f"{victim.root.kind}/{victim.root.name} is still there: {why}"
            log.warning("plan %s: %s", intent.spec.plan_id, message)
            text = EventText("Warning", "EvictionOverdue", message)
            self._context.announce(victim.subject.reference, text, intent.spec.plan_id)


def _not_as_planned(subject: ObjectRef, phase: str, wanted: Sequence[str]) -> str:
    """Return why a plan does not hold whose guard is in another phase."""
    return f"{subject.namespace}/{subject.name} is {phase}, not {' or '.join(wanted)}"
