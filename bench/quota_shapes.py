"""The reference's load test: its shapes, and the objects that it creates.

One flavor with cpu only, one pod in each Workload, one namespace and one LocalQueue for each
ClusterQueue. In `ONE_NAMESPACE` all queues have their Workloads in one, so that all of a class are
of one tenant and one template, and none has an owner: who is the same work as whom is then what the
governor of disruptions has to find out. Source: specification of the quota plane, section 13.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from reprieve.api.kueue import API_VERSION

__all__ = ["BASELINE", "LARGE", "ONE_NAMESPACE", "QUICK", "RUNTIME", "Class", "Shape"]

RUNTIME = "kueue.x-k8s.io/performance-scheduler-running-ms"
NOMINAL = 20
BORROWING_LIMIT = 100
Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Class:
    """Workloads of one size: how many in each queue, how often, and how long each runs."""

    name: str
    count: int
    interval_ms: int
    runtime_ms: int
    priority: int
    cpu: int


@dataclass(frozen=True, slots=True)
class Shape:
    """One load: `queues` in each of the `cohorts`."""

    name: str
    cohorts: int
    queues: int
    classes: tuple[Class, ...]
    namespace: str = ""  # of all Workloads; empty: one for each queue, called like it

    def where(self, queue: str, name: str) -> tuple[str, str]:
        """Return namespace and name of a Workload."""
        return (self.namespace, f"{queue}-{name}") if self.namespace else (queue, name)

    def part(self, fraction: float) -> Shape:
        """Return the shape with that fraction of the Workloads of each class, at least one."""
        classes = tuple(
            replace(each, count=max(1, round(each.count * fraction))) for each in self.classes
        )
        return replace(self, name=f"{self.name}-{fraction:g}", classes=classes)

    @property
    def workloads(self) -> int:
        """Return how many Workloads there are."""
        return self.cohorts * self.queues * sum(each.count for each in self.classes)

    @property
    def capacity(self) -> int:
        """Return the cpus of all queues."""
        return self.cohorts * self.queues * NOMINAL

    @property
    def work(self) -> float:
        """Return the cpu seconds of all Workloads."""
        one = sum(each.count * each.runtime_ms * each.cpu for each in self.classes) / 1e3
        return self.cohorts * self.queues * one

    def names(self) -> list[tuple[str, str]]:
        """Return cohort and ClusterQueue."""
        return [
            (f"cohort-{cohort:02}", f"queue-{cohort:02}-{queue:03}")
            for cohort in range(self.cohorts)
            for queue in range(self.queues)
        ]

    def objects(self) -> list[Object]:
        """Return everything but the Workloads, in an order in which it can be created."""
        found, spaces = [_object("ResourceFlavor", "rf", {})], set[str]()
        for cohort, name in self.names():
            space = self.namespace or name
            if space not in spaces:
                spaces.add(space)
                found.append({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}})
            found.append(_object("ClusterQueue", name, _cluster_queue(cohort)))
            found.append(_object("LocalQueue", name, {"clusterQueue": name}, space))
        return found


def workload(where: tuple[str, str], queue: str, what: Class) -> Object:
    """Return one Workload, by namespace and name."""
    container = {
        "name": "c",
        "image": "registry.example/load:1",
        "resources": {"requests": {"cpu": str(what.cpu)}},
    }
    pods = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    spec = {
        "queueName": queue,
        "priority": what.priority,
        "podSets": [{"name": "main", "count": 1, "template": pods}],
    }
    obj = _object("Workload", where[1], spec, where[0])
    obj["metadata"]["labels"] = {RUNTIME: str(what.runtime_ms), "class": what.name}
    return obj


def _cluster_queue(cohort: str) -> Object:
    quota = {"name": "cpu", "nominalQuota": str(NOMINAL), "borrowingLimit": str(BORROWING_LIMIT)}
    group = {"coveredResources": ["cpu"], "flavors": [{"name": "rf", "resources": [quota]}]}
    return {
        "cohortName": cohort,
        "namespaceSelector": {},
        "queueingStrategy": "BestEffortFIFO",
        "preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"},
        "resourceGroups": [group],
    }


def _object(kind: str, name: str, spec: Object, namespace: str = "") -> Object:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}


BASELINE = Shape(
    "baseline",
    5,
    6,
    (
        Class("small", 350, 100, 200, 50, 1),
        Class("medium", 100, 500, 500, 100, 5),
        Class("large", 50, 1_200, 1_000, 200, 20),
    ),
)
LARGE = Shape(
    "large-scale",
    10,
    100,
    (
        Class("small", 35, 60, 150, 50, 1),
        Class("medium", 11, 300, 350, 100, 5),
        Class("large", 4, 700, 700, 200, 20),
    ),
)
ONE_NAMESPACE = replace(BASELINE, name="one-namespace", namespace="load")
QUICK = Shape(
    "quick",
    1,
    2,
    (
        Class("small", 10, 20, 50, 50, 1),
        Class("medium", 4, 50, 100, 100, 5),
        Class("large", 2, 100, 150, 200, 20),
    ),
)
