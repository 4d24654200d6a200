"""The quota plane and the governor of disruptions: what it is sent, and its names.

What is remembered is the engine's. It is filled again from the Preemptions that a former process
has left, so that a restart releases no held workload. They do not state which workload got quota
then: the preemptor of a completed plan is assumed to have got it unless it waits since before, so
that a strictly higher priority is not held for turns that were not in vain. Held pairs and loops
are named by `LoopNotices`, for all planes alike. Source: specification of disruptions, sections 4
and 6; the design's "Where the planes meet".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Final

from kubeworld.units.instants import Nanos, parse_instant
from reprieve.api import kueue
from reprieve.api.kueue import API_VERSION
from reprieve.api.reprieve import IntentPhase, ObjectRef, Preemption
from reprieve.engine.disruptions.displacement import Displacement
from reprieve.engine.disruptions.governor import Governor
from reprieve.engine.disruptions.lineage import Lineage, Participant
from reprieve.engine.quota.displacements import Displacements, participant_of
from reprieve.engine.quota.model import Workload
from reprieve.engine.quota.plans import workload_ref
from reprieve.execution.not_evictable import NotEvictable
from reprieve.intake.quota_workloads import condition_of, is_true
from reprieve.planes.common.disruptions.loop_notices import LoopNotices
from reprieve.planes.quota.context import QuotaContext, QuotaOptions
from reprieve.planes.quota.watches import Held
from reprieve.records.displacements import displacements_of
from reprieve.records.harm import harms_in

__all__ = ["HeldPairs"]

#: Conditions of a Workload that has failed, with their reasons.
_FAILURES: Final = (("Finished", "Failed"), ("Evicted", "PodsReadyTimeout"))

Lineages = tuple[Lineage, Lineage]


def _nobody(ref: ObjectRef) -> Participant | None:
    return None


def _unknown(ref: ObjectRef, since: Nanos) -> bool:
    return False


class HeldPairs:
    """Fills the memory and returns what it holds; without a limit there is nothing."""

    def __init__(
        self,
        context: QuotaContext,
        there: Callable[[ObjectRef], Participant | None] = _nobody,
        waits: Callable[[ObjectRef, Nanos], bool] = _unknown,
        governor: Governor | None = None,
        lineage_of: Callable[[kueue.Workload], Participant | None] = lambda workload: None,
    ) -> None:
        """`there`: the lineage of a Workload that exists; `waits`: one waits since then.

        `governor`: that of all planes; without it, and without a limit, no work is held.
        `lineage_of`: that of a Workload which may be deleted already.
        """
        options = context.options
        self._context = context
        self._there = there
        self._waits = waits
        self._lineage_of = lineage_of
        self.ledger = (
            Displacements(options.loop_limit, options.loop_window, governor)
            if options.loop_limit or governor is not None
            else None
        )
        self.not_evictable = NotEvictable()
        self._loops = context.loops or LoopNotices(
            self.ledger.governor if self.ledger is not None else Governor(),
            context.metrics,
            context.events,
            context.disruptions,
            lambda: context.writes,
        )

    def use(self, before: QuotaOptions, now: QuotaOptions) -> None:
        """Use other numbers, as far as the governor has those of the quota plane."""
        if self.ledger is None:
            return
        governor = self.ledger.governor
        policy = governor.policy
        if policy.loop_limit == before.loop_limit:
            policy = replace(policy, loop_limit=now.loop_limit)
        if policy.loop_window == before.loop_window:
            policy = replace(policy, loop_window=now.loop_window)
        governor.adopt(policy)

    def restore(self, intents: Iterable[Preemption], interrupted: Collection[str] = ()) -> None:
        """Adopt what former processes did; only evictions count.

        What the preemptor of a plan that was `interrupted`, by the name of its record, has not got
        is not its doing.
        """
        ledger = self.ledger
        if ledger is None:
            return
        rows, got = [], list[tuple[Participant, Nanos]]()
        gone: list[Displacement] = []
        for intent in intents:
            preemptor = intent.spec.preemptor
            subjects = {victim.subject.uid: victim.subject for victim in intent.spec.victims}
            displaced = list(displacements_of(intent, self._there))
            harms = harms_in(intent, displaced)
            with ledger.governor.guard:
                is_open = intent.status.phase.open
                ledger.governor.harm.restore(intent.metadata.name, harms, is_open=is_open)
            if is_open and intent.spec.preemptor is not None:
                asks = intent.spec.preemptor.uid
                for row, harm in zip(displaced, harms, strict=True):
                    ledger.keep_harm((asks, row.uid), harm)
            for row in displaced:
                rows.append(row)
                if self._there(subjects[row.uid]) is None:
                    gone.append(row)
                self._loops.remember(row.victim.lineage, subjects[row.uid].reference)
                if row.preemptor is not None and preemptor is not None:
                    self._loops.remember(row.preemptor.lineage, preemptor.reference)
                    phase, name = intent.status.phase, intent.metadata.name
                    completed = phase is IntentPhase.COMPLETED and name not in interrupted
                    if not completed or not self._waits(preemptor, row.at):
                        got.append((row.preemptor, row.at))
        ledger.fold(rows)
        for row in gone:
            ledger.governor.ended(row.victim, row.at)
        for participant, at in got:
            ledger.governor.admitted(participant, at)

    def issued(self, preemptor: Workload, victim: Workload) -> None:
        """The engine has preempted one by the other, which is to be written now."""
        if self.ledger is not None:
            for each in (preemptor, victim):
                self._loops.remember(participant_of(each).lineage, workload_ref(each))
            self._loops.issued(_lineages(preemptor, victim))

    def ended(self, intent: Preemption, evicted: Collection[str], lost: Mapping[str, int]) -> None:
        """A plan is over, with these roots evicted, by uid: what they lost is stored.

        `lost`: the device seconds that those lost in truth who had saved after a notice, by uid.
        """
        ledger, preemptor = self.ledger, intent.spec.preemptor
        if ledger is None or preemptor is None:
            return
        harms = []
        for victim in intent.spec.victims:
            harm = ledger.pop_harm((preemptor.uid, victim.subject.uid))
            if harm is None:
                continue
            with ledger.governor.guard:
                if victim.root.uid not in evicted:
                    ledger.governor.harm.undo(harm)
                elif victim.root.uid in lost:
                    harms.append(ledger.governor.harm.saved(harm, lost[victim.root.uid]))
                else:
                    harms.append(harm)
        ledger.governor.harm.close(intent.metadata.name, harms)

    def failed(self, preemptor: Workload, victims: Iterable[str]) -> None:
        """Preemptions, of victims by uids, did not happen: they are forgotten."""
        for victim in victims:
            if self.ledger is not None:
                self.ledger.undo(preemptor, victim)

    def written(self, preemptor: Workload, victims: Iterable[Workload]) -> None:
        """Preemptions were written, or have failed."""
        if self.ledger is not None:
            for victim in victims:
                self._loops.written(_lineages(preemptor, victim))

    def admitted(self, old: Held[kueue.Workload] | None, new: Held[kueue.Workload] | None) -> None:
        """Report a Workload that is admitted, or was when it was first seen."""
        disruptions = self._context.disruptions
        if disruptions is None or new is None:
            return
        now = condition_of(new.object.status.conditions, "Admitted")
        same = old is not None and old.uid == new.uid
        before = condition_of(old.object.status.conditions, "Admitted") if same and old else None
        if now is None or not is_true(now) or is_true(before):
            return
        participant = self._there(_reference_of(new.object))
        if participant is not None:
            disruptions.returns.runs(participant, new.uid, parse_instant(now.last_transition_time))

    def seen(self, old: Held[kueue.Workload] | None, new: Held[kueue.Workload] | None) -> None:
        """Know a lineage that was part of a displacement by its new object."""
        if new is None or (old is not None and old.uid == new.uid) or not self._loops.knows_any:
            return
        ref, conditions = _reference_of(new.object), new.object.status.conditions
        participant = self._there(ref)
        if participant is not None and not is_true(condition_of(conditions, "Finished")):
            self._loops.again(participant, ref.reference)

    def changed(self, old: Held[kueue.Workload] | None, new: Held[kueue.Workload] | None) -> None:
        """Record a Workload that fails: its job did, or its pods did not start in time.

        Those have failed from when it was admitted on.
        """
        if self.ledger is None or old is None:
            return
        if new is None or old.uid != new.uid:
            self._ended(old.object)
            return
        before, after = old.object.status.conditions, new.object.status.conditions
        if before == after:
            return
        for kind, reason in _FAILURES:
            condition = condition_of(after, kind)
            now_true = is_true(condition) and not is_true(condition_of(before, kind))
            if now_true and condition is not None and condition.reason == reason:
                admitted = condition_of(before, "Admitted")
                started = kind == "Evicted" and admitted is not None
                at = parse_instant(admitted.last_transition_time) if started and admitted else None
                participant = self._there(_reference_of(new.object))
                if participant is not None:
                    clock = self._context.clock
                    self.ledger.governor.failed(participant, clock.wall() if at is None else at)
        if is_true(condition_of(after, "Finished")) and not is_true(
            condition_of(before, "Finished")
        ):
            self._ended(new.object)

    def _ended(self, workload: kueue.Workload) -> None:
        """Report a Workload that is deleted or has finished, if another could replace it."""
        ledger = self.ledger
        if ledger is None or not ledger.governor.knows_any:
            return
        participant = self._lineage_of(workload)
        if participant is not None:
            ledger.governor.ended(participant, self._context.clock.wall())

    def loop_of(self, workload: Workload) -> str:
        """Return the loop that a workload is in, in words for its namespace; empty: in none."""
        return (
            self._loops.reported_of(participant_of(workload).lineage)
            if self._loops.knows_any
            else ""
        )

    def hold_refused(self, now: Nanos) -> None:
        """Hold those whose eviction was refused, as of now."""
        if self.ledger is not None:
            self.ledger.refused = self.not_evictable.held(now)

    async def show(self, now: Nanos) -> None:
        """Name who is held now, and no other."""
        if self.ledger is not None:
            await self._loops.show(now)


def _lineages(preemptor: Workload, victim: Workload) -> Lineages:
    return participant_of(preemptor).lineage, participant_of(victim).lineage


def _reference_of(workload: kueue.Workload) -> ObjectRef:
    metadata = workload.metadata
    return ObjectRef(API_VERSION, "Workload", metadata.name, metadata.uid, metadata.namespace)
