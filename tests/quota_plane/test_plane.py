"""Flavors injected and taken out again, fewer pods than asked for, stopped queues, metrics."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import generate_latest

from reprieve.execution.writes.statuses import StatusChange, write_status
from reprieve.planes.common import status_writer
from reprieve.planes.quota.context import QuotaOptions
from tests.quota_plane.site import (
    CLUSTER_QUEUES,
    JOBS,
    LOCAL_QUEUES,
    NAMESPACE,
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
from tests.quota_plane.test_jobs import LOWER, base

SPOT: dict[str, Any] = {
    "nodeLabels": {"pool": "spot"},
    "tolerations": [{"key": "spot", "operator": "Exists", "effect": "NoSchedule"}],
}
LEAST = {"kueue.x-k8s.io/job-min-parallelism": "1"}


async def test_pods_are_told_their_flavor_and_jobs_forget_it_when_they_are_stopped(
    tmp_path: Path,
) -> None:
    objects = [
        flavor(**SPOT),
        cluster_queue("cq", 2, preemption=LOWER),
        local_queue("q", "cq"),
        priority_class("low", 100),
        priority_class("high", 10000),
    ]
    async with site(tmp_path, *objects, nodes=[node("spot-0", pool="spot")]) as cluster:
        await cluster.create(job("low", priority="low"))
        await cluster.until_admitted("low")
        template = (await cluster.job("low"))["spec"]["template"]
        assert template["spec"]["nodeSelector"] == {"pool": "spot"}
        assert template["spec"]["tolerations"] == SPOT["tolerations"]
        assert template["metadata"]["labels"]["kueue.x-k8s.io/podset"] == "main"
        await cluster.create(job("high", priority="high"))
        await cluster.until_admitted("high")

        async def restored() -> bool:
            template = (await cluster.job("low"))["spec"]["template"]
            return not template["spec"].keys() & {"nodeSelector", "tolerations"} and (
                "kueue.x-k8s.io/podset" not in template["metadata"]["labels"]
            )

        await cluster.until("the template is as it was", restored)


async def test_a_job_starts_with_fewer_pods_where_it_says_so(tmp_path: Path) -> None:
    async with site(tmp_path, *base(3)) as cluster:
        await cluster.create(job("elastic", pods=5, annotations=LEAST))
        await cluster.until_admitted("elastic")
        assert (await cluster.job("elastic"))["spec"]["parallelism"] == 3
        queue: Object = await cluster.client.get(CLUSTER_QUEUES, "", "cq", dict)
        await _stop_queue(cluster, queue, "HoldAndDrain")

        async def drained() -> bool:
            return await cluster.running() == set() == await cluster.admitted()

        await cluster.until("the queue is drained", drained)

        async def restored() -> bool:
            return bool((await cluster.job("elastic"))["spec"]["parallelism"] == 5)

        await cluster.until("the count is as it was", restored)
        said = await cluster.conditions("elastic")
        assert said["Evicted"] == ("True", "ClusterQueueStopped", "The ClusterQueue is stopped")
        queue = await cluster.client.get(CLUSTER_QUEUES, "", "cq", dict)
        await _stop_queue(cluster, queue, "None")
        await cluster.until_admitted("elastic")


async def _stop_queue(cluster: Site, queue: Object, policy: str) -> None:
    patch = {"spec": {"stopPolicy": policy}}
    await cluster.client.patch(CLUSTER_QUEUES, "", queue["metadata"]["name"], patch, dict)


async def test_metrics_have_kueues_names_and_vanish_with_their_queue(tmp_path: Path) -> None:
    options = QuotaOptions(queue_metrics=True)
    async with site(tmp_path, *base(4, preemption=LOWER), options=options) as cluster:
        await cluster.create(job("low-a", priority="low"), job("low-b", priority="low"))
        await cluster.until_admitted("low-a", "low-b")
        await cluster.create(job("high", priority="high", pods=4))
        await cluster.until_admitted("high")
        wanted = {
            'preempted_workloads_total{preempting_cluster_queue="cq",reason="InClusterQueue"': 2,
            'evicted_workloads_total{cluster_queue="cq",priority_class="low",reason="Preempted"': 2,
            'admitted_workloads_total{cluster_queue="cq",priority_class="high"': 1,
            'pending_workloads{cluster_queue="cq",replica_role="leader",status="inadmissible"': 2,
            'workload_eviction_latency_seconds_count{cluster_queue="cq",reason="Preempted"': 2,
            'cluster_queue_resource_usage{cluster_queue="cq",cohort="",flavor="default-flavor"': 4,
        }

        def series() -> dict[str, float]:
            text = generate_latest(cluster.metrics.registry).decode()
            lines = (line.rpartition(" ") for line in text.splitlines() if line[:1] != "#")
            return {name.removeprefix("kueue_"): float(value) for name, _, value in lines}

        async def shown() -> bool:
            found = series()
            return all(
                [value for name, value in found.items() if name.startswith(start)] == [count]
                for start, count in wanted.items()
            )

        await cluster.until("the metrics show it", shown)
        for name in ("high", "low-a", "low-b"):
            await cluster.client.delete(JOBS, NAMESPACE, name)

        async def gone() -> bool:
            return not await cluster.workloads()

        await cluster.until("all Workloads are gone", gone)
        await cluster.client.delete(CLUSTER_QUEUES, "", "cq")

        async def forgotten() -> bool:
            return not any('cluster_queue="cq"' in name for name in series())

        await cluster.until("its series are gone", forgotten)


async def test_a_queue_whose_status_the_server_does_not_answer_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = asyncio.Event()

    async def slowly(client: Any, change: StatusChange, wire: Any) -> Any:
        if (change.resource.plural, change.name) == ("clusterqueues", "slow"):
            await kept.wait()
        return await write_status(client, change, wire)

    monkeypatch.setattr(status_writer, "write_status", slowly)
    async with site(
        tmp_path, *base(8), cluster_queue("slow", 8), local_queue("slow", "slow")
    ) as cluster:

        async def shows(queue: str, admitted: int) -> bool:
            found: Object = await cluster.client.get(CLUSTER_QUEUES, "", queue, dict)
            return (found.get("status") or {}).get("admittedWorkloads") == admitted

        names: list[str] = []
        for number in (1, 2):
            names += (f"one-{number}", f"other-{number}")
            await cluster.create(job(names[-2]), job(names[-1], "slow"))
            await cluster.until_admitted(*names)
            await cluster.until("the others are shown", partial(shows, "cq", number))
        assert not await shows("slow", 2)
        kept.set()
        await cluster.until("what was wished for it last is shown", lambda: shows("slow", 2))


async def test_a_status_that_says_something_else_is_written_again(tmp_path: Path) -> None:
    async with site(tmp_path, *base(8)) as cluster:
        await cluster.create(job("one"))
        await cluster.until_admitted("one")

        async def shown() -> tuple[int, int]:
            queue: Object = await cluster.client.get(CLUSTER_QUEUES, "", "cq", dict)
            local: Object = await cluster.client.get(LOCAL_QUEUES, NAMESPACE, "q", dict)
            admitted = "admittedWorkloads"
            return queue["status"].get(admitted), local["status"].get(admitted)

        async def right() -> bool:
            return await shown() == (1, 1)

        await cluster.until("the statuses are right", right)
        wrong = {"admittedWorkloads": 7}
        # What is stored is read from the answers: the plane may have mended it by the next read.
        queue: Object = await cluster.client.patch_status(CLUSTER_QUEUES, "", "cq", wrong, dict)
        local: Object = await cluster.client.patch_status(LOCAL_QUEUES, NAMESPACE, "q", wrong, dict)
        assert [each["status"]["admittedWorkloads"] for each in (queue, local)] == [7, 7]
        await cluster.until("the statuses are right again", right)
