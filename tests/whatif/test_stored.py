"""Snapshots in files: what stands in them, what never does, and that decisions stay the same."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from kubeworld.objects.paths import set_at
from kubeworld.units.instants import Nanos
from reprieve.cli.sessions.deciding import deciders_of
from reprieve.cli.sessions.reading import reading_client
from reprieve.cli.snapshot import read_snapshot, wanted_kinds
from reprieve.jobs.model import JobKind
from reprieve.jobs.table import BUILT_IN
from reprieve.kube.credentials import load_connection
from reprieve.kube.resource import NODES, PODS, Resource
from reprieve.units.errors import UsageError
from reprieve.whatif.copy.lists import discovered, gather
from reprieve.whatif.happened import Run
from reprieve.whatif.run import settled
from reprieve.whatif.snapshots.anonymous import Pseudonyms
from reprieve.whatif.snapshots.columns import Shape, objects_of, shapes_of
from reprieve.whatif.snapshots.forms import Forms
from reprieve.whatif.snapshots.pruning import is_described, pruned
from reprieve.whatif.snapshots.snapshot import Listed, Snapshot
from reprieve.whatif.snapshots.stored import snapshot_of_bytes, stored_bytes
from reprieve.whatif.submitting.submission import Document, matched
from tests.quota_plane.site import (
    cluster_queue,
    flavor,
    job,
    local_queue,
    node,
    priority_class,
    site,
)
from tests.quota_plane.test_jobs import LOWER
from tests.virtual_time import LoopClock

Json = dict[str, Any]
SECRET = "HIDDEN"
KIND = "HarmBudget"
GPUS = {"nvidia.com/gpu": "7777"}


def leaky(value: str = SECRET) -> Json:
    """Return a pod template into which secrets were written wherever that is possible."""
    container = {
        "name": "c",
        "image": f"registry.example/{value}:1",
        "command": [value],
        "args": [f"--token={value}"],
        "env": [{"name": "TOKEN", "value": value}],
        "envFrom": [{"secretRef": {"name": value}}],
        "resources": {"requests": GPUS, "limits": GPUS},
        "lifecycle": {"preStop": {"exec": {"command": [value]}}},
        "livenessProbe": {"httpGet": {"httpHeaders": [{"name": "a", "value": value}]}},
    }
    spec = {
        "containers": [container],
        "initContainers": [container],
        "imagePullSecrets": [{"name": value}],
        "serviceAccountName": value,
        "hostAliases": [{"ip": "1.2.3.4", "hostnames": [value]}],
    }
    return {"metadata": metadata(), "spec": spec}


def metadata(name: str = "train") -> Json:
    return {
        "name": name,
        "namespace": "team",
        "uid": "11111111-2222-3333-4444-555555555555",
        "labels": {"env": "prod", "data": "here"},
        "annotations": {
            "kubectl.kubernetes.io/last-applied-configuration": SECRET,
            "example.com/note": SECRET,
            "kueue.x-k8s.io/job-min-parallelism": "2",
        },
        "managedFields": [{"manager": SECRET}],
    }


def leaky_job(row: JobKind) -> Json:
    """Return a job of a kind with a leaky template wherever its row looks for one."""
    obj: Json = {"apiVersion": row.api_version, "kind": row.kind, "metadata": metadata()}
    for source in row.pod_sets:
        template = leaky()
        if source.each:
            item: Json = {"name": "worker"}
            set_at(item, source.template, template)
            set_at(obj, source.each.removesuffix(".*"), [item])
        elif source.template and "*" not in source.template:
            set_at(obj, source.template, template)
    if row.components is not None:
        set_at(obj, row.components.each, [{"template": leaky_job(BUILT_IN[0])}])
    if row.kind == "Pod":
        obj["spec"] = leaky()["spec"]
    return obj


@pytest.mark.parametrize("row", BUILT_IN, ids=lambda row: row.kind)
def test_no_secret_of_a_job_stands_in_a_snapshot_and_what_it_asks_for_does(row: JobKind) -> None:
    given = leaky_job(row)
    text = msgspec.json.encode(pruned(given)).decode()
    assert SECRET in msgspec.json.encode(given).decode()
    assert SECRET not in text
    if "7777" in msgspec.json.encode(given).decode():
        assert "7777" in text
    assert '"env":"prod"' in text, "labels are read, whatever they are called"
    assert "job-min-parallelism" in text


def test_of_kinds_that_nobody_reads_only_the_name_is_kept() -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata(), "data": {"a": SECRET}}
    kept = pruned({**secret, "stringData": {"a": SECRET}})
    assert set(kept) == {"apiVersion", "kind", "metadata"}
    assert SECRET not in msgspec.json.encode(kept).decode()


def test_of_every_kind_that_is_stored_somebody_says_what_is_read() -> None:
    named = {(each.group, each.kind) for each in wanted_kinds()}
    assert len(named) > 40
    # Of these the name, the labels and the owner are enough.
    bare = {("", "Namespace"), ("apps", "DaemonSet"), ("batch", "CronJob")}
    runtimes = {each for each in named if each[0] == "trainer.kubeflow.org"}
    assert {each for each in named if not is_described(*each)} <= bare | runtimes


def listed(resource: Resource, *objects: Json) -> Listed:
    return Listed(
        resource,
        {
            (each["metadata"].get("namespace", ""), each["metadata"]["name"]): msgspec.json.encode(
                each
            )
            for each in objects
        },
        7,
    )


def small() -> Snapshot:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata(), "spec": leaky()["spec"]}
    machine = {
        "metadata": {"name": "gpu-node", "labels": {"pool": "rivals"}},
        "status": {"allocatable": {"nvidia.com/gpu": "8"}, "images": [{"names": [SECRET]}]},
    }
    kinds = (listed(PODS, pod), listed(NODES, machine))
    return Snapshot(
        Nanos(1_700_000_000_123_456_789),
        {(each.resource.group, each.resource.plural): each for each in kinds},
        {"/api/v1": b'{"resources":[{"name":"pods","kind":"Pod","namespaced":true}]}'},
        namespaces=3,
    )


def test_a_snapshot_comes_back_as_it_was_stored_and_is_the_same_file_each_time() -> None:
    body = stored_bytes(small())
    back = snapshot_of_bytes(body, "FILE")
    assert stored_bytes(small()) == body
    assert stored_bytes(back) == body
    assert (back.at, back.namespaces) == (small().at, 3)
    assert back.kinds.keys() == small().kinds.keys()
    assert [each.version for each in back.kinds.values()] == [7, 7]
    assert SECRET.encode() not in gzip.decompress(body)


def test_a_file_of_the_first_version_is_still_read() -> None:
    now = msgspec.json.decode(gzip.decompress(stored_bytes(small())))
    kinds = [
        {
            "resource": each["resource"],
            "version": each["version"],
            "objects": [msgspec.json.decode(text) for text in objects_of(shapes(each))],
        }
        for each in now["kinds"]
    ]
    former = gzip.compress(msgspec.json.encode({**now, "version": 1, "kinds": kinds}), mtime=0)
    assert snapshot_of_bytes(former, "FILE") == snapshot_of_bytes(stored_bytes(small()), "FILE")


def shapes(kind: Json) -> list[Shape]:
    return msgspec.convert(kind["shapes"], list[Shape])


TEXTS = ("a", "b", "", "with space", "100% %s", 'a "quote"', "back\\slash", "\n", "\u00fc", "a:1")


def objects(random: Random) -> list[bytes]:
    """Return objects of a few shapes, with values that come again and such that do not."""
    found = []
    for number in range(random.randint(1, 40)):
        obj: Json = {"name": f"pod-{number}", "same": "x", "node": random.choice(TEXTS)}
        obj["labels"] = {name: random.choice(TEXTS) for name in random.sample(TEXTS, 2)}
        obj["count"], obj["alike"] = random.randint(0, 2), obj["node"]
        if random.random() < 0.5:
            obj["list"] = [random.choice(TEXTS), random.random(), None, True]
        found.append(msgspec.json.encode(obj))
    return [*found, b"{}", b"{}"]


@pytest.mark.parametrize("seed", range(200))
def test_what_is_parted_into_columns_comes_together_again(seed: int) -> None:
    given = objects(Random(seed))
    forms = Forms(lambda body: body)
    for each in given:
        forms.add(each)
    stored = msgspec.json.decode(msgspec.json.encode(shapes_of(forms.rows)), type=list[Shape])
    assert sorted([*objects_of(stored), *forms.others]) == sorted(given)
    assert all(b"\\" in each for each in forms.others)


@pytest.mark.parametrize(
    "wrong",
    [
        {"columns": []},
        {"columns": [{"values": "a b", "rows": [0, 5]}]},
        {"columns": [{"values": "a b c"}, {"values": "a b"}], "texts": ["", "", ""]},
        {"columns": [{"like": 7}]},
    ],
    ids=["too few", "row", "lengths", "like"],
)
def test_columns_that_do_not_fit_are_damage(wrong: Json) -> None:
    shape = {"count": 2, "texts": ["", ""], "columns": [{"values": "a b"}], **wrong}
    kind = msgspec.json.decode(gzip.decompress(stored_bytes(small())))["kinds"][0]
    with pytest.raises(UsageError, match=r"^FILE: damaged \("):
        snapshot_of_bytes(changed(kinds=[{**kind, "shapes": [shape]}]), "FILE")


def changed(**given: object) -> bytes:
    document = msgspec.json.decode(gzip.decompress(stored_bytes(small())))
    return gzip.compress(msgspec.json.encode({**document, **given}), mtime=0)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "FILE: not a snapshot, or damaged ("),
        (b"kind: Pod", "FILE: not a snapshot, or damaged ("),
        (stored_bytes(small())[:-20], "FILE: not a snapshot, or damaged ("),
        (gzip.compress(b"[]", mtime=0), "FILE: not a snapshot, or damaged ("),
        (
            gzip.compress(b'{"format": "x", "version": 1}', mtime=0),
            "FILE: x of version 1, written by ",
        ),
        (changed(version=4), "FILE: reprieve.dev/snapshot of version 4, written by reprieve "),
        (changed(kinds=[{}]), "FILE: damaged ("),
        (changed(at="yesterday"), "FILE: damaged ("),
    ],
    ids=["empty", "yaml", "cut", "list", "format", "version", "kinds", "instant"],
)
def test_what_is_no_snapshot_or_another_version_is_one_line(body: bytes, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        snapshot_of_bytes(body, "FILE")
    assert str(refused.value).startswith(said)
    assert "accepted: " in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^--from .*none: cannot be read: No such file"):
        read_snapshot(str(tmp_path / "none"))


def test_pseudonyms_are_the_same_within_a_snapshot_and_no_name_is_left() -> None:
    body = stored_bytes(small(), pseudonyms=Pseudonyms())
    kinds = snapshot_of_bytes(body, "FILE").kinds.values()
    text = b"".join(each for kind in kinds for each in kind.objects.values()).decode()
    for name in ("train", "team", "gpu-node", "rivals", "prod", "pool", "11111111"):
        assert f'"{name}' not in text, name
    assert '"nvidia.com/gpu":"8"' in text
    one, other = Pseudonyms(), Pseudonyms()
    assert one.of("train") == one.of("train") != other.of("train")
    assert one.of("team/train") == f"{one.of('team')}/{one.of('train')}"
    assert one.object({"metadata": {"labels": {"cpu": "train"}}}) == {
        "metadata": {"labels": {"cpu": one.of("train")}}
    }


def test_a_budget_under_pseudonyms_holds_what_it_held() -> None:
    spec: Json = {
        "scope": "Caused",
        "per": "ClusterQueue",
        "selector": {"clusterQueues": ["train"]},
        "schedule": "0 8 * * MON-FRI",
        "duration": "10h",
        "planes": ["quota"],
        "limits": {"displacements": 2},
        "whenExhausted": "Tell",
    }
    name, budget = Pseudonyms(), {"metadata": {"name": "day"}, "spec": spec}
    found = name.object(pruned({**budget, "apiVersion": "reprieve.dev/v1alpha1", "kind": KIND}))
    assert found["spec"] == {**spec, "selector": {"clusterQueues": [name.of("train")]}}


BASE = (
    flavor(),
    cluster_queue("cq", 4, preemption=LOWER),
    local_queue("q", "cq"),
    priority_class("low", 100),
    priority_class("high", 10000),
)


def plans(run: Run) -> list[tuple[str, str]]:
    """Return plane and plan id of what was decided since the submission."""
    return sorted(
        (change.new["spec"]["plane"], change.new["spec"]["planId"])
        for change in run.history
        if change.new is not None and change.kind[1] == "preemptions" and change.old is None
    )


async def taken(kubeconfig: Path) -> Snapshot:
    clock = LoopClock()
    client = reading_client(await load_connection(str(kubeconfig)), clock)
    try:
        return await gather(client, wanted_kinds(), clock)
    finally:
        await client.close()


def decided_on(snapshot: Snapshot, wanted: Sequence[Json]) -> Run:
    documents = [Document(each, "the test") for each in wanted]
    found = matched(documents, discovered(snapshot.documents), "team")
    return settled(snapshot, deciders_of("quota", (), {}), found)


async def test_plans_on_a_stored_snapshot_are_the_same_plans(tmp_path: Path) -> None:
    async with site(tmp_path, *BASE, nodes=[node("node-0")]) as cluster:
        await cluster.create(job("first", priority="low", pods=2))
        await cluster.until_admitted("first")
        await cluster.create(job("second", priority="low", pods=2))
        await cluster.until_admitted("first", "second")
        wanted = [job("wanted", priority="high", pods=2)]
        live = await taken(cluster.embedded.kubeconfig)
        stored = snapshot_of_bytes(stored_bytes(live), "FILE")
        before, after = decided_on(live, wanted), decided_on(stored, wanted)
        assert len(plans(before)) == 1
        assert plans(after) == plans(before)
        assert after.rest and before.rest
