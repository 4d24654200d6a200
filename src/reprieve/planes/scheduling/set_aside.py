"""Units that are set aside, notified, and tried again later.

They are those about which deciding lasted too long, those about which it ended an earlier process
(`suspects`), and those whose plan could not be recorded.

Such a unit waits 10 s before it is decided about again, twice as long after each time in a row, at
most ten minutes, and those ten minutes at once where the thread could not be stopped. When the unit
itself has changed it is tried at once; what we write about it is no change. Meanwhile the queue
hands it out after each of its backoffs as before, and it is given up unseen. Source: the design's
"Bad input".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final, TypeAlias

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.engine.cluster.rows import GroupRow, PodRow
from reprieve.engine.plan import Plane
from reprieve.engine.quota.waiting.faults import Faults
from reprieve.engine.scheduling.outcome import Unit
from reprieve.planes.common.solve import TookTooLong
from reprieve.planes.common.suspects import Ended
from reprieve.planes.scheduling.context import SchedulingContext, log
from reprieve.planes.scheduling.references import group_reference, pod_reference
from reprieve.planes.scheduling.state import ClusterState
from reprieve.planes.scheduling.statuses import Statuses
from reprieve.wording import kube_scheduler as wording
from reprieve.wording.events import EventText
from reprieve.wording.undecided import not_recorded

__all__ = ["SetAside"]

_MOST: Final = 1_000
_LONGEST_PAUSE: Final = 7  # as many faults in a row have it
_Rows: TypeAlias = tuple[GroupRow | None, tuple[PodRow, ...]]


class SetAside:
    """Who is not decided about for now. `condition_type`: of groups that were not placed."""

    def __init__(
        self,
        context: SchedulingContext,
        state: ClusterState,
        statuses: Statuses,
        condition_type: Callable[[], str],
    ) -> None:
        self._context = context
        self._state = state
        self._statuses = statuses
        self._condition_type = condition_type
        self._faults = Faults()
        # What each of them was when it was stopped, the oldest first.
        self._rows: dict[str, _Rows] = {}

    def waits(self, unit: Unit) -> bool:
        """Whether a unit is not to be decided about now."""
        before = self._rows.get(unit.name)
        if before is None or not self._faults.waits(unit.name, self._context.clock.monotonic()):
            return False
        return before == self._seen(unit)

    def until(self, name: str) -> Nanos | None:
        """Return until when the unit of a name waits, in monotonic nanoseconds, None for no time.

        When it has changed it does not wait, which this does not look at.
        """
        if name not in self._rows:
            return None
        return self._faults.until(name, self._context.clock.monotonic())

    def forget(self, unit: Unit) -> None:
        """The unit was decided about in time, or its plan was recorded: it need not wait."""
        if self._rows.pop(unit.name, None) is not None:
            self._faults.forget(unit.name)

    def hold(self, unit: Unit, stopped: TookTooLong) -> None:
        """Set a unit aside, and notify it."""
        pause, _ = self._hold(unit, _LONGEST_PAUSE if stopped.left else 1)
        shown = TookTooLong(self._state.called(unit), stopped.seconds, left=stopped.left)
        log.error("%s; it is retried after %d s, or when it changes", shown, pause)
        outcome = "left" if stopped.left else "stopped"
        self._context.metrics.decisions_stopped.labels(Plane.SCHEDULING.value, outcome).inc()
        message = wording.took_too_long(stopped.seconds, pause)
        self._announce(unit, message, wording.decision_stopped(message))

    def add_ended(self, unit: Unit, until: Nanos) -> None:
        """Set a unit aside of which deciding ended an earlier process, and notify it.

        `until` is in monotonic nanoseconds.
        """
        self._faults.hold(unit.name, until)
        self._see(unit)
        pause = (until - self._context.clock.monotonic()) // SECOND + 1
        log.error("%s; it is retried when it changes, too", Ended(self._state.called(unit), pause))
        message = wording.ended_the_process(pause)
        self._announce(unit, message, wording.decision_stopped(message))

    def add_unrecorded(self, unit: Unit, failure: Exception) -> int:
        """Set a unit aside whose plan cannot be recorded, notify it, and return until when.

        The instant is in monotonic nanoseconds.
        """
        pause, until = self._hold(unit, 1)
        log.error("the plan for %s cannot be recorded: %s", self._state.called(unit), failure)
        self._context.metrics.unrecorded.labels(Plane.SCHEDULING.value).inc()
        message = not_recorded(str(failure), pause)
        self._announce(unit, message, wording.preemption_not_recorded(message))
        return until

    def _hold(self, unit: Unit, times: int) -> tuple[int, int]:
        """Set a unit aside as after so many failures more; return for how many seconds, until."""
        now, key = self._context.clock.monotonic(), unit.name
        until = max(self._faults.add(key, now) for _ in range(times))
        self._see(unit)
        return (until - now) // SECOND, until

    def _see(self, unit: Unit) -> None:
        """Keep what a unit is now."""
        self._rows.pop(unit.name, None)
        self._rows[unit.name] = self._seen(unit)
        if len(self._rows) > _MOST:
            oldest = next(iter(self._rows))
            del self._rows[oldest]
            self._faults.forget(oldest)

    def _announce(self, unit: Unit, message: str, event: EventText) -> None:
        group = self._state.group(unit.group) if unit.group else None
        rows = [row for uid in unit.pods if (row := self._state.pod(uid)) is not None]
        if not rows:
            return
        scheduler = rows[0].pod_class.scheduler_name
        if group is not None:
            version = self._context.group_version
            self._context.announce(group_reference(group, version), event, scheduler)
            own = wording.COMPOSITE_SCHEDULED if group.composite else self._condition_type()
            self._statuses.group(group, wording.scheduler_error(own, message))
        for row in rows:
            if group is None:
                self._context.announce(pod_reference(row), event, scheduler)
            self._statuses.pod(row, wording.scheduler_error(wording.POD_SCHEDULED, message))

    def _seen(self, unit: Unit) -> _Rows:
        """Return the unit's own objects, without what is written about them."""
        group = self._state.group(unit.group) if unit.group else None
        if group is not None:
            group = replace(group, version=0, scheduled=False)
        rows = (self._state.pod(uid) for uid in sorted(unit.pods))
        return group, tuple(
            replace(row, version=0, nominated="") for row in rows if row is not None
        )
