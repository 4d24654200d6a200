"""Helm installs, upgrades and removes the chart on the embedded cluster.

No Job runs there: the program of the hook that runs before a removal is run here.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubelocal.cluster import EmbeddedCluster
from kubelocal.server.writing.options import WriteOptions
from kubeworld.units.clock import SystemClock
from reprieve.api.crds import NAMES, load
from reprieve.kube.client import connect
from reprieve.kube.credentials import load_connection
from reprieve.kube.resource import Resource
from tests.chart.go_tools import HELM, tool
from tests.chart.helm import CHART, removal

JOBS = Resource("batch", "v1", "jobs", "Job")
GPU_WORKLOADS, KAIWO_CONFIGS, *_ = NAMES
ENABLED = {"enabled": True, "metricsEndpoint": "http://exporter.gpu-operator.svc:5000/metrics"}


class Release:
    """The release `reprieve` in namespace `ops`, and what the cluster holds."""

    def __init__(self, cluster: EmbeddedCluster, folder: Path) -> None:
        self._cluster, self._folder = cluster, folder
        self._kubeconfig = folder / "kubeconfig"
        cluster.write_kubeconfig(self._kubeconfig)

    async def helm(self, verb: str, values: dict[str, Any] | None = None) -> str:
        """Run Helm; return its complaint, empty when it succeeded."""
        arguments = [verb, "reprieve", "--namespace", "ops"]
        if values is not None:
            file = self._folder / "values.yaml"
            file.write_text(yaml.safe_dump({"gpuPreemption": ENABLED, **values}))
            arguments += [str(CHART), "--values", str(file)]
        if verb == "install":
            arguments.append("--create-namespace")
        home = {f"HELM_{name}_HOME": str(self._folder) for name in ("CACHE", "CONFIG", "DATA")}
        process = await asyncio.create_subprocess_exec(
            str(tool(HELM)),
            *arguments,
            env={**os.environ, **home, "KUBECONFIG": str(self._kubeconfig)},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        hook = asyncio.create_task(self._run_hook()) if verb == "uninstall" else None
        _, complaint = await process.communicate()
        if hook is not None:
            hook.cancel()
            await asyncio.wait([hook])
        return complaint.decode() if process.returncode else ""

    async def removal(self) -> list[dict[str, Any]]:
        """Return what `helm uninstall` would make, as the release has stored it."""
        process = await asyncio.create_subprocess_exec(
            *(str(tool(HELM)), "get", "hooks", "reprieve", "--namespace", "ops"),
            env={**os.environ, "KUBECONFIG": str(self._kubeconfig)},
            stdout=asyncio.subprocess.PIPE,
        )
        printed, _ = await process.communicate()
        return list(removal(printed.decode()).objects)

    async def _run_hook(self) -> None:
        """Run the program of the Job that Helm makes, and report how it ended."""
        jobs = self._cluster.registry.find("batch", "v1", "jobs")
        assert jobs is not None
        while True:
            found = (await self._cluster.api.list(jobs, "ops")).objects
            if found:
                break
            await asyncio.sleep(0.05)
        (container,) = found[0]["spec"]["template"]["spec"]["containers"]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "reprieve", *container["args"]),
            *("--kubeconfig", str(self._kubeconfig)),
        )
        how = "Failed" if await process.wait() else "Complete"
        client = connect(await load_connection(str(self._kubeconfig)), SystemClock())
        status = {"conditions": [{"type": how, "status": "True"}]}
        name = found[0]["metadata"]["name"]
        await client.patch_status(JOBS, "ops", name, status, dict)
        await client.close()

    async def objects(self, group: str, version: str, plural: str) -> dict[str, dict[str, Any]]:
        """Return all objects of a kind by name; none when the kind is not served."""
        kind = self._cluster.registry.find(group, version, plural)
        if kind is None:
            return {}
        listed = await self._cluster.api.list(kind, None)
        return {one["metadata"]["name"]: one for one in listed.objects}

    async def kaiwo_config(self) -> dict[str, Any] | None:
        found = await self.objects("config.kaiwo.silogen.ai", "v1alpha1", "kaiwoconfigs")
        return found["kaiwo"]["spec"] if "kaiwo" in found else None

    async def crds(self) -> dict[str, dict[str, Any]]:
        group = "apiextensions.k8s.io"
        return await self.objects(group, "v1", "customresourcedefinitions")

    async def create(self, obj: dict[str, Any]) -> None:
        kind = self._cluster.registry.by_kind(obj["apiVersion"], obj["kind"])
        assert kind is not None
        await self._cluster.api.create(kind, "", obj, WriteOptions())


@pytest.fixture
async def release(tmp_path: Path) -> AsyncIterator[Release]:
    async with EmbeddedCluster() as cluster:
        yield Release(cluster, tmp_path)


def kaiwo_config(threshold: int) -> dict[str, Any]:
    spec = {"gpuPreemption": {"defaultThreshold": threshold}}
    return {"kaiwoConfig": {"enabled": True, "spec": spec}}


async def test_a_release_brings_its_kinds_and_leaves_them_behind(release: Release) -> None:
    assert await release.helm("install", {"replicas": 2}) == ""
    deployments = await release.objects("apps", "v1", "deployments")
    assert deployments["reprieve"]["spec"]["replicas"] == 2
    assert set(await release.crds()) == set(NAMES)
    assert await release.helm("uninstall") == ""
    assert await release.objects("apps", "v1", "deployments") == {}
    assert set(await release.crds()) == set(NAMES)


async def test_an_upgrade_brings_our_definitions_up_to_date(release: Release) -> None:
    assert await release.helm("install", {}) == ""
    before = await release.crds()
    assert await release.helm("upgrade", {"replicas": 2}) == ""
    assert {name: crd["spec"] for name, crd in (await release.crds()).items()} == {
        name: crd["spec"] for name, crd in before.items()
    }


async def test_a_removal_ends_the_quota_plane_where_the_release_has_or_had_it(
    release: Release,
) -> None:
    """The Job has the rights that its program needs, and no others."""

    async def of_removal() -> tuple[list[str], bool]:
        made = await release.removal()
        (job,) = (each for each in made if each["kind"] == "Job")
        (container,) = job["spec"]["template"]["spec"]["containers"]
        return container["args"], any(each["kind"] == "ClusterRole" for each in made)

    words = ["uninstall", "--operator-namespace", "ops"]
    assert await release.helm("install", {}) == ""
    assert await of_removal() == ([*words, "--without-quota"], False)
    assert await release.helm("upgrade", {"controllers": ["idle", "quota"]}) == ""
    assert await of_removal() == (words, True)
    # The definitions stay, converted by a Service that this upgrade deletes.
    assert await release.helm("upgrade", {}) == ""
    assert await of_removal() == (words, True)
    assert await release.helm("uninstall") == ""
    definition = (await release.crds())["workloads.kueue.x-k8s.io"]
    assert definition["spec"]["conversion"] == {"strategy": "None"}


async def test_definitions_from_elsewhere_are_never_replaced(release: Release) -> None:
    foreign = load(GPU_WORKLOADS)
    (version,) = foreign["spec"]["versions"]
    version["additionalPrinterColumns"] = version["additionalPrinterColumns"][:5]
    await release.create(foreign)
    before = (await release.crds())[GPU_WORKLOADS]
    assert await release.helm("install", {}) == ""
    assert await release.helm("upgrade", {"replicas": 2}) == ""
    assert await release.helm("uninstall") == ""
    after = await release.crds()
    assert after[GPU_WORKLOADS]["spec"] == before["spec"]
    assert after[GPU_WORKLOADS]["metadata"] == before["metadata"]
    assert set(after) == set(NAMES)


async def test_the_first_installation_can_bring_a_kaiwo_config_and_upgrades_change_it(
    release: Release,
) -> None:
    assert await release.helm("install", kaiwo_config(0)) == ""
    assert await release.kaiwo_config() == {"gpuPreemption": {"defaultThreshold": 0}}
    for threshold in (7, 9):
        assert await release.helm("upgrade", kaiwo_config(threshold)) == ""
        assert await release.kaiwo_config() == {"gpuPreemption": {"defaultThreshold": threshold}}


async def test_with_the_kind_in_place_a_kaiwo_config_belongs_to_the_release(
    release: Release,
) -> None:
    await release.create(load(KAIWO_CONFIGS))
    assert await release.helm("install", kaiwo_config(3)) == ""
    assert await release.helm("upgrade", kaiwo_config(0)) == ""
    assert await release.kaiwo_config() == {"gpuPreemption": {"defaultThreshold": 0}}
    assert await release.helm("uninstall") == ""
    assert await release.kaiwo_config() is None


async def test_an_empty_kaiwo_config_made_by_the_operator_is_replaced(release: Release) -> None:
    assert await release.helm("install", {}) == ""
    empty = {"apiVersion": "config.kaiwo.silogen.ai/v1alpha1", "kind": "KaiwoConfig"}
    await release.create({**empty, "metadata": {"name": "kaiwo"}, "spec": {}})
    assert await release.helm("upgrade", kaiwo_config(3)) == ""
    assert await release.kaiwo_config() == {"gpuPreemption": {"defaultThreshold": 3}}
    assert await release.helm("upgrade", kaiwo_config(0)) == ""
    assert await release.kaiwo_config() == {"gpuPreemption": {"defaultThreshold": 0}}


async def test_a_kaiwo_config_of_somebody_else_is_not_taken_over(release: Release) -> None:
    await release.create(load(KAIWO_CONFIGS))
    foreign = {
        "apiVersion": "config.kaiwo.silogen.ai/v1alpha1",
        "kind": "KaiwoConfig",
        "metadata": {"name": "kaiwo"},
        "spec": {"ray": {"image": "x"}, "gpuPreemption": {"defaultThreshold": 1}},
    }
    await release.create(foreign)
    assert "cannot be imported" in await release.helm("install", kaiwo_config(3))
    assert await release.kaiwo_config() == foreign["spec"]
