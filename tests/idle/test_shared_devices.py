"""GPUs that are shared: nobody's own use is known, and the condition `SharedDevice` says so."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from reprieve.api.core import Container, ContainerResources, PodSpec
from reprieve.intake.pods import gpu_share
from reprieve.planes.idle.sharing import strategy_of
from reprieve.scenarios.model import NodeSpec
from reprieve.wording.shared_devices import SharingReason
from tests.idle.exporters import FakeExporter
from tests.idle.site import Object, Site, job, open_site, with_limits
from tests.scraper import pages
from tests.scraper.servers import serving

GPU, MIG = "nvidia.com/gpu", "nvidia.com/mig-1g.5gb"
CONFIG = "gpuPreemption: {vendors: [nvidia]}\n"


async def tracked(site: Site, name: str, limits: dict[str, str] | None = None) -> str:
    """Create a Job that asks for a GPU; return the name of its pod."""
    await site.create(job(name, with_limits(limits or {GPU: "1"}), enabled="true"))
    found: list[Object] = []

    async def runs() -> bool:
        found[:] = [
            pod
            for pod in await site.all("pods")
            if pod["metadata"]["name"].startswith(f"{name}-")
            and pod["status"]["phase"] == "Running"
        ]
        return bool(found)

    await site.until(runs)
    return str(found[0]["metadata"]["name"])


async def said(site: Site, root: str) -> str:
    """Return the message of the condition while it is True."""
    found = await site.workload(root)
    for condition in (found or {}).get("status", {}).get("conditions", ()):
        if condition["type"] == "SharedDevice" and condition["status"] == "True":
            return str(condition["message"])
    return ""


async def test_a_device_that_is_reported_for_several_workloads_is_told(tmp_path: Path) -> None:
    exporter = FakeExporter()
    node = NodeSpec("node-0", {GPU: "2"})
    async with open_site(tmp_path, [node]) as site, serving(exporter.answer) as url:
        pods = [await tracked(site, name) for name in ("one", "other")]
        exporter.text = pages.dcgm({pods[0]: "0", pods[1]: "1"}, "0.7")
        await site.run({"GPU_PREEMPTION_METRICS_ENDPOINT": url}, config=CONFIG)
        message = await site.until(lambda: said(site, "Job/one"))
        assert message == (
            "1 device of its pods is reported for 1 other pod, too: the utilization is that of "
            "all of them, and counts as idle only while none uses the device"
        )
        assert await site.condition("Job/other", "SharedDevice") == ("True", "SameDevice")
        assert await site.phase("Job/one") == "Active"

        exporter.text = pages.dcgm({pods[0]: "0"}, "0.7")
        await site.until(lambda: is_over(site, "Job/one"))


async def is_over(site: Site, root: str) -> bool:
    return await site.condition(root, "SharedDevice") == ("False", "NotShared")


@pytest.mark.parametrize(
    ("label", "value", "reason"),
    [
        ("nvidia.com/gpu.sharing-strategy", "time-slicing", "TimeSlicing"),
        ("nvidia.com/gpu.sharing-strategy", "mps", "MPS"),
        ("cloud.google.com/gke-gpu-sharing-strategy", "time-sharing", "TimeSlicing"),
    ],
)
async def test_who_has_no_samples_on_a_node_that_shares_its_gpus_is_told_why(
    tmp_path: Path, label: str, value: str, reason: str
) -> None:
    """The exporter labels one of the two, as dcgm-exporter does without virtual GPUs."""
    exporter = FakeExporter()
    async with open_site(tmp_path, [NodeSpec("node-0", {GPU: "2"})]) as site:
        await site.patch("nodes", "node-0", {"metadata": {"labels": {label: value}}}, namespace="")
        async with serving(exporter.answer) as url:
            seen = await tracked(site, "seen")
            await tracked(site, "unseen")
            exporter.text = pages.dcgm({seen: "0"}, "0")
            await site.run({"GPU_PREEMPTION_METRICS_ENDPOINT": url}, config=CONFIG)
            await site.until(lambda: said(site, "Job/unseen"))
            assert await site.condition("Job/unseen", "SharedDevice") == ("True", reason)
            await site.until_phase("Job/seen", "Idle")
            await asyncio.sleep(5)
            assert await site.phase("Job/unseen") == "Active"


@pytest.mark.parametrize(
    ("labels", "resource", "reason"),
    [
        ({"gpu.replicas": "4"}, GPU, SharingReason.TIME_SLICING),
        ({"gpu.replicas": "4"}, f"{GPU}.shared", SharingReason.TIME_SLICING),
        ({"gpu.replicas": "1"}, GPU, None),
        ({"gpu.replicas": "many"}, GPU, None),
        ({"gpu.replicas": "4", "gpu.sharing-strategy": "mps"}, GPU, SharingReason.MPS),
        ({"gpu.replicas": "4", "gpu.sharing-strategy": "none"}, GPU, None),
        ({"mig-1g.5gb.sharing-strategy": "time-slicing"}, MIG, SharingReason.TIME_SLICING),
        ({"mig-1g.5gb.replicas": "2"}, f"{MIG}.shared", SharingReason.TIME_SLICING),
        ({"mig-2g.10gb.sharing-strategy": "time-slicing"}, MIG, None),
        ({"gpu.sharing-strategy": "time-slicing"}, MIG, None),
        ({"gpu.sharing-strategy": "time-slicing"}, "amd.com/gpu", None),
    ],
)
def test_a_node_states_for_each_resource_whether_it_is_shared(
    labels: dict[str, str], resource: str, reason: SharingReason | None
) -> None:
    given = {f"nvidia.com/{name}": value for name, value in labels.items()}
    assert strategy_of(given, {resource: 1}) is reason


@pytest.mark.parametrize(
    ("asked", "share"),
    [
        ({f"{MIG}.shared": "1"}, f"{MIG}.shared"),
        ({f"{GPU}.shared": "1", "nvidia.com/gpumem": "1"}, f"{GPU}.shared"),
        ({MIG: "1", "example.com/thing.shared": "1"}, ""),
    ],
)
def test_a_shared_resource_is_a_share_whatever_it_is_a_share_of(
    asked: dict[str, str | int | float], share: str
) -> None:
    container = Container(resources=ContainerResources(limits=asked))
    assert gpu_share(PodSpec(containers=[container])) == share


async def test_a_share_is_told_unless_its_own_use_is_reported(tmp_path: Path) -> None:
    exporter = FakeExporter()
    share = {GPU: "1", "nvidia.com/gpumem": "3000"}
    node = NodeSpec("node-0", {GPU: "10", "nvidia.com/gpumem": "30000"})
    async with open_site(tmp_path, [node]) as site, serving(exporter.answer) as url:
        pod = await tracked(site, "share", share)
        exporter.text = pages.dcgm({pod: "0"}, "0")
        operator = await site.run({"GPU_PREEMPTION_METRICS_ENDPOINT": url}, config=CONFIG)
        message = await site.until(lambda: said(site, "Job/share"))
        assert message.startswith("Its pods request a share of a GPU (nvidia.com/gpumem)")
        found = await site.workload("Job/share")
        assert found is not None
        assert found["spec"]["gpuResources"] == {GPU: 1}
        await operator.stop()

        exporter.text = pages.hami(pod, "80")
        config = CONFIG.replace("nvidia", "hami")
        await site.run({"GPU_PREEMPTION_METRICS_ENDPOINT": url}, config=config)
        await site.until(lambda: is_over(site, "Job/share"))
        await site.until_phase("Job/share", "Active")


async def test_pods_of_one_workload_that_share_a_device_are_not_told(tmp_path: Path) -> None:
    exporter = FakeExporter()
    node = NodeSpec("node-0", {GPU: "2"})
    async with open_site(tmp_path, [node]) as site, serving(exporter.answer) as url:
        both = job("both", with_limits({GPU: "1"}), enabled="true")
        both["spec"] |= {"parallelism": 2, "completions": 2}
        await site.create(both)

        async def running() -> list[str]:
            pods = [p for p in await site.all("pods") if p["status"]["phase"] == "Running"]
            return [str(p["metadata"]["name"]) for p in pods] if len(pods) == 2 else []

        pods = await site.until(running)
        exporter.text = pages.dcgm({pods[0]: "0", pods[1]: "1"}, "0")
        await site.run({"GPU_PREEMPTION_METRICS_ENDPOINT": url}, config=CONFIG)
        await site.until_phase("Job/both", "Idle")
        assert await site.condition("Job/both", "SharedDevice") == ("", "")
