"""A quota plane of a few queues, built in one line, run until nothing changes, and asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.engine.diagnosis.model import Diagnosis
from reprieve.engine.diagnosis.quota import diagnose
from reprieve.engine.diagnosis.quota_trial import QuotaFacts
from reprieve.engine.quota.cycle import cycles
from reprieve.engine.quota.displacements import Displacements
from reprieve.engine.quota.entries import Entry
from reprieve.engine.quota.holdings.state import Holdings
from reprieve.engine.quota.model import (
    Admission,
    AdmittedPodSet,
    ClusterQueue,
    Configuration,
    FlavorQuotas,
    LocalQueue,
    PodSet,
    Policy,
    Preemption,
    QueueingStrategy,
    Quota,
    ResourceFlavor,
    ResourceGroup,
    Settings,
    Workload,
)
from reprieve.engine.quota.waiting.queues import Queues

NOW = Nanos(1_000_000 * SECOND)
GPU = "nvidia.com/gpu"
ANY = Preemption(Policy.LOWER_PRIORITY, Policy.ANY)


def queue(
    name: str, gpus: int, cohort: str = "", flavor: str = "a100", **given: Any
) -> ClusterQueue:
    """Return a ClusterQueue with GPUs of one flavor, preempting whom it may by default."""
    group = ResourceGroup((GPU,), (FlavorQuotas(flavor, {GPU: Quota(gpus)}),))
    return ClusterQueue(name, cohort, **{"groups": (group,), "preemption": ANY, **given})


def work(name: str, door: str, gpus: int, pods: int = 1, **given: Any) -> Workload:
    """Return a workload of so many pods, each with that many GPUs."""
    pod_set = PodSet("main", pods, {GPU: gpus}, given.pop("min_count", None))
    return Workload("team", name, f"uid-{name}", f"team/{door}", pod_sets=(pod_set,), **given)


def held(workload: Workload, cluster_queue: str, flavor: str = "a100", ago: int = 600) -> Workload:
    """Return the workload as one that has held its quota for so many seconds."""
    admitted = tuple(
        AdmittedPodSet(
            each.name,
            each.count,
            dict.fromkeys(each.requests, flavor),
            {name: amount * each.count for name, amount in each.requests.items()},
        )
        for each in workload.pod_sets
    )
    since = Nanos(NOW - ago * SECOND)
    return replace(workload, admission=Admission(cluster_queue, admitted), reserved_at=since)


class Site:
    """Queues (a LocalQueue of the same name in `team` for each), work, and what was decided."""

    def __init__(
        self,
        *queues: ClusterQueue,
        flavors: Sequence[ResourceFlavor] = (ResourceFlavor("a100"), ResourceFlavor("h100")),
        settings: Settings | None = None,
        ledger: Displacements | None = None,
        **given: Any,
    ) -> None:
        doors = {f"team/{each.name}": LocalQueue(f"team/{each.name}", each.name) for each in queues}
        self.configuration = Configuration(
            cluster_queues={each.name: each for each in queues},
            flavors={each.name: each for each in flavors},
            local_queues=given.pop("local_queues", doors),
            namespaces={"team": {}},
            settings=settings or Settings(),
            **given,
        )
        self.holdings = Holdings(self.configuration)
        self.queues = Queues(self.configuration)
        self.ledger = ledger
        self.entries: dict[str, Entry] = {}
        self.known: dict[str, Workload] = {}

    def hold(self, *workloads: Workload) -> Site:
        """Let these hold their quota."""
        for each in workloads:
            self.holdings.hold(each)
        return self

    def submit(self, *workloads: Workload) -> Site:
        """Let these wait."""
        for each in workloads:
            self.known[each.key] = each
            self.queues.push(each)
        return self

    def decide(self, now: Nanos = NOW) -> Site:
        """Run cycles until they change nothing."""
        for result in cycles(self.holdings, self.queues, now, 50, ledger=self.ledger):
            self.entries.update({each.workload.key: each for each in result.entries})
        return self

    def why(self, name: str, now: Nanos = NOW) -> Diagnosis | None:
        """Return the diagnosis of a workload of the namespace."""
        key = f"team/{name}"
        workload = self.queues.workload(key) or self.queues.waiting().get(key)
        holder = self.holdings.holders.get(key)
        if workload is None:
            workload = self.known[key] if holder is None else holder.workload
        return diagnose(self.facts(key, now), workload)

    def facts(self, key: str, now: Nanos = NOW) -> QuotaFacts:
        """Return what the diagnosis is made from."""
        return QuotaFacts(self.holdings, self.queues, now, self.ledger, self.entries.get(key))


STRICT = QueueingStrategy.STRICT_FIFO
