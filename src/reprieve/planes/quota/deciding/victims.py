"""What a victim of the quota plane is: a Workload that is marked, and stopped because of that.

The mark is its condition `Evicted`, written with `Preempted` in one call. From then on the
reconciler of jobs suspends it, and frees its quota once its pods have ended; it needs nothing from
here, so that a written mark is always finished, whichever process leads. A victim has ended when it
has given its quota back. Victims are independent: one that cannot be marked hinders no other. After
a hand-over victims without a mark are spared, unless they were notified before: the next cycle
decides afresh.

Notified victims are not needed any more once their preemptor has quota or waits in no queue; a
victim has ended once it holds no quota, or got it anew. Its pods are those of its Workload; one
that has no node yet has nothing to save.

Source: specification of the quota plane, section 9; the design's "Intent log and executor".
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from kubeworld.units.instants import parse_instant
from reprieve.api.kueue import Workload
from reprieve.api.reprieve import Preemption, Victim, VictimState, VictimStatus
from reprieve.engine.cluster.rows import PodRow
from reprieve.engine.quota.targets.candidates import preemptor, satisfies
from reprieve.execution.letting_save import Depth
from reprieve.execution.notices import Member, is_notified
from reprieve.execution.takeover import LET_GO
from reprieve.execution.victims import Manner, Marked, Reading, Standing, VictimResult
from reprieve.intake.quota_workloads import condition_of, is_condition_true, is_true
from reprieve.kube.errors import ApiError
from reprieve.kube.writes import Priority
from reprieve.planes.quota.context import QuotaContext, log
from reprieve.planes.quota.deciding.effects import Marking
from reprieve.planes.quota.deciding.refused_evictions import RefusedEvictions
from reprieve.planes.quota.state import QuotaState, key_of
from reprieve.planes.quota.workload_status.transitions import preempted
from reprieve.planes.quota.workload_status.writing import WorkloadStatuses

__all__ = ["QuotaVictims"]

_AT_ONCE: Final = 8
_MANNER: Final = Manner("gave their quota back", marked_at_once=_AT_ONCE, all_or_nobody=False)


_HAS_QUOTA: Final = "its preemptor has quota by now"

#: Called with a victim that carries its mark, as stored, and whether it was ending before.
Reported: TypeAlias = Callable[[Marking, Workload, bool], None]


class QuotaVictims:
    """The victims of one plane."""

    manner = _MANNER

    def __init__(
        self,
        context: QuotaContext,
        state: QuotaState,
        writer: WorkloadStatuses,
        refusals: RefusedEvictions,
        pods: Callable[[str], Sequence[PodRow]],
        made_again: Callable[[Preemption, Victim], tuple[Marking, Reported] | None],
    ) -> None:
        """`pods`: those of a Workload; `made_again`: the marking of a victim in a record."""
        self._pods = pods
        self._made_again = made_again
        self._context = context
        self._refusals = refusals
        self._state = state
        self._writer = writer
        # How plans of this process mark their victims, by record and victim.
        self._markings: dict[tuple[str, str], tuple[Marking, Reported]] = {}
        # Since when evicted ones are waited for: monotonic.
        self._since: dict[tuple[str, str], int] = {}
        # Of these and of adopted victims, those that were evicted for another workload already.
        self._foreign: set[tuple[str, str]] = set()
        self._slots = asyncio.Semaphore(_AT_ONCE)

    def begin(self, intent: Preemption, markings: Sequence[Marking], reported: Reported) -> None:
        """A plan of this process is about to be carried out."""
        name = intent.metadata.name
        self._markings.update({(name, each.victim.uid): (each, reported) for each in markings})
        preemptor = intent.spec.preemptor
        victims = [each.victim.uid for each in markings]
        self._refusals.begins(victims, None if preemptor is None else preemptor.reference)

    def forget(self, intent: Preemption) -> None:
        """A plan is over."""
        self._refusals.ends(victim.subject.uid for victim in intent.spec.victims)
        for victim in intent.spec.victims:
            self._markings.pop(_key(intent, victim), None)
            self._since.pop(_key(intent, victim), None)
            self._foreign.discard(_key(intent, victim))

    def gets_notice(self, victim: Victim) -> bool:
        return True

    async def stale(self, intent: Preemption, victims: Sequence[Victim]) -> str:
        # Each is judged again as it is marked. If all are evicted for a preemptor others may be
        # better.
        if intent.spec.preemptor is None or len(victims) < len(intent.spec.victims):
            return ""
        keys = (f"{each.subject.namespace}/{each.subject.name}" for each in victims)
        return next(filter(None, map(self._refusals.too_long, keys)), "")

    async def mark(self, intent: Preemption, victim: Victim) -> Marked[Workload] | VictimResult:
        found = self._markings.get(_key(intent, victim)) or self._made_again(intent, victim)
        if found is None:
            return VictimResult(VictimState.SPARED, "it holds no quota any more")
        marking, _ = self._markings[_key(intent, victim)] = found
        row, now = marking.victim, self._context.clock.wall()

        def change(workload: Workload) -> Workload | None:
            over = is_condition_true(workload, "Finished")
            if workload.status.admission is None or over or _began_anew(workload, intent):
                return None
            if is_condition_true(workload, "Evicted"):
                return workload
            return preempted(workload, marking.reason, marking.message, now)

        try:
            async with self._slots:
                stored = await self._writer.change(row.key, row.uid, change, Priority.EVICT)
        except ApiError as failure:
            self._refusals.refused(row.key, failure)
            raise
        if stored is None:
            return VictimResult(VictimState.SPARED, "it holds no quota any more")
        evicted = condition_of(stored.status.conditions, "Evicted")
        if evicted is None or evicted.message != marking.message:
            # It was on its way out already, and has lost its work to that.
            self._foreign.add(_key(intent, victim))
        return Marked(stored)

    async def spare(
        self, intent: Preemption, victim: Victim, mark: Workload | None, why: str
    ) -> None:
        """Nothing is written: a mark that is there is finished, and a delayed one fails."""

    async def evict(
        self, intent: Preemption, victim: Victim, mark: Workload | None, *, again: bool
    ) -> VictimResult | None:
        """Notify who has to know; the mark is enough for the reconciler of jobs."""
        key = _key(intent, victim)
        marking, reported = self._markings.get(key, (None, None))
        if marking is not None and reported is not None and mark is not None:
            try:
                reported(marking, mark, key in self._foreign)
            except Exception:
                # It is preempted all the same.
                log.exception("the observer of the preemption of %s failed", marking.victim.key)
        return None

    async def read(
        self, intent: Preemption, victim: Victim, *, elsewhere: bool
    ) -> Reading[Workload]:
        workload = self._workload(victim)
        if workload is None:
            return Reading(Standing.GONE, "gone")
        if is_true(evicted := condition_of(workload.status.conditions, "Evicted")):
            if evicted is not None and not _is_for(evicted.message, intent):
                self._foreign.add(_key(intent, victim))
            return Reading(Standing.MARKED)
        if workload.status.admission is None:
            # One that was about to be admitted may never have held what was planned with.
            if _evicted_since(workload, intent):
                return Reading(Standing.EVICTED, "its quota is free")
            return Reading(Standing.UNTOUCHED, "it holds no quota")
        if _admitted_again(workload, intent):
            return Reading(Standing.EVICTED, "admitted again since")
        return Reading(Standing.UNTOUCHED)

    def needed(self, intent: Preemption) -> bool:
        return True

    def observe(
        self, intent: Preemption, victim: Victim, state: VictimStatus | None
    ) -> VictimResult | None:
        if state is not None:
            return VictimResult(state.state, state.message)
        workload, foreign = self._workload(victim), _key(intent, victim) in self._foreign
        over = VictimState.GONE if foreign else VictimState.EVICTED
        if workload is None:
            return VictimResult(over, "gone")
        if is_condition_true(workload, "Finished"):
            # It ended before it could be stopped, and keeps its admission for good.
            return VictimResult(over, "finished")
        if workload.status.admission is None or not is_condition_true(workload, "Evicted"):
            return VictimResult(over, "evicted for another workload" if foreign else "")
        since = self._since.setdefault(_key(intent, victim), self._context.clock.monotonic())
        self._refusals.waits(f"{victim.subject.namespace}/{victim.subject.name}", since)
        return None

    def served(self, intent: Preemption) -> bool:
        return True  # Its quota is its own as soon as it is free.

    def held_up(self, intent: Preemption, left: Sequence[tuple[Victim, str]], since: int) -> None:
        """None is: what a mark requests is not requested here."""

    # Notice.

    def members(self, victim: Victim) -> Sequence[Member] | None:
        workload = self._workload(victim)
        if workload is None or workload.status.admission is None:
            return None
        if is_condition_true(workload, "Finished") or is_condition_true(workload, "Evicted"):
            return None
        return [
            Member(row.uid, row.speaks, row.finished or not row.node, row.name)
            for row in self._pods(key_of(workload))
        ]

    @property
    def keeps(self) -> bool:
        return False

    def keep(self, victims: Sequence[Victim]) -> str:
        return ""

    def why_pardoned(self, intent: Preemption, depth: Depth) -> str:
        whom = intent.spec.preemptor
        assert whom is not None, "a plan of this plane has one"
        key = f"{whom.namespace}/{whom.name}"
        workload = self._state.workload(key)
        if workload is None or workload.metadata.uid != whom.uid:
            return LET_GO
        if is_condition_true(workload, "Finished"):
            return LET_GO
        if workload.status.admission is not None or key in self._state.deciding:
            return _HAS_QUOTA
        if depth is not Depth.HOLDS:
            return ""
        queues = self._state.queues
        home = queues.home(key)
        if home is None or home in queues.inactive:
            return LET_GO
        return self._why_not_permitted(intent, key, home)

    def _why_not_permitted(self, intent: Preemption, key: str, home: str) -> str:
        """Return which victim its queue's policies permit no more, as its priority has changed."""
        state = self._state
        row, tree = state.queues.workload(key), state.holdings.tree
        if row is None or home not in tree.queues:
            return ""
        settings = state.configuration.settings
        who = preemptor(row, tree.queues[home], settings)
        policies = state.configuration.cluster_queues[home].preemption
        for victim in intent.spec.victims:
            at = f"{victim.subject.namespace}/{victim.subject.name}"
            holder = state.holdings.holders.get(at)
            if holder is None or holder.workload.uid != victim.subject.uid:
                continue
            own = holder.queue == who.queue
            policy = policies.within_cluster_queue if own else policies.reclaim_within_cohort
            if own and not satisfies(policy, who, holder.priority, holder.timestamp):
                return f"{at} may not be preempted by it any more"
        return ""

    def _workload(self, victim: Victim) -> Workload | None:
        subject = victim.subject
        found = self._state.workload(f"{subject.namespace}/{subject.name}")
        return found if found is not None and found.metadata.uid == subject.uid else None


def _key(intent: Preemption, victim: Victim) -> tuple[str, str]:
    return intent.metadata.name, victim.subject.uid


def _evicted_since(workload: Workload, intent: Preemption) -> bool:
    """Return whether another actor evicted a victim since the plan; instants are whole seconds."""
    evicted = condition_of(workload.status.conditions, "Evicted")
    decided = parse_instant(intent.spec.decided_at)
    return evicted is not None and parse_instant(evicted.last_transition_time) >= decided


def _began_anew(workload: Workload, intent: Preemption) -> bool:
    """Return whether a victim with notice has got its quota since."""
    reserved = condition_of(workload.status.conditions, "QuotaReserved")
    if not is_notified(intent) or not is_true(reserved):
        return False
    return parse_instant(reserved.last_transition_time) > parse_instant(intent.spec.decided_at)


def _admitted_again(workload: Workload, intent: Preemption) -> bool:
    """Return whether a victim without a mark had one: it got the quota that it holds later.

    Instants are whole seconds; within one, what it was evicted for before decides.
    """
    decided = parse_instant(intent.spec.decided_at)
    reserved = condition_of(workload.status.conditions, "QuotaReserved")
    if is_true(reserved) and parse_instant(reserved.last_transition_time) > decided:
        return True
    before = condition_of(workload.status.conditions, "Evicted")
    if before is None or intent.spec.preemptor is None:
        return False
    since = parse_instant(before.last_transition_time) >= decided
    return since and _is_for(before.message, intent)


def _is_for(message: str, intent: Preemption) -> bool:
    """Return whether a condition's message names the preemptor of the intent."""
    preemptor = intent.spec.preemptor
    return preemptor is not None and f"(UID: {preemptor.uid}," in message
