"""Why a Workload waits: written into its status, and reported in an event.

What the cycles stated last of a Workload is kept and written a little later by a few writers of
their own, in the order in which it came, within a budget that is small while admissions and
evictions are written: a queue of thousands holds no admission up, and what was admitted in the
meantime costs no write. While they are, a Workload with a reported reason gets another one only
after some seconds. Workloads that were set aside unseen get the reason of one of the same shape.
Source: specification of the quota plane, section 8.4; the design's "Processes and time".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from kubeworld.units.durations import MILLISECOND, SECOND
from kubeworld.units.instants import Nanos
from reprieve.api.kueue import PodSetRequest, Workload
from reprieve.engine.quota import model
from reprieve.engine.quota.assigning.assignment import Assignment
from reprieve.engine.quota.assigning.requests import pod_set_requests
from reprieve.engine.quota.entries import Entry, Outcome
from reprieve.engine.quota.heads import ALIKE
from reprieve.engine.quota.holdings.amounts import text
from reprieve.intake.quota_workloads import condition_of
from reprieve.kube.errors import ApiError
from reprieve.kube.recording.write_budget import Allowance, WriteBudget
from reprieve.kube.writes import Priority
from reprieve.planes.common.dirty import DirtyKeys
from reprieve.planes.common.workers import look_at_each
from reprieve.planes.quota.context import QuotaContext, log, reference_of
from reprieve.planes.quota.state import QuotaState, states_cause
from reprieve.planes.quota.workload_status.transitions import pending
from reprieve.planes.quota.workload_status.writing import WorkloadStatuses
from reprieve.wording import kueue

__all__ = ["Explanations"]

_KEPT: Final = 10_000
_LATER: Final = 200 * MILLISECOND
_REWORDED: Final = 5 * SECOND
_WRITERS: Final = 4
_POD_SET: Final = "pod set "
_ALLOWANCE: Final = Allowance(burst=100, quiet=50, busy=10, many=5)


class Explanations:
    """What was stated of Workloads that got no quota, and what of it is still to be written."""

    def __init__(
        self,
        context: QuotaContext,
        state: QuotaState,
        writer: WorkloadStatuses,
        noted: Callable[[Entry], None] = lambda entry: None,
        loop_of: Callable[[model.Workload], str] = lambda workload: "",
    ) -> None:
        """`noted` is called with everything that is reported.

        `loop_of`: in which loop of displacements a workload is, in words.
        """
        self._loop_of = loop_of
        self._context = context
        self._noted = noted
        self._state = state
        self._writer = writer
        self._budget = WriteBudget(
            context.clock, lambda: context.client.passed_before(Priority.STATUS), _ALLOWANCE
        )
        # What is to be written, by key.
        self._due: DirtyKeys[str] = DirtyKeys(context.clock)
        self._said: dict[str, Entry] = {}
        # The last entry that got no quota, by ClusterQueue and shape.
        self._of_shape: dict[tuple[str, object], Entry] = {}

    async def run(self) -> None:
        """Write until cancelled."""
        await look_at_each(self._due, self._write, self._context.clock, at_once=_WRITERS)

    def explain(self, entry: Entry) -> None:
        """Write why a head got no quota, unless that is written already."""
        key = entry.workload.key
        self._noted(entry)
        if self._is_written(entry):
            self._said.pop(key, None)
            return
        if key not in self._said:
            pause = _REWORDED if self._was_reported(key) and self._budget.busy else _LATER
            self._due.add_at(key, Nanos(self._context.clock.wall() + pause))
        self._said[key] = entry

    def report_those_alike(self, considered: Mapping[str, Entry]) -> None:
        """Report to those that were set aside unseen what one of the same shape was sent."""
        queues = self._state.queues
        for entry in considered.values():
            if entry.requeue in ALIKE:
                if len(self._of_shape) >= _KEPT:
                    self._of_shape.clear()
                self._of_shape[entry.cluster_queue, queues.shape_of(entry.workload)] = entry
        unexplained = self._state.unexplained
        gates = self._state.configuration.settings.gates
        if not unexplained or not gates.scheduling_equivalence_hashing:
            return
        for key in sorted(unexplained - considered.keys()):
            workload = queues.workload(key)
            # What is not queued again waits for something else than capacity.
            if workload is None or not workload.requeued:
                continue
            local = self._state.configuration.local_queues[workload.queue]
            twin = self._of_shape.get((local.cluster_queue, queues.shape_of(workload)))
            if twin is not None:
                unexplained.discard(key)
                self.explain(_with_names_of(workload, twin))

    def _was_reported(self, key: str) -> bool:
        """Return whether a Workload states why it waits, rightly or not any more."""
        workload = self._state.workload(key)
        return workload is not None and states_cause(workload)

    def _is_written(self, entry: Entry) -> bool:
        """Return whether there is nothing to write: it is known, or the Workload got quota."""
        workload = self._state.workload(entry.workload.key)
        if workload is None or workload.status.admission is not None:
            return True
        condition = condition_of(workload.status.conditions, "QuotaReserved")
        reported = condition is not None and (condition.status, condition.reason, condition.message)
        return reported == ("False", entry.reason, self._message(entry))

    def _message(self, entry: Entry) -> str:
        loop = self._loop_of(entry.workload)
        return f"{entry.message}. {loop}" if loop else entry.message

    def _is_due(self, key: str) -> bool:
        """Return whether there is something to write; what there is not is forgotten."""
        entry = self._said.get(key)
        if entry is None or key in self._state.deciding or self._is_written(entry):
            self._said.pop(key, None)
            return False
        return True

    async def _write(self, key: str) -> None:
        if not self._is_due(key):
            return
        await self._budget.turn()
        if not self._is_due(key):
            return
        entry = self._said.pop(key)
        now, settings = self._context.clock.wall(), self._state.configuration.settings
        requests = resource_requests(entry.workload, settings)
        gated = entry.outcome is Outcome.GATED
        reason, message = str(entry.reason), self._message(entry)

        def change(workload: Workload) -> Workload | None:
            if workload.status.admission is not None or key in self._state.deciding:
                return None
            return pending(workload, reason, message, requests, now, gated=gated)

        try:
            stored = await self._writer.change(key, entry.workload.uid, change)
        except ApiError as failure:
            log.warning("%s: %s", key, failure)
            self._state.look_at(key)
            return
        if stored is not None:
            event = kueue.pending_event(entry.workload, reason, message)
            self._context.announce(reference_of(stored), event)


def _with_names_of(workload: model.Workload, twin: Entry) -> Entry:
    """Return the entry of a workload that was decided as its twin; its pod sets have own names."""
    pairs = zip(twin.workload.pod_sets, workload.pod_sets, strict=True)
    names = {theirs.name: own.name for theirs, own in pairs if theirs.name != own.name}
    if not names:
        return replace(twin, workload=workload)
    first, *rest = twin.message.split(_POD_SET)
    texts = [first]
    for each in rest:
        name, colon, reason = each.partition(":")
        texts.append(f"{names.get(name, name)}{colon}{reason}")
    return replace(
        twin,
        workload=workload,
        message=_POD_SET.join(texts),
        assignment=_renamed(twin.assignment, names),
        whole=_renamed(twin.whole, names),
    )


def _renamed(found: Assignment | None, names: Mapping[str, str]) -> Assignment | None:
    if found is None:
        return None
    sets = [replace(each, name=names.get(each.name, each.name)) for each in found.pod_sets]
    return replace(found, pod_sets=tuple(sets))


def resource_requests(workload: model.Workload, settings: model.Settings) -> list[PodSetRequest]:
    """Return what a Workload requested when it was considered."""
    return [
        PodSetRequest(each.pod_set.name, {name: text(name, n) for name, n in each.amounts.items()})
        for each in pod_set_requests(workload, settings)
    ]
