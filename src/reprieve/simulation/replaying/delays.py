"""How long a job of a replay waits before others are preempted for it: `preemptionDelay`.

It counts since the job was queued last. On nodes a job waits for pods that leave already, where
these suffice, for a minute more, as in the plane. Emergency priorities do not wait. Source: the
page `docs/preemption-delay.md`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from kubeworld.units.durations import MINUTE
from kubeworld.units.instants import Nanos
from reprieve.engine.idle.model import EPOCH, Workload
from reprieve.engine.scheduling.nodes.leaving import Delayed
from reprieve.engine.scheduling.outcome import Unit

__all__ = ["Delays"]


@dataclass(frozen=True, slots=True)
class Delays:
    """The delay of one plane in nanoseconds, and the priority from which on no job waits."""

    delay: int = 0
    urgent: int | None = None

    def until(self, since: int, priority: int) -> Nanos:
        """Return from when others are preempted for a job, the epoch where it does not wait."""
        waits = self.delay and (self.urgent is None or priority < self.urgent)
        return Nanos(since + self.delay) if waits else EPOCH

    def added(
        self, waits: Delayed, units: Iterable[tuple[Unit, int, int]], now: Nanos
    ) -> tuple[Delayed, dict[Unit, Nanos]]:
        """Return who waits for others or for its delay, and when each of those is tried again.

        `units`: each with since when it waits, and its priority.
        """
        if not self.delay:
            return waits, {}
        ends = {unit: self.until(since, priority) for unit, since, priority in units}
        ends = {unit: end for unit, end in ends.items() if end and end + MINUTE > now}
        delayed = {unit: end for unit, end in ends.items() if end > now}
        again = {unit: delayed.get(unit, Nanos(end + MINUTE)) for unit, end in ends.items()}
        return replace(waits, delayed=delayed, patient=waits.patient | ends.keys()), again

    def demands(
        self, rows: Iterable[Workload], since: Mapping[str, tuple[int, int]], now: Nanos
    ) -> Iterator[Workload]:
        """Yield demands, each with the instant from which idle work is evicted for it.

        `since`: by key, when each was queued last, and its priority.
        """
        for row in rows:
            until = self.until(*since[row.key])
            yield replace(row, preempts_from=until) if until > now else row
