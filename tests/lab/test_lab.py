"""The public face: a cluster in memory decides as the operator does, and never changes."""

from __future__ import annotations

import ast
import asyncio
import doctest
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

import reprieve.lab
from reprieve.lab import Cluster, Verdict, apply, decide, explain
from reprieve.units.errors import UsageError

ROOT = Path(__file__).parents[2]
NODES = """
apiVersion: v1
kind: Namespace
metadata: {name: team}
---
apiVersion: v1
kind: Node
metadata: {name: node-0}
status: {allocatable: {cpu: "64", memory: 512Gi, pods: "110", nvidia.com/gpu: "8"}}
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: urgent}
value: 1000
"""
QUEUES = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: any}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: cq}
spec:
  namespaceSelector: {}
  preemption: {withinClusterQueue: LowerPriority}
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{name: any, resources: [{name: cpu, nominalQuota: 2}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: q, namespace: team}
spec: {clusterQueue: cq}
"""


def pod(name: str, gpus: int, priority: str = "") -> str:
    return f"""
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: team}}
spec:
  schedulerName: reprieve-scheduler
  priorityClassName: "{priority}"
  containers:
  - name: main
    image: example.org/train:1
    resources: {{requests: {{nvidia.com/gpu: {gpus}}}, limits: {{nvidia.com/gpu: {gpus}}}}}
"""


def job(name: str, cpus: int, priority: str = "") -> str:
    labels = "{kueue.x-k8s.io/queue-name: q}"
    return f"""
apiVersion: batch/v1
kind: Job
metadata: {{name: {name}, namespace: team, labels: {labels}}}
spec:
  suspend: true
  template:
    spec:
      schedulerName: reprieve-scheduler
      priorityClassName: "{priority}"
      restartPolicy: Never
      containers:
      - {{name: main, image: "example.org/train:1", resources: {{requests: {{cpu: {cpus}}}}}}}
"""


def test_the_examples_of_the_face_are_what_it_answers() -> None:
    found = doctest.testmod(reprieve.lab)
    assert found.attempted >= 6
    assert found.failed == 0


def test_a_decision_names_victims_and_nodes_and_the_cluster_stays_as_it_was() -> None:
    before = apply(decide(Cluster.from_yaml(NODES), pod("sweep", 8)))
    decision = decide(before, pod("train", 8, "urgent"))
    assert decision.verdict is Verdict.STARTS_WITH_VICTIMS
    assert decision.victims == ("Pod team/sweep",)
    assert decision.placements == {"train": "node-0"}
    names = [each["metadata"]["name"] for each in before.objects("Pod", "team")]
    assert names == ["sweep"]
    after = apply(decision)
    assert [each["metadata"]["name"] for each in after.objects("Pod")] == ["train"]
    assert after.now >= before.now


def test_quota_is_decided_where_there_are_queues() -> None:
    cluster = apply(decide(Cluster.from_yaml(f"{NODES}---{QUEUES}"), job("sweep", 2)))
    waits = decide(cluster, job("other", 2))
    assert (waits.verdict, waits.reason) == (Verdict.WAITS, "HeldByOthers")
    wins = decide(cluster, job("train", 2, "urgent"))
    assert (wins.verdict, wins.victims) == (Verdict.STARTS_WITH_VICTIMS, ("Job team/sweep",))


def test_settings_are_those_of_the_operators_file() -> None:
    cluster = Cluster.from_yaml(NODES)
    with pytest.raises(UsageError, match=r"settings: scheduling\.maxPlacements: 0; accepted: an"):
        decide(cluster, pod("train", 1), settings={"scheduling": {"maxPlacements": 0}})
    with pytest.raises(UsageError, match=r"planes: 'quotas'; accepted: idle, scheduling, quota"):
        decide(cluster, pod("train", 1), planes=["quotas"])
    alone = decide(cluster, pod("train", 1), settings={"scheduling": {"profile": "compatible"}})
    assert alone.verdict is Verdict.STARTS


def test_explain_names_the_cause_and_who_is_not_there() -> None:
    cluster = apply(decide(Cluster.from_yaml(NODES), pod("large", 9)))
    told = explain(cluster, "pod/large", "team")
    assert "it requests 9 nvidia.com/gpu a pod, the largest node, node-0, has 8" in told
    with pytest.raises(UsageError, match="no Pod 'other'"):
        explain(cluster, "pod/other", "team")


def test_a_stored_cluster_is_the_same_cluster(tmp_path: Path) -> None:
    cluster = Cluster.from_yaml(NODES, at=datetime(2026, 3, 1, 9, tzinfo=UTC))
    cluster.save(tmp_path / "cluster.gz")
    again = Cluster.from_file(tmp_path / "cluster.gz")
    assert again.objects("Node")[0]["metadata"]["name"] == "node-0"
    assert again.now == cluster.now == datetime(2026, 3, 1, 9, tzinfo=UTC)
    assert decide(again, pod("train", 8)).placements == {"train": "node-0"}
    manifests = tmp_path / "cluster.yaml"
    manifests.write_text(NODES)
    assert Cluster.from_file(manifests).objects("Node") == Cluster.from_yaml(NODES).objects("Node")


def test_what_cannot_be_read_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        Cluster.from_file(tmp_path / "nothing.yaml")
    with pytest.raises(UsageError, match=r"text, line 1.*Gadget"):
        Cluster.from_yaml("{apiVersion: example.org/v1, kind: Gadget, metadata: {name: x}}")
    with pytest.raises(UsageError, match="has no time zone"):
        Cluster.from_yaml(NODES, at=datetime(2026, 1, 1))


async def _inside_a_loop() -> Verdict | None:
    return decide(Cluster.from_yaml(NODES), pod("train", 8)).verdict


def test_it_answers_where_a_loop_runs_already() -> None:
    assert asyncio.run(_inside_a_loop()) is Verdict.STARTS


def test_examples_import_the_public_face_alone() -> None:
    found = []
    for path in sorted((ROOT / "examples").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and (
                (node.module or "").partition(".")[0] == "reprieve"
            ):
                found.append(node.module)
    assert len(found) >= 2
    assert {name for name in found if not (name or "").startswith("reprieve.lab")} == set()


def test_types_of_plugins_load_no_plane() -> None:
    code = "import sys, reprieve.lab.plugins; print([n for n in sys.modules if '.planes' in n])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_page_shows_what_is_answered() -> None:
    found = doctest.testfile(str(ROOT / "docs" / "python.md"), module_relative=False)
    assert found.attempted >= 6
    assert found.failed == 0
