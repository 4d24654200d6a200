"""`cluster: from:` and `trace: snapshot`: what a study takes from lists, snapshots and clusters."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from kubeworld.units.instants import Nanos
from reprieve.cli.sessions.simulate_cluster import devices_of_nodes, read_snapshot_trace, study_of
from reprieve.cli.simulate import simulate
from reprieve.kube.resource import NODES, Resource
from reprieve.simulation.study import Cluster
from reprieve.units.errors import UsageError
from reprieve.whatif.snapshots.snapshot import Listed, Snapshot, Unseen
from reprieve.whatif.snapshots.stored import stored_bytes
from tests.simulation.building import STUDY, study_in
from tests.simulation.test_readers import KUEUE

NODE_LIST = """\
sn,cpu_milli,memory_mib,gpu,model
openb-node-0000,64000,262144,2,P100
openb-node-0001,96000,393216,8,G2
openb-node-0002,96000,393216,0,
"""
WORKLOADS = Resource("kueue.x-k8s.io", "v1beta2", "workloads", "Workload")


def listed(resource: Resource, objects: list[dict[str, object]]) -> Listed:
    bodies = {}
    for obj in objects:
        metadata = obj["metadata"]
        assert isinstance(metadata, dict)
        bodies[metadata.get("namespace", ""), metadata["name"]] = msgspec.json.encode(obj)
    return Listed(resource, bodies, 1)


def node(name: str, devices: int) -> dict[str, object]:
    allocatable = {"cpu": "64", "memory": "256Gi", "pods": "110"}
    if devices:
        allocatable["nvidia.com/gpu"] = str(devices)
    return {"metadata": {"name": name}, "status": {"allocatable": allocatable}}


def snapshot_in(folder: Path, *nodes: int) -> Path:
    workloads = [each for each in json.loads(KUEUE)["items"] if isinstance(each, dict)]
    found = [each for each in workloads if each.get("kind") == "Workload"][:3]
    rows = [node(f"n{number}", devices) for number, devices in enumerate(nodes)]
    kinds = {("", "nodes"): listed(NODES, rows)}
    kinds[WORKLOADS.group, WORKLOADS.plural] = listed(WORKLOADS, found)
    path = folder / "cluster.snapshot"
    path.write_bytes(stored_bytes(Snapshot(Nanos(0), kinds)))
    return path


def taking(folder: Path, source: str) -> Path:
    return study_in(folder, STUDY.replace("{nodes: 2, devices: 4}", "{from: " + source + "}"))


def test_nodes_of_a_list_are_replayed_with_all_their_devices(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text(NODE_LIST)
    study = study_of(taking(tmp_path, "nodes.csv"))
    assert study.cluster == Cluster(5, 2)
    assert study.notices == (
        (
            "cluster.from: 2 nodes with devices, 10 in all; replayed as nodes of 2, which is the "
            "same to quotas; left out: 1 node without devices"
        ),
    )


def test_nodes_and_finished_workloads_come_from_a_snapshot(tmp_path: Path) -> None:
    path = snapshot_in(tmp_path, 8, 8, 0)
    assert list(devices_of_nodes(path)) == [8, 8, 0]
    trace = read_snapshot_trace(path, "t")
    assert [(each.id, each.devices, each.tenant) for each in trace.jobs] == [
        ("team/train", 4, "research")
    ]
    assert (trace.without, len(trace.malformed)) == (1, 1)
    text = STUDY.replace("{nodes: 2, devices: 4}", "{from: cluster.snapshot}")
    text = text.replace("csv, path: trace.csv, load: [1.2]", "snapshot, path: cluster.snapshot")
    done = CliRunner().invoke(
        simulate,
        [str(study_in(tmp_path, text)), "-o", str(tmp_path / "report.html"), "--workers", "1"],
        catch_exceptions=False,
    )
    assert done.exit_code == 0, done.output
    assert "cluster.from: 2 nodes with devices, 16 in all" in done.output
    assert "of 16 devices" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("a,b\n1,2\n", "nodes.csv:1: a header without sn, gpu; accepted: a list of nodes"),
        ("sn,gpu\nx,two\n", "nodes.csv:2: 'two' is not a whole number"),
        ("sn,gpu\nx\n", "nodes.csv:2: 1 cells; accepted: a list of nodes"),
        ("sn,gpu\nx,0\n", "1 node with 0 devices; accepted: from 1 to 1,000,000 devices"),
    ],
)
def test_a_list_of_nodes_that_cannot_be_read_is_refused(
    content: str, said: str, tmp_path: Path
) -> None:
    (tmp_path / "nodes.csv").write_text(content)
    with pytest.raises(UsageError) as refused:
        study_of(taking(tmp_path, "nodes.csv"))
    assert said in str(refused.value)


def test_a_source_that_is_not_there_or_says_less_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="accepted: a file of reprieve snapshot, a kubeconfig"):
        study_of(taking(tmp_path, "none"))
    with pytest.raises(UsageError, match="accepted: without nodes, which stands there"):
        study_of(taking(tmp_path, "none, nodes: 2"))
    (tmp_path / "odd").write_text("hello: [")
    with pytest.raises(UsageError, match="odd"):
        study_of(taking(tmp_path, "odd"))
    empty = tmp_path / "empty.snapshot"
    unseen = (Unseen(NODES, ()),)
    empty.write_bytes(stored_bytes(Snapshot(Nanos(0), {("", "nodes"): listed(NODES, [])})))
    with pytest.raises(UsageError, match="0 nodes with 0 devices"):
        study_of(taking(tmp_path, empty.name))
    with pytest.raises(UsageError, match="without Workloads; accepted"):
        read_snapshot_trace(empty, "t")
    empty.write_bytes(stored_bytes(Snapshot(Nanos(0), unseen=unseen)))
    with pytest.raises(UsageError, match="the nodes could not be listed"):
        study_of(taking(tmp_path, empty.name))
