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
from reprieve.kube.resource import CUSTOM_RESOURCE_DEFINITIONS, Resource
from reprieve.scenarios.embedded import OPERATOR_NAMESPACE, embedded_stage
from tests.chart.helm import ROOT
from tests.scheduling.site import node

Object = dict[str, Any]
FLAVORS = Resource("kueue.x-k8s.io", "v1beta2", "resourceflavors", "ResourceFlavor", False)
LABELS = {PART_OF: "reprieve"}


async def stopped(client: Client, *, dry_run: bool = False) -> list[str]:
    """Uninstall; return what was told."""
    told: list[str] = []
    clock = SystemClock()
    await Uninstalling(client, clock, OPERATOR_NAMESPACE, told.append, dry_run=dry_run).run()
    return told


def deployment(command: str) -> Object:
    container = {"name": "c", "image": "registry.example/reprieve:1", "args": [command]}
    labels = {"app": command}
    return {
        "metadata": {"name": command, "namespace": OPERATOR_NAMESPACE, "labels": LABELS},
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


def test_the_chart_runs_it_before_it_removes_anything() -> None:
    template = (ROOT / "charts" / "reprieve" / "templates" / "uninstall.yaml").read_text()
    assert template.count("helm.sh/hook: pre-delete") == template.count("\nkind: ") == 6
    assert 'args: ["uninstall", "--operator-namespace"' in template
