"""Metric endpoints that fail, and the ways to name one: silence is never idleness."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from kubeworld.units.durations import MILLISECOND, SECOND
from reprieve.scenarios.model import NodeSpec
from reprieve.scenarios.operator import OperatorProcesses
from tests.idle.exporters import FakeExporter
from tests.idle.site import NAMESPACE, Site, job, open_site, pod, with_limits
from tests.scraper.servers import serving
from tests.virtual_time import LoopClock

UNREACHABLE = ("False", "EndpointUnreachable")


async def _hangs(_: web.Request) -> web.StreamResponse:
    await asyncio.sleep(3600)
    return web.Response()


async def _html(_: web.Request) -> web.StreamResponse:
    return web.Response(text="<!DOCTYPE html>\n<p>Sign in</p>\n", content_type="text/html")


async def _cut_off(_: web.Request) -> web.StreamResponse:
    return web.Response(text='gpu_gfx_activity{gpu_id="0",namespace="team",pod="alo')


async def _fails(_: web.Request) -> web.StreamResponse:
    return web.Response(status=500, text="out of order")


async def _endless(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    piece = b'some_other_family{label="value"} 1\n' * 30_000
    while True:
        await response.write(piece)


@pytest.mark.parametrize(
    ("handler", "logged"),
    [
        (_hangs, "timeout"),
        (_html, "malformed"),
        (_cut_off, "malformed"),
        (_fails, "http-status"),
    ],
)
async def test_an_endpoint_that_gives_no_samples_makes_nobody_idle(
    site: Site, handler: object, logged: str
) -> None:
    await site.create(pod("alone", 4, policy="Always"))
    async with serving(handler) as url:  # type: ignore[arg-type]
        operator = await site.run({"GPU_PREEMPTION_METRICS_ENDPOINT": f"{url}/metrics"})
        await site.until(lambda: _has_condition(site, "Pod/alone", UNREACHABLE))

    assert await site.phase("Pod/alone") == "Active"
    await site.until(lambda: operator.said("WARNING", url, logged))
    assert await site.events("GpuWorkload/pod-alone", "WorkloadIdle") == []
    assert site.evictions() == []


def _federated(age_s: int) -> Any:
    """Return what forwards the last value of somebody, with its time on the line."""

    async def answer(_: web.Request) -> web.StreamResponse:
        at = round((LoopClock().wall() - age_s * SECOND) / MILLISECOND)
        of = f'gpu_id="0",namespace="{NAMESPACE}",pod="alone"'
        return web.Response(text=f"gpu_gfx_activity{{{of}}} 0 {at}\n")

    return answer


def _answered(age_s: int) -> Any:
    """Return what answers queries as at an earlier time, like a proxy that stores answers."""

    async def answer(_: web.Request) -> web.StreamResponse:
        at = (LoopClock().wall() - age_s * SECOND) / SECOND
        of = {"__name__": "gpu_gfx_activity", "namespace": NAMESPACE, "pod": "alone"}
        data = {"resultType": "vector", "result": [{"metric": of, "value": [at, "0"]}]}
        return web.json_response({"status": "success", "data": data})

    return answer


@pytest.mark.parametrize(
    ("intake", "source"),
    [(_federated, "{url}/federate"), (_answered, "prometheus+{url}?query=gpu_gfx_activity")],
)
@pytest.mark.parametrize(
    ("age_s", "literal", "phase"),
    [
        (30, "", "Idle"),
        (3_600, "", "Active"),
        (-3_600, "", "Active"),
        (3_600, "sampleTimesIgnored: true", "Idle"),
    ],
)
async def test_a_sample_of_another_time_by_its_own_clock_makes_nobody_idle(
    site: Site, intake: Any, source: str, age_s: int, literal: str, phase: str
) -> None:
    await site.create(pod("alone", 4, enabled="true"))
    config = f"gpuPreemption: {{literal: {{{literal}}}}}\n" if literal else ""
    async with serving(intake(age_s)) as url:
        variables = {"GPU_PREEMPTION_METRICS_ENDPOINT": source.format(url=url)}
        operator = await site.run(variables, config=config)
        await site.until_phase("Pod/alone", phase)
        await asyncio.sleep(120)
        assert await site.phase("Pod/alone") == phase
        old = operator.said("WARNING", "team/alone is dropped: Old", "time on the line")
        assert bool(old) is (phase == "Active")
        if old:
            await site.until(partial(_has_condition, site, "Pod/alone", ("False", "Stale")))


@pytest.mark.real_time
async def test_a_body_without_end_is_given_up_and_costs_no_memory(site: Site) -> None:
    await site.create(pod("alone", 4, policy="Always"))
    async with serving(_endless) as url:
        operator = await site.run({"GPU_PREEMPTION_METRICS_ENDPOINT": f"{url}/metrics"})
        await site.until(lambda: _has_condition(site, "Pod/alone", UNREACHABLE), 60)
        assert isinstance(operator.processes, OperatorProcesses)
        (pid,) = operator.processes.pids
        status = await asyncio.to_thread(Path(f"/proc/{pid}/status").read_text)

    (peak,) = (line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))
    assert int(peak) < 250 * 1024
    await site.until(
        lambda: (
            operator.said("WARNING", url, "too-large") or operator.said("WARNING", url, "timeout")
        )
    )
    assert await site.phase("Pod/alone") == "Active"
    assert site.evictions() == []


async def test_idle_time_starts_when_an_endpoint_that_was_down_answers(site: Site) -> None:
    await site.embedded.stage.exporter.down()
    await site.create(pod("alone", 4, grace_period="1h"))
    await site.run()
    await site.until(lambda: _has_condition(site, "Pod/alone", UNREACHABLE))
    before = await site.workload("Pod/alone")
    assert before is not None
    assert before["status"]["phase"] == "Active"
    assert "idleSince" not in before["status"]

    await site.embedded.stage.exporter.up()

    idle = await site.until_phase("Pod/alone", "Idle")
    assert idle["status"]["idleSince"] >= before["metadata"]["creationTimestamp"]
    await site.until(lambda: _has_condition(site, "Pod/alone", ("True", "Fresh")))


async def test_one_endpoint_that_fails_makes_only_its_own_pods_unknown(site: Site) -> None:
    await site.create(pod("known", 2, grace_period="1h"), pod("unknown", 2, grace_period="1h"))
    good, bad = FakeExporter(), FakeExporter(status=503)
    good.report("known", 1, gpus=2)
    bad.report("unknown", 1, gpus=2)
    async with serving(good.answer) as one, serving(bad.answer) as other:
        await site.run({"GPU_PREEMPTION_METRICS_ENDPOINT": f"{one}/metrics, {other}/metrics"})
        await site.until_phase("Pod/known", "Idle")
        await site.until(lambda: _has_condition(site, "Pod/unknown", UNREACHABLE))
        assert await site.phase("Pod/unknown") == "Active"
        assert (await site.condition("Pod/known"))[0] in ("", "True")
        bad.status = 200
        await site.until_phase("Pod/unknown", "Idle")


async def test_pods_without_samples_and_with_impossible_ones_are_told_apart(site: Site) -> None:
    await site.create(*(pod(name, 1, policy="Always") for name in ("silent", "absurd", "nan")))
    exporter = FakeExporter()
    exporter.report("absurd", 65535)
    exporter.report("nan", "NaN")
    async with serving(exporter.answer) as url:
        await site.run({"GPU_PREEMPTION_METRICS_ENDPOINT": url})
        for name, reason in (
            ("silent", "NoSamples"),
            ("absurd", "InvalidSample"),
            ("nan", "InvalidSample"),
        ):
            await site.until(partial(_has_condition, site, f"Pod/{name}", ("False", reason)))
            assert await site.phase(f"Pod/{name}") == "Active"
    assert site.evictions() == []


async def test_after_a_restart_idle_time_goes_on_only_with_fresh_samples(site: Site) -> None:
    await site.create(pod("alone", 1, policy="Always", grace_period="1h"))
    exporter = FakeExporter()
    exporter.report("alone", 0)
    async with serving(exporter.answer) as url:
        operator = await site.run({"GPU_PREEMPTION_METRICS_ENDPOINT": url})
        idle = await site.until_phase("Pod/alone", "Idle")
        await operator.stop()
        exporter.text = ""
        # As short only now: while the first process ran, it could have been over.
        await site.annotate("pods", "alone", grace_period="3s")
        await site.run({"GPU_PREEMPTION_METRICS_ENDPOINT": url})

        await site.until(lambda: _has_condition(site, "Pod/alone", ("False", "Stale")))
        asked = exporter.asked
        await site.until(lambda: exporter.asked > asked + 15)  # longer than the grace period
        silent = await site.workload("Pod/alone")
        assert silent is not None
        assert silent["status"]["phase"] == "Idle"
        assert silent["status"]["idleSince"] == idle["status"]["idleSince"]
        assert site.evictions() == []

        exporter.report("alone", 0)
        await site.until_phase("Pod/alone", "Preempted")


async def test_a_service_is_followed_to_its_ready_endpoints(site: Site) -> None:
    await site.create(pod("alone", 1, grace_period="1h"))
    exporter = FakeExporter()
    exporter.report("alone", 0)
    source = f"service://{NAMESPACE}/exporter:metrics/gpu/metrics"
    async with serving(exporter.answer) as url:
        operator = await site.run({"GPU_PREEMPTION_METRICS_ENDPOINT": source})
        await site.until(lambda: _has_condition(site, "Pod/alone", UNREACHABLE))
        await site.until(lambda: operator.said("no-address"))

        await site.create(
            {
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": {
                    "name": "exporter-x7k2p",
                    "namespace": NAMESPACE,
                    "labels": {"kubernetes.io/service-name": "exporter"},
                },
                "addressType": "IPv4",
                "endpoints": [
                    {"addresses": ["127.0.0.1"], "conditions": {"ready": True}},
                    {"addresses": ["127.0.0.77"], "conditions": {"ready": False}},
                ],
                "ports": [{"name": "metrics", "port": int(url.rpartition(":")[2])}],
            }
        )

        await site.until_phase("Pod/alone", "Idle")
        assert exporter.paths == {"/gpu/metrics"}
        await site.until(lambda: _has_condition(site, "Pod/alone", ("True", "Fresh")))


async def test_a_prometheus_server_is_asked_with_the_query(site: Site) -> None:
    await site.create(pod("alone", 1, grace_period="1h"), pod("busy", 1, grace_period="1h"))
    asked: set[str] = set()

    async def query(request: web.Request) -> web.StreamResponse:
        asked.add(f"{request.path}?{request.query['query']}")
        result = [
            {
                "metric": {"namespace": NAMESPACE, "pod": name, "gpu_id": "0"},
                "value": [LoopClock().wall() / SECOND, value],
            }
            for name, value in (("alone", "0.5"), ("busy", "70"))
        ]
        data = {"resultType": "vector", "result": result}
        return web.json_response({"status": "success", "data": data})

    async with serving(query) as url:
        source = f"prometheus+{url}?query=max by (namespace,pod,gpu_id) (gpu_gfx_activity)"
        await site.run({"GPU_PREEMPTION_METRICS_ENDPOINT": f"{source}&metric=gpu_gfx_activity"})

        idle = await site.until_phase("Pod/alone", "Idle")
        assert idle["status"]["aggregatedUtilization"] == 0.5
        await site.until_phase("Pod/busy", "Active")
    assert asked == {"/api/v1/query?max by (namespace,pod,gpu_id) (gpu_gfx_activity)"}


async def test_nvidia_and_intel_gpus_are_watched_when_switched_on(tmp_path: Path) -> None:
    names = ("nvidia.com/mig-1g.10gb", "nvidia.com/gpu", "gpu.intel.com/i915", "amd.com/gpu")
    team = f'namespace="{NAMESPACE}"'
    samples = (
        f'DCGM_FI_PROF_GR_ENGINE_ACTIVE{{gpu="0",UUID="a",GPU_I_ID="1",{team},pod="mig"}} 0.02',
        f'DCGM_FI_PROF_GR_ENGINE_ACTIVE{{gpu="0",UUID="a",GPU_I_ID="2",{team},pod="mig"}} 0.04',
        f'DCGM_FI_DEV_GPU_UTIL{{gpu="0",UUID="a",{team},pod="mig"}} 99',
        f'DCGM_FI_DEV_GPU_UTIL{{gpu="1",UUID="b",{team},pod="whole"}} 42',
        f'xpum_engine_ratio{{uuid="c",kube_{team},kube_pod="intel"}} 0.01',
        f'gpu_gfx_activity{{gpu_id="0",{team},pod="amd"}} 2',
    )
    exporter = FakeExporter("".join(f"{sample}\n" for sample in samples))
    limits = {"mig": (names[0], "2"), "whole": (names[1], "1"), "intel": (names[2], "1")}
    async with (
        open_site(tmp_path, [NodeSpec("mixed", dict.fromkeys(names, "2"))]) as site,
        serving(exporter.answer) as url,
    ):
        for name, (resource, count) in {**limits, "amd": (names[3], "1")}.items():
            made = pod(name, grace_period="1h")
            made["spec"]["containers"] = [with_limits({resource: count})]
            await site.create(made)
        endpoint = {"GPU_PREEMPTION_METRICS_ENDPOINT": url}
        plain = await site.run(endpoint)
        await site.until_phase("Pod/amd", "Idle")
        assert {name for name in limits if await site.workload(f"Pod/{name}")} == set()
        await plain.stop()

        await site.run(endpoint, config="gpuPreemption: {vendors: [amd, nvidia, intel]}\n")

        mig = await site.until_phase("Pod/mig", "Idle")
        assert mig["spec"]["gpuResources"] == {"nvidia.com/mig-1g.10gb": 2}
        assert mig["status"]["aggregatedUtilization"] == 3
        assert [s["gpuId"] for s in mig["status"]["trackedPods"][0]["gpuMetrics"]] == ["0", "0"]
        await site.until(lambda: _uses(site, "Pod/whole", 42))
        assert await site.phase("Pod/whole") == "Active"
        intel = await site.until_phase("Pod/intel", "Idle")
        assert intel["spec"]["gpuResources"] == {"gpu.intel.com/i915": 1}
        assert intel["status"]["aggregatedUtilization"] == 1

        # And they are preempted: a demand for MIG instances is served.
        await site.annotate("pods", "mig", grace_period="1s")
        demand = job("demand", with_limits({"nvidia.com/mig-1g.10gb": "2"}), enabled="true")
        await site.create(demand)
        over = await site.until_phase("Pod/mig", "Preempted")
        assert over["status"]["preemptionReason"].startswith(
            "Preempted to free 2 nvidia.com/mig-1g.10gb for pending workload job-demand-"
        )


async def _uses(site: Site, root: str, percent: float) -> bool:
    found = await site.workload(root)
    return found is not None and found["status"].get("aggregatedUtilization") == percent


async def _has_condition(site: Site, root: str, condition: tuple[str, str]) -> bool:
    return await site.condition(root) == condition
