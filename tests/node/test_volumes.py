"""Work with a volume of its node that is evicted: its replacement can run nowhere else.

Whom the operator evicted is counted from the API server's audit log.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.node.cluster import GPU, GPUS, Cluster
from tests.node.release import Object, pod_spec
from tests.node.work import ON_N2, evicted, explained, followed, gang, running

pytestmark = [pytest.mark.slow, pytest.mark.node]

CLASS = "node-local"
LOW: Object = {"schedulerName": "reprieve-scheduler", "priorityClassName": "low"}


@pytest.fixture
def volume(cluster: Cluster) -> Iterator[None]:
    """A volume that lies on n1, of a class whose claims are bound when a pod has its node."""
    place = cluster.folder / "volume"
    place.mkdir()
    term = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"]}
    cluster.apply(
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": CLASS},
            "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer",
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": "on-n1"},
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": CLASS,
                "local": {"path": str(place)},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}},
            },
        },
    )
    yield
    cluster.kubectl("delete", "pv/on-n1", f"storageclass/{CLASS}", "--wait=false")


def stateful(space: str) -> Object:
    """Return a set of one pod that keeps what it saves on its volume."""
    spec = pod_spec(GPUS, **LOW)
    (container,) = spec["containers"]
    command, flag, program = container["command"]
    program = program.replace("echo saved;", "echo saved; echo saved >> /data/saved;")
    container["command"] = [
        command,
        flag,
        program.replace("echo works", "cat /data/saved; echo works"),
    ]
    container["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    claim = {
        "metadata": {"name": "data"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": CLASS,
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    labels = {"app": "db"}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "db", "namespace": space},
        "spec": {
            "serviceName": "db",
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
            "volumeClaimTemplates": [claim],
        },
    }


@pytest.mark.usefixtures("classes", "release", "volume")
def test_a_victim_with_a_volume_waits_for_its_own_node_and_has_what_it_saved(
    cluster: Cluster, space: str
) -> None:
    labels = {"app": "guarded"}
    guarded: Object = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "guarded", "namespace": space, "labels": labels},
        "spec": pod_spec(GPUS, **LOW, **ON_N2),
    }
    budget: Object = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "guarded", "namespace": space},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": labels}},
    }
    cluster.apply(guarded, budget, stateful(space))
    workers = followed(cluster, space, 2)
    assert cluster.get("pod", "db-0", "-n", space)["spec"]["nodeName"] == "n1"
    cluster.until(
        "the budget is known", lambda: "status" in cluster.get("pdb", "guarded", "-n", space)
    )

    cluster.apply(*gang(space, 1, GPUS))
    followed(cluster, space, 1, "gang=train")
    assert evicted(cluster, space) == ["db-0"]
    assert workers["db-0"].said() == ["works", "TERM", "saved"]

    def waits() -> str:
        text = explained(cluster, space, "pod/db-0")
        return text if "waits" in text and f"Insufficient {GPU}" in text else ""

    stated = cluster.until("the replacement waits", waits)
    assert f"lacks {GPUS} {GPU} in n1" in stated and "guarded" not in stated
    assert running(cluster, space) == ["guarded", "train-0"]

    cluster.kubectl("delete", "pod", "train-0", "-n", space)
    followed(cluster, space, 1, "app=db")
    assert cluster.get("pod", "db-0", "-n", space)["spec"]["nodeName"] == "n1"
    log = cluster.kubectl("logs", "db-0", "-n", space)
    assert log.splitlines()[0] == "saved"
    assert evicted(cluster, space) == ["db-0"]
