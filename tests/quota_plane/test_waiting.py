"""Why a Workload waits is told in one event for each change, counted, and answered to who asks."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from kubeworld.units.durations import SECOND
from reprieve.answers.preemptions.decided_again import decided_again
from reprieve.engine.diagnosis.model import Change, Fix
from reprieve.engine.diagnosis.reasons import Reason
from reprieve.kube.resource import Resource
from reprieve.planes.quota.plane import QuotaPlane
from tests.quota_plane.site import (
    JOBS,
    NAMESPACE,
    WORKLOADS,
    Site,
    cluster_queue,
    flavor,
    job,
    local_queue,
    node,
    site,
)

EVENTS = Resource("events.k8s.io", "v1", "events", "Event", True)
LOWER: dict[str, Any] = {"withinClusterQueue": "LowerPriority"}


def objects(**spec: Any) -> list[Any]:
    return [flavor(), cluster_queue("cq", 4, preemption=LOWER, **spec), local_queue("q", "cq")]


async def told(cluster: Site, workload: str) -> list[str]:
    """Return the reasons that our events about a Workload named, the oldest first."""
    page = await cluster.client.list(EVENTS, dict, namespace=NAMESPACE)
    events = sorted(page.items, key=lambda each: each["eventTime"] or "")
    return [
        each["note"].partition(":")[0]
        for each in events
        if each["reason"] == "Waiting" and each["regarding"]["name"] == workload
    ]


async def name_of(cluster: Site, job_name: str) -> str:
    name: str = (await cluster.workloads())[job_name]["metadata"]["name"]
    return name


async def made(cluster: Site, job_name: str) -> str:
    """Wait for the Workload of a job; return its name."""

    async def there() -> bool:
        return job_name in await cluster.workloads()

    await cluster.until(f"the Workload of {job_name}", there)
    return await name_of(cluster, job_name)


def counted(cluster: Site) -> dict[str, float]:
    """Return how many Workloads the gauge says wait, by reason, zeros apart."""
    return {
        sample.labels["reason"]: sample.value
        for metric in cluster.metrics.registry.collect()
        if metric.name == "reprieve_waiting_units"
        for sample in metric.samples
        if sample.labels["plane"] == "quota" and sample.value
    }


async def reason_of(plane: QuotaPlane, name: str) -> Reason | None:
    found = await plane.waiting.diagnosis(NAMESPACE, name)
    return None if found is None else found.reason


async def test_each_reason_is_told_once_counted_and_answered(tmp_path: Path) -> None:
    async with site(tmp_path, *objects(), nodes=[node("n-0")]) as cluster:
        plane = cluster.plane
        assert plane is not None
        await cluster.create(job("first", pods=3))
        await cluster.until_admitted("first")
        await cluster.create(job("second", pods=2), job("large", pods=9))

        async def both() -> bool:
            return counted(cluster) == {"HeldByOthers": 1, "NeverFits": 1}

        await cluster.until("both are counted", both)
        second, large = [await name_of(cluster, each) for each in ("second", "large")]

        async def both_told() -> bool:
            return [await told(cluster, each) for each in (second, large)] == [
                ["HeldByOthers"],
                ["NeverFits"],
            ]

        await cluster.until("both are told", both_told)
        found = await plane.waiting.diagnosis(NAMESPACE, second)
        assert found is not None and found.reason is Reason.HELD_BY_OTHERS
        assert found.deficit == {("default-flavor", "cpu"): 1_000}
        assert [each.holder.name for each in found.blockers] == [await name_of(cluster, "first")]
        helped = await plane.waiting.diagnosis(NAMESPACE, second, fixes=True)
        assert helped is not None
        assert helped.fixes[0] == Fix(Change.FEWER_PODS, "spec.podSets[main].count", "2", "1")
        asked = await plane.waiting.diagnoses()
        assert {key: each.reason for key, each in asked.items()} == {
            f"{NAMESPACE}/{second}": Reason.HELD_BY_OTHERS,
            f"{NAMESPACE}/{large}": Reason.NEVER_FITS,
        }
        await cluster.change_queue("cq", {"stopPolicy": "Hold"})

        async def stopped() -> bool:
            return (
                counted(cluster) == {"Stopped": 2}
                and await told(cluster, second) == ["HeldByOthers", "Stopped"]
                and await reason_of(plane, second) is Reason.STOPPED
            )

        await cluster.until("the stop is told", stopped)
        await cluster.change_queue("cq", {"stopPolicy": "None"})
        await cluster.client.delete(JOBS, NAMESPACE, "first")
        await cluster.until_admitted("second")

        async def admitted() -> bool:
            return counted(cluster) == {"NeverFits": 1} and (await reason_of(plane, second) is None)

        await cluster.until("only the large one waits", admitted)


async def test_the_decision_log_has_a_line_for_each_reason_and_one_for_the_start(
    tmp_path: Path,
) -> None:
    async with site(tmp_path, *objects(), nodes=[node("n-0")]) as cluster:
        await cluster.create(job("first", pods=3))
        await cluster.until_admitted("first")
        await cluster.create(job("second", pods=2))
        second = await made(cluster, "second")
        uid = (await cluster.workloads())["second"]["metadata"]["uid"]

        async def reasons(*expected: str) -> None:
            async def logged() -> bool:
                return [each["reason"] for each in lines()] == list(expected)

            await cluster.until(f"the log says {expected}", logged)

        def lines() -> list[dict[str, Any]]:
            found = [json.loads(line) for line in cluster.logged]
            return [each for each in found if each["name"] == second and "input" not in each]

        await reasons("HeldByOthers")
        await cluster.change_queue("cq", {"stopPolicy": "Hold"})
        await reasons("HeldByOthers", "Stopped")
        await cluster.client.delete(JOBS, NAMESPACE, "first")
        await cluster.clock.sleep(10 * SECOND)
        await cluster.change_queue("cq", {"stopPolicy": "None"})
        await cluster.until_admitted("second")
        await cluster.clock.sleep(10 * SECOND)
        await reasons("HeldByOthers", "Stopped", "")
        assert [each["previous"] for each in lines()] == ["", "HeldByOthers", "Stopped"]
        about = {(e["plane"], e["kind"], e["namespace"], e["uid"]) for e in lines()}
        assert about == {("quota", "Workload", NAMESPACE, uid)}
        assert lines()[1]["sentence"] == (
            "Its queue is stopped: it is ClusterQueue cq; its stopPolicy is Hold"
        )
        samples = [each for line in cluster.logged if "input" in (each := json.loads(line))]
        assert [(each["name"], each["reason"]) for each in samples] == [(second, "HeldByOthers")]
        again = decided_again("quota", samples[0]["input"])
        assert "insufficient unused quota for cpu in flavor default-flavor, 1 more needed" in again


async def test_who_is_behind_the_head_is_told_so(tmp_path: Path) -> None:
    strict = objects(queueingStrategy="StrictFIFO")
    async with site(tmp_path, *strict, nodes=[node("n-0")]) as cluster:
        await cluster.create(job("first", pods=3))
        await cluster.until_admitted("first")
        await cluster.create(job("head", pods=2))
        head = await made(cluster, "head")
        # Of two that were created in one second the uid says which is first.
        await cluster.clock.sleep(2 * SECOND)
        await cluster.create(job("behind", pods=1))
        behind = await made(cluster, "behind")

        async def both() -> bool:
            return (
                counted(cluster) == {"HeldByOthers": 1, "BehindHead": 1}
                and await told(cluster, head) == ["HeldByOthers"]
                and await told(cluster, behind) == ["BehindHead"]
            )

        await cluster.until("both are told", both)
        assert cluster.plane is not None
        found = await cluster.plane.waiting.diagnosis(NAMESPACE, behind)
        assert found is not None and found.values == {"head": f"{NAMESPACE}/{head}"}


async def test_another_process_tells_nobody_what_was_told_before(tmp_path: Path) -> None:
    async with site(tmp_path, *objects(), nodes=[node("n-0")]) as cluster:
        await cluster.create(job("first", pods=3))
        await cluster.until_admitted("first")
        await cluster.create(job("second", pods=2))
        second = await made(cluster, "second")

        async def once() -> bool:
            return await told(cluster, second) == ["HeldByOthers"]

        await cluster.until("it is told", once)
        await cluster.stop()
        await cluster.start()

        async def known() -> bool:
            return counted(cluster) == {"HeldByOthers": 1}

        await cluster.until("it is counted again", known)
        await cluster.clock.sleep(20 * SECOND)
        assert await once()


async def test_a_process_that_decides_nothing_can_be_asked(tmp_path: Path) -> None:
    async with site(tmp_path, *objects(), nodes=[node("n-0")]) as cluster:
        await cluster.create(job("first", pods=3))
        await cluster.until_admitted("first")
        await cluster.create(job("second", pods=2), job("large", pods=9))
        second, large = await made(cluster, "second"), await made(cluster, "large")

        async def both() -> bool:
            return counted(cluster) == {"HeldByOthers": 1, "NeverFits": 1}

        await cluster.until("both are counted", both)
        assert cluster.plane is not None
        asked = QuotaPlane(cluster.plane.context, "elsewhere")
        following = asyncio.create_task(asked.follow())
        try:
            await asked.synced()
            asked.observe()
            said = await asked.waiting.diagnoses()
            assert {key: each.reason for key, each in said.items()} == {
                f"{NAMESPACE}/{second}": Reason.HELD_BY_OTHERS,
                f"{NAMESPACE}/{large}": Reason.NEVER_FITS,
            }
            found = await asked.waiting.diagnosis(NAMESPACE, second, fixes=True)
            assert found is not None
            assert found.deficit == {("default-flavor", "cpu"): 1_000}
            assert found.fixes[0] == Fix(Change.FEWER_PODS, "spec.podSets[main].count", "2", "1")
        finally:
            following.cancel()


async def test_each_of_one_shape_is_reported_with_the_names_of_its_own_pod_sets(
    tmp_path: Path,
) -> None:
    def workload(name: str, *sets: str) -> dict[str, Any]:
        container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "2"}}}
        template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
        pod_sets = [{"name": each, "count": 1, "template": template} for each in sets]
        return {"metadata": {"name": name}, "spec": {"queueName": "q", "podSets": pod_sets}}

    names = {"mpi": ("launcher", "worker"), "torch": ("master", "worker"), "set": ("driver", "gpu")}
    async with site(tmp_path, *objects()) as cluster:
        await cluster.create(job("first", pods=1))
        await cluster.until_admitted("first")
        for name, sets in names.items():
            body = workload(name, *sets)
            body["metadata"]["namespace"] = NAMESPACE
            await cluster.client.create(WORKLOADS, body, dict)
        lacks = "insufficient unused quota for cpu in flavor default-flavor, 1 more needed"

        async def reported() -> bool:
            found = {}
            for name in names:
                stored = await cluster.client.get(WORKLOADS, NAMESPACE, name, dict)
                conditions = (stored.get("status") or {}).get("conditions") or ()
                found[name] = [c["message"] for c in conditions if c["type"] == "QuotaReserved"]
            return found == {
                name: [f"couldn't assign flavors to pod set {sets[1]}: {lacks}"]
                for name, sets in names.items()
            }

        await cluster.until("each names its own pod set", reported)
