"""Notifies pods and groups that wait since a gang lacks members, or its group is missing.

An object is notified once it has waited for some seconds, so that a gang that is just being created
gets no report: in the `PodScheduled` condition of its pods, the condition of the group, and one
event each for every new reason. PodGroups of the older APIs have no conditions, so that they
get an event. A condition that another client overwrites is written again. The words are those of
PreEnqueue, which kube-scheduler and Koordinator only log. Source: specification 5.1 and 12; gang
jobs, section 4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from kubeworld.units.durations import SECOND
from reprieve.engine.cluster.rows import GroupRow, PodRow
from reprieve.engine.scheduling.gangs.cycle import GANG_KEY
from reprieve.planes.scheduling.context import SchedulingContext
from reprieve.planes.scheduling.gangs.book import GangBook
from reprieve.planes.scheduling.references import group_reference, pod_reference
from reprieve.planes.scheduling.state import ClusterState
from reprieve.planes.scheduling.statuses import Statuses
from reprieve.units.ids import Uid
from reprieve.units.references import Reference
from reprieve.wording import kube_scheduler as wording
from reprieve.wording.koordinator import barrier_text

__all__ = ["ShortGroups"]

_PATIENCE: Final = 5 * SECOND
_AGAIN: Final = 30 * SECOND


@dataclass(slots=True)
class _Wait:
    """`why`: the reason, the same for as long as it is the same; `reported`: when, if ever."""

    why: str
    since: int
    reported: int | None = None


@dataclass(frozen=True, slots=True)
class _Waiting:
    """One object that waits.

    `row` None: a PodGroup of an older API, which gets events alone.
    """

    uid: Uid
    why: str
    message: str
    reference: Reference
    scheduler: str
    row: PodRow | GroupRow | None


class ShortGroups:
    """Who waits for members. `condition_type`: of groups that were not placed."""

    def __init__(
        self,
        context: SchedulingContext,
        state: ClusterState,
        statuses: Statuses,
        gangs: GangBook,
        condition_type: Callable[[], str],
    ) -> None:
        self._context = context
        self._state = state
        self._statuses = statuses
        self._gangs = gangs
        self._condition_type = condition_type
        self._waits: dict[Uid, _Wait] = {}

    def reconcile(self, now: int) -> None:
        """Notify those that have waited for long enough; called every second or so."""
        before, self._waits = self._waits, {}
        for each in self._all():
            wait = before.get(each.uid)
            if wait is None or wait.why != each.why:
                wait = _Wait(each.why, now)
            self._waits[each.uid] = wait
            if now - wait.since >= _PATIENCE:
                self._announce(each, wait, now)

    def _announce(self, waiting: _Waiting, wait: _Wait, now: int) -> None:
        row, first = waiting.row, wait.reported is None
        if isinstance(row, GroupRow):
            own = wording.COMPOSITE_SCHEDULED if row.composite else self._condition_type()
        else:
            own = wording.POD_SCHEDULED
        condition = wording.not_enqueued(own, waiting.message)
        if row is not None:
            written = self._state.written.get(row.uid)
            if written is not None and written.condition == (
                condition.status,
                condition.reason,
                condition.message,
            ):
                # Also where an earlier process wrote it, whose event is there.
                wait.reported = now
                return
        if wait.reported is not None and now - wait.reported < _AGAIN:
            return
        wait.reported = now
        if isinstance(row, PodRow):
            self._statuses.pod(row, condition)
        elif row is not None:
            self._statuses.group(row, condition)
        if first and not isinstance(row, GroupRow):
            text = wording.failed_scheduling(waiting.message)
            self._context.announce(waiting.reference, text, waiting.scheduler)

    def _all(self) -> Iterator[_Waiting]:
        for key, gate, rows in self._state.queue.short_groups():
            # Pods with scheduling gates are reported by the API server.
            rows = sorted((row for row in rows if not row.gates), key=lambda row: row.name)
            if key.startswith(GANG_KEY):
                yield from self._of_gang(rows)
                continue
            for row in rows:
                yield self._pod(row, gate.message)
            group = self._state.group(key)
            if group is not None and rows:
                about = group_reference(group, self._context.group_version)
                name = rows[0].pod_class.scheduler_name
                yield _Waiting(group.uid, gate.message, gate.message, about, name, group)

    def _of_gang(self, rows: list[PodRow]) -> Iterator[_Waiting]:
        """Yield members of gangs of the older APIs, and the PodGroups of these."""
        seen = set()
        for row in rows:
            barring = self._gangs.barrier(row)
            if barring is None:
                continue  # it is held back for a while after a rejection, and has been notified
            yield self._pod(row, barrier_text(barring))
            known = self._gangs.pod_group(barring.gang)
            if known is None or barring.gang in seen:
                continue
            seen.add(barring.gang)
            door, group = known
            metadata = group.metadata
            about = Reference(
                door.api_version,
                "PodGroup",
                metadata.namespace,
                metadata.name,
                Uid(metadata.uid),
                metadata.resource_version,
            )
            why = barrier_text(replace(barring, pod=""))
            name = row.pod_class.scheduler_name
            yield _Waiting(Uid(metadata.uid), why, barrier_text(barring), about, name, None)

    def _pod(self, row: PodRow, message: str) -> _Waiting:
        name = row.pod_class.scheduler_name
        return _Waiting(row.uid, message, message, pod_reference(row), name, row)
