"""Why Workloads wait, in our own words: counted, reported in an event, answered to queries.

What a cycle states of a head is noted as its reason, which costs the cycle a few dictionary
entries. The event follows later, once for each change of the reason, within a budget of its own
that is small while others write; its text is looked up, not decided. The engine decides again only
for a query. What was stated before this process began is read from conditions, and not reported
once more. Source: specification of the quota plane, section 8.4; the design's "Processes and time".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.api.kueue import Workload
from reprieve.engine.diagnosis.model import Diagnosis
from reprieve.engine.diagnosis.quota import (
    Standing,
    delayed_values,
    diagnose,
    reason_of,
    standing,
)
from reprieve.engine.diagnosis.quota_fixes import ClassChoice, remedies
from reprieve.engine.diagnosis.quota_trial import QuotaFacts
from reprieve.engine.diagnosis.reasons import Reason
from reprieve.engine.plan import Plane
from reprieve.engine.quota import model
from reprieve.engine.quota.displacements import Displacements
from reprieve.engine.quota.entries import Entry, Outcome
from reprieve.intake.quota_workloads import condition_of
from reprieve.kube.recording.write_budget import Allowance, WriteBudget
from reprieve.kube.writes import Priority
from reprieve.planes.common.dirty import DirtyKeys
from reprieve.planes.common.workers import look_at_each
from reprieve.planes.quota.context import QuotaContext, log, reference_of
from reprieve.planes.quota.state import QuotaState
from reprieve.planes.quota.watches import Watches
from reprieve.planes.quota.workload_status.implied_requests import Implied, with_implied_requests
from reprieve.planes.quota.workload_status.waiting_counts import WaitingCounts, closed_reason
from reprieve.wording.diagnosis import waiting_event
from reprieve.wording.events import EventText

__all__ = ["Waiting"]

#: Who reports our own events about Workloads.
_CONTROLLER: Final = "reprieve"
_POD_CLASS: Final = "spec.podSets[*].template.spec.priorityClassName"
#: Classes of what keeps the cluster running, which work does not name.
_SYSTEM: Final = "system-"
_LATER: Final = 2 * SECOND
_PACE: Final = SECOND // 1_000  # between two lines of the decision log
_ALLOWANCE: Final = Allowance(burst=50, quiet=20, busy=2, many=5)
#: What a cycle decided that left these reasons in the condition `QuotaReserved`.
_RECORDED: Final[Mapping[str, tuple[Outcome, Reason]]] = {
    "WaitingForQuota": (Outcome.NO_CANDIDATES, Reason.HELD_BY_OTHERS),
    "ExceedsMaxQuota": (Outcome.NO_FIT, Reason.NEVER_FITS),
    "TopologyPlacementFailed": (Outcome.NO_FIT, Reason.NO_PLACES),
    "NoMatchingFlavor": (Outcome.NO_FIT, Reason.NO_FLAVOR_MATCHES),
    "WaitingForPreemptedWorkloads": (Outcome.PREEMPTING, Reason.VICTIMS_LEAVING),
    "WaitingForPodsReady": (Outcome.BLOCKED, Reason.PODS_NOT_READY),
    "AdmissionGated": (Outcome.GATED, Reason.CHECKS_OPEN),
}


@dataclass(frozen=True, slots=True)
class _Stated:
    """What a cycle stated last of a Workload, without what it decided on."""

    entry: Entry
    reason: Reason | None


class Waiting:
    """Reasons of the Workloads that wait; `ledger` is of who displaced whom, if it is kept."""

    def __init__(
        self,
        context: QuotaContext,
        state: QuotaState,
        watches: Watches,
        ledger: Callable[[], Displacements | None],
    ) -> None:
        self._context = context
        self._state = state
        self._watches = watches
        self._ledger = ledger
        self._budget = WriteBudget(
            context.clock, lambda: context.client.passed_before(Priority.EVENT), _ALLOWANCE
        )
        self._counts = WaitingCounts()
        self._said: dict[str, _Stated] = {}
        self._due: DirtyKeys[str] = DirtyKeys(context.clock)
        self._reported: dict[str, Reason] = {}
        self._unlogged: DirtyKeys[str] = DirtyKeys(context.clock)

    async def run(self) -> None:
        """Report until cancelled."""
        await look_at_each(self._due, self._announce, self._context.clock)

    async def write_log(self) -> None:
        """Write the decision log until cancelled, if there is one."""
        if self._context.decision_log is not None:
            await look_at_each(self._unlogged, self._log, self._context.clock, at_once=1)

    # What is noted

    def record(self, entry: Entry) -> None:
        """Record what a cycle stated of a head that got no quota."""
        key = entry.workload.key
        reason = reason_of(entry, self._state.holdings)
        said = Entry(
            entry.workload,
            entry.cluster_queue,
            targets=entry.targets,
            outcome=entry.outcome,
            reason=entry.reason,
            failure=entry.failure,
        )
        self._said[key] = _Stated(said, reason)
        if reason is not None:
            self._count(key, entry.workload.queue, reason)

    def is_sampled(self) -> bool:
        """Count a refusal; return whether what it was decided on is to be written to the log."""
        decision_log = self._context.decision_log
        return decision_log is not None and decision_log.samples.is_due()

    def sampled(self, entry: Entry, decision_input: Mapping[str, Any]) -> None:
        """Write to the decision log what a head was refused on."""
        decision_log, found = self._context.decision_log, self._state.workload(entry.workload.key)
        reason = reason_of(entry, self._state.holdings)
        if decision_log is not None and found is not None and reason is not None:
            decision_log.decided_on(Plane.QUOTA, reference_of(found), reason, decision_input)

    def took(self, key: str, found: Workload | None, row: model.Workload | None) -> None:
        """Record a Workload that was adopted; None is deleted or finished."""
        if found is None or row is None:
            self._counts.forget(key)
            self._said.pop(key, None)
            self._reported.pop(key, None)
            self._waits_no_longer(key)
        elif row.admission is not None:
            self._said.pop(key, None)
            self._reserved(key, row)
        else:
            self._pending(key, found, row)

    def admitted(self, key: str) -> None:
        """Record that a Workload is about to get its quota."""
        self._counts.forget(key)
        self._said.pop(key, None)

    def show(self) -> None:
        """Show how many wait, by reason."""
        counts = self._counts.by_reason(self._state.queues)
        self._context.metrics.show_waiting(Plane.QUOTA, counts)

    def _reserved(self, key: str, row: model.Workload) -> None:
        found = standing(self._facts(row), row).reported
        if found is None:
            self._counts.forget(key)
            self._reported.pop(key, None)
            self._waits_no_longer(key)
        else:
            self._counts.count_reserved(key, found.reason)
            self._report_later(key, found.reason)

    def _pending(self, key: str, found: Workload, row: model.Workload) -> None:
        now = self._context.clock.wall()
        if not row.active:
            self._count(key, row.queue, Reason.STOPPED)
        elif row.admission_gated:
            self._count(key, row.queue, Reason.CHECKS_OPEN)
        elif not row.requeued or (row.requeue_at is not None and row.requeue_at > now):
            self._count(key, row.queue, Reason.BACKOFF)
        else:
            self._repeat(key, found, row)

    def _repeat(self, key: str, found: Workload, row: model.Workload) -> None:
        """Count by what was stated last of a Workload, also by a process before this one."""
        known = self._said.get(key)
        if known is None:
            known = _recorded(found, row)
            if known is not None and known.reason is not None:
                self._reported.setdefault(key, known.reason)
        if known is not None and known.reason is not None:
            self._count(key, row.queue, known.reason)
            return
        self._counts.forget(key)
        # A Workload that is looked at soon needs no report of being behind another one.
        self._report_later(key, Reason.BEHIND_HEAD)

    def _count(self, key: str, local_queue: str, reason: Reason) -> None:
        self._counts.count(key, local_queue, reason)
        closed = closed_reason(self._state.queues, local_queue)
        self._report_later(key, closed or reason)

    def _report_later(self, key: str, reason: Reason) -> None:
        if self._reported.get(key) is not reason:
            self._due.add_at(key, Nanos(self._context.clock.wall() + _LATER))
        decision_log = self._context.decision_log
        if decision_log is not None and decision_log.reason(Plane.QUOTA, key) is not reason:
            self._unlogged.add_at(key, Nanos(self._context.clock.wall() + _LATER))

    def _waits_no_longer(self, key: str) -> None:
        if self._context.decision_log is not None:
            self._context.decision_log.waits_no_longer(Plane.QUOTA, key)

    # What is reported

    async def _announce(self, key: str) -> None:
        """Report in an event why a Workload waits, unless that was stated last."""
        found = self._state.workload(key)
        if found is None or (self._counts.reason(key) is None and found.status.admission):
            return
        await self._budget.turn()
        async with self._state.engine:
            found = self._state.workload(key)
            if found is None or key in self._state.deciding:
                return
            said = self._lookup(key, found)
        if said is None or self._reported.get(key) is said.reason:
            return
        self._reported[key] = said.reason
        text = waiting_event(said)
        event = EventText(text.type, text.reason, text.message)
        # Events of one action soon after each other are one event, of which the first note stays.
        self._context.announce(
            reference_of(found), event, controller=_CONTROLLER, action=str(said.reason)
        )

    async def _log(self, key: str) -> None:
        """Write to the decision log why a Workload waits; no budget of events holds it back."""
        decision_log = self._context.decision_log
        await self._context.clock.sleep(_PACE)
        async with self._state.engine:
            found = self._state.workload(key)
            if decision_log is None or found is None or key in self._state.deciding:
                return
            admitted = self._counts.reason(key) is None and found.status.admission is not None
            said = None if admitted else self._lookup(key, found)
        if said is not None:
            decision_log.waits(key, reference_of(found), said)

    def _lookup(self, key: str, found: Workload) -> Diagnosis | None:
        """Return why a Workload waits, as far as it is known without a decision."""
        row = self._state.queues.workload(key) or self._state.row(found)
        if row.finished:
            return None
        found_now = dict(standing(self._facts(row), row).found)
        reason = self._counts.reason(key)
        if reason is not None:
            known = self._said.get(key)
            delayed = known is not None and known.entry.outcome is Outcome.DELAYED
            found_now.setdefault(reason, delayed_values(row) if delayed else {})
        return Standing(found_now).reported

    # Queries

    async def diagnosis(
        self, namespace: str, name: str, *, fixes: bool = False
    ) -> Diagnosis | None:
        """Return why a Workload waits; None where it does not, or is not there.

        With `fixes` some twenty decisions are made to find what would help: nothing else is decided
        meanwhile, so that it is not for a process that leads.
        """
        key = f"{namespace}/{name}"
        async with self._state.engine:
            self._state.settle()
            found = self._state.workload(key)
            said = None if found is None else self._diagnose(key, found)
            if said is None or found is None or not fixes:
                return said
            row = self._state.queues.workload(key) or self._state.row(found)
            reference = found.spec.priority_class_ref
            named = "" if reference is None else reference.name
            helpful = remedies(self._facts(row, found), row, said, self._classes(), named)
        return replace(said, fixes=tuple(each.fix for each in helpful))

    async def diagnoses(self) -> dict[str, Diagnosis]:
        """Return why each Workload waits that does, by `namespace/name`, as events report it.

        About one of which nothing was stated yet the engine decides, once for all of its shape.
        """
        found: dict[str, Diagnosis] = {}
        decided: dict[tuple[str, object], Diagnosis | None] = {}
        async with self._state.engine:
            self._state.settle()
            queues = self._state.queues
            for row in list(queues.pending()):
                workload = self._state.workload(row.key)
                if workload is None:
                    continue
                said = self._lookup(row.key, workload)
                if said is None:
                    alike = (row.queue, queues.shape_of(row))
                    if alike not in decided:
                        decided[alike] = self._diagnose(row.key, workload)
                    said = decided[alike]
                if said is not None:
                    found[row.key] = said
        return found

    def _classes(self) -> list[ClassChoice]:
        """Return the classes that work may name: those of Workloads, or else those of pods."""
        watches = self._watches
        own = [ClassChoice(held.name, held.object.value) for held in watches.classes.cache]
        return own or [
            ClassChoice(held.name, held.object.value, _POD_CLASS)
            for held in watches.priorities.cache
            if not held.name.startswith(_SYSTEM)
        ]

    def _diagnose(self, key: str, found: Workload) -> Diagnosis | None:
        row = self._state.queues.workload(key) or self._state.row(found)
        try:
            said = diagnose(self._facts(row, found), row)
        except Exception:
            log.exception("the reason of pending workload %s cannot be determined", key)
            return None
        return None if said is None else with_implied_requests(said, found, self._implied(row))

    def _implied(self, row: model.Workload) -> Implied:
        ranges = self._watches.limit_ranges.cache
        overheads = {
            held.name: held.object.overhead.pod_fixed
            for held in self._watches.runtime_classes.cache
            if held.object.overhead is not None and held.object.overhead.pod_fixed is not None
        }
        here = [held.object for held in ranges if held.namespace == row.namespace]
        return Implied(here, overheads, self._context.options.rules)

    def _facts(self, row: model.Workload, found: Workload | None = None) -> QuotaFacts:
        known = self._said.get(row.key)
        if known is None and found is not None:
            known = _recorded(found, row)
        entry = None if known is None else known.entry
        state, now = self._state, self._context.clock.wall()
        return QuotaFacts(state.holdings, state.queues, now, self._ledger(), entry)


def _recorded(found: Workload, row: model.Workload) -> _Stated | None:
    """Return what a cycle must have stated that left a Workload's conditions; None for nothing."""
    condition = condition_of(found.status.conditions, "QuotaReserved")
    if condition is None or condition.status != "False":
        return None
    outcome, reason = _RECORDED.get(condition.reason, (None, None))
    if outcome is None:
        return None
    return _Stated(Entry(row, "", outcome=outcome, reason=condition.reason), reason)
