"""From when work is evicted for a unit: `preemptionDelay`.

1. A pod counts from its creation, or from when this process saw its last scheduling gate removed.
2. A group counts from when it was whole: when the pods that its minimum requests were there. A tree
   of groups counts likewise, each level by its own minimum. Where some pods of a whole group run
   already it counts from the first of those that wait.
3. The annotation of the pods' PriorityClass decides for how long, else that of their ClusterQueue,
   else the section `scheduling`. Of pods that differ the longest counts.
4. Emergency priorities do not wait, and a pod that never preempts is not delayed.

A delayed unit waits for pods that end already, where these suffice, for a minute beyond its instant
at most. It is tried again at its instant. Source:
`docs/preemption-delay.md`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from kubeworld.units.durations import MINUTE, SECOND
from kubeworld.units.instants import Nanos
from reprieve.engine.cluster.rows import Kind, PodRow
from reprieve.engine.scheduling.nodes.leaving import Delayed
from reprieve.engine.scheduling.outcome import Unit
from reprieve.planes.common.mirrors.stated_limits import decided_delay
from reprieve.planes.scheduling.context import SchedulingContext
from reprieve.planes.scheduling.state import ClusterState
from reprieve.units.ids import Uid

__all__ = ["Delays"]

_PATIENT_FOR: Final = MINUTE


class Delays:
    """How long units of one plane wait before they preempt; none does without the setting."""

    def __init__(self, context: SchedulingContext, state: ClusterState) -> None:
        self._context = context
        self._state = state
        self._ungated: dict[Uid, Nanos] = {}
        if context.settings.delay is not None:
            state.observers.append(self._seen)

    def _seen(self, old: PodRow | None, row: PodRow | None) -> None:
        if row is None:
            if old is not None:
                self._ungated.pop(old.uid, None)
        elif row.node or row.finished or row.deleting:
            self._ungated.pop(row.uid, None)
        elif old is not None and old.gates and not row.gates:
            self._ungated[row.uid] = Nanos(self._context.clock.wall())

    def of(self, units: Iterable[Unit]) -> Mapping[Unit, Nanos]:
        """Return before when nothing is evicted for these units, of those that it holds for now."""
        if self._context.settings.delay is None:
            return {}
        now = self._context.clock.wall()
        return {unit: until for unit in units if (until := self._until(unit)) > now}

    def added(self, waits: Delayed, units: Sequence[Unit]) -> Delayed:
        """Return who waits for others, and who has not waited for long enough."""
        if self._context.settings.delay is None:
            return waits
        now, clock = self._context.clock.wall(), self._context.clock.monotonic()
        ends = {unit: self._until(unit) for unit in units}
        patient = {unit: end + _PATIENT_FOR for unit, end in ends.items() if end}
        patient = {unit: end for unit, end in patient.items() if end > now}
        if not patient:
            return waits
        delayed = {unit: ends[unit] for unit in patient if ends[unit] > now}
        until = {unit: clock + end - now for unit, end in {**patient, **delayed}.items()}
        return replace(
            waits,
            delayed=delayed,
            patient=waits.patient | patient.keys(),
            until={**until, **waits.until},
        )

    def _until(self, unit: Unit) -> Nanos:
        """Return the instant of a unit, the epoch where it does not wait."""
        rows = [row for uid in unit.pods if (row := self._state.pod(uid)) is not None]
        group = self._state.group(unit.group) if unit.group else None
        if not rows:
            return Nanos(0)
        priority = rows[0].priority if group is None else group.priority
        urgent = self._context.governor.policy.emergency_priority
        if urgent is not None and priority >= urgent:
            return Nanos(0)
        if not any(row.pod_class.preempts for row in rows):
            return Nanos(0)
        delay = max(map(self._delay, rows))
        since = min(map(self._since, rows))
        if group is not None:
            since = max(since, self._whole(unit.group))
        elif unit.group:
            since = max(map(self._since, rows))
        return Nanos(since + delay) if delay else Nanos(0)

    def _delay(self, row: PodRow) -> int:
        found = self._state.objects.entry(Kind.PRIORITY_CLASS, ("", row.pod_class.priority_class))
        said: int | None = None if found is None else found.row.delay
        of_queue, _ = self._state.queue_limits(row)
        return decided_delay(said, of_queue, self._context.settings.delay or 0)

    def _since(self, row: PodRow) -> Nanos:
        return self._ungated.get(row.uid, Nanos(row.created * SECOND))

    def _whole(self, key: str) -> Nanos:
        """Return when a group was whole; one that is not yet counts what is there."""
        row = self._state.group(key)
        if row is None:
            return Nanos(0)
        if row.composite:
            parts = sorted(self._whole(child) for child in self._state.children(key))
        else:
            pods = (pod for pod in self._state.members(key) if not pod.gates)
            parts = sorted(self._since(pod) for pod in pods)
        least = row.min_count or 1
        return parts[min(least, len(parts)) - 1] if parts else Nanos(0)
