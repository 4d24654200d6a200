"""Who decides in a replay: the quota engine with its queues and holdings, as in the operator.

`Decider` is all that a replay needs to know of it. `EngineDecider` runs the engine's own cycles;
what was set aside is queued again by the engine's own rule, so that nothing is decided while nobody
could be a head. `own_decider` has the other one, for policies of a researcher.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Protocol

from reprieve.engine.quota.cycle import cycles
from reprieve.engine.quota.displacements import Displacements
from reprieve.engine.quota.entries import CycleResult, Entry
from reprieve.engine.quota.queues import Queues
from reprieve.engine.quota.state import Holdings
from reprieve.simulation.policy import PolicySpec
from reprieve.simulation.quota_cluster import configuration, key_of, workload
from reprieve.simulation.trace import Job
from reprieve.units.instants import Nanos

__all__ = ["Decider", "EngineDecider"]

_CYCLES: Final = 1_000_000


class Decider(Protocol):
    """Takes note of what happens, and decides."""

    def waits(self, job: Job, number: int, now: Nanos) -> None:
        """Queue a job; `number` is its place in the order of arrivals."""
        ...

    def left(self, job: Job) -> None:
        """Take note that a job holds its devices no more."""
        ...

    def retry(self, tenant: str) -> None:
        """Try a tenant's jobs again: somebody is not spared any more."""
        ...

    def borrows(self, entry: Entry) -> bool:
        """Tell whether what was admitted takes more than its tenant's own."""
        ...

    def has_heads(self) -> bool:
        """Tell whether there is anything to decide."""
        ...

    def decide(self, now: Nanos) -> Iterator[CycleResult]:
        """Yield what is decided, until that is nothing."""
        ...


class EngineDecider:
    """The quota engine, set up by a policy."""

    def __init__(self, policy: PolicySpec, tenants: Sequence[str], nodes: tuple[int, int]) -> None:
        count, self._node_devices = nodes
        setup = configuration(policy, tenants, count * self._node_devices)
        self._policy, self._tenants = policy, tenants
        self._holdings, self._queues = Holdings(setup), Queues(setup)
        limit = policy.loop_limit
        self._ledger = Displacements(limit, policy.loop_window) if limit else None
        self._cycles = 0
        self._at = Nanos(-1)
        self._came_free = False

    def waits(self, job: Job, number: int, now: Nanos) -> None:
        """Queue a job; `number` is its place in the order of arrivals."""
        self._queues.push(workload(job, number, self._policy, self._node_devices))

    def left(self, job: Job) -> None:
        """Release what it held; what was set aside in its tree is queued again."""
        self._came_free = True
        self._holdings.release(key_of(job))
        self._queues.flush(self._holdings.related(job.tenant))

    def retry(self, tenant: str) -> None:
        """Queue again what was set aside of a tenant."""
        self._queues.flush([tenant])

    def borrows(self, entry: Entry) -> bool:
        """Tell what the engine says of it."""
        return entry.level > 0

    def has_heads(self) -> bool:
        """Tell whether anybody is queued."""
        return any(self._queues.counts(name)[0] for name in self._tenants)

    def decide(self, now: Nanos) -> Iterator[CycleResult]:
        """Run cycles until they change nothing.

        What follows from somebody leaving at once is decided a nanosecond later: the governor
        counts instants, and turns of a circle that all happened at one would be one.
        """
        while True:
            self._at = now if now > self._at else Nanos(self._at + 1)
            self._came_free = False
            for result in cycles(
                self._holdings, self._queues, self._at, _CYCLES, self._cycles, self._ledger
            ):
                self._cycles += 1
                yield result
                if self._came_free:
                    break
            else:
                return
