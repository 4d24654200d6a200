"""`preemptionDelay` in the quota plane: by its section, ClusterQueue and class, on the cluster.

The queue has quota for the two pods of `old`, which `new` preempts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kubeworld.units.durations import MINUTE, SECOND
from kubeworld.units.instants import Nanos, parse_instant
from reprieve.engine.diagnosis.causes import Cause
from reprieve.kube.resource import Resource
from reprieve.planes.quota.context import QuotaOptions
from tests.quota_plane.site import CLUSTER_QUEUES, NAMESPACE, Site, job, node, site
from tests.quota_plane.test_jobs import LOWER, base, end

CLASSES = Resource(
    "kueue.x-k8s.io", "v1beta2", "workloadpriorityclasses", "WorkloadPriorityClass", False
)

DELAY = "reprieve.dev/preemption-delay"
OPTIONS = QuotaOptions(delay=MINUTE)


async def until_queued(cluster: Site, name: str = "new") -> Nanos:
    """Create the preemptor; return when its Workload was made."""
    await cluster.create(job(name, priority="high"))

    async def is_there() -> bool:
        return name in await cluster.workloads()

    await cluster.until(f"{name} has a Workload", is_there)
    workload = (await cluster.workloads())[name]
    return parse_instant(workload["metadata"]["creationTimestamp"])


async def pass_until(cluster: Site, instant: int) -> None:
    await cluster.clock.sleep(instant - cluster.clock.wall())


async def annotate(cluster: Site, resource: Any, name: str, delay: str | None) -> None:
    note = {"metadata": {"annotations": {DELAY: delay}}}
    await cluster.client.patch(resource, "", name, note, dict)
    await cluster.clock.sleep(SECOND)


async def test_nobody_is_preempted_before_it_has_waited(tmp_path: Path) -> None:
    async with site(
        tmp_path, *base(2, preemption=LOWER), nodes=[node("node-0")], options=OPTIONS
    ) as cluster:
        await cluster.create(job("old", priority="low"))
        await cluster.until_admitted("old")
        due = await until_queued(cluster) + MINUTE
        await pass_until(cluster, due - SECOND)

        assert await cluster.admitted() == {"old"}
        assert not await cluster.intents()
        assert cluster.plane is not None
        name = (await cluster.workloads())["new"]["metadata"]["name"]
        found = await cluster.plane.waiting.diagnosis(NAMESPACE, name)
        assert found is not None
        assert found.cause is Cause.DELAYED
        assert found.earliest == due
        assert parse_instant(found.values["until"]) == due
        said = (await cluster.conditions("new"))["QuotaReserved"]
        assert f"No work is preempted for it before {found.values['until']}" in said[2]

        await cluster.until_admitted("new")
        (intent,) = await cluster.intents()
        decided = parse_instant(intent["spec"]["decidedAt"])
        assert due <= decided <= due + 2 * SECOND


async def test_where_quota_comes_free_meanwhile_nobody_is_preempted(tmp_path: Path) -> None:
    async with site(
        tmp_path, *base(4, preemption=LOWER), nodes=[node("node-0")], options=OPTIONS
    ) as cluster:
        for name in ("old", "other"):
            await cluster.create(job(name, priority="low"))
        await cluster.until_admitted("old", "other")
        await until_queued(cluster)
        await cluster.clock.sleep(MINUTE // 2)
        await end(cluster, "other")
        await cluster.clock.sleep(2 * MINUTE)

        assert await cluster.admitted() == {"old", "new"}
        assert not await cluster.intents()


async def test_what_is_free_is_kept_for_who_waits(tmp_path: Path) -> None:
    async with site(
        tmp_path, *base(3, preemption=LOWER), nodes=[node("node-0")], options=OPTIONS
    ) as cluster:
        await cluster.create(job("old", priority="low"))
        await cluster.until_admitted("old")
        await until_queued(cluster)
        await cluster.create(job("late", pods=1, priority="low"))
        await cluster.clock.sleep(MINUTE // 2)
        assert await cluster.admitted() == {"old"}

        await cluster.until_admitted("late", "new")


@pytest.mark.parametrize(
    ("resource", "name"), [(CLUSTER_QUEUES, "cq"), (CLASSES, "high")], ids=["queue", "class"]
)
async def test_a_queue_or_class_says_otherwise(tmp_path: Path, resource: Any, name: str) -> None:
    async with site(
        tmp_path, *base(2, preemption=LOWER), nodes=[node("node-0")], options=QuotaOptions()
    ) as cluster:
        await annotate(cluster, resource, name, "3m")
        await cluster.create(job("old", priority="low"))
        await cluster.until_admitted("old")
        made = await until_queued(cluster)
        await pass_until(cluster, made + 2 * MINUTE)
        assert await cluster.admitted() == {"old"}

        await annotate(cluster, resource, name, "150s")
        await pass_until(cluster, made + 150 * SECOND - 1)
        assert await cluster.admitted() == {"old"}
        await cluster.until_admitted("new")
        (intent,) = await cluster.intents()
        decided = parse_instant(intent["spec"]["decidedAt"])
        assert made + 150 * SECOND <= decided <= made + 152 * SECOND


async def test_the_class_counts_before_the_queue(tmp_path: Path) -> None:
    async with site(
        tmp_path, *base(2, preemption=LOWER), nodes=[node("node-0")], options=OPTIONS
    ) as cluster:
        await annotate(cluster, CLUSTER_QUEUES, "cq", "5m")
        await annotate(cluster, CLASSES, "high", "0s")
        await cluster.create(job("old", priority="low"))
        await cluster.until_admitted("old")
        made = await until_queued(cluster)
        await cluster.until_admitted("new")

        (intent,) = await cluster.intents()
        assert parse_instant(intent["spec"]["decidedAt"]) <= made + 2 * SECOND


async def test_what_is_no_duration_delays_nothing_and_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with site(
        tmp_path, *base(2, preemption=LOWER), nodes=[node("node-0")], options=QuotaOptions()
    ) as cluster:
        await annotate(cluster, CLUSTER_QUEUES, "cq", "soon")
        await cluster.create(job("old", priority="low"))
        await cluster.until_admitted("old")
        await until_queued(cluster)
        await cluster.until_admitted("new")

    (named,) = [each for each in caplog.messages if "preemption-delay" in each]
    assert named == (
        f"ClusterQueue cq: annotation {DELAY} is 'soon' and delays nothing; accepted: durations "
        "from 0s to 1h"
    )
