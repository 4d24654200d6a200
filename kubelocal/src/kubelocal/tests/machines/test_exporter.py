"""The GPU exporter, queried over HTTP."""

from __future__ import annotations

import math
import socket
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from kubelocal.machines.node.gpus import Root
from kubelocal.machines.node.utilization import InvalidScript, parse_script
from kubelocal.machines.objects import Object
from kubelocal.tests.machines.cluster import Cluster, gpu_node, job, pod, running, sim, workload
from kubeworld.units.durations import SECOND


async def fetch(url: str) -> str:
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        assert answer.status == 200
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        return await answer.text()


async def samples(cluster: Cluster, family: str = "gpu_gfx_activity", url: str = "") -> list[Any]:
    text = await fetch(url or cluster.exporter.url)
    families = {f.name: f for f in text_string_to_metric_families(text)}
    return families[family].samples if family in families else []


async def activity(cluster: Cluster) -> dict[str, list[float]]:
    """Return the values of the GPUs of each pod, in order of GPU."""
    found: dict[str, list[float]] = {}
    for sample in await samples(cluster):
        if sample.labels["pod"]:
            found.setdefault(sample.labels["pod"], []).append(sample.value)
    return found


async def test_each_gpu_of_a_node_is_a_sample_with_the_exporters_labels() -> None:
    async with running([gpu_node("n0", 3)]) as cluster:
        await cluster.create(pod("p", 2))
        await cluster.wait(1)
        found = await samples(cluster)
        assert [
            [s.labels[label] for label in ("gpu_id", "namespace", "pod", "container", "hostname")]
            for s in found
        ] == [
            ["0", "default", "p", "main", "n0"],
            ["1", "default", "p", "main", "n0"],
            ["2", "", "", "", "n0"],
        ]
        assert {"serial_number", "card_model", "gpu_partition_id", "gpu_uuid"} <= set(
            found[0].labels
        )
        assert len({s.labels["gpu_uuid"] for s in found}) == 3
        for family in ("gpu_umc_activity", "gpu_package_power", "gpu_total_vram", "gpu_used_vram"):
            assert len(await samples(cluster, family)) == 3


async def test_only_running_pods_have_gpus() -> None:
    async with running() as cluster:
        await cluster.create(
            pod("runs", 1),
            pod("starts", 1, annotations=sim(start_latency="60s")),
            pod("ended", 1, annotations=sim(run_time="1s"), restartPolicy="Never"),
            pod("waits", 64),
        )
        await cluster.wait(5)
        assert await activity(cluster) == {"runs": [0.0]}


async def test_one_address_for_all_nodes_and_one_for_each() -> None:
    async with running([gpu_node("a", 1), gpu_node("b", 2)]) as cluster:
        assert [s.labels["hostname"] for s in await samples(cluster)] == ["a", "b", "b"]
        one = await samples(cluster, url=cluster.exporter.node_url("b"))
        assert [s.labels["hostname"] for s in one] == ["b", "b"]
        async with (
            aiohttp.ClientSession() as session,
            session.get(cluster.exporter.node_url("c")) as answer,
        ):
            assert (answer.status, await answer.text()) == (404, "no node is named 'c'\n")


async def test_an_annotation_is_followed_over_time() -> None:
    async with running() as cluster:
        await cluster.create(pod("p", 1, annotations=sim(gpu_utilization="90 for 30s, 2.5")))
        await cluster.wait(1)
        assert await activity(cluster) == {"p": [90.0]}
        await cluster.wait(28)
        assert await activity(cluster) == {"p": [90.0]}
        await cluster.wait(3)
        assert await activity(cluster) == {"p": [2.5]}


@pytest.mark.parametrize("value", ["idle", "90 for", ""])
async def test_a_script_that_cannot_be_read_reports_zero(value: str) -> None:
    async with running() as cluster:
        await cluster.create(pod("p", 1, annotations=sim(gpu_utilization=value)))
        await cluster.wait(1)
        assert await activity(cluster) == {"p": [0.0]}


async def test_annotating_the_root_of_a_running_workload_takes_effect() -> None:
    async with running() as cluster:
        await cluster.create(job("train", 1), workload("Deployment", "notebook", 1))
        await cluster.wait(2)
        await cluster.annotate("jobs.batch", "train", gpu_utilization="55")
        await cluster.annotate("deployments.apps", "notebook", gpu_utilization="66")
        await cluster.wait(1)
        found = await activity(cluster)
        assert {name.split("-")[0]: values for name, values in found.items()} == {
            "train": [55.0],
            "notebook": [66.0],
        }


async def test_the_nearest_annotation_wins() -> None:
    async with running() as cluster:
        near = {"annotations": sim(gpu_utilization="10")}
        far = sim(gpu_utilization="20")
        await cluster.create(job("train", 1, annotations=far, pod_spec=near))
        await cluster.wait(1)
        assert list((await activity(cluster)).values()) == [[10.0]]


async def test_an_override_wins_over_annotations_for_present_and_later_pods() -> None:
    async with running() as cluster:
        busy = {"annotations": sim(gpu_utilization="90")}
        cluster.exporter.set_utilization(Root("default", "Job", "train"), 3)
        await cluster.create(job("train", 1, pod_spec=busy), job("other", 1, pod_spec=busy))
        await cluster.wait(1)
        found = await activity(cluster)
        assert {name[:5]: values for name, values in found.items()} == {
            "train": [3.0],
            "other": [90.0],
        }


async def test_an_override_may_mean_one_gpu_or_one_pod_of_many() -> None:
    async with running() as cluster:
        root = Root("default", "Job", "train")
        await cluster.create(job("train", 2, parallelism=2, completions=2))
        await cluster.wait(1)
        cluster.exporter.set_utilization(root, 10)
        cluster.exporter.set_utilization(root, 20, pod_index=1)
        cluster.exporter.set_utilization(root, 30, pod_index=1, gpu=1)
        found = await activity(cluster)
        assert [found[name] for name in sorted(found)] == [[10.0, 10.0], [20.0, 30.0]]
        cluster.exporter.set_utilization(root, 40)
        assert list((await activity(cluster)).values()) == [[40.0, 40.0]] * 2


async def test_an_override_may_select_pods_by_a_function() -> None:
    async with running() as cluster:
        await cluster.create(pod("a", 1), pod("b", 1))
        await cluster.wait(1)

        def is_b(found: Object) -> bool:
            return bool(found["metadata"]["name"] == "b")

        cluster.exporter.set_utilization(is_b, math.nan)
        found = await activity(cluster)
        assert found["a"] == [0.0]
        assert math.isnan(found["b"][0])


async def test_a_stopped_exporter_refuses_and_comes_back_on_its_port() -> None:
    async with running() as cluster:
        url = cluster.exporter.url
        await fetch(url)
        await cluster.exporter.stop()
        with pytest.raises(aiohttp.ClientConnectorError):
            await fetch(url)
        await cluster.exporter.start()
        assert cluster.exporter.url == url
        assert "gpu_gfx_activity" in await fetch(url)


async def test_nobody_else_is_given_the_port_of_a_stopped_exporter() -> None:
    async with running() as cluster:
        await cluster.exporter.stop()
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", cluster.exporter.port))
        await cluster.exporter.start()
        assert "gpu_gfx_activity" in await fetch(cluster.exporter.url)


async def test_freed_gpus_are_given_to_the_next_pod() -> None:
    async with running([gpu_node("n0", 2)]) as cluster:
        await cluster.create(pod("a", 1), pod("b", 1))
        await cluster.wait(1)
        await cluster.delete("pods", "a")
        await cluster.wait(3)
        await cluster.create(pod("c", 1))
        await cluster.wait(1)
        by_gpu = {s.labels["gpu_id"]: s.labels["pod"] for s in await samples(cluster)}
        assert by_gpu == {"0": "c", "1": "b"}


async def test_several_resource_names_are_different_devices() -> None:
    node = gpu_node("n0", 1, allocatable={"amd.com/gpu-0": 2})
    async with running([node]) as cluster:
        await cluster.create(pod("part", 0, requests={"amd.com/gpu-0": "1"}), pod("whole", 1))
        await cluster.wait(1)
        by_gpu = {s.labels["gpu_id"]: s.labels["pod"] for s in await samples(cluster)}
        assert by_gpu == {"0": "whole", "1": "part", "2": ""}


@pytest.mark.parametrize(
    ("resource", "family", "scale", "pod_label"),
    [
        ("nvidia.com/gpu", "DCGM_FI_DEV_GPU_UTIL", 1, "pod"),
        ("nvidia.com/gpu", "DCGM_FI_PROF_GR_ENGINE_ACTIVE", 100, "pod"),
        ("gpu.intel.com/i915", "xpum_engine_ratio", 100, "kube_pod"),
    ],
)
async def test_other_vendors_have_their_own_families(
    resource: str, family: str, scale: int, pod_label: str
) -> None:
    node = gpu_node("n0", 0, allocatable={resource: 2})
    async with running([node]) as cluster:
        await cluster.create(
            pod("p", 0, requests={resource: "1"}, annotations=sim(gpu_utilization="50"))
        )
        await cluster.wait(1)
        found = await samples(cluster, family)
        assert [(s.labels.get(pod_label), s.value * scale) for s in found] == [("p", 50), (None, 0)]
        assert "gpu_gfx_activity" not in await fetch(cluster.exporter.url)


def test_a_script_is_a_row_of_steps() -> None:
    script = parse_script("90 for 30s, 5 for 1m, 0")
    ages = (0, 29, 30, 89, 90, 10_000)
    assert [script.at(age * SECOND) for age in ages] == [90, 90, 5, 5, 0, 0]
    assert parse_script("42").at(0) == 42
    assert parse_script("7 for 1s").at(5 * SECOND) == 7


@pytest.mark.parametrize(
    "text", ["", "x", "1 for", "1, 2", "1 for 5", "1 for -5s, 2", "90 for 1s,"]
)
def test_what_is_no_script_is_refused_with_what_is_accepted(text: str) -> None:
    with pytest.raises(InvalidScript, match="accepted: a number, or steps such as"):
        parse_script(text)
