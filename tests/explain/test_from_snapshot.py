"""`reprieve explain --from FILE` answers without a cluster, as the planes decide on the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
from click.testing import CliRunner

from reprieve.cli.explain import explain
from reprieve.cli.sessions.deciding import deciders_of
from reprieve.kube.resource import NAMESPACES, NODES, PODS, Resource
from reprieve.whatif.snapshots.anonymous import Pseudonyms
from reprieve.whatif.snapshots.snapshot import Listed, Snapshot
from reprieve.whatif.snapshots.stored import stored_bytes
from tests.explain.objects import GPU, NOW, Json, group, members, obj

OTHERS = (PODS, NODES, NAMESPACES)
GROUPS = Resource("scheduling.k8s.io", "v1beta1", "podgroups", "PodGroup")


def listed(resource: Resource, *objects: Json) -> Listed:
    named = {
        (each["metadata"].get("namespace", ""), each["metadata"]["name"]): msgspec.json.encode(each)
        for each in objects
    }
    return Listed(resource, named, 1)


def snapshot_of(*objects: Json) -> Snapshot:
    """Return a cluster of these objects, in which every kind of the scheduling plane is served."""
    kinds = {(each.group, each.plural): each for each in deciders_of("scheduling", (), {}).kinds()}
    kinds |= {(each.group, each.plural): each for each in (*OTHERS, GROUPS)}
    of_kind: dict[tuple[str, str], list[Json]] = {}
    for each in objects:
        of_kind.setdefault((each["apiVersion"], each["kind"]), []).append(each)
    documents: dict[str, Any] = {}
    found = {}
    for key, resource in kinds.items():
        found[key] = listed(resource, *of_kind.get((resource.api_version, resource.kind), ()))
        path = "/api/v1" if not resource.group else f"/apis/{resource.api_version}"
        served = {"name": resource.plural, "kind": resource.kind, "namespaced": resource.namespaced}
        before = msgspec.json.decode(documents[path])["resources"] if path in documents else []
        documents[path] = msgspec.json.encode({"resources": [*before, served]})
    return Snapshot(NOW, found, documents)


def machine(name: str, gpus: int) -> Json:
    room = {GPU: str(gpus), "cpu": "256", "memory": "4Ti", "pods": "110"}
    labels = {"kubernetes.io/hostname": name}
    return obj("v1", "Node", name, "", labels=labels, spec={}, status={"allocatable": room})


def snapshot() -> Snapshot:
    """Return a cluster of one node with 16 GPUs, on which a gang of four with 32 has no room."""
    pods = [
        {**each, "spec": {**each["spec"], "schedulerName": "reprieve-scheduler"}}
        for each in members(4)
    ]
    space = obj("v1", "Namespace", "team", "")
    return snapshot_of(machine("gpu-0", 16), *pods, group(), space)


def asked(file: Path, question: str, namespace: str) -> Json:
    told = CliRunner().invoke(
        explain, [question, "-n", namespace, "--from", str(file), "-o", "json"]
    )
    assert told.exception is None, told
    document: Json = json.loads(told.output)
    return document


def test_the_planes_decide_on_the_file_and_the_answer_is_as_old_as_it(tmp_path: Path) -> None:
    file = tmp_path / "cluster.snapshot"
    file.write_bytes(stored_bytes(snapshot()))
    told = asked(file, "pod/train-1", "team")
    assert (told["state"], told["asOf"]) == ("Waits", "2026-11-20T14:00:00Z")
    # Each pod fits on the node, the gang of four does not, however empty the node is.
    assert told["waiting"]["plane"] == "scheduling"
    assert told["waiting"]["reason"] == "NoNodeMatches"
    assert told["certainty"][0] == "Decided anew on what the cluster held at 2026-11-20T14:00:00Z."


def test_with_pseudonyms_the_reason_is_the_same(tmp_path: Path) -> None:
    file, names = tmp_path / "cluster.snapshot", Pseudonyms(b"key")
    file.write_bytes(stored_bytes(snapshot(), pseudonyms=names))
    told = asked(file, f"pod/{names.of('train-1')}", names.of("team"))
    plain = tmp_path / "plain.snapshot"
    plain.write_bytes(stored_bytes(snapshot()))
    assert told["waiting"]["reason"] == asked(plain, "pod/train-1", "team")["waiting"]["reason"]
    assert "train" not in json.dumps(told)
