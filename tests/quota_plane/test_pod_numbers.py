"""Which rank a pod has in its Workload, by the labels of its kind."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from reprieve.api.kueue import Workload
from reprieve.jobs.pod_sets import pod_sets_of
from reprieve.jobs.table import BUILT_IN
from reprieve.planes.quota.pod_reconcilers.pod_numbers import numbers_of
from tests.quota_plane.kind_stories import manifest

INDEX = "batch.kubernetes.io/job-completion-index"
REPLICA = "jobset.sigs.k8s.io/job-index"
TRAINING = "training.kubeflow.org/replica-index"
WORKER = "leaderworkerset.sigs.k8s.io/worker-index"


def admitted(*pod_sets: dict[str, Any]) -> Workload:
    assigned = [{"name": each["name"], "count": each["count"]} for each in pod_sets]
    held = {"clusterQueue": "cq", "podSetAssignments": assigned}
    return msgspec.convert(
        {
            "metadata": {"name": "w", "namespace": "n", "uid": "u"},
            "spec": {"podSets": [{**each, "template": {}} for each in pod_sets]},
            "status": {"admission": held},
        },
        Workload,
    )


def pod_set(name: str, count: int, **request: Any) -> dict[str, Any]:
    return {"name": name, "count": count, "topologyRequest": request}


def test_replicas_of_a_job_set_come_one_after_the_other() -> None:
    workers = pod_set("w", 6, podIndexLabel=INDEX, subGroupIndexLabel=REPLICA, subGroupCount=2)
    numbers = numbers_of(admitted(workers))["w"]
    ranks = [numbers.rank({INDEX: str(i), REPLICA: str(j)}) for j in (0, 1) for i in (0, 1, 2)]
    assert ranks == [0, 1, 2, 3, 4, 5]
    assert numbers.rank({INDEX: "0"}) is None
    assert numbers.rank({INDEX: "3", REPLICA: "0"}) is None


def test_the_workers_of_a_group_begin_where_its_leader_ends() -> None:
    found = numbers_of(
        admitted(
            pod_set("leader", 1, podSetGroupName="g"),
            pod_set("workers", 3, podSetGroupName="g", podIndexLabel=WORKER),
        )
    )
    assert found.keys() == {"workers"}
    assert [found["workers"].rank({WORKER: str(n)}) for n in range(5)] == [None, 0, 1, 2, None]


def test_pods_may_say_themselves_where_their_numbers_begin() -> None:
    numbers = numbers_of(admitted(pod_set("w", 3, podIndexLabel=WORKER)))["w"]
    assert [numbers.rank({WORKER: str(n)}, offset=1) for n in range(5)] == [None, 0, 1, 2, None]
    assert numbers.rank({WORKER: "1"}, offset=-1) is None


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("Job", [{"podIndexLabel": INDEX}]),
        (
            "JobSet",
            [
                {"podIndexLabel": INDEX, "subGroupIndexLabel": REPLICA, "subGroupCount": 1},
                {"podIndexLabel": INDEX, "subGroupIndexLabel": REPLICA, "subGroupCount": 2},
            ],
        ),
        ("PyTorchJob", [{"podIndexLabel": TRAINING}] * 2),
        ("MPIJob", [{"podIndexLabel": TRAINING}] * 2),
        ("LeaderWorkerSet", [{}, {"podIndexLabel": WORKER}]),
        ("StatefulSet", [{"podIndexLabel": "apps.kubernetes.io/pod-index"}]),
        ("RayCluster", [{}] * 2),
        ("SparkApplication", [{}] * 2),
    ],
)
def test_each_kind_says_how_its_pods_are_numbered(kind: str, said: list[dict[str, Any]]) -> None:
    (row,) = (each for each in BUILT_IN if each.kind == kind)
    found = pod_sets_of(row, manifest(kind, "x"))
    assert [each.get("topologyRequest") or {} for each in found] == said
