"""Objects that no webhook looked at: whatever stands in them, cycles end and others get quota."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import msgspec

from kubeworld.units.instants import Nanos
from reprieve.api import kueue
from reprieve.engine.quota.cycle import cycles
from reprieve.engine.quota.holdings.state import Holdings
from reprieve.engine.quota.model import (
    Cohort,
    Configuration,
    LocalQueue,
    ResourceFlavor,
    Settings,
)
from reprieve.engine.quota.waiting.queues import Queues
from reprieve.intake.quota import Unusable, cluster_queue_row
from reprieve.intake.quota_workloads import PodSetRows, workload_row
from tests.quota.cases import NOW, SECOND

QUANTITIES = ("1", "500m", "0", "-3", "9223372036854775807", "1e30", "9E", "0.0000001", "", "many")
COUNTS = (1, 1, 2, 0, -1, 2_000_000_000, 2**40)
NAMES = ("main", "main", "other", "")
WHEN = ("2026-01-01T00:00:00Z", "", "yesterday", "9999-12-31T23:59:59Z")
FLAVORS = ("one", "two", "absent", "")


def odd_workload(random: Random, number: int) -> dict[str, Any]:
    name, pick = f"odd-{number}", random.choice
    pod_sets = [pod_set(random) for _ in range(pick((0, 1, 1, 1, 2, 3)))]
    status: dict[str, Any] = {}
    if random.random() < 0.5:
        status["admission"] = {
            "clusterQueue": pick(("fine", "odd", "absent", "")),
            "podSetAssignments": [
                {
                    "name": pick(NAMES),
                    "flavors": {"cpu": pick(FLAVORS)},
                    "resourceUsage": {pick(("cpu", "gpu")): pick(QUANTITIES)},
                    **({"count": pick(COUNTS)} if random.random() < 0.7 else {}),
                }
                for _ in range(pick((0, 1, 2)))
            ],
        }
    status["conditions"] = [
        {
            "type": kind,
            "status": pick(("True", "False", "Unknown", "")),
            "reason": pick(("Preempted", "Pending", "")),
            "message": "",
            "lastTransitionTime": pick(WHEN),
        }
        for kind in ("QuotaReserved", "Admitted", "Evicted", "Preempted", "Requeued", "PodsReady")
        if random.random() < 0.4
    ]
    if random.random() < 0.3:
        status["reclaimablePods"] = [{"name": pick(NAMES), "count": pick(COUNTS)}]
    if random.random() < 0.2:
        status["requeueState"] = {"count": pick(COUNTS), "requeueAt": pick(WHEN)}
    if random.random() < 0.2:
        status["admissionChecks"] = [{"name": "c", "state": pick(("Ready", "Retry", "Odd"))}]
    return {
        "metadata": {
            "name": name,
            "namespace": pick(("ns", "ns", "elsewhere")),
            "uid": name,
            "creationTimestamp": pick(WHEN),
            "annotations": {"kueue.x-k8s.io/priority-boost": pick(("1", "-9", "x", "9" * 30))},
        },
        "spec": {
            "podSets": pod_sets,
            "queueName": pick(("odd", "odd", "fine", "nowhere", "")),
            "priority": pick((None, 0, -(2**31), 7)),
            "active": random.random() < 0.95,
        },
        "status": status,
    }


def pod_set(random: Random) -> dict[str, Any]:
    pick = random.choice
    container = {
        "name": "c",
        "resources": {
            pick(("requests", "limits")): {
                pick(("cpu", "gpu", "pods", "memory", "")): pick(QUANTITIES)
                for _ in range(pick((0, 1, 2)))
            }
        },
    }
    spec: dict[str, Any] = {"containers": [container] * pick((0, 1, 1, 2))}
    if random.random() < 0.2:
        spec["initContainers"] = [{**container, "restartPolicy": pick(("Always", "Odd"))}]
    if random.random() < 0.2:
        spec["overhead"] = {"cpu": pick(QUANTITIES)}
    if random.random() < 0.2:
        spec["tolerations"] = [{"operator": pick(("Exists", "Odd", "Gt")), "value": "x"}]
    found = {"name": pick(NAMES), "count": pick(COUNTS), "template": {"spec": spec}}
    if random.random() < 0.3:
        found["minCount"] = pick(COUNTS)
    return found


def odd_queue(random: Random) -> dict[str, Any]:
    pick = random.choice
    policies = ("Never", "Any", "LowerPriority", "LowerOrNewerEqualPriority", "Odd", "")

    def quota() -> dict[str, Any]:
        found = {"name": pick(("cpu", "cpu", "gpu")), "nominalQuota": pick(QUANTITIES)}
        for limit in ("borrowingLimit", "lendingLimit"):
            if random.random() < 0.4:
                found[limit] = pick(QUANTITIES)
        return found

    groups = [
        {
            "coveredResources": pick((["cpu"], ["cpu", "gpu"], ["gpu", "gpu"], [])),
            "flavors": [
                {"name": pick(FLAVORS), "resources": [quota() for _ in range(pick((0, 1, 2)))]}
                for _ in range(pick((0, 1, 2)))
            ],
        }
        for _ in range(pick((0, 1, 1, 2)))
    ]
    return {
        "metadata": {"name": "odd", "uid": "odd"},
        "spec": {
            "cohortName": pick(("", "all", "loop", "missing")),
            "resourceGroups": groups,
            "namespaceSelector": pick((None, {}, {"matchLabels": {"a": "b"}})),
            "queueingStrategy": pick(("StrictFIFO", "BestEffortFIFO", "Odd")),
            "preemption": {
                "withinClusterQueue": pick(policies),
                "reclaimWithinCohort": pick(policies),
                "borrowWithinCohort": {"policy": pick(("Never", "LowerPriority", "Odd"))},
            },
            "fairSharing": {"weight": pick(("1", "0", "-1", "many", "1e30"))},
            "stopPolicy": pick(("None", "None", "None", "Hold", "HoldAndDrain", "Odd")),
        },
    }


def fine_queue() -> dict[str, Any]:
    flavor = {"name": "one", "resources": [{"name": "cpu", "nominalQuota": "4"}]}
    return {
        "metadata": {"name": "fine", "uid": "fine"},
        "spec": {
            "cohortName": "all",
            "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [flavor]}],
            "namespaceSelector": {},
            "preemption": {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"},
        },
    }


def fine_workload() -> dict[str, Any]:
    container = {"name": "c", "resources": {"requests": {"cpu": "1"}}}
    return {
        "metadata": {"name": "fine", "namespace": "ns", "uid": "fine"},
        "spec": {
            "podSets": [{"count": 2, "template": {"spec": {"containers": [container]}}}],
            "queueName": "fine",
            "priority": 2**31 - 1,
        },
    }


def test_whatever_stands_in_objects_cycles_end_and_others_get_quota() -> None:
    random = Random(81)
    seen: Counter[str] = Counter()
    for number in range(800):
        queues = {}
        for given in (fine_queue(), odd_queue(random)):
            try:
                row = cluster_queue_row(msgspec.convert(given, kueue.ClusterQueue), frozenset())
            except (Unusable, msgspec.ValidationError) as error:
                seen[f"queue: {type(error).__name__}"] += 1
            else:
                queues[row.name] = row
        configuration = Configuration(
            queues,
            {"loop": Cohort("loop", "hole"), "hole": Cohort("hole", "loop")},
            {name: ResourceFlavor(name) for name in ("one", "two")},
            {f"ns/{name}": LocalQueue(f"ns/{name}", name) for name in ("fine", "odd")},
            {"ns": {}},
            Settings(fair_sharing=random.choice((None, ()))),
        )
        holdings, waiting = Holdings(configuration), Queues(configuration)
        rows = PodSetRows()
        for index in range(6):
            given = odd_workload(random, index)
            try:
                workload = workload_row(msgspec.convert(given, kueue.Workload), rows)
            except msgspec.ValidationError:
                seen["undecodable"] += 1
                continue
            seen["held" if workload.admission else "invalid" if workload.invalid else "odd"] += 1
            if workload.admission is not None and not workload.finished:
                holdings.hold(workload)
            else:
                waiting.push(workload)
        waiting.push(workload_row(msgspec.convert(fine_workload(), kueue.Workload), rows))
        for second in range(6):
            now = Nanos(NOW + second * SECOND)
            for result in cycles(holdings, waiting, now, limit=50):
                seen["entries"] += len(result.entries)
            for key in [key for key, holder in holdings.holders.items() if holder.evicted]:
                name = holdings.tree.names[holdings.holders[key].queue]
                holdings.release(key)
                waiting.flush(holdings.related(name))
        assert "ns/fine" in holdings.holders, number
    assert min(seen["queue: Unusable"], seen["held"], seen["invalid"], seen["odd"]) >= 150, seen
