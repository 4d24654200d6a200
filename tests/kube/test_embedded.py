"""The client against the embedded cluster over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from kubelocal.cluster import EmbeddedCluster
from kubelocal.server.errors import StatusError
from kubelocal.server.writing.options import DeleteOptions, WriteOptions
from kubeworld.units.clock import SystemClock
from kubeworld.units.durations import MILLISECOND, SECOND
from reprieve.api.core import ObjectMeta
from reprieve.kube.bodies import Json, PatchType
from reprieve.kube.cache import Cache
from reprieve.kube.client import Client, connect
from reprieve.kube.credentials import load_connection
from reprieve.kube.discovery import NotServed, RestMapper
from reprieve.kube.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    Unauthorized,
)
from reprieve.kube.lease import LeaderElector, LeaseTimes
from reprieve.kube.objects import version_number
from reprieve.kube.recording.events import EventRecorder
from reprieve.kube.reflector import Health, Reflector
from reprieve.kube.resource import EVENTS, LEASES, NAMESPACES, PODS, Resource
from reprieve.kube.transport import Transport
from reprieve.units.ids import Uid
from reprieve.units.references import Reference
from tests.background import in_background

CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")


class ConfigMap(msgspec.Struct, gc=False):
    metadata: ObjectMeta
    data: dict[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Row:
    uid: str
    namespace: str
    name: str
    resource_version: int
    value: str


def _row(obj: ConfigMap) -> Row:
    metadata = obj.metadata
    return Row(
        metadata.uid,
        metadata.namespace,
        metadata.name,
        version_number(metadata.resource_version),
        (obj.data or {}).get("value", ""),
    )


def _config_map(name: str, value: str = "") -> Json:
    return {"metadata": {"name": name, "namespace": "default"}, "data": {"value": value}}


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster() as started:
        yield started


@pytest.fixture
async def client(cluster: EmbeddedCluster, tmp_path: Path) -> AsyncIterator[Client]:
    async with _client(cluster, tmp_path, "operator") as made:
        yield made


@asynccontextmanager
async def _client(cluster: EmbeddedCluster, folder: Path, user: str) -> AsyncIterator[Client]:
    path = folder / f"{user}.yaml"
    cluster.write_kubeconfig(path, user)
    made = connect(await load_connection(str(path)), SystemClock(), jitter=Random(5))
    try:
        yield made
    finally:
        await made.close()


async def _until(condition: Any) -> None:
    async with asyncio.timeout(60):
        # What is waited for happens in another task, after requests of its own.
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_objects_are_created_read_changed_and_deleted(client: Client) -> None:
    made = await client.create(CONFIG_MAPS, _config_map("a", "1"), ConfigMap)
    with pytest.raises(AlreadyExists):
        await client.create(CONFIG_MAPS, _config_map("a"), dict)
    patched = await client.patch(
        CONFIG_MAPS, "default", "a", {"data": {"value": "2", "more": "x"}}, ConfigMap
    )
    assert patched.data == {"value": "2", "more": "x"}
    with pytest.raises(Conflict):
        await client.replace(
            CONFIG_MAPS,
            {
                **_config_map("a", "3"),
                "metadata": {
                    "name": "a",
                    "namespace": "default",
                    "resourceVersion": made.metadata.resource_version,
                },
            },
            dict,
        )

    def change(obj: Json) -> Json:
        return {**obj, "data": {"value": "4"}}

    assert (await client.modify(CONFIG_MAPS, "default", "a", change) or {})["data"] == {
        "value": "4"
    }
    operations = [{"op": "replace", "path": "/data/value", "value": "5"}]
    patched = await client.patch(
        CONFIG_MAPS, "default", "a", operations, ConfigMap, patch_type=PatchType.JSON
    )
    assert patched.data == {"value": "5"}
    with pytest.raises(Conflict):
        await client.delete(CONFIG_MAPS, "default", "a", uid="another")
    with pytest.raises(Conflict):
        await client.delete(
            CONFIG_MAPS, "default", "a", resource_version=made.metadata.resource_version
        )
    await client.delete(
        CONFIG_MAPS,
        "default",
        "a",
        uid=made.metadata.uid,
        resource_version=patched.metadata.resource_version,
    )
    with pytest.raises(NotFound):
        await client.get(CONFIG_MAPS, "default", "a", dict)


async def test_apply_creates_changes_and_meets_other_owners(client: Client) -> None:
    applied = await client.apply(CONFIG_MAPS, _config_map("a", "1"), ConfigMap)
    assert applied.data == {"value": "1"}
    applied = await client.apply(CONFIG_MAPS, _config_map("a", "2"), ConfigMap)
    assert applied.data == {"value": "2"}
    other = Client(client.transport, field_manager="somebody")
    with pytest.raises(Conflict, match="reprieve"):
        await other.apply(CONFIG_MAPS, _config_map("a", "3"), ConfigMap)
    forced = await other.apply(CONFIG_MAPS, _config_map("a", "3"), ConfigMap, force=True)
    assert forced.data == {"value": "3"}


async def test_a_bad_object_is_invalid_and_a_bad_token_unauthorized(
    client: Client, cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    with pytest.raises(Invalid):
        await client.create(CONFIG_MAPS, _config_map("Not A Name"), dict)
    path = tmp_path / "bad.yaml"
    cluster.write_kubeconfig(path)
    path.write_text(path.read_text().replace("token: ", "token: x"))
    stranger = connect(await load_connection(str(path)), SystemClock())
    with pytest.raises(Unauthorized):
        await stranger.list(PODS, dict)
    await stranger.close()


async def test_pods_are_bound_evicted_and_deployments_scaled(client: Client) -> None:
    pod = {
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    made: Json = await client.create(PODS, pod, dict)
    node = {"metadata": {"name": "n"}}
    await client.create(Resource("", "v1", "nodes", "Node", False), node, dict)
    await client.bind("default", "p", "n", uid=made["metadata"]["uid"])
    bound: Json = await client.get(PODS, "default", "p", dict)
    assert bound["spec"]["nodeName"] == "n"
    await client.patch_status(PODS, "default", "p", {"phase": "Running"}, dict)
    await client.evict("default", "p", uid=made["metadata"]["uid"], grace_seconds=0)
    with pytest.raises(NotFound):
        await client.get(PODS, "default", "p", dict)
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod["spec"]}
    deployment = {
        "metadata": {"name": "d", "namespace": "default"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": template},
    }
    await client.create(DEPLOYMENTS, deployment, dict)
    assert (await client.get_scale(DEPLOYMENTS, "default", "d"))["spec"]["replicas"] == 2
    await client.patch_scale(DEPLOYMENTS, "default", "d", 0)
    assert (await client.get_scale(DEPLOYMENTS, "default", "d"))["spec"].get("replicas", 0) == 0


async def test_a_cache_follows_the_server_through_dropped_watches_with_one_list(
    client: Client, cluster: EmbeddedCluster
) -> None:
    for number in range(1_203):
        await cluster.api.create(
            _kind(cluster), "default", _config_map(f"c-{number:04}", "old"), WriteOptions()
        )
    cache: Cache[ConfigMap, Row] = Cache(_row, {"value": lambda row: [row.value]})
    reflector = Reflector(
        client,
        CONFIG_MAPS,
        ConfigMap,
        cache,
        SystemClock(),
        namespace="default",
        jitter=Random(2),
    )
    async with in_background(reflector.run()):
        await reflector.synced.wait()
        assert len(cache.by("value", "old")) == 1_203
        asked = ("operator", "list", "", "configmaps")
        pages = cluster.requests[asked]
        assert pages == 3
        await client.patch(CONFIG_MAPS, "default", "c-0007", {"data": {"value": "new"}}, dict)
        await client.delete(CONFIG_MAPS, "default", "c-0008")
        await _until(lambda: len(cache.by("value", "new")) == 1 and len(cache) == 1_202)
        cluster.faults.configure(user="operator", seed=1, drop_watch=1.0)
        await client.create(CONFIG_MAPS, _config_map("later", "new"), dict)
        await _until(lambda: cache.named("default", "later") is not None)
        cluster.faults.configure(user="operator", seed=1, drop_watch=0.0)
        assert cluster.requests[asked] == pages


class HurriedClock(SystemClock):
    """Real time, but pauses are a hundredth as long."""

    async def sleep(self, nanoseconds: int) -> None:
        await super().sleep(nanoseconds // 100)


class Counting(Cache[ConfigMap, Row]):
    lists = 0

    def replaced(self, objects: Iterable[Any], resource_version: str) -> None:
        self.lists += 1
        super().replaced(objects, resource_version)


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_after_any_faults_the_cache_equals_the_server_with_one_list_per_410(
    client: Client, cluster: EmbeddedCluster, seed: int
) -> None:
    kind, random = _kind(cluster), Random(seed)
    cache = Counting(_row)
    reflector = Reflector(
        Client(Transport(client.transport._wire, HurriedClock(), jitter=Random(seed))),
        CONFIG_MAPS,
        ConfigMap,
        cache,
        HurriedClock(),
        namespace="default",
        jitter=Random(seed),
    )
    cluster.faults.configure(
        user="operator", seed=seed, too_many=0.1, error=0.1, drop_watch=0.1, expire_watch=0.2
    )
    async with in_background(reflector.run()):
        for step in range(300):
            name = f"c-{random.randrange(40)}"
            try:
                if random.random() < 0.3:
                    await cluster.api.delete(kind, "default", name, DeleteOptions())
                else:
                    await cluster.api.create(
                        kind, "default", _config_map(name, str(step)), WriteOptions()
                    )
            except StatusError as refusal:
                assert refusal.code in (404, 409)
            if step % 10 == 0:
                await asyncio.sleep(0.005)
        cluster.faults.clear()
        last = await client.create(CONFIG_MAPS, _config_map("last"), ConfigMap)
        await _until(lambda: last.metadata.uid in cache)
    page = await client.list(CONFIG_MAPS, ConfigMap, namespace="default")
    assert set(cache) == {_row(obj) for obj in page.items}
    assert sum(cluster.faults.counts.values()) > 10
    assert cluster.faults.counts["expire_watch"] > 0
    assert cache.lists <= 1 + cluster.faults.counts["expire_watch"]


async def test_a_reflector_without_rights_names_the_rule_and_recovers(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    cluster.deny("operator", "list", "", "configmaps")
    reports: list[Exception] = []
    async with _client(cluster, tmp_path, "operator") as client:
        reflector = Reflector(
            client,
            CONFIG_MAPS,
            ConfigMap,
            Cache[ConfigMap, Row](_row),
            SystemClock(),
            report=reports.append,
        )
        async with in_background(reflector.run()):
            await _until(lambda: reports)
        assert reflector.health is Health.FORBIDDEN
        [report] = reports
        assert isinstance(report, Forbidden)
        assert report.rule == '- {apiGroups: [""], resources: ["configmaps"], verbs: ["list"]}'
        cluster.allow("operator", "list", "", "configmaps")
        async with in_background(reflector.run()):
            async with asyncio.timeout(60):
                await reflector.synced.wait()


async def test_kinds_are_discovered(client: Client) -> None:
    mapper = RestMapper(client, SystemClock())
    assert await mapper.resource_for("apps/v1", "Deployment") == DEPLOYMENTS
    assert await mapper.resource_for("v1", "Namespace") == NAMESPACES
    with pytest.raises(NotServed):
        await mapper.resource_for("ray.io/v1alpha9", "RayJob")


async def test_a_lease_passes_from_one_process_to_the_next(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    times = LeaseTimes(duration=SECOND, renew_deadline=SECOND // 2, retry_period=50 * MILLISECOND)
    async with _client(cluster, tmp_path, "one") as one, _client(cluster, tmp_path, "two") as two:
        electors = [
            LeaderElector(
                each,
                SystemClock(),
                namespace="default",
                name="reprieve",
                identity=name,
                times=times,
            )
            for each, name in ((one, "one"), (two, "two"))
        ]
        async with in_background(electors[0].run()):
            await electors[0].wait_leading()
            async with in_background(electors[1].run()), asyncio.timeout(60):
                await electors[0].stop()
                await electors[1].wait_leading()
        lease: Json = await one.get(LEASES, "default", "reprieve", dict)
        assert lease["spec"]["holderIdentity"] == "two"
        assert electors[1].epoch == lease["spec"]["leaseTransitions"] == 1


async def test_events_are_stored_and_counted(client: Client) -> None:
    recorder = EventRecorder(client, SystemClock(), instance="test")
    about = Reference("v1", "ConfigMap", "default", "a", Uid("u"))
    async with in_background(recorder.run()):
        for _ in range(3):
            recorder.event(about, "Normal", "Seen", "Looking", "was here", controller="test")
        await recorder.flush()
    page = await client.list(EVENTS, dict, namespace="default")
    events: list[Json] = page.items
    assert [(e["message"], e["series"]["count"]) for e in events] == [("was here", 2)]
    assert recorder.dropped == 0


def _kind(cluster: EmbeddedCluster) -> Any:
    kind = cluster.registry.find("", "v1", "configmaps")
    assert kind is not None
    return kind
