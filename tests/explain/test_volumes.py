"""Work whose volume lies on one node: the other nodes, though full, are not what it waits for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reprieve.whatif.snapshots.stored import stored_bytes
from tests.explain.objects import GPU, Json, obj, pod, template
from tests.explain.test_from_snapshot import asked, machine, snapshot_of

CLASS = "node-local"


def claim() -> list[Json]:
    """Return a claim, bound to a volume of n1."""
    request = {"resources": {"requests": {"storage": "1Gi"}}}
    shape = {"accessModes": ["ReadWriteOnce"], "storageClassName": CLASS}
    bound = obj(
        "v1",
        "PersistentVolumeClaim",
        "data",
        annotations={"pv.kubernetes.io/bind-completed": "yes"},
        spec={**shape, **request, "volumeName": "on-n1"},
        status={"phase": "Bound"},
    )
    term = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"]}
    spec = {
        **shape,
        "capacity": {"storage": "1Gi"},
        "local": {"path": "/data"},
        "claimRef": {"namespace": "team", "name": "data", "uid": bound["metadata"]["uid"]},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}},
    }
    volume = obj("v1", "PersistentVolume", "on-n1", "", spec=spec, status={"phase": "Bound"})
    return [bound, volume]


def work(name: str, node: str = "", priority: int = 100, **spec: Any) -> Json:
    own = {"schedulerName": "reprieve-scheduler", "priority": priority}
    return pod(name, node, spec={**template(8, "1", "1Gi"), **own, **spec})


@pytest.fixture
def waiting() -> Json:
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    return work("db-0", volumes=[volume])


def answer(tmp_path: Path, *objects: Json) -> Json:
    file = tmp_path / "cluster.snapshot"
    everything = (*objects, *claim(), obj("v1", "Namespace", "team", ""))
    file.write_bytes(stored_bytes(snapshot_of(*everything)))
    return asked(file, "pod/db-0", "team")


def test_only_work_on_the_node_of_the_volume_holds_what_is_lacking(
    tmp_path: Path, waiting: Json
) -> None:
    # By its name n0 is before the node of the volume.
    nodes = [machine("n0", 8), machine("n1", 8)]
    urgent, other = work("urgent", "n1", 1000), work("other", "n0")
    told = answer(tmp_path, *nodes, urgent, other, waiting)
    assert f"it lacks 8 {GPU} in n1" in told["verdict"]
    rows = {each["name"]: each["text"] for each in told["evidence"]}
    assert rows["held by"] == f"Pod team/urgent 8 {GPU}"


def test_full_nodes_that_do_not_reach_the_volume_are_no_reason_to_wait(
    tmp_path: Path, waiting: Json
) -> None:
    told = answer(tmp_path, machine("n0", 8), work("other", "n0"), waiting)
    assert told["waiting"]["reason"] == "NoNodeMatches"
    assert told["verdict"] == (
        "Pod team/db-0 waits: no node accepts it: 1 of 1 node does not reach its PersistentVolume "
        "on-n1 (kubernetes.io/hostname=n1)."
    )
    assert told["nextSteps"][0]["text"].startswith("Add nodes that reach PersistentVolume on-n1")
