"""Starting before everything is there."""

from __future__ import annotations

import pytest

from reprieve.api.crds import all_crds
from tests.idle.site import Site, container, job

pytestmark = pytest.mark.real_time


CRDS = "customresourcedefinitions.apiextensions.k8s.io"


async def test_without_its_definitions_it_waits_says_so_and_goes_on_when_they_come(
    site: Site,
) -> None:
    definitions = all_crds()
    for crd in definitions:
        await site.delete(CRDS, crd["metadata"]["name"], namespace="")
    await site.create(job("training", container(gpu=4), policy="Always"))
    operator = await site.run()

    async def refused() -> str:
        code, text = await operator.readiness()
        return text if code == 503 and "gpuworkloads" in text and "preemptions" in text else ""

    text = await site.until(refused)

    assert "[-] idle: the caches are not synced" in text
    assert "gpuworkloads.kaiwo.silogen.ai: NotServed" in text
    await site.until(lambda: operator.said("WARNING", "gpuworkloads.kaiwo.silogen.ai"))
    assert await site.get("jobs.batch", "training") is not None
    for crd in definitions:
        await site.create(crd)
    await site.until_phase("Job/training", "Preempted", seconds=60)
    assert (await operator.readiness())[0] == 200


async def test_a_second_process_stands_by_and_takes_over(site: Site) -> None:
    first = await site.run()
    await site.until(lambda: first.said("idle plane runs"))
    second = await site.run()
    await site.until(lambda: second.said("telemetry on port"))
    await site.create(job("training", container(gpu=4), policy="Always"))
    await site.until_phase("Job/training", "Preempted")
    assert (await second.readiness())[0] == 200
    assert second.said("leading") == []

    await first.stop()

    await site.until(lambda: second.said("idle plane runs"))
    await site.create(job("another", container(gpu=4), policy="Always"))
    await site.until_phase("Job/another", "Preempted")
    assert sorted(line.rpartition("/")[2] for line in site.evictions()) == ["another", "training"]
