"""The guide on configuring preemption, with a real kubectl: who is evicted, and where nobody is.

The manifests are those of the guide, read from where it lies beside the project, and once more
their like in the project's own words.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from reprieve.scenarios.model import NodeSpec
from tests.walkthrough.clusters import KINDS, cluster_of
from tests.walkthrough.conftest import Site, explained

#: Status and reason of each condition, by the name of the Job.
Said = dict[str, dict[str, str]]
GUIDES = Path(__file__).parents[2].parent / "shared" / "guides"
OWN = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: training}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [cpu, memory]
    flavors:
    - name: default-flavor
      resources: [{name: cpu, nominalQuota: 16}, {name: memory, nominalQuota: 64Gi}]
  preemption: {withinClusterQueue: LowerPriority, reclaimWithinCohort: Any}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: interactive}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [cpu, memory]
    flavors:
    - name: default-flavor
      resources: [{name: cpu, nominalQuota: 16}, {name: memory, nominalQuota: 64Gi}]
"""
BESIDE = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {{name: default-flavor}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: WorkloadPriorityClass
metadata: {{name: low}}
value: 100
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: WorkloadPriorityClass
metadata: {{name: high}}
value: 10000
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {{name: hit, namespace: default}}
spec: {{clusterQueue: {hit}}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {{name: spared, namespace: default}}
spec: {{clusterQueue: {spared}}}
"""
JOB = """
---
apiVersion: batch/v1
kind: Job
metadata:
  name: {queue}-{name}
  namespace: default
  labels:
    kueue.x-k8s.io/queue-name: {queue}
    kueue.x-k8s.io/priority-class: {priority}
spec:
  suspend: true
  template:
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: 1
      containers:
      - name: main
        image: registry.example/app:1
        resources: {{requests: {{cpu: 8, memory: 1Gi}}}}
"""


def of_the_guide() -> list[str]:
    """The YAML blocks of the guide that configure ClusterQueues, as they stand there."""
    (document,) = GUIDES.glob("002_*.txt")
    text = document.read_text(encoding="utf-8")
    found = re.findall(r"^apiVersion: .*\n(?:(?!\s+\d+\. |INFO|$).*\n)*", text, re.MULTILINE)
    blocks = [block for block in found if "kind: ClusterQueue\n" in block]
    assert [yaml.safe_load(block)["metadata"]["name"] for block in blocks] == [
        "team-a-queue",
        "non-preemptive-queue",
    ]
    return blocks


@pytest.fixture(params=["own", "guide"])
def manifests(request: pytest.FixtureRequest) -> list[str]:
    """Two ClusterQueues: of the first one victims are taken, of the second one never."""
    if request.param == "own":
        return OWN.split("---\n")
    if not list(GUIDES.glob("002_*.txt")):
        pytest.skip("the guide's manifests are not here")
    return of_the_guide()


@pytest.fixture(params=KINDS)
async def cluster(
    request: pytest.FixtureRequest, tmp_path: Path, kubectl: Path
) -> AsyncIterator[Site]:
    nodes = [NodeSpec("node-0", {"cpu": "64", "memory": "128Gi", "pods": "110"})]
    arguments = ("--controllers", "quota")
    async with cluster_of(
        request.param, nodes, tmp_path, operator_arguments=arguments, kueue=True
    ) as found:
        operator = found.stage.launch({}, 1)
        await operator.start()
        try:
            yield Site(found, kubectl)
        finally:
            await operator.stop()


def jobs(name: str, priority: str) -> str:
    """The same Job for both queues."""
    return "".join(
        JOB.format(queue=queue, name=name, priority=priority) for queue in ("hit", "spared")
    )


async def workloads(site: Site) -> Said:
    """Status and reason of each condition, by the name of the Job."""
    items: list[dict[str, Any]] = json.loads(await site.says("get", "wl", "-o", "json"))["items"]
    return {
        each["metadata"]["ownerReferences"][0]["name"]: {
            said["type"]: f"{said['status']} {said['reason']}"
            for said in each.get("status", {}).get("conditions", ())
        }
        for each in items
    }


async def until(site: Site, holds: Callable[[Said], object]) -> Said:
    """Wait until it holds for the conditions of all Jobs."""
    found: Said = {}
    for _ in range(240):
        found = await workloads(site)
        if holds(found):
            return found
        await asyncio.sleep(0.25)
    raise AssertionError(f"it never held: {found}")


async def until_admitted(site: Site, *names: str) -> Said:
    """Wait until exactly these Jobs are admitted."""

    def admitted(found: Said) -> bool:
        said = {name for name, each in found.items() if each.get("Admitted") == "True Admitted"}
        return said == set(names)

    return await until(site, admitted)


async def test_a_higher_priority_evicts_in_one_queue_and_waits_in_the_other(
    cluster: Site, manifests: list[str]
) -> None:
    names = [yaml.safe_load(each)["metadata"]["name"] for each in manifests]
    said = ""
    for each in manifests:
        said += await cluster.says("apply", "-f", "-", stdin=each)
    assert said == "".join(f"clusterqueue.kueue.x-k8s.io/{name} created\n" for name in names)
    await cluster.says("apply", "-f", "-", stdin=BESIDE.format(hit=names[0], spared=names[1]))

    await cluster.says("apply", "-f", "-", stdin=jobs("first", "low") + jobs("second", "low"))
    lows = {"hit-first", "hit-second", "spared-first", "spared-second"}
    await until_admitted(cluster, *lows)

    await cluster.says("apply", "-f", "-", stdin=jobs("urgent", "high"))
    await cluster.says(
        *("wait", "job/hit-urgent", "--for=jsonpath={.status.active}=1", "--timeout=60s")
    )
    found = await workloads(cluster)
    victims = {name for name, said in found.items() if "Evicted" in said}
    assert len(victims) == 1 and victims <= {"hit-first", "hit-second"}
    (victim,) = victims
    assert found[victim]["Preempted"] == "True InClusterQueue"
    found = await until_admitted(cluster, *(lows - victims), "hit-urgent")
    assert await cluster.says("get", "job", victim, "-o", "jsonpath={.spec.suspend}") == "true"

    each_waits = [[name, "1"] for name in sorted(names)]
    await cluster.until_says(
        lambda said: [line.split() for line in said.splitlines()[1:]] == each_waits,
        *("get", "clusterqueues"),
    )
    waits = "False WaitingForQuota"
    await until(cluster, lambda found: found["spared-urgent"].get("QuotaReserved") == waits)

    # What waits in the second queue gets quota only when somebody there is done.
    await cluster.says("delete", "job", "spared-first")
    left = lows - victims - {"spared-first"}
    found = await until_admitted(cluster, *left, "hit-urgent", "spared-urgent")
    assert {name for name, said in found.items() if "Evicted" in said} == victims
    evicted = await cluster.until_says(
        lambda said: re.fullmatch(rf"job-{victim}-[0-9a-f]{{5}}", said),
        *("get", "events", "--field-selector", "reason=EvictedDueToPreempted"),
        *("-o", "jsonpath={.items[*].involvedObject.name}"),
    )
    (record,) = (await cluster.says("get", "preemptions", "-A", "-o", "name")).split()
    code, story = await explained(cluster, record.partition("/")[2])
    assert code == 0
    assert ": the same plan" in story
    assert f"{evicted} ({names[0]}, priority 100, 8 cpu, 1Gi memory) is preempted" in story
