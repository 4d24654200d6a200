"""Notice on a real API server: it mints tokens of pods, and reviews them for the operator.

A gang of two holds the only node and requests notice; the library speaks for its pods.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from kubeworld.units.clock import SystemClock
from reprieve.kube.client import Client, connect
from reprieve.kube.credentials import load_connection
from reprieve.kube.errors import Call, Invalid
from reprieve.kube.resource import PODS, PREEMPTIONS, Resource
from reprieve.kube.transport import Request
from reprieve.operator.pod_tokens import PodTokens
from reprieve.scenarios.model import NodeSpec
from reprieve_notice import Notices
from reprieve_notice.file import FileSource
from reprieve_notice.http import Away, HttpSource
from tests.integration.control_plane import Binaries
from tests.integration.group_plane import group_plane, on_plane
from tests.ports import free_port
from tests.reliability.stand import PRIORITY_CLASSES

_NAMESPACE: Final = "default"
_NODES: Final = (NodeSpec("node-0", {"cpu": "4", "memory": "16Gi", "pods": "20"}),)
_SCHEDULER: Final = "reprieve-scheduler"
ACCOUNTS: Final = Resource("", "v1", "serviceaccounts", "ServiceAccount")
_GROUPS: Final = Resource("scheduling.k8s.io", "v1beta1", "podgroups", "PodGroup")
_PATIENCE_S: Final = 120

__all__ = ["ACCOUNTS", "gang", "token", "until"]

Object = dict[str, Any]


def gang(
    name: str,
    priority: str,
    *,
    size: int = 2,
    cpu: str = "2",
    nodes: dict[str, str] | None = None,
) -> list[tuple[Resource, Object]]:
    """Return a group that goes together, and its pods, which ask for notice."""
    group = {
        "metadata": {"name": name, "namespace": _NAMESPACE},
        "spec": {
            "schedulingPolicy": {"gang": {"minCount": size}},
            "disruptionMode": {"all": {}},
            "priorityClassName": priority,
        },
    }
    spec = {
        "nodeSelector": nodes or {},
        "schedulerName": _SCHEDULER,
        "priorityClassName": priority,
        "serviceAccountName": "train",
        "terminationGracePeriodSeconds": 1,
        "schedulingGroup": {"podGroupName": name},
        "containers": [
            {
                "name": "main",
                "image": "registry.example/main:1",
                "resources": {"requests": {"cpu": cpu}},
            }
        ],
    }
    notes = {"reprieve.dev/notice": "10m"}
    pods = [
        {
            "metadata": {"name": f"{name}-{i}", "namespace": _NAMESPACE, "annotations": notes},
            "spec": spec,
        }
        for i in range(size)
    ]
    return [(_GROUPS, group), *((PODS, pod) for pod in pods)]


async def token(client: Client, pod: str, audience: str = "reprieve.dev") -> str:
    """Return a token that is bound to the pod, or to nobody without a name."""
    spec: Object = {"audiences": [audience], "expirationSeconds": 3600}
    if pod:
        uid = (await client.get(PODS, _NAMESPACE, pod, dict))["metadata"]["uid"]
        spec["boundObjectRef"] = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid}
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": spec,
    }
    path = f"/api/v1/namespaces/{_NAMESPACE}/serviceaccounts/train/token"
    body = json.dumps(request).encode()
    said = await client.transport.request(
        Request("POST", path, {}, body, "application/json"), Call("create", path)
    )
    return str(json.loads(said)["status"]["token"])


async def until(what: str, holds: Callable[[], Awaitable[object]]) -> None:
    """Return once something holds."""
    for _ in range(_PATIENCE_S * 4):
        if await holds():
            return
        await asyncio.sleep(0.25)
    raise AssertionError(f"{what} never held")


@pytest.mark.slow
async def test_a_gang_saves_by_the_library_and_is_released(
    with_pod_groups: Binaries, tmp_path: Path
) -> None:
    config, port = tmp_path / "config.yaml", free_port()
    config.write_text("scheduling: {notice: {max: 10m}}\n")
    flags = (
        *("--controllers", "scheduling", "--scheduler-name", _SCHEDULER),
        *("--config", str(config), "--notice-port", str(port)),
    )
    with group_plane(with_pod_groups, tmp_path) as plane:
        async with on_plane(plane, tmp_path, _NODES, *flags) as stage:
            connection = await load_connection(str(tmp_path / "kubeconfig"))
            client = connect(connection, SystemClock())
            operator = stage.launch({}, 1)
            await operator.start()
            try:
                await _played(client, f"http://127.0.0.1:{port}", tmp_path)
            finally:
                await operator.stop()
                await client.close()


@pytest.mark.slow
async def test_pods_are_told_in_annotations_and_report_their_saves(
    with_pod_groups: Binaries, tmp_path: Path
) -> None:
    """A real server refuses a patch that names the uid of a pod which had the name before."""
    config, port = tmp_path / "config.yaml", free_port()
    config.write_text("scheduling: {notice: {max: 10m}}\n")
    flags = (
        *("--controllers", "scheduling", "--scheduler-name", _SCHEDULER, "--notice-files"),
        *("--config", str(config), "--notice-port", str(port)),
    )
    with group_plane(with_pod_groups, tmp_path) as plane:
        async with on_plane(plane, tmp_path, _NODES, *flags) as stage:
            client = connect(await load_connection(str(tmp_path / "kubeconfig")), SystemClock())
            operator = stage.launch({}, 1)
            await operator.start()
            try:
                await _in_files(client, f"http://127.0.0.1:{port}", tmp_path)
            finally:
                await operator.stop()
                await client.close()


async def _in_files(client: Client, url: str, folder: Path) -> None:
    await _furnished(client)

    async def said(name: str, key: str) -> str:
        found = (await client.get(PODS, _NAMESPACE, name, dict))["metadata"]
        return str((found.get("annotations") or {}).get(f"reprieve.dev/{key}", ""))

    for resource, obj in gang("low", "low"):
        if resource is PODS:
            obj["metadata"]["annotations"] = {
                "reprieve.dev/notice": "1m",
                "reprieve.dev/notice-file": "true",
            }
        await client.create(resource, obj, dict)

    async def low() -> bool:
        pods = (await client.list(PODS, dict, namespace=_NAMESPACE)).items
        return len(pods) == 2 and all(each["spec"].get("nodeName") for each in pods)

    await until("low is on the node", low)
    file = folder / "low-0"
    file.write_text(await token(client, "low-0"))
    await asyncio.to_thread(HttpSource(url, file).checkpoint, 30)
    await until("the save is written", lambda: said("low-0", "last-checkpoint"))
    assert await said("low-1", "last-checkpoint") == ""
    with pytest.raises(Invalid, match=r"metadata\.uid"):
        stale = {"metadata": {"uid": "of-the-pod-before", "annotations": {"a": "b"}}}
        await client.patch(PODS, _NAMESPACE, "low-0", stale, dict)

    high = gang("high", "high")
    for resource, obj in high:
        await client.create(resource, obj, dict)
    for name in ("low-0", "low-1"):
        await until(f"{name} is told", partial(said, name, "notice-told"))
        (folder / "told").write_text(await said(name, "notice-told"))
        notice = FileSource(folder / "told").ask()
        assert notice is not None
        assert 120 < notice.due - time.monotonic() <= 151, "a minute, and 90 s for the file"
    for resource, obj in reversed(high):
        await client.delete(resource, _NAMESPACE, obj["metadata"]["name"])

    async def stays() -> bool:
        (folder / "told").write_text(await said("low-0", "notice-told"))
        return FileSource(folder / "told").ask() is None

    await until("low-0 reads that it stays", stays)
    assert await low()


async def _furnished(client: Client) -> None:
    account = {"metadata": {"name": "train", "namespace": _NAMESPACE}}
    await client.create(ACCOUNTS, account, dict)
    for name, value in (("low", 1_000), ("high", 100_000)):
        await client.create(PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value}, dict)


async def _played(client: Client, url: str, folder: Path) -> None:
    await _furnished(client)

    async def bound() -> set[str]:
        page = await client.list(PODS, dict, namespace=_NAMESPACE)
        return {each["metadata"]["name"] for each in page.items if each["spec"].get("nodeName")}

    async def made(name: str) -> None:
        for resource, obj in gang(name, name):
            await client.create(resource, obj, dict)

    async def low() -> bool:
        return await bound() == {"low-0", "low-1"}

    async def high() -> bool:
        return await bound() == {"high-0", "high-1"}

    async def recorded() -> list[Object]:
        return (await client.list(PREEMPTIONS, dict)).items

    await made("low")
    await until("low is on the node", low)
    await _reviewed(client)
    await made("high")
    await until("the plan is recorded", recorded)
    for name in ("low-0", "low-1"):
        assert await low(), "nobody goes before all have saved"
        file = folder / name
        file.write_text(await token(client, name))
        assert await asyncio.to_thread(_saved, url, file)
    stranger = folder / "stranger"
    stranger.write_text(await token(client, ""))
    with pytest.raises(Away, match="401"):
        await asyncio.to_thread(HttpSource(url, stranger).ask)
    await until("high is on the node, and nobody else", high)
    (record,) = await recorded()
    assert {each["notice"]["deadline"] for each in record["spec"]["victims"]} != {""}


def _saved(url: str, token: Path) -> bool:
    notices = Notices(HttpSource(url, token))
    notices.ask(wait=55)
    notice = notices.due()
    assert notice is not None
    notices.close()
    return notice.saved()


async def _reviewed(client: Client) -> None:
    """Only a token of a pod with our audience names its pod."""
    tokens = PodTokens(client, SystemClock())
    uid = (await client.get(PODS, _NAMESPACE, "low-0", dict))["metadata"]["uid"]
    assert (await tokens(await token(client, "low-0"))).uid == uid
    assert (await tokens(await token(client, ""))).uid == ""
    assert (await tokens(await token(client, "low-0", "https://kubernetes.default.svc"))).uid == ""
    assert (await tokens("nobody")).uid == ""
