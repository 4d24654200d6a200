"""Options beyond the reference, on a running plane: each changes who is preempted, or when."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kubeworld.units.instants import Nanos, format_instant, parse_instant
from reprieve.engine.quota.model import Settings
from reprieve.kube.resource import EVENTS, GPU_WORKLOADS, NODES, Resource
from reprieve.planes.quota.context import QuotaOptions
from reprieve.scenarios.embedded import OPERATOR_NAMESPACE
from reprieve.scenarios.operator import OperatorProcesses
from tests.quota_plane.site import (
    JOBS,
    NAMESPACE,
    WORKLOADS,
    Object,
    Site,
    cluster_queue,
    flavor,
    job,
    local_queue,
    node,
    priority_class,
    site,
)
from tests.quota_plane.test_jobs import LOWER

PREEMPT = "reprieve.dev/preempt-min-runtime"
CLASSES = Resource(
    "kueue.x-k8s.io", "v1beta2", "workloadpriorityclasses", "WorkloadPriorityClass", False
)


def annotated(obj: Object, **annotations: str) -> Object:
    names = {name.replace("_", "-"): text for name, text in annotations.items()}
    found = {f"reprieve.dev/{name}": text for name, text in names.items()}
    return {**obj, "metadata": {**obj["metadata"], "annotations": found}}


def base(
    cpu: int = 4,
    queue: dict[str, str] | None = None,
    classes: dict[str, dict[str, str]] | None = None,
) -> list[Any]:
    """Return one queue that preempts within itself, and three classes, with annotations."""
    return [
        flavor(),
        annotated(cluster_queue("cq", cpu, preemption=LOWER), **(queue or {})),
        local_queue("q", "cq"),
        *(
            annotated(priority_class(name, value), **(classes or {}).get(name, {}))
            for name, value in (("low", 100), ("other", 100), ("high", 10_000))
        ),
    ]


async def notes(cluster: Site, reason: str) -> list[tuple[str, str, str]]:
    """Return kind and name of the object, and the note, of events with this reason."""
    page = await cluster.client.list(EVENTS, dict)
    return sorted(
        (each["involvedObject"]["kind"], each["involvedObject"]["name"], each["message"])
        for each in page.items
        if each["reason"] == reason
    )


async def test_just_started_work_is_spared_and_a_bad_annotation_is_named(tmp_path: Path) -> None:
    classes = {"low": {"preempt_min_runtime": "1h"}, "high": {"reclaim_min_runtime": "soon"}}
    async with site(tmp_path, *base(classes=classes)) as cluster:
        await cluster.create(job("plain", priority="other"))
        await cluster.until_admitted("plain")
        # The reference takes the one that was admitted last.
        await cluster.create(job("young", priority="low"))
        await cluster.until_admitted("plain", "young")
        await cluster.create(job("high", priority="high"))
        await cluster.until_admitted("young", "high")
        await cluster.create(job("second", priority="high"))

        async def told() -> bool:
            said = (await cluster.conditions("second")).get("QuotaReserved", ("", "", ""))
            return "1 workload(s) within their minimum runtime, the first until 20" in said[2]

        await cluster.until("the second is told who is spared", told)
        problem = (
            "annotation reprieve.dev/reclaim-min-runtime is 'soon' and protects no work; "
            "accepted: durations from 0s to 168h0m0s, such as 90s, 5m or 1h"
        )
        named = [("WorkloadPriorityClass", "high", problem)]

        async def warned() -> bool:
            return await notes(cluster, "InvalidAnnotation") == named

        await cluster.until("the class is named", warned)
        # Without the annotation nobody is spared any more.
        patch = {"metadata": {"annotations": {PREEMPT: None}}}
        await cluster.client.patch(CLASSES, "", "low", patch, dict)
        await cluster.until_admitted("high", "second")


async def test_who_waits_for_a_minimum_runtime_is_tried_again_when_it_ends(tmp_path: Path) -> None:
    async with site(tmp_path, *base(2, {"preempt_min_runtime": "3s"})) as cluster:
        await cluster.create(job("low", priority="low"))
        await cluster.until_admitted("low")
        reserved = await since(cluster, "low", "QuotaReserved")
        await cluster.create(job("high", priority="high"))
        await cluster.until("high runs", lambda: _runs(cluster, "high"))
        assert await since(cluster, "low", "Evicted") - reserved >= 3_000_000_000


def nested() -> list[Any]:
    """Return a queue whose victims are admitted again before it, for ever, in the reference."""
    rules = {
        "withinClusterQueue": "LowerPriority",
        "reclaimWithinCohort": "LowerPriority",
        "borrowWithinCohort": {"policy": "LowerPriority"},
    }

    def cohort(name: str, cpu: int, **spec: Any) -> Object:
        (group,) = cluster_queue(name, cpu)["spec"]["resourceGroups"]
        body = {"resourceGroups": [group], **spec}
        kind = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Cohort"}
        return {**kind, "metadata": {"name": name}, "spec": body}

    return [
        flavor(),
        cohort("all", 1),
        cohort("inner", 2, parentName="all"),
        *(
            cluster_queue(name, 0, "inner", preemption=rules if name == "a" else {})
            for name in "abc"
        ),
        *(local_queue(name, name) for name in "abc"),
        priority_class("high", 10_000),
    ]


@pytest.mark.slow
async def test_a_pair_that_takes_turns_is_held_and_named_also_after_a_restart(
    tmp_path: Path,
) -> None:
    options = QuotaOptions(loop_limit=2)
    async with site(tmp_path, *nested(), options=options) as cluster:
        await cluster.create(job("b", "b", pods=1), job("c", "c", pods=1))
        await cluster.until_admitted("b", "c")
        await cluster.create(job("a", "a", priority="high", pods=3))
        keys = {
            name: f"{NAMESPACE}/{each['metadata']['name']}"
            for name, each in (await _all_workloads(cluster, 3)).items()
        }
        pairs = sorted(tuple(sorted((keys["a"], keys[other]))) for other in "bc")

        def shown() -> list[tuple[str, ...]]:
            (family,) = cluster.metrics.held_pairs.collect()
            return sorted(
                (s.labels["first"], s.labels["second"]) for s in family.samples if s.value
            )

        async def held() -> bool:
            said = (await cluster.conditions("a")).get("QuotaReserved", ("", "", ""))
            return "workload(s) that it displaced in turn, the first until 20" in said[2]

        async def evictions() -> list[int]:
            found = await cluster.workloads()
            stats = (found[name]["status"]["schedulingStats"]["evictions"] for name in "bc")
            return [each["count"] for (each,) in stats]

        await cluster.until("a is told", held)
        await cluster.until_admitted("b", "c")
        assert shown() == pairs
        assert await evictions() == [2, 2]
        text = "{} and {} preempted each other 2 and 2 times within 1h0m0s"
        expected = {(key.partition("/")[2], text.format(*pair)) for pair in pairs for key in pair}

        async def told() -> bool:
            found = await notes(cluster, "PreemptionPairHeld")
            return {(name, note.partition(":")[0]) for _, name, note in found} == expected

        await cluster.until("both are named to each other", told)
        await cluster.stop()
        await cluster.start(options)

        async def again() -> bool:
            return shown() == pairs

        await cluster.until("the pairs are named again", again)
        assert await held()
        assert await evictions() == [2, 2]
        # With a window that is over, the same records hold nobody.
        await cluster.stop()
        await cluster.start(QuotaOptions(loop_limit=2, loop_window=1))

        async def third() -> bool:
            return min(await evictions()) >= 3

        await cluster.until("it goes on", third)


def gpu_workload(job: Object, phase: str, measured: str) -> Object:
    """Return what the idle plane keeps about a Job."""
    metadata = job["metadata"]
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": metadata["name"]}
    return {
        "apiVersion": "kaiwo.silogen.ai/v1alpha1",
        "kind": "GpuWorkload",
        "metadata": {"name": f"job-{metadata['name']}", "namespace": NAMESPACE},
        "spec": {
            "workloadRef": {**reference, "uid": metadata["uid"]},
            "gpuResources": {"amd.com/gpu": 1},
        },
        "status": {"phase": phase, "lastMetricsUpdate": measured},
    }


@pytest.mark.slow
async def test_of_equal_candidates_the_idle_one_makes_way(tmp_path: Path) -> None:
    options = QuotaOptions(settings=Settings(idle_first=True))
    async with site(tmp_path, *base(), options=options) as cluster:
        plane = cluster.plane
        assert plane is not None
        await cluster.create(job("one", priority="low"), job("two", priority="low"))
        workloads = await _all_workloads(cluster, 2)
        await cluster.until_admitted("one", "two")

        async def ready() -> bool:
            said = [(await cluster.conditions(name)).get("PodsReady") for name in workloads]
            return all(each is not None and each[0] == "True" for each in said)

        await cluster.until("their pods are ready", ready)
        # Nothing but their uids tells them apart.
        for each in (await cluster.workloads()).values():
            conditions = each["status"]["conditions"]
            for condition in conditions:
                if condition["type"] == "QuotaReserved":
                    condition["lastTransitionTime"] = "2026-01-01T00:00:00Z"
            name, status = each["metadata"]["name"], {"conditions": conditions}
            await cluster.client.patch_status(WORKLOADS, NAMESPACE, name, status, dict)
        busy, idle = sorted(workloads, key=lambda name: workloads[name]["metadata"]["uid"])
        now, stale = Nanos(cluster.clock.wall()), "2026-01-01T00:00:00Z"
        for name, measured in ((busy, stale), (idle, format_instant(now))):
            obj = gpu_workload(await cluster.job(name), "Idle", measured)
            await cluster.client.create(GPU_WORKLOADS, obj, dict)
            await cluster.client.patch_status(
                GPU_WORKLOADS, NAMESPACE, f"job-{name}", obj["status"], dict
            )

        async def known() -> list[str]:
            holders = plane.state.holdings.holders.values()
            return [holder.workload.name for holder in holders if holder.idle]

        await cluster.until("the idle one is known", known)
        await cluster.create(job("high", priority="high"))
        await cluster.until_admitted(busy, "high")
        assert await known() == []


CORDON = {"spec": {"unschedulable": True}}
TOO_LARGE = "Not preempted: 1 of 1 pod(s) would still fit on no node"


async def would_not_fit(cluster: Site, name: str) -> bool:
    said = (await cluster.conditions(name)).get("QuotaReserved", ("", "", ""))
    return said[2].endswith(TOO_LARGE)


async def test_nobody_is_preempted_for_a_pod_that_no_node_would_take(tmp_path: Path) -> None:
    nodes = [node("large", 8), node("small", 3)]
    options = QuotaOptions(prove_nodes=True)
    async with site(tmp_path, *base(), nodes=nodes, options=options) as cluster:
        await cluster.client.patch(NODES, "", "large", CORDON, dict)
        await cluster.create(job("low", priority="low", pods=1, cpu="2"))
        await cluster.until_admitted("low")
        await cluster.create(job("high", priority="high", pods=1, cpu="4"))
        await cluster.until("high is told", lambda: would_not_fit(cluster, "high"))
        assert await cluster.admitted() == {"low"} == await cluster.running()
        counted = "reprieve_quota_unproven_preemptions_total"
        assert cluster.metrics.registry.get_sample_value(counted, {"cluster_queue": "cq"})
        # Nothing else happens than that a node takes pods again.
        await cluster.client.patch(NODES, "", "large", {"spec": {"unschedulable": None}}, dict)
        await cluster.until_admitted("high")
        # What is proven for one is not asked of what needs no preemption.
        await cluster.client.patch(NODES, "", "large", CORDON, dict)
        await cluster.client.delete(JOBS, NAMESPACE, "high")
        await cluster.until_admitted("low")


@pytest.mark.slow
async def test_without_the_option_quota_is_preempted_in_vain(tmp_path: Path) -> None:
    async with site(tmp_path, *base(), nodes=[node("small", 3)]) as cluster:
        await cluster.create(job("low", priority="low", pods=1, cpu="2"))
        await cluster.until_admitted("low")
        await cluster.create(job("high", priority="high", pods=1, cpu="4"))

        async def taken() -> bool:
            return await cluster.admitted() == {"high"} and await cluster.running() == set()

        await cluster.until("high has the quota and no node", taken)


@pytest.mark.slow
@pytest.mark.real_time
async def test_the_proof_reads_the_nodes_of_the_scheduling_plane_in_its_process(
    tmp_path: Path,
) -> None:
    config = tmp_path / "values.yaml"
    config.write_text("quota: {proveNodes: true}\n")
    arguments = ("--controllers", "scheduling,quota", "--metrics-port", "0")
    nodes = [node("large", 8), node("small", 3)]
    async with site(tmp_path, *base(), nodes=nodes, start=False) as cluster:
        await cluster.client.patch(NODES, "", "large", CORDON, dict)
        operator = OperatorProcesses(
            cluster.embedded.operator_kubeconfig,
            {"GPU_PREEMPTION_OPERATOR_NAMESPACE": OPERATOR_NAMESPACE},
            arguments=(*arguments, "--config", str(config)),
        )
        await operator.start()
        try:
            await cluster.create(job("low", priority="low", pods=1, cpu="2"))
            await cluster.until_admitted("low")
            await cluster.create(job("high", priority="high", pods=1, cpu="4"))
            await cluster.until("high is told", lambda: would_not_fit(cluster, "high"))
            assert await cluster.running() == {"low"}
            await cluster.client.patch(NODES, "", "large", {"spec": {"unschedulable": None}}, dict)
            await cluster.until_admitted("high")
        finally:
            await operator.stop()


async def _all_workloads(cluster: Site, count: int) -> dict[str, Object]:
    async def there() -> bool:
        return len(await cluster.workloads()) == count

    await cluster.until("all Workloads are there", there)
    return await cluster.workloads()


async def since(cluster: Site, name: str, kind: str) -> int:
    workload = (await cluster.workloads())[name]
    (at,) = (c["lastTransitionTime"] for c in workload["status"]["conditions"] if c["type"] == kind)
    return parse_instant(at)


async def _runs(cluster: Site, name: str) -> bool:
    return name in await cluster.running()
