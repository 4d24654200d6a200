"""Annotations: what they opt in, how changes reach workloads that run, and bad values."""

from __future__ import annotations

from kubelocal.cluster import Stage, Write
from kubeworld.units.untrusted import TOLD
from tests.idle.site import (
    GPU_WORKLOADS,
    NAMESPACE,
    PREFIX,
    Object,
    Site,
    container,
    deployment,
    job,
)


async def test_a_changed_annotation_takes_effect_on_pods_that_run(site: Site) -> None:
    await site.create(job("training", container(gpu=4), grace_period="1h"))
    await site.run()
    idle = await site.until_phase("Job/training", "Idle")
    assert idle["spec"]["gracePeriod"] == "1h0m0s"

    await site.annotate(
        "jobs.batch", "training", grace_period="1s", policy="Always", ttl="30m", aggregation="Min"
    )

    over = await site.until_phase("Job/training", "Preempted")
    assert over["metadata"]["uid"] == idle["metadata"]["uid"]
    assert {**over["spec"], "workloadRef": None} == {
        "workloadRef": None,
        "gpuResources": {"amd.com/gpu": 4},
        "gracePeriod": "1s",
        "preemptionPolicy": "Always",
        "ttlAfterFinished": "30m0s",
        "aggregationPolicy": "Min",
    }
    assert over["status"]["preemptionReason"].endswith("(threshold: 1s)")


async def test_a_change_that_meets_a_newer_workload_takes_effect_all_the_same(site: Site) -> None:
    await site.create(job("training", container(gpu=4), grace_period="1h"))
    await site.run()
    name = (await site.until_phase("Job/training", "Idle"))["metadata"]["name"]
    met = 0

    async def somebody_is_faster(write: Write, stage: Stage) -> None:
        nonlocal met
        path = write.path.partition("?")[0]
        spec = path.endswith(f"/gpuworkloads/{name}") and b"gracePeriod" in write.body
        if stage is Stage.BEFORE and spec and met < 2:
            met += 1
            await site.patch(GPU_WORKLOADS, name, {"metadata": {"labels": {"seen": str(met)}}})
        await site.on_write(write, stage)

    site.cluster.on_write = somebody_is_faster
    await site.annotate("jobs.batch", "training", grace_period="2h")

    async def followed() -> bool:
        found = await site.workload("Job/training")
        return found is not None and found["spec"]["gracePeriod"] == "2h0m0s"

    await site.until(followed)
    assert met == 2


async def test_a_threshold_that_is_raised_makes_a_running_workload_idle(site: Site) -> None:
    await site.create(job("training", container(gpu=4), threshold="5"))
    site.busy("Job/training", 20)
    await site.run()
    await site.until_phase("Job/training", "Active")

    await site.annotate("jobs.batch", "training", threshold="25.5")

    idle = await site.until_phase("Job/training", "Idle")
    assert idle["spec"]["utilizationThreshold"] == 25.5
    assert idle["status"]["aggregatedUtilization"] == 20


async def test_opting_in_later_tracks_a_job_that_runs_and_opting_out_ends_it(site: Site) -> None:
    await site.create(job("training", container(gpu=4)))
    operator = await site.run()
    await site.until(lambda: operator.said("idle plane runs"))
    scrapes = site.embedded.machines.exporter.scrapes
    await site.until(lambda: site.embedded.machines.exporter.scrapes > scrapes + 3)
    assert await site.all(GPU_WORKLOADS) == []

    await site.annotate("jobs.batch", "training", grace_period="1h")
    await site.until_phase("Job/training", "Idle")

    await site.annotate("jobs.batch", "training", grace_period=None)
    await site.until(lambda: _gone(site))
    assert await site.get("jobs.batch", "training") is not None

    # The namespace opts in as well, and out.
    await site.patch(
        "namespaces", NAMESPACE, {"metadata": {"annotations": {f"{PREFIX}ttl": "1h"}}}, namespace=""
    )
    found = await site.until_phase("Job/training", "Idle")
    assert found["spec"]["ttlAfterFinished"] == "1h0m0s"
    await site.patch(
        "namespaces", NAMESPACE, {"metadata": {"annotations": {f"{PREFIX}ttl": None}}}, namespace=""
    )
    await site.until(lambda: _gone(site))


async def _gone(site: Site) -> bool:
    return await site.all(GPU_WORKLOADS) == []


async def test_a_field_edited_by_hand_stays_when_other_annotations_change(site: Site) -> None:
    await site.create(job("training", container(gpu=4), grace_period="1h", threshold="7"))
    await site.run()
    idle = await site.until_phase("Job/training", "Idle")
    name = idle["metadata"]["name"]
    await site.patch(GPU_WORKLOADS, name, {"spec": {"gracePeriod": "2h"}})

    await site.annotate("jobs.batch", "training", threshold="9", grace_period="3h")

    async def followed() -> dict[str, object] | None:
        found = await site.get(GPU_WORKLOADS, name)
        return found if found and found["spec"].get("utilizationThreshold") == 9 else None

    found = await site.until(followed)
    assert found is not None
    assert found["spec"]["gracePeriod"] == "2h"  # type: ignore[index]

    async def told() -> list[tuple[str, str]]:
        return [
            (each["involvedObject"]["kind"], each["message"])
            for each in await site.all("events")
            if each["reason"] == "AnnotationOverridden" and "is 3h" in each["message"]
        ]

    said = "annotation {}grace-period is 3h0m0s and is overridden by {}spec.gracePeriod, which was "
    said += "edited by hand; in force: 2h0m0s; remove that field to follow the annotation again"
    await site.until(told)
    assert sorted(await told()) == [
        ("GpuWorkload", said.format(PREFIX, "")),
        ("Job", said.format(PREFIX, f"GpuWorkload/{name} ")),
    ]


async def test_bad_values_are_named_and_the_namespaces_good_ones_are_in_force(site: Site) -> None:
    annotations = {f"{PREFIX}grace-period": "15m", f"{PREFIX}threshold": "12"}
    await site.patch(
        "namespaces", NAMESPACE, {"metadata": {"annotations": annotations}}, namespace=""
    )
    await site.create(
        job(
            "training",
            container(gpu=4),
            grace_period="10 minutes",
            threshold="5%",
            policy="always",
            aggregation="Median",
            ttl="1" * 5_000,
        )
    )
    operator = await site.run({"GPU_PREEMPTION_DEFAULT_TTL": "48h"})

    idle = await site.until_phase("Job/training", "Idle")

    assert {**idle["spec"], "workloadRef": None} == {
        "workloadRef": None,
        "gpuResources": {"amd.com/gpu": 4},
        "gracePeriod": "15m0s",
        "utilizationThreshold": 12,
    }
    expected = {
        "threshold": (
            "'5%'; accepted: a number of percent from 0 to 100, such as 5 or 10.5; in force: 12"
        ),
        "grace-period": (
            "'10 minutes'; accepted: a Go duration such as 90s or 5m, 0 or more; in force: 15m0s"
        ),
        "policy": "'always'; accepted: OnPressure or Always; in force: OnPressure",
        "aggregation": "'Median'; accepted: Min, Max or Avg; in force: Max",
        "ttl": (
            f"'{'1' * 36}...' (5000 characters); accepted: a Go duration such as 90s or 5m, "
            "0 or more; in force: 48h0m0s"
        ),
    }
    for suffix, text in expected.items():
        told = await site.until_event("Job/training", "InvalidAnnotation", f"{suffix} of")
        assert told == f"annotation {PREFIX}{suffix} of Job/training is {text}"
        assert len(told) <= TOLD
    # Said once, however often it is looked at.
    scrapes = site.embedded.machines.exporter.scrapes
    await site.until(lambda: site.embedded.machines.exporter.scrapes > scrapes + 3)
    assert len(await site.events("Job/training", "InvalidAnnotation")) == 5
    await site.until(lambda: len(operator.said("5%")) == 1)
    assert max(len(line) for line in operator.said("training")) < 1_000


async def test_enabled_false_is_tracked_and_said_to_be_no_opt_out(site: Site) -> None:
    await site.create(
        job("training", container(gpu=4), enabled="false"),
        job("misspelt", container(gpu=4), graceperiod="5m"),
    )
    await site.run()

    await site.until_phase("Job/training", "Idle")
    await site.until_phase("Job/misspelt", "Idle")
    told = await site.until_event("Job/training", "UnexpectedAnnotation")
    assert told.startswith(
        f"annotation {PREFIX}enabled of Job/training is 'false': the workload is"
    )
    assert "there is no value that opts out" in told
    told = await site.until_event("Job/misspelt", "UnexpectedAnnotation")
    assert told == (
        f"annotation {PREFIX}graceperiod of Job/misspelt is '5m': it sets nothing (but opts in); "
        "known endings: enabled, threshold, grace-period, policy, aggregation, ttl"
    )


async def test_a_gpu_workload_deleted_by_hand_comes_back(site: Site) -> None:
    await site.create(deployment("service", 2, 2, grace_period="1h"))
    await site.run()

    async def idle(of_both: dict[str, int], besides: str = "") -> Object | None:
        """Pods are found one after the other: what counts is what is known of both."""
        found = await site.workload("Deployment/service")
        if found is None or found["metadata"]["uid"] == besides:
            return None
        known = found["spec"]["gpuResources"] == of_both
        return found if known and found.get("status", {}).get("phase") == "Idle" else None

    first = await site.until(lambda: idle({"amd.com/gpu": 4}))
    assert first is not None
    await site.delete(GPU_WORKLOADS, first["metadata"]["name"])

    uid = first["metadata"]["uid"]
    found = await site.until(lambda: idle({"amd.com/gpu": 4}, besides=uid))
    assert found is not None
    assert found["spec"] == first["spec"]
