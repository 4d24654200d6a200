"""What devices were held over time, and of what use that was until the last arrival.

After the last arrival a replay only runs empty, so that shares of the capacity are measured until
then: what was held counts as done unless it was undone later, spent on restarts and last saves, or
held without being used. Source: the measures of a replay (`measures.py`).
"""

from __future__ import annotations

from itertools import pairwise

from reprieve.simulation.replaying.idle_lives import unused_now
from reprieve.simulation.replaying.lives import Replay
from reprieve.simulation.replaying.scheduling_decider import SchedulingDecider
from reprieve.simulation.replaying.work import WorkModel

__all__ = ["HeldDevices"]


class HeldDevices:
    """Follows a replay's devices, and writes what became of them into its `result`."""

    def __init__(self, result: Replay, model: WorkModel, last_arrival: int) -> None:
        self._result, self._model, self._until = result, model, last_arrival
        self._held = 0
        self._measured = False
        # Until when what is stranded and unplaced is counted, and what is so from then on.
        self._counted = 0, 0, 0

    def hold(self, devices: int) -> None:
        """A job holds so many devices."""
        self._held += devices

    def release(self, devices: int) -> None:
        """A job holds so many devices no more."""
        self._held -= devices

    def observe(self, now: int) -> None:
        """Record how many are held from an instant on."""
        use = self._result.use
        if use and use[-1][0] == now:
            use.pop()
        if not use or use[-1][1] != self._held:
            use.append((now, self._held))

    def observe_nodes(self, now: int, placing: SchedulingDecider, *, quotas: bool) -> None:
        """Count what was stranded or unplaced since the last decision, and look at what is now."""
        since, stranded, unplaced = self._counted
        until = min(now, self._until)
        passed = max(0, until - since)
        self._result.stranded_at_end += stranded * passed
        self._result.unplaced_at_end += unplaced * passed
        self._counted = until, placing.stranded, placing.waiting_devices if quotas else 0

    def measure_before(self, now: int | None) -> None:
        """Record once what was of use until the last arrival; `None`: nothing happens any more."""
        if self._measured or (now is not None and now <= self._until):
            return
        self._measured = True
        result, end, held = self._result, self._until, 0
        for (since, devices), (until, _) in pairwise([*result.use, (end, 0)]):
            held += devices * (until - since)
        idle = sum(
            self._model.idle(life.doing, life.run, end) * life.job.devices
            for life in result.lives
            if life.run is not None
        )
        wasted = sum(life.lost + life.idle for life in result.lives) + idle
        spare = sum(life.unused + unused_now(self._model, life, end) for life in result.lives)
        result.unused_at_end = spare
        result.done_at_end = held - wasted - spare
