"""KaiwoConfig, variables, `--config`, and how a process that cannot start says so."""

from __future__ import annotations

import asyncio
import signal
from functools import partial

import pytest

from reprieve.scenarios.embedded import OPERATOR_NAMESPACE
from tests.idle.site import Object, Site, container, job

pytestmark = pytest.mark.real_time


CONFIGS = "kaiwoconfigs.config.kaiwo.silogen.ai"
LEASES = "leases.coordination.k8s.io"


async def test_kaiwo_config_is_followed_while_it_changes(site: Site) -> None:
    await site.create(
        {
            "apiVersion": "config.kaiwo.silogen.ai/v1alpha1",
            "kind": "KaiwoConfig",
            "metadata": {"name": "kaiwo"},
            "spec": {
                "ray": {"defaultRayImage": "registry.example/ray:1"},
                "gpuPreemption": {"defaultGracePeriod": "1h", "defaultThreshold": 0},
            },
        },
        job("training", container(gpu=4), enabled="true"),
    )
    await site.run({"GPU_PREEMPTION_DEFAULT_THRESHOLD": "50"})
    # Zero is a value, and nothing is below it.
    await site.until_phase("Job/training", "Active")
    assert await site.events("GpuWorkload/job-training", "WorkloadIdle") == []

    await _configure(site, {"defaultThreshold": None})
    await site.until_phase("Job/training", "Idle")
    await _configure(site, {"defaultPolicy": "Always"})
    await site.until(lambda: _policy(site, "Always"))
    assert await site.phase("Job/training") == "Idle"
    await _configure(site, {"defaultGracePeriod": "1s"})
    await site.until_phase("Job/training", "Preempted")

    config = await site.get(CONFIGS, "kaiwo", namespace="")
    assert config is not None
    assert config["spec"] == {
        "ray": {"defaultRayImage": "registry.example/ray:1"},
        "gpuPreemption": {"defaultGracePeriod": "1s", "defaultPolicy": "Always"},
    }


async def test_a_bad_field_of_kaiwo_config_costs_only_itself(site: Site) -> None:
    await site.create(job("training", container(gpu=4), enabled="true"))
    operator = await site.run({"GPU_PREEMPTION_DEFAULT_GRACE_PERIOD": "1h"})
    await site.until_phase("Job/training", "Idle")

    await _configure(site, {"defaultGracePeriod": "soon", "defaultPolicy": "Always"})

    told = await site.until_event("KaiwoConfig/kaiwo", "InvalidValue")
    assert told == (
        "KaiwoConfig/kaiwo spec.gpuPreemption.defaultGracePeriod is 'soon'; accepted: a Go "
        "duration such as 90s or 5m, 0 or more"
    )
    await site.until(lambda: operator.said("WARNING", "'soon'"))
    await site.until(lambda: _policy(site, "Always"))
    assert await site.phase("Job/training") == "Idle"  # the variable's hour is in force


async def test_an_empty_kaiwo_config_is_created_and_one_that_is_there_is_kept(site: Site) -> None:
    operator = await site.run()
    await site.until(lambda: operator.said("idle plane runs"))
    config = await site.get(CONFIGS, "kaiwo", namespace="")
    assert config is not None
    assert config.get("spec", {}) in ({}, {"gpuPreemption": {}})
    await _configure(site, {"defaultTTL": "1h"})
    kept = await site.get(CONFIGS, "kaiwo", namespace="")
    await operator.stop()
    again = await site.run()
    await site.until(lambda: again.said("idle plane runs"))
    assert await site.get(CONFIGS, "kaiwo", namespace="") == kept


async def test_malformed_variables_are_named_and_ignored(site: Site) -> None:
    await site.create(job("training", container(gpu=4), enabled="true"))
    site.busy("Job/training", 4.9)
    operator = await site.run(
        {
            "GPU_PREEMPTION_DEFAULT_THRESHOLD": "five",
            "GPU_PREEMPTION_DEFAULT_GRACE_PERIOD": "10 minutes",
            "GPU_PREEMPTION_DEFAULT_POLICY": "always",
            "GPU_PREEMPTION_DEFAULT_AGGREGATION": "Sum",
            "GPU_PREEMPTION_DEFAULT_TTL": "-",
        }
    )

    await site.until_phase("Job/training", "Idle")
    for name, value in (
        ("THRESHOLD", "'five'; accepted: a number of percent"),
        ("GRACE_PERIOD", "'10 minutes'; accepted: a Go duration"),
        ("POLICY", "'always'; accepted: OnPressure or Always"),
        ("AGGREGATION", "'Sum'; accepted: Min, Max or Avg"),
        ("TTL", "'-'; accepted: a Go duration"),
    ):
        line = f"WARNING reprieve: variable GPU_PREEMPTION_DEFAULT_{name} is {value}"
        assert len(await site.until(partial(operator.said, line))) == 1
    assert await _policy(site, "OnPressure")


@pytest.mark.parametrize(
    ("config", "parts"),
    [
        ("gpuPreemption: {defaultTresholt: 5}", ["gpuPreemption.defaultTresholt", "accepted"]),
        ("gpuPreemption: [enabled]", ["gpuPreemption", "accepted: a mapping"]),
        ("gpuPreemption: {enabled: true", ["not YAML"]),
        ("gpuPreemption: {vendors: [amd, matrox]}", ["vendors[1]", "'matrox'", "nvidia"]),
        ("gpuPreemption: {fit: Nodes}", ["gpuPreemption.fit", "'Nodes'", "Sum or Node"]),
        ("gpuPreemption: {literal: {h99: true}}", ["gpuPreemption.literal", "h99"]),
        ("gpuPreemptions: {}", ["unknown key 'gpuPreemptions'", "accepted: gpuPreemption"]),
    ],
)
async def test_a_config_file_that_cannot_be_used_ends_with_one_line(
    site: Site, config: str, parts: list[str]
) -> None:
    path = site.folder / "values.yaml"
    await asyncio.to_thread(path.write_text, config)
    code, lines = await _ended(await site.command({}, "--config", str(path)))
    assert code == 2
    assert len(lines) == 1, lines
    assert lines[0].startswith(f"Error: --config {path}: ")
    assert [part for part in parts if part not in lines[0]] == []


@pytest.mark.parametrize(
    ("environment", "arguments", "parts"),
    [
        ({}, ["--config", "/nowhere/values.yaml"], ["--config /nowhere/values.yaml", "cannot be"]),
        ({"GPU_PREEMPTION_OPERATOR_NAMESPACE": "nowhere"}, [], ["'nowhere'", "does not exist"]),
        (
            {"GPU_PREEMPTION_OPERATOR_NAMESPACE": None},
            ["--kubeconfig", "/nowhere/kubeconfig"],
            ["/nowhere/kubeconfig"],
        ),
        (
            {"GPU_PREEMPTION_ENABLED": None},
            ["--controllers", "idle"],
            ["--controllers idle", "GPU_PREEMPTION_ENABLED", "gpuPreemption.enabled"],
        ),
        (
            {"GPU_PREEMPTION_ENABLED": "True"},
            ["--controllers", "idle"],
            ["--controllers idle", "GPU_PREEMPTION_ENABLED", "gpuPreemption.enabled"],
        ),
        ({}, ["--controllers", "ilde"], ["'ilde'", "accepted: idle"]),
        (
            {"GPU_PREEMPTION_METRICS_ENDPOINT": None},
            [],
            ["GPU_PREEMPTION_METRICS_ENDPOINT", "http(s)://"],
        ),
        (
            {"GPU_PREEMPTION_METRICS_ENDPOINT": "ftp://exporter/metrics"},
            [],
            ["'ftp://exporter/metrics'", "accepted"],
        ),
        (
            {"GPU_PREEMPTION_POLLING_INTERVAL": "0s"},
            [],
            ["GPU_PREEMPTION_POLLING_INTERVAL", "'0s'", "above zero"],
        ),
        ({}, ["--lease-duration", "soon"], ["--lease-duration"]),
    ],
)
async def test_settings_that_cannot_be_used_end_with_one_line(
    site: Site, environment: dict[str, str | None], arguments: list[str], parts: list[str]
) -> None:
    code, lines = await _ended(await site.command(environment, *arguments))
    assert code == 2, lines
    assert len(lines) == 1, lines
    assert lines[0].startswith("Error: ")
    assert [part for part in parts if part not in lines[0]] == []
    assert site.writes == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_releases_the_leases_and_ends_in_time(
    site: Site, number: signal.Signals
) -> None:
    await site.create(job("training", container(gpu=4), policy="Always"))
    process = await site.command()
    await site.until_phase("Job/training", "Preempted")

    process.send_signal(number)

    async with asyncio.timeout(60):
        code, lines = await _ended(process)
    assert code == 0, lines
    assert not any("Traceback" in line for line in lines)
    holders = {
        lease["metadata"]["name"]: lease["spec"].get("holderIdentity") or ""
        for lease in await site.all(LEASES, OPERATOR_NAMESPACE)
    }
    assert holders == {"reprieve": "", "gpu-preemption-eval": ""}


async def _configure(site: Site, section: Object) -> None:
    await site.patch(CONFIGS, "kaiwo", {"spec": {"gpuPreemption": section}}, namespace="")


async def _policy(site: Site, policy: str) -> bool:
    found = await site.workload("Job/training")
    return found is not None and found.get("status", {}).get("policy") == policy


async def _ended(process: asyncio.subprocess.Process) -> tuple[int, list[str]]:
    output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode().splitlines()
