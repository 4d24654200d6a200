"""`reprieve uninstall` on the embedded cluster; on a real one: tests/integration/test_chart.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kubeworld.units.clock import SystemClock
from reprieve.api.crds import KUEUE_NAMES
from reprieve.api.kueue import RESOURCE_IN_USE
from reprieve.execution.writes.uninstalling import Uninstalling
from reprieve.kube.client import Client, connect
from reprieve.kube.credentials import load_connection
from reprieve.kube.own_objects import DEPLOYMENTS, PART_OF
from reprieve.kube.resource import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES, Resource
from reprieve.scenarios.embedded import OPERATOR_NAMESPACE, embedded_stage
from tests.chart.helm import ROOT
from tests.scheduling.site import node

Object = dict[str, Any]
FLAVORS = Resource("kueue.x-k8s.io", "v1beta2", "resourceflavors", "ResourceFlavor", False)
LABELS = {PART_OF: "reprieve"}


async def stopped(client: Client, *, dry_run: bool = False, quota: bool = True) -> list[str]:
    """Uninstall; return what was told."""
    told: list[str] = []
    clock, namespace = SystemClock(), OPERATOR_NAMESPACE
    await Uninstalling(client, clock, namespace, told.append, dry_run=dry_run, quota=quota).run()
    return told


def deployment(command: str, namespace: str = OPERATOR_NAMESPACE) -> Object:
    container = {"name": "c", "image": "registry.example/reprieve:1", "args": [command]}
    labels = {"app": command}
    return {
        "metadata": {"name": command, "namespace": namespace, "labels": LABELS},
        "spec": {
            "replicas": 0 if command == "web" else 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


def flavor(name: str) -> Object:
    return {"metadata": {"name": name, "finalizers": [RESOURCE_IN_USE, "example.com/other"]}}


async def finalizers(client: Client, name: str) -> list[str]:
    found: Object = await client.get(FLAVORS, "", name, dict)
    return list(found["metadata"]["finalizers"])


async def test_the_operator_ends_and_its_finalizers_and_conversions_go(tmp_path: Path) -> None:
    async with embedded_stage(
        [node("node-0", 8)], tmp_path, kueue=True, scheduler=False
    ) as embedded:
        client = connect(await load_connection(str(embedded.kubeconfig)), SystemClock())
        for name in KUEUE_NAMES:
            await client.patch(
                CUSTOM_RESOURCE_DEFINITIONS, "", name, {"metadata": {"labels": LABELS}}, dict
            )
        await client.create(DEPLOYMENTS, deployment("run"), dict)
        await client.create(DEPLOYMENTS, deployment("web"), dict)
        await client.create(FLAVORS, flavor("mi300x"), dict)
        before = await stopped(client, dry_run=True)
        assert all("would be" in line for line in before) and before
        assert RESOURCE_IN_USE in await finalizers(client, "mi300x")
        told = await stopped(client)
        assert [line.replace("would be ", "") for line in before] == told
        assert told[0] == f"deployment {OPERATOR_NAMESPACE}/run scaled to 0"
        assert f"finalizer {RESOURCE_IN_USE} removed from 1 {FLAVORS.qualified}" in told
        # What is another's finalizer stays, and a second time nothing is left to do.
        assert await finalizers(client, "mi300x") == ["example.com/other"]
        assert await stopped(client) == []
        await client.close()


async def test_kinds_of_another_kueue_are_left_alone(tmp_path: Path) -> None:
    async with embedded_stage(
        [node("node-0", 8)], tmp_path, kueue=True, scheduler=False
    ) as embedded:
        client = connect(await load_connection(str(embedded.kubeconfig)), SystemClock())
        for name in KUEUE_NAMES:
            await client.patch(
                CUSTOM_RESOURCE_DEFINITIONS,
                "",
                name,
                {"metadata": {"labels": {PART_OF: "kueue"}}},
                dict,
            )
        await client.create(FLAVORS, flavor("mi300x"), dict)
        assert await stopped(client) == []
        assert RESOURCE_IN_USE in await finalizers(client, "mi300x")
        await client.close()


async def serve(client: Client, namespace: str) -> None:
    """Have our definitions of Kueue's kinds converted by the Service of a namespace."""
    service = {"name": "reprieve-webhook", "namespace": namespace, "path": "/convert"}
    webhook = {"clientConfig": {"service": service}, "conversionReviewVersions": ["v1"]}
    spec = {"conversion": {"strategy": "Webhook", "webhook": webhook}}
    for name in KUEUE_NAMES:
        body = {"metadata": {"labels": LABELS}, "spec": spec}
        await client.patch(CUSTOM_RESOURCE_DEFINITIONS, "", name, body, dict)


async def test_kinds_that_an_operator_elsewhere_serves_stay_as_they_are(tmp_path: Path) -> None:
    async with embedded_stage(
        [node("node-0", 8)], tmp_path, kueue=True, scheduler=False
    ) as embedded:
        client = connect(await load_connection(str(embedded.kubeconfig)), SystemClock())
        await serve(client, "elsewhere")
        await client.create(NAMESPACES, {"metadata": {"name": "elsewhere"}}, dict)
        await client.create(DEPLOYMENTS, deployment("run", "elsewhere"), dict)
        await client.create(FLAVORS, flavor("mi300x"), dict)
        assert await stopped(client) == [
            "kinds of kueue.x-k8s.io serve the operator in namespace elsewhere: left as they are"
        ]
        assert RESOURCE_IN_USE in await finalizers(client, "mi300x")
        # Without an operator there they are left to none: they name a Service that is not there.
        await client.delete(DEPLOYMENTS, "elsewhere", "run")
        told = await stopped(client)
        assert f"finalizer {RESOURCE_IN_USE} removed from 1 {FLAVORS.qualified}" in told
        assert f"conversion of {KUEUE_NAMES[0]} set to None" in told
        await client.close()


async def test_an_operator_without_the_quota_plane_leaves_its_kinds_alone(tmp_path: Path) -> None:
    async with embedded_stage(
        [node("node-0", 8)], tmp_path, kueue=True, scheduler=False
    ) as embedded:
        client = connect(await load_connection(str(embedded.kubeconfig)), SystemClock())
        await serve(client, OPERATOR_NAMESPACE)
        await client.create(DEPLOYMENTS, deployment("run"), dict)
        told = await stopped(client, quota=False)
        assert told == [f"deployment {OPERATOR_NAMESPACE}/run scaled to 0"]
        await client.close()


def test_the_chart_runs_it_before_it_removes_anything() -> None:
    template = (ROOT / "charts" / "reprieve" / "templates" / "uninstall.yaml").read_text()
    assert template.count("helm.sh/hook: pre-delete") == template.count("\nkind: ") == 6
    assert 'args: ["uninstall", "--operator-namespace"' in template
