"""A cluster in which jobs stop when they are told to, some time later."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from kubeworld.units.instants import Nanos
from reprieve.engine.disruptions.lineage import Lineage, Participant
from reprieve.engine.quota.cycle import cycles
from reprieve.engine.quota.displacements import Displacements
from reprieve.engine.quota.entries import CycleResult
from reprieve.engine.quota.holdings.state import Holdings
from reprieve.engine.quota.model import Configuration, Eviction, Workload
from reprieve.engine.quota.waiting.queues import Queues
from tests.quota.cases import NOW, SECOND


class Cluster:
    """Steps of one second; an evicted workload gives its quota back `delays` steps later.

    `returning`: what is evicted is deleted, and comes back as another object, of the same root
    owner ("owner"), with the same label ("label"), or submitted again ("weak"). What is counted by
    key is counted for all objects of a lineage.
    """

    def __init__(
        self,
        configuration: Configuration,
        delays: tuple[int, ...] = (1,),
        ledger: Displacements | None = None,
        returning: str = "",
    ) -> None:
        self.ledger = ledger
        self.configuration = configuration
        self.holdings = Holdings(configuration)
        self.queues = Queues(configuration)
        self.now = NOW
        self.delays = delays
        self.stopping: dict[str, int] = {}
        self.preempted: Counter[str] = Counter()
        self.pairs: Counter[tuple[str, str]] = Counter()
        self.returning = returning
        self.objects = 0
        self.results: list[CycleResult] = []

    def submit(self, *workloads: Workload) -> None:
        for workload in workloads:
            self.queues.push(self._known(workload))

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
                    self.preempted[line_of(key)] += 1
                    self.pairs[line_of(entry.workload.key), line_of(key)] += 1
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
        return {line_of(key.split("/")[1]) for key in self.holdings.holders}

    def _stopped(self, key: str) -> None:
        workload = self.holdings.holders[key].workload
        self.finish(key)
        mark = Eviction("Preempted", workload.evicted.at if workload.evicted else self.now)
        waiting = replace(workload, admission=None, reserved_at=None, evicted=mark)
        if self.returning:
            self.objects += 1
            if self.ledger is not None and workload.participant is not None:
                self.ledger.governor.ended(workload.participant, self.now)
            name, uid = f"{line_of(workload.name)}~{self.objects}", f"{workload.uid}~{self.objects}"
            # As old as it was: its age is no other one where its owner makes it again.
            waiting = self._known(replace(waiting, name=name, uid=uid, evicted=None))
        self.queues.push(waiting)

    def _known(self, workload: Workload) -> Workload:
        """Return a workload with its lineage, as it is known by `returning`."""
        if not self.returning:
            return workload
        line, own = line_of(workload.name), f"owner/{workload.uid}"
        lineage = f"owner/{line}" if self.returning == "owner" else own
        participant = Participant(
            Lineage(lineage),
            workload.namespace,
            f"label/{line}" if self.returning == "label" else "",
            f"template of {line}" if self.returning == "weak" else "",
            self.now,
        )
        return replace(workload, participant=participant)


def line_of(name: str) -> str:
    """Return the name of an object as it came first."""
    return name.split("~")[0]
