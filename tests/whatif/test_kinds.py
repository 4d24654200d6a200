"""Every kind of the table of jobs starts in a what-if, is preempted for another, and has its pods.

No cluster: snapshots are made here, and of the end of one run comes the snapshot of the next.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from kubeworld.units.instants import Nanos
from reprieve.cli.sessions.deciding import deciders_of
from reprieve.jobs.table import job_kinds
from reprieve.kube.resource import PODS, Resource
from reprieve.whatif.deciders import Deciders
from reprieve.whatif.happened import Run
from reprieve.whatif.questions.answer import Verdict
from reprieve.whatif.questions.judging import answer_of
from reprieve.whatif.run import settled
from reprieve.whatif.snapshots.snapshot import KindKey, Listed, Snapshot
from reprieve.whatif.submitting.submission import Submitted
from tests.quota_plane.kind_stories import MANIFESTS
from tests.quota_plane.site import cluster_queue, flavor, local_queue, priority_class
from tests.quota_plane.test_jobs import LOWER

Object = dict[str, Any]
NOON = Nanos(1_790_000_000_000_000_000)
ROWS = {kind.kind: kind for kind in job_kinds()}
KINDS = sorted(ROWS)
CONFIGURATION = {
    "apiVersion": "config.kueue.x-k8s.io/v1beta2",
    "kind": "Configuration",
    "integrations": {"frameworks": sorted({kind.framework for kind in ROWS.values()})},
    "featureGates": {"SparkApplicationIntegration": True},
}
RUNTIME = "/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes/torch-distributed"
#: Of these each pod is a workload of its own, and is named.
SHOWN = {"Deployment": "Pod"}


def snapshot(deciders: Deciders, *objects: Object) -> Snapshot:
    """Return a cluster that serves all kinds and holds these objects."""
    found: dict[KindKey, dict[tuple[str, str], bytes]] = {}
    kinds: dict[KindKey, Resource] = {}
    for resource in deciders.kinds():
        if kinds.setdefault((resource.group, resource.plural), resource) == resource:
            found[resource.group, resource.plural] = {}
    for obj in objects:
        group = obj["apiVersion"].rpartition("/")[0]
        read = [k for k, r in kinds.items() if (k[0], r.kind) == (group, obj["kind"])]
        if not read:
            continue  # of no use to these planes
        (key,) = read
        uid, created = f"{obj['kind']}-{obj['metadata']['name']}", "2026-01-01T00:00:00Z"
        metadata = {"uid": uid, "creationTimestamp": created, **obj["metadata"]}
        metadata["resourceVersion"] = "1"
        place = (metadata.get("namespace", ""), metadata["name"])
        found[key][place] = msgspec.json.encode({**obj, "metadata": metadata})
    return Snapshot(NOON, {key: Listed(kinds[key], found[key], 5) for key in kinds})


def cluster(deciders: Deciders) -> Snapshot:
    """Return a cluster with one node and a queue for two cpus."""
    amounts = {"cpu": "16", "memory": "64Gi", "pods": "110"}
    disk = {"disk": "fast"}
    node = {"spec": {}, "status": {"allocatable": amounts, "capacity": amounts}}
    return snapshot(
        deciders,
        {
            **node,
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": "node-0", "labels": disk},
        },
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}},
        flavor(),
        cluster_queue("cq", 2, memory="64Gi", preemption=LOWER),
        local_queue("q", "cq"),
        priority_class("low", 100),
        priority_class("high", 1000),
        runtime(),
    )


def runtime() -> Object:
    """Return the runtime of the TrainJobs."""
    container = {"name": "node", "image": "example.org/app:1"}
    job = {
        "name": "node",
        "replicas": 1,
        "template": {
            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
            "spec": {"template": {"spec": {"containers": [container]}}},
        },
    }
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": "torch-distributed"},
        "spec": {"mlPolicy": {"numNodes": 1}, "template": {"spec": {"replicatedJobs": [job]}}},
    }


def manifest(kind: str, name: str, priority: str) -> Submitted:
    """Return what is submitted of a kind."""
    obj = copy.deepcopy(MANIFESTS[kind])
    labels = {"kueue.x-k8s.io/queue-name": "q", "kueue.x-k8s.io/priority-class": priority}
    obj["metadata"] = {**obj["metadata"], "name": name, "namespace": "team", "labels": labels}
    row = ROWS[kind]
    group, _, version = row.api_version.rpartition("/")
    return Submitted(Resource(group, version, row.plural, kind), obj)


def pods_of(run: Run, name: str) -> list[Object]:
    """Return the pods of a job that do not leave, whatever stands between."""
    return [
        pod
        for pod in run.overlay.all(PODS)
        if pod["metadata"]["name"] == name or pod["metadata"]["name"].startswith(f"{name}-")
    ]


def owner_of(name: str) -> str:
    """Return the beginning of a name, up to what a controller adds."""
    return name.partition("-")[0]


def deciding(controllers: str, folder: Path) -> Deciders:
    """Return planes that queue every kind."""
    file = folder / "configuration.yaml"
    file.write_text(yaml.safe_dump(CONFIGURATION))
    return deciders_of(controllers, ("default-scheduler",), {"quota_config": file})


def test_every_kind_of_the_table_has_a_manifest() -> None:
    assert set(KINDS) <= set(MANIFESTS) and len(KINDS) >= 17


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_starts_makes_way_and_has_its_pods(kind: str, tmp_path: Path) -> None:
    deciders = deciding("scheduling,quota", tmp_path)
    first = settled(cluster(deciders), deciders, [manifest(kind, "first", "low")])
    answer = answer_of(first)
    assert answer.verdict is Verdict.STARTS, answer
    made = pods_of(first, "first")
    assert made and len(answer.placement) == len(made)
    second = settled(first.overlay.frozen(), deciders, [manifest(kind, "second", "high")])
    answer = answer_of(second)
    assert answer.verdict is Verdict.STARTS_WITH_VICTIMS, answer
    assert [(each.kind, owner_of(each.name)) for each in answer.victims] == [
        (SHOWN.get(kind, kind), "first")
    ]
    # What runs for ever is made again, and waits at a gate.
    assert all(pod["spec"].get("schedulingGates") for pod in pods_of(second, "first"))
    assert len(pods_of(second, "second")) == len(made)
    third = settled(second.overlay.frozen(), deciders, [manifest(kind, "third", "low")])
    answer = answer_of(third)
    assert answer.verdict is Verdict.WAITS and not answer.victims, answer


@pytest.mark.parametrize("kind", KINDS)
def test_with_the_quota_plane_alone_a_kind_starts_and_makes_way(kind: str, tmp_path: Path) -> None:
    deciders = deciding("quota", tmp_path)
    first = settled(cluster(deciders), deciders, [manifest(kind, "first", "low")])
    assert answer_of(first).verdict is Verdict.STARTS, answer_of(first)
    second = settled(first.overlay.frozen(), deciders, [manifest(kind, "second", "high")])
    answer = answer_of(second)
    assert answer.verdict is Verdict.STARTS_WITH_VICTIMS, answer
    assert [owner_of(each.name) for each in answer.victims] == ["first"]


@pytest.mark.parametrize("kind", KINDS)
def test_with_the_scheduling_plane_alone_what_makes_pods_at_once_is_placed(kind: str) -> None:
    deciders = deciders_of("scheduling", ("default-scheduler",), {})
    wanted = manifest(kind, "first", "low")
    # What a TrainJob runs is read by itself, as the plane does not watch it.
    known = {RUNTIME: msgspec.json.encode(runtime())}
    run = settled(cluster(deciders).knowing(known), deciders, [wanted])
    answer = answer_of(run)
    assert answer.verdict is Verdict.STARTS, answer
    assert len(answer.placement) == len(pods_of(run, "first")) > 0
