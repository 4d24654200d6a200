"""The admissions that cycles decided, written in the order in which they were decided.

One run of cycles may admit many hundreds. They stand in a queue, and a bounded number of writers
writes them: what an admission needs is prepared when its turn has come, from the Workload as it is
then. Decisions wait while the queue is long, and for a moment while anything is on its way
(`room`): they never run far ahead of what is written, and where the API server is what limits, they
are fewer and about more. What cannot be written is undone. Source: specification of the quota
plane, section 8; the design's "Processes and time".
"""

from __future__ import annotations

import asyncio
from typing import Final

from kubeworld.units.durations import MILLISECOND
from kubeworld.units.instants import Nanos
from reprieve.api.kueue import Workload
from reprieve.engine.quota.assigning.checks import required_checks
from reprieve.engine.quota.entries import Entry
from reprieve.engine.quota.taking_back import undo_admission
from reprieve.engine.quota.waiting.timing import queue_timestamp
from reprieve.execution.fence import Deposed
from reprieve.intake.quota_workloads import is_condition_true
from reprieve.kube.errors import ApiError
from reprieve.kube.writes import Priority
from reprieve.planes.common.workers import guarded
from reprieve.planes.quota.context import QuotaContext, log, reference_of
from reprieve.planes.quota.state import QuotaState
from reprieve.planes.quota.workload_status.transitions import reserved
from reprieve.planes.quota.workload_status.writing import WorkloadStatuses
from reprieve.wording import kueue

__all__ = ["Admissions"]

# Twice as many as writes are in flight, so that one is always ready when another is answered.
_WRITERS: Final = 32
# As long as more than these wait, nothing further is decided.
_LONG: Final = 1_000
# For so long at most, with so many looks, the next decisions wait for the last ones to be written.
_PATIENCE: Final = 250 * MILLISECOND
_LOOKS: Final = 10


class Admissions:
    """Writes quota reservations."""

    def __init__(self, context: QuotaContext, state: QuotaState, writer: WorkloadStatuses) -> None:
        self._context = context
        self._state = state
        self._writer = writer
        # All and only admissions that no writer has begun with, and when they were decided.
        self._waiting: asyncio.Queue[tuple[Entry, Nanos]] = asyncio.Queue()
        self._writing = 0
        self._room = asyncio.Event()
        self._room.set()

    def admit(self, entry: Entry) -> None:
        """Write one admission when its turn comes; until then its Workload is not settled."""
        self._state.deciding.add(entry.workload.key)
        self._waiting.put_nowait((entry, self._context.clock.wall()))
        if self._waiting.qsize() > _LONG:
            self._room.clear()

    async def room(self) -> None:
        """Wait until few enough are waiting that more may be decided."""
        await self._room.wait()
        for _ in range(_LOOKS):
            if not self._writing and self._waiting.empty():
                return
            await self._context.clock.sleep(_PATIENCE // _LOOKS)

    async def run(self) -> None:
        """Write until cancelled.

        Raises:
            ExceptionGroup: with `Deposed`: the fence is closed.
        """
        async with asyncio.TaskGroup() as writers:
            for _ in range(_WRITERS):
                writers.create_task(self._write_each())

    async def _write_each(self) -> None:
        while True:
            entry, decided = await self._waiting.get()
            if self._waiting.qsize() <= _LONG:
                self._room.set()
            self._writing += 1
            try:
                await guarded(self._write(entry, decided), log)
            finally:
                self._writing -= 1

    async def _write(self, entry: Entry, decided: Nanos) -> None:
        key, admission = entry.workload.key, entry.admission
        assert admission is not None
        known = self._state.configuration.cluster_queues.get(entry.cluster_queue)
        required = () if known is None else required_checks(known, admission)
        by_prefix = self._state.configuration.settings.gates.topology.encode_by_prefix

        def change(workload: Workload) -> Workload | None:
            if (
                workload.metadata.deletion_timestamp
                or is_condition_true(workload, "Finished")
                or not workload.spec.active
                or not self._is_what_was_decided(entry, workload)
            ):
                return None
            return reserved(workload, admission, required, decided, by_prefix=by_prefix)

        stored = None
        try:
            stored = await self._writer.change(key, entry.workload.uid, change, Priority.INTENT)
        except Deposed:
            raise
        except ApiError as failure:
            log.warning("the admission of %s could not be written: %s", key, failure)
        except Exception:
            log.exception("the admission of %s could not be written", key)
        if stored is None:
            async with self._state.engine:
                undo_admission(self._state.holdings, self._state.queues, entry)
        self._state.decided(key)
        if stored is not None:
            self._announce(entry, stored, decided)

    def _is_what_was_decided(self, entry: Entry, workload: Workload) -> bool:
        """Return whether a Workload still requests what it was given, and still requests at all."""
        row, decided = self._state.row(workload), entry.workload
        return (
            row.pod_sets == decided.pod_sets
            and row.queue == decided.queue
            and row.admission_gated == decided.admission_gated
            and row.requeued == decided.requeued
        )

    def _announce(self, entry: Entry, stored: Workload, decided: Nanos) -> None:
        assert entry.assignment is not None
        queue, reference = entry.cluster_queue, reference_of(stored)
        log.debug("%s: quota reserved in %s", entry.workload.key, queue)
        queued = queue_timestamp(entry.workload, self._state.configuration.settings)
        self._context.announce(
            reference,
            kueue.quota_reserved_event(entry.workload, queue, queued, decided, entry.assignment),
        )
        if is_condition_true(stored, "Admitted"):
            self._context.announce(reference, kueue.admitted_event(entry.workload, queue))
