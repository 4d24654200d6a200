"""What admission tells the pods."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from reprieve.api import kueue
from reprieve.jobs.writing import Conflicting
from reprieve.planes.quota.job_reconciler.injections import injections

Json = dict[str, Any]
FLAVORS: dict[str, Json] = {
    "spot": {
        "nodeLabels": {"instance": "spot"},
        "tolerations": [{"key": "spot", "operator": "Exists"}],
    },
    "fast": {"nodeLabels": {"disk": "fast"}, "tolerations": [{"key": "fast", "value": "yes"}]},
}


def watches() -> Any:
    def named(_: str, name: str) -> Any:
        spec = FLAVORS.get(name)
        if spec is None:
            return None
        obj = msgspec.convert({"metadata": {"name": name}, "spec": spec}, kueue.ResourceFlavor)
        return SimpleNamespace(object=obj)

    return SimpleNamespace(flavors=SimpleNamespace(cache=SimpleNamespace(named=named)))


def admitted(queue: str = "main", cluster_queue: str = "team", *updates: Json) -> kueue.Workload:
    assignment = {
        "name": "main",
        "count": 2,
        "flavors": {"cpu": "spot", "memory": "spot", "gpu": "fast", "x": "gone"},
    }
    checks = [
        {
            "name": f"c{k}",
            "state": "Ready",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
            "podSetUpdates": [{"name": "main", **each}],
        }
        for k, each in enumerate(updates)
    ]
    obj = {
        "metadata": {"name": "job-a-12345", "namespace": "ns"},
        "spec": {"queueName": queue, "podSets": []},
        "status": {
            "admission": {"clusterQueue": cluster_queue, "podSetAssignments": [assignment]},
            "admissionChecks": checks,
        },
    }
    return msgspec.convert(obj, kueue.Workload)


def test_pods_are_told_labels_and_tolerations_of_their_flavors_once() -> None:
    told = injections(watches(), admitted())["main"]
    assert told.as_json() == {
        "annotations": {"kueue.x-k8s.io/workload": "job-a-12345"},
        "labels": {
            "kueue.x-k8s.io/podset": "main",
            "kueue.x-k8s.io/local-queue-name": "main",
            "kueue.x-k8s.io/cluster-queue-name": "team",
        },
        "nodeSelector": {"instance": "spot", "disk": "fast"},
        "tolerations": [
            {"key": "spot", "operator": "Exists"},
            {"key": "fast", "operator": "Equal", "value": "yes"},
        ],
    }
    assert told.count == 2


@pytest.mark.parametrize(
    ("queue", "cluster_queue", "labels"),
    [
        ("a.b", "team.gpu", {"local-queue-name": "a.b"}),
        ("q" * 63, "t" * 63, {"local-queue-name": "q" * 63, "cluster-queue-name": "t" * 63}),
        ("q" * 64, "t" * 64, {}),
    ],
)
def test_pods_are_labelled_with_a_cluster_queue_only_if_its_name_is_a_dns_label(
    queue: str, cluster_queue: str, labels: dict[str, str]
) -> None:
    told = injections(watches(), admitted(queue, cluster_queue))["main"].labels
    wanted = {f"kueue.x-k8s.io/{name}": value for name, value in labels.items()}
    assert told == {"kueue.x-k8s.io/podset": "main", **wanted}


def test_a_check_that_contradicts_a_flavor_is_refused_in_the_references_words() -> None:
    with pytest.raises(Conflicting) as raised:
        injections(watches(), admitted("a", "b", {"nodeSelector": {"instance": "dear"}}))
    assert str(raised.value) == (
        "invalid admission check PodSetUpdate: conflict for nodeSelector: conflict for "
        "key=instance, value1=spot, value2=dear"
    )
    fine = {"nodeSelector": {"instance": "spot", "zone": "a"}, "annotations": {"x": "y"}}
    told = injections(watches(), admitted("a", "b", fine, fine))["main"]
    assert told.node_selector == {"instance": "spot", "disk": "fast", "zone": "a"}
    assert told.annotations == {"kueue.x-k8s.io/workload": "job-a-12345", "x": "y"}
