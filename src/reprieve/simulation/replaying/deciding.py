"""Who decides in a replay: the quota engine with its queues and holdings, as in the operator.

`Decider` is all that a replay needs to know of it. `EngineDecider` runs the engine's own cycles;
what was set aside is requeued by the engine's own rule, so that nothing is decided while no job
could be a head. `own_decider` has the one for policies of a researcher, `scheduling_decider` that
which places jobs on nodes, `joint_decider` both of these planes together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from typing import Final, Protocol

from kubeworld.units.instants import Nanos
from reprieve.engine.disruptions.governor import Governor
from reprieve.engine.notice.expected import counts_from
from reprieve.engine.plan import Proof
from reprieve.engine.quota.cycle import cycles
from reprieve.engine.quota.displacements import Displacements
from reprieve.engine.quota.entries import CycleResult, Entry, NodeCheck, Outcome
from reprieve.engine.quota.holdings.holders import Holder
from reprieve.engine.quota.holdings.state import Holdings
from reprieve.engine.quota.model import Eviction
from reprieve.engine.quota.nominated import Nominated
from reprieve.engine.quota.refusals import Refusals
from reprieve.engine.quota.release import (
    IdleUnit,
    NodeTest,
    Promise,
    Release,
    Standing,
    release,
)
from reprieve.engine.quota.waiting.queues import Queues
from reprieve.simulation.domains import NO_DOMAINS, Domains
from reprieve.simulation.policy import PolicySpec
from reprieve.simulation.replaying.harm import governor_of
from reprieve.simulation.replaying.quota_cluster import configuration, grounds, key_of, workload
from reprieve.simulation.replaying.work import Saved
from reprieve.simulation.trace import Job

__all__ = ["Decider", "EngineDecider", "Placements", "Reclaim", "Reclaims"]

_CYCLES: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Reclaim:
    """Idle jobs that are preempted for one that waits, or for none: then the preemptor is empty.

    `victims`: each with the rule by which it is preempted, and what the engine states of it.
    """

    preemptor: str
    victims: tuple[tuple[str, str, str], ...]
    proof: Proof


@dataclass(frozen=True, slots=True)
class Reclaims:
    """What one evaluation of the idle engine decided; `retries`: when it is run again."""

    plans: tuple[Reclaim, ...]
    retries: frozenset[Nanos] = frozenset()


@dataclass(frozen=True, slots=True)
class Placements:
    """What was decided about jobs on nodes.

    `started`: a job, and the node of each of its pods. `preempted`: a preemptor, each victim with
    the rule by which it is preempted, and what the engine states about the preemptor. `retries`:
    when a refused job is tried again.
    """

    started: tuple[tuple[str, tuple[str, ...]], ...] = ()
    preempted: tuple[tuple[str, tuple[tuple[str, str], ...], str], ...] = ()
    retries: frozenset[Nanos] = frozenset()


class Decider(Protocol):
    """Records what happens, and decides."""

    def waits(self, job: Job, number: int, now: Nanos) -> None:
        """Queue a job; `number` is its place in the order of arrivals."""
        ...

    def left(self, job: Job) -> None:
        """Record that a job holds its devices no more."""
        ...

    def retry(self, tenant: str) -> None:
        """Try a tenant's jobs again: a job is not spared any more; of all if it is empty."""
        ...

    def borrows(self, entry: Entry) -> bool:
        """Return whether what was admitted uses more than its tenant's own."""
        ...

    def has_heads(self) -> bool:
        """Return whether there is anything to decide."""
        ...

    def decide(self, now: Nanos) -> Iterator[CycleResult | Placements | Reclaims]:
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
        runs_at_once: bool = True,
        governor: Governor | None = None,
        domains: Domains = NO_DOMAINS,
    ) -> None:
        """`saved` returns what a running job has saved by then; `domains`: quota comes with places.

        `runs_at_once`: an admitted job runs; else the caller reports it (`started`). `governor`:
        that of all planes, None where this one decides alone.
        """
        self._runs_at_once = runs_at_once
        # What work saves plays a role with `harmOrder`, and where budgets count what is lost.
        hours = any(each.lost_device_seconds is not None for each in policy.harm_budgets)
        self._saved = saved if policy.settings.harm_order or hours else None
        self._reported: set[str] = set()  # who runs and would be given notice
        self._saves: list[tuple[Nanos, str]] = []
        self._next_save: dict[str, Nanos] = {}
        count, self._node_devices = nodes
        setup = configuration(policy, tenants, count * self._node_devices, domains)
        self._policy, self._tenants = policy, tenants
        self._holdings, self._queues = Holdings(setup), Queues(setup)
        self._places = bool(domains)
        if domains:
            self._holdings.stand_on(grounds(count, self._node_devices, domains))
        self._ledger = Displacements(governor=governor or governor_of(policy))
        # No caller reads what is reported of a refusal here.
        self._refusals, self._nominated = Refusals(), Nominated()
        self._cycles = 0
        self._at = Nanos(-1)

    def waits(self, job: Job, number: int, now: Nanos, evicted: Eviction | None = None) -> None:
        """Queue a job; `number` is its place in the order of arrivals.

        `evicted`: otherwise than by a preemption.
        """
        row = workload(job, number, self._policy, self._node_devices, now, self._places)
        self._queues.push(row if evicted is None else replace(row, evicted=evicted))

    def left(self, job: Job) -> None:
        """Release what it held; what was set aside in its tree is queued again."""
        self._holdings.release(key_of(job))
        self._queues.flush(self._holdings.related(job.tenant))

    def retry(self, tenant: str) -> None:
        """Queue again what was set aside of a tenant."""
        self._queues.flush([tenant])

    def borrows(self, entry: Entry) -> bool:
        """Return what the engine states of it."""
        return entry.level > 0

    def holder(self, key: str) -> Holder | None:
        """Return a job as it holds quota, None where it holds none."""
        return self._holdings.holders.get(key)

    def started(self, key: str, now: Nanos) -> bool:
        """Record that a job with quota runs now, and saves from now on.

        Return whether others were waiting for that, who are queued again.
        """
        self._note_save(key, now)
        holder = self._holdings.holders[key]
        if holder.workload.pods_ready:
            return False
        self._holdings.hold(replace(holder.workload, pods_ready=True))
        if self._holdings.all_ready:
            self._queues.flush(self._tenants)
        return self._holdings.all_ready

    def stopped(self, key: str) -> None:
        """Record that a job with quota does not run any more: no save of it is to be expected.

        What it stated of its last one stays, as an annotation does.
        """
        self._next_save.pop(key, None)
        row = self._holdings.holders[key].workload
        ready = not self._policy.settings.block_admission
        if row.next_checkpoint is not None or row.pods_ready is not ready:
            self._holdings.hold(replace(row, next_checkpoint=None, pods_ready=ready))

    def has_heads(self) -> bool:
        """Return whether any job is queued."""
        return self._queues.anybody()

    @property
    def at(self) -> Nanos:
        """The instant of the cycles that run, or ran last."""
        return self._at

    def release(
        self,
        key: str,
        units: Sequence[IdleUnit],
        promised: Sequence[Promise],
        nodes: NodeTest,
        check: NodeCheck,
        now: Nanos,
    ) -> Release:
        """Return which of these units of idle work to evict for a job that waits for quota."""
        standing = Standing(self._holdings, self._queues, nodes, promised, check, now=now)
        return release(standing, key, units)

    def decide(self, now: Nanos, check: NodeCheck | None = None) -> Iterator[CycleResult]:
        """Run cycles until they change nothing; `check` is called before each preemption.

        What follows from a job leaving at once is decided a nanosecond later: the governor
        counts instants, and turns of a loop that all happened at one would be one.
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
            check,
            refusals=self._refusals,
            nominated=self._nominated,
        ):
            self._cycles += result.count
            yield result
            for entry in result.of(Outcome.ADMITTED) if self._runs_at_once else ():
                self.started(entry.workload.key, now)

    def _note_saves(self, now: Nanos) -> None:
        """Have work state what it saved, as it would by its annotations."""
        while self._saves and self._saves[0][0] <= now:
            at, key = heappop(self._saves)
            if self._next_save.get(key) == at:
                self._note_save(key, now)
        # What notice spares of them grows while they run.
        for key in sorted(self._reported):
            self._note_save(key, now)

    def _note_save(self, key: str, now: Nanos) -> None:
        if self._saved is None:
            return
        holder = self._holdings.holders.get(key)
        if holder is None or holder.evicted:
            self._next_save.pop(key, None)
            self._reported.discard(key)
            return
        found, row = self._saved(key, now), holder.workload
        since = max(row.reserved_at or 0, found.at or 0)
        counts = None
        if found.terms.time and self._policy.settings.harm_order:
            self._reported.add(key)
            counts = Nanos(counts_from(since, now, found.terms))
        said = replace(row, checkpoint=found.at, next_checkpoint=found.next, counts_from=counts)
        if said != row:
            self._holdings.hold(said)
        if found.next is not None and found.next != self._next_save.get(key):
            self._next_save[key] = found.next
            heappush(self._saves, (found.next, key))
