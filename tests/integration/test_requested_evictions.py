"""Evictions requested on a real API server of 1.37: the pod is told, and goes when it has saved.

No release has the controller yet that makes Evictions of requests: the machines play it. When pods
were told, answered for and deleted, and by whom, is counted from the API server's audit log.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from kubeworld.units.clock import SystemClock
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import parse_instant
from reprieve.kube.client import Client, connect
from reprieve.kube.credentials import load_connection
from reprieve.kube.resource import EVICTIONS, PODS, Resource
from reprieve.scenarios.embedded import OPERATOR_USER
from reprieve.scenarios.model import NodeSpec
from reprieve_notice import Notices
from reprieve_notice.http import HttpSource
from tests.integration.control_plane import ADMINISTRATOR, Binaries, control_plane
from tests.integration.group_plane import on_plane
from tests.integration.test_notice import ACCOUNTS, token, until
from tests.ports import free_port

_REQUESTS = Resource("lifecycle.k8s.io", "v1alpha1", "evictionrequests", "EvictionRequest")
_NAMESPACE: Final = "default"
_NODES: Final = (NodeSpec("node-0", {"cpu": "4", "memory": "16Gi", "pods": "20"}),)
_SCHEDULER: Final = "reprieve-scheduler"
_POLICY: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "rules": [
        {
            "level": "RequestResponse",
            "verbs": ["create", "patch", "update", "delete"],
            "resources": [
                {"group": "", "resources": ["pods"]},
                {"group": "lifecycle.k8s.io", "resources": ["evictions/status"]},
            ],
        },
        {"level": "None"},
    ],
}

Object = dict[str, Any]


def _pod(name: str) -> Object:
    return {
        "metadata": {
            "name": name,
            "namespace": _NAMESPACE,
            "annotations": {"reprieve.dev/notice": "40s"},
        },
        "spec": {
            "schedulerName": _SCHEDULER,
            "serviceAccountName": "train",
            "terminationGracePeriodSeconds": 1,
            "evictionResponders": [{"name": "reprieve.dev/notice", "priority": 20_000}],
            "containers": [
                {
                    "name": "main",
                    "image": "registry.example/main:1",
                    "resources": {"requests": {"cpu": "1"}},
                }
            ],
        },
    }


async def _request(client: Client, name: str) -> None:
    uid = (await client.get(PODS, _NAMESPACE, name, dict))["metadata"]["uid"]
    spec = {
        "target": {"pod": {"name": name, "uid": uid}},
        "requester": "acme.io/drain",
        "intent": "Eviction",
    }
    request = {"metadata": {"name": f"drain-{name}", "namespace": _NAMESPACE}, "spec": spec}
    await client.create(_REQUESTS, request, dict)


async def _turn(client: Client, name: str) -> Object:
    """Return what our responder says of the eviction of a pod, with its state."""
    for each in (await client.list(EVICTIONS, dict, namespace=_NAMESPACE)).items:
        if each["spec"]["target"]["pod"]["name"] == name:
            status = each.get("status") or {}
            mine = [*(status.get("targetResponders") or ()), *(status.get("responders") or ())]
            ours = [part for part in mine if part["name"] == "reprieve.dev/notice"]
            return {key: value for part in ours for key, value in part.items()}
    return {}


@pytest.mark.slow
async def test_drained_pods_are_told_save_and_are_pardoned(
    with_pod_groups: Binaries, tmp_path: Path
) -> None:
    if with_pod_groups.release < (1, 37):
        pytest.skip("the Eviction API is served from 1.37 on")
    policy, port = tmp_path / "audit.yaml", free_port()
    policy.write_text(yaml.safe_dump(_POLICY), encoding="utf-8")
    flags = (
        "--feature-gates=GenericWorkload=true,EvictionRequestAPI=true",
        "--runtime-config=scheduling.k8s.io/v1beta1=true,lifecycle.k8s.io/v1alpha1=true",
        f"--audit-policy-file={policy}",
        f"--audit-log-path={tmp_path / 'audit.log'}",
        "--audit-log-mode=blocking",
    )
    users = dict.fromkeys((ADMINISTRATOR, OPERATOR_USER), "system:masters")
    arguments = (
        *("--controllers", "scheduling", "--scheduler-name", _SCHEDULER),
        *("--eviction-notice", "10m", "--notice-port", str(port)),
    )
    with control_plane(with_pod_groups, tmp_path, users, {"kube-apiserver": flags}) as plane:
        async with on_plane(plane, tmp_path, _NODES, *arguments) as stage:
            client = connect(await load_connection(str(tmp_path / "kubeconfig")), SystemClock())
            operator = stage.launch({}, 1)
            await operator.start()
            try:
                await _played(client, f"http://127.0.0.1:{port}", tmp_path)
            finally:
                await operator.stop()
                await client.close()
    _judged(tmp_path / "audit.log")


async def _played(client: Client, url: str, folder: Path) -> None:
    account = {"metadata": {"name": "train", "namespace": _NAMESPACE}}
    await client.create(ACCOUNTS, account, dict)
    names = ("saves", "silent", "stays")
    for name in names:
        await client.create(PODS, _pod(name), dict)

    async def placed() -> bool:
        pods = (await client.list(PODS, dict, namespace=_NAMESPACE)).items
        return len(pods) == 3 and all(each["spec"].get("nodeName") for each in pods)

    await until("all are on the node", placed)
    tokens = {name: await token(client, name) for name in names}
    for name in names:
        (folder / name).write_text(tokens[name])
        await _request(client, name)

    async def told() -> bool:
        return all([(await _turn(client, name)).get("expectedCompletionTime") for name in names])

    await until("all are told", told)
    withdrawn = {"spec": {"intent": "Withdrawn"}}
    await client.patch(_REQUESTS, _NAMESPACE, "drain-stays", withdrawn, dict)
    assert await asyncio.to_thread(_saved, url, folder / "saves")

    async def gone() -> bool:
        pods = (await client.list(PODS, dict, namespace=_NAMESPACE)).items
        return {each["metadata"]["name"] for each in pods} == {"stays"}

    await until("who saved and who was silent are gone", gone)
    assert (await _turn(client, "stays"))["state"] == "Canceled"

    async def pardoned() -> bool:
        return await asyncio.to_thread(HttpSource(url, folder / "stays").ask) is None

    await until("who stays is told nothing any more", pardoned)


def _saved(url: str, file: Path) -> bool:
    notices = Notices(HttpSource(url, file))
    notices.ask(wait=55)
    notice = notices.due()
    assert notice is not None
    notices.close()
    return notice.saved()


def _judged(log: Path) -> None:
    """Nobody was deleted before our responder had completed, and we deleted nobody."""
    deleted, promised, completed = dict[str, int](), dict[str, str](), dict[str, int]()
    for line in log.read_bytes().splitlines():
        event = json.loads(line)
        if event["stage"] != "ResponseComplete" or event["responseStatus"]["code"] >= 300:
            continue
        ref, at = event["objectRef"], parse_instant(event["requestReceivedTimestamp"])
        ours = event["user"]["username"] == OPERATOR_USER
        if (event["verb"], ref["resource"]) == ("delete", "pods"):
            assert not ours, "an eviction that others requested is not ours"
            deleted.setdefault(ref["name"], at)
        elif ours and ref["resource"] == "evictions":
            pod = event["responseObject"]["spec"]["target"]["pod"]["name"]
            (said,) = event["requestObject"]["status"]["responders"]
            if said.get("expectedCompletionTime"):
                assert pod not in promised, "a deadline is granted once"
                promised[pod] = said["expectedCompletionTime"]
            if said.get("completionTime"):
                completed.setdefault(pod, at)
    assert deleted.keys() == completed.keys() == {"saves", "silent"}
    assert promised.keys() == {"saves", "silent", "stays"}
    late = (completed["silent"] - parse_instant(promised["silent"])) / SECOND
    early = (parse_instant(promised["saves"]) - completed["saves"]) / SECOND
    print(f"\ncompleted {late:.2f} s after the deadline, {early:.1f} s before it by who saved")
    assert 0 <= late <= 5
    assert early > 5
    assert all(completed[name] <= deleted[name] for name in deleted)
