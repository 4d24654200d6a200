"""A cluster in which jobs stop when they are told to, some time later."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from reprieve.engine.quota.cycle import cycles
from reprieve.engine.quota.entries import CycleResult, Outcome
from reprieve.engine.quota.model import Configuration, Eviction, Workload
from reprieve.engine.quota.protection import Ledger
from reprieve.engine.quota.queues import Queues
from reprieve.engine.quota.state import Holdings
from reprieve.units.instants import Nanos
from tests.quota.cases import NOW, SECOND


class Cluster:
    """Steps of one second; an evicted workload gives its quota back `delays` steps later."""

    def __init__(
        self,
        configuration: Configuration,
        delays: tuple[int, ...] = (1,),
        ledger: Ledger | None = None,
    ) -> None:
        self.ledger = ledger
        self.configuration = configuration
        self.holdings = Holdings(configuration)
        self.queues = Queues(configuration)
        self.now = NOW
        self.delays = delays
        self.stopping: dict[str, int] = {}
        self.preempted: Counter[str] = Counter()
        self.pairs: Counter[frozenset[str]] = Counter()
        self.results: list[CycleResult] = []

    def submit(self, *workloads: Workload) -> None:
        for workload in workloads:
            self.queues.push(workload)

    def finish(self, key: str) -> None:
        queue = self.holdings.tree.names[self.holdings.holders[key].queue]
        self.holdings.release(key)
        self.stopping.pop(key, None)
        self.queues.flush(self.holdings.related(queue))

    def step(self) -> bool:
        """Run cycles until nothing changes and let time pass; return whether anything happened."""
        before = len(self.results)
        for result in cycles(self.holdings, self.queues, self.now, limit=200, ledger=self.ledger):
            self.results.append(result)
            for entry in result.entries:
                for target in entry.issued:
                    key = target.holder.key
                    delay = self.delays[sum(self.preempted.values()) % len(self.delays)]
                    self.preempted[key] += 1
                    self.pairs[frozenset((entry.workload.key, key))] += 1
                    self.stopping[key] = delay
        assert not self.results[-1].progress, "cycles go on for ever"
        happened = any(result.progress for result in self.results[before:]) or bool(self.stopping)
        self.now = Nanos(self.now + SECOND)
        for key in [key for key, left in self.stopping.items() if left <= 1]:
            self._stopped(key)
        self.stopping = {key: left - 1 for key, left in self.stopping.items()}
        return happened

    def settle(self, limit: int = 60) -> None:
        for _ in range(limit):
            if not self.step():
                return
        raise AssertionError(f"it does not settle: {self.preempted}")

    def admitted(self) -> set[str]:
        return {key.split("/")[1] for key in self.holdings.holders}

    def _stopped(self, key: str) -> None:
        workload = self.holdings.holders[key].workload
        self.finish(key)
        mark = Eviction("Preempted", workload.evicted.at if workload.evicted else self.now)
        self.queues.push(replace(workload, admission=None, reserved_at=None, evicted=mark))


def admitted_keys(results: list[CycleResult]) -> list[str]:
    return [e.workload.name for result in results for e in result.of(Outcome.ADMITTED)]
