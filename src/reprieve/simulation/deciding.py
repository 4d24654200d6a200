"""Who decides in a replay: the quota engine with its queues and holdings, as in the operator.

`Decider` is all that a replay needs to know of it. `EngineDecider` runs the engine's own cycles;
what was set aside is queued again by the engine's own rule, so that nothing is decided while nobody
could be a head. `own_decider` has the one for policies of a researcher, `scheduling_decider` that
which places jobs on nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from typing import Final, Protocol

from reprieve.engine.disruptions.governor import Governor
from reprieve.engine.quota.cycle import cycles
from reprieve.engine.quota.displacements import Displacements
from reprieve.engine.quota.entries import CycleResult, Entry, Outcome
from reprieve.engine.quota.queues import Queues
from reprieve.engine.quota.refusals import Refusals
from reprieve.engine.quota.state import Holdings
from reprieve.simulation.policy import PolicySpec
from reprieve.simulation.quota_cluster import configuration, key_of, workload
from reprieve.simulation.trace import Job
from reprieve.simulation.work import Saved
from reprieve.units.instants import Nanos

__all__ = ["Decider", "EngineDecider", "Placements"]

_CYCLES: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Placements:
    """What was decided about jobs on nodes.

    `started`: a job, and the node of each of its pods. `preempted`: a preemptor, each victim with
    the rule by which it goes, and what the engine says about the preemptor.
    """

    started: tuple[tuple[str, tuple[str, ...]], ...] = ()
    preempted: tuple[tuple[str, tuple[tuple[str, str], ...], str], ...] = ()


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

    def decide(self, now: Nanos) -> Iterator[CycleResult | Placements]:
        """Yield what is decided, until that is nothing."""
        ...


class EngineDecider:
    """The quota engine, set up by a policy."""

    def __init__(
        self,
        policy: PolicySpec,
        tenants: Sequence[str],
        nodes: tuple[int, int],
        saved: Callable[[str, Nanos], Saved] | None = None,
    ) -> None:
        """`saved` tells what a job that runs has saved by then."""
        # What work saves plays a role with `harmOrder` alone.
        self._saved = saved if policy.settings.harm_order else None
        self._saves: list[tuple[Nanos, str]] = []
        self._next_save: dict[str, Nanos] = {}
        count, self._node_devices = nodes
        setup = configuration(policy, tenants, count * self._node_devices)
        self._policy, self._tenants = policy, tenants
        self._holdings, self._queues = Holdings(setup), Queues(setup)
        self._ledger = Displacements(governor=Governor(policy.governor))
        # Nobody reads what is told of a refusal here.
        self._refusals = Refusals()
        self._cycles = 0
        self._at = Nanos(-1)

    def waits(self, job: Job, number: int, now: Nanos) -> None:
        """Queue a job; `number` is its place in the order of arrivals."""
        self._queues.push(workload(job, number, self._policy, self._node_devices))

    def left(self, job: Job) -> None:
        """Release what it held; what was set aside in its tree is queued again."""
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
        self._at = now if now > self._at else Nanos(self._at + 1)
        self._note_saves(now)
        for result in cycles(
            self._holdings,
            self._queues,
            self._at,
            _CYCLES,
            self._cycles,
            self._ledger,
            refusals=self._refusals,
        ):
            self._cycles += 1
            yield result
            for entry in result.of(Outcome.ADMITTED):
                self._note_save(entry.workload.key, now)

    def _note_saves(self, now: Nanos) -> None:
        """Let work say what it saved, as it would by its annotations."""
        while self._saves and self._saves[0][0] <= now:
            at, key = heappop(self._saves)
            if self._next_save.get(key) == at:
                self._note_save(key, now)

    def _note_save(self, key: str, now: Nanos) -> None:
        if self._saved is None:
            return
        holder = self._holdings.holders.get(key)
        if holder is None or holder.evicted:
            self._next_save.pop(key, None)
            return
        found = self._saved(key, now)
        said = replace(holder.workload, checkpoint=found.at, next_checkpoint=found.next)
        self._holdings.hold(said)
        if found.next is not None:
            self._next_save[key] = found.next
            heappush(self._saves, (found.next, key))
