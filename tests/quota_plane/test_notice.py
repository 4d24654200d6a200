"""Workloads that ask for notice: told, heard, released, pardoned, on the embedded cluster.

The queue has quota for the two pods of `old`, which `new` preempts.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kubelocal.cluster import Stage, Write
from kubelocal.server.errors import StatusError
from kubeworld.units.durations import MINUTE, SECOND
from kubeworld.units.instants import Nanos, parse_instant
from reprieve.engine.notice.granting import NoticePolicy
from reprieve.execution.notices import Notices, Notified
from reprieve.planes.quota.context import QuotaOptions
from reprieve.scenarios.embedded import OPERATOR_USER
from tests.quota_plane.site import (
    CLUSTER_QUEUES,
    JOBS,
    LOCAL_QUEUES,
    NAMESPACE,
    WORKLOADS,
    Object,
    Site,
    job,
    node,
    site,
)
from tests.quota_plane.test_jobs import LOWER, base, end

OPTIONS = QuotaOptions(notice=NoticePolicy(10 * MINUTE))


def asking(name: str, notice: str = "1m", priority: str = "low", **facts: Any) -> Object:
    """Return a job of two pods that asks for that much notice."""
    found = job(name, priority=priority, **facts)
    found["spec"]["template"]["metadata"] = {"annotations": {"reprieve.dev/notice": notice}}
    return found


@asynccontextmanager
async def filled(
    folder: Path, *olds: Object, options: QuotaOptions = OPTIONS, quota: int = 2
) -> AsyncIterator[Site]:
    """The olds run and fill the queue."""
    olds = olds or (asking("old"),)
    async with site(
        folder, *base(quota, preemption=LOWER), nodes=[node("node-0")], options=options
    ) as cluster:
        for each in olds:
            await cluster.create(each)
        await cluster.until_admitted(*(each["metadata"]["name"] for each in olds))
        yield cluster


def notices(cluster: Site) -> Notices:
    assert cluster.plane is not None
    return cluster.plane.preemptions.notices


async def asked_for_quota(cluster: Site, **facts: Any) -> Object:
    """Create the preemptor, and return the record of its plan."""
    await cluster.create(job("new", priority="high", **facts))
    return await recorded(cluster)


async def recorded(cluster: Site) -> Object:
    await until_phases(cluster, "Noticed")
    (intent,) = await cluster.intents()
    return intent


async def phases(cluster: Site) -> list[str]:
    return [each.get("status", {}).get("phase", "") for each in await cluster.intents()]


async def until_phases(cluster: Site, *wanted: str) -> None:
    async def holds() -> bool:
        return await phases(cluster) == [*wanted]

    await cluster.until(f"records are {wanted}", holds)


def deadline_of(intent: Object) -> Nanos:
    (deadline,) = {victim["notice"]["deadline"] for victim in intent["spec"]["victims"]}
    return parse_instant(deadline)


async def told(cluster: Site, name: str) -> list[tuple[Notified, str]]:
    """Return the notice of each pod of a job with the pod's uid."""
    found = []
    for pod in await cluster.pods_of(name):
        uid = pod["metadata"]["uid"]
        each = notices(cluster).of_pod(uid)
        if each is not None:
            found.append((each, uid))
    return found


async def report_saved(cluster: Site, name: str, pods: int = 2) -> None:
    for each, uid in (await told(cluster, name))[:pods]:
        notices(cluster).saved(each, uid)


async def is_evicted(cluster: Site, name: str) -> bool:
    said = await cluster.conditions(name)
    return said.get("Evicted", ("",))[0] == "True" or name not in await cluster.admitted()


async def pass_time(cluster: Site, nanoseconds: int) -> None:
    await cluster.clock.sleep(nanoseconds)


def counted(cluster: Site, end: str) -> float:
    labels = {"plane": "quota", "end": end}
    found = cluster.metrics.registry.get_sample_value("reprieve_notices_total", labels)
    return found or 0.0


async def test_a_workload_that_stays_silent_goes_at_its_deadline_and_not_before(
    tmp_path: Path,
) -> None:
    async with filled(tmp_path) as cluster:
        start = cluster.clock.wall()
        deadline = deadline_of(await asked_for_quota(cluster))

        assert MINUTE <= deadline - start <= MINUTE + 5 * SECOND
        await pass_time(cluster, deadline - cluster.clock.wall() - 1)
        assert not await is_evicted(cluster, "old")
        assert "Evicted" not in await cluster.conditions("old")
        await cluster.until_admitted("new")

        assert deadline <= cluster.clock.wall() <= deadline + 10 * SECOND
        assert counted(cluster, "unheard") == 1
        await until_phases(cluster, "Completed")


async def test_a_workload_that_has_saved_goes_at_once(tmp_path: Path) -> None:
    async with filled(tmp_path, asking("old", "10m")) as cluster:
        deadline = deadline_of(await asked_for_quota(cluster))
        await pass_time(cluster, 5 * SECOND)

        await report_saved(cluster, "old", pods=1)
        await pass_time(cluster, 30 * SECOND)
        assert not await is_evicted(cluster, "old")
        await report_saved(cluster, "old")
        await cluster.until_admitted("new")

        assert cluster.clock.wall() < deadline - 9 * MINUTE
        assert counted(cluster, "saved") == 1


async def test_a_speaker_extends_its_deadline_once(tmp_path: Path) -> None:
    async with filled(tmp_path) as cluster:
        deadline = deadline_of(await asked_for_quota(cluster))
        (notice, uid), *_ = await told(cluster, "old")
        while cluster.clock.wall() < deadline + 60 * SECOND:
            notices(cluster).saving(notice, uid, deadline + 90 * SECOND)
            await pass_time(cluster, 20 * SECOND)
            assert not await is_evicted(cluster, "old")
        await cluster.until_admitted("new")

        late = cluster.clock.wall() - deadline
        assert 90 * SECOND <= late <= 2 * MINUTE


async def test_a_workload_is_pardoned_when_its_preemptor_goes_away(tmp_path: Path) -> None:
    async with filled(tmp_path) as cluster:
        await asked_for_quota(cluster)

        await cluster.client.delete(JOBS, NAMESPACE, "new")

        await until_phases(cluster, "Abandoned")
        assert await told(cluster, "old") == []
        await pass_time(cluster, 2 * MINUTE)
        assert await cluster.admitted() == {"old"}
        assert "Evicted" not in await cluster.conditions("old")
        assert counted(cluster, "pardoned") == 1


async def test_a_workload_is_pardoned_when_quota_comes_free_elsewhere(tmp_path: Path) -> None:
    olds = asking("old"), job("other", priority="high")
    async with filled(tmp_path, *olds, quota=4) as cluster:
        await asked_for_quota(cluster)

        await end(cluster, "other")
        await cluster.until_admitted("old", "new")

        await pass_time(cluster, 2 * MINUTE)
        assert await cluster.admitted() == {"old", "new"}
        assert await phases(cluster) == ["Abandoned"]


async def test_a_preemptor_whose_queue_stops_pardons_its_victims(tmp_path: Path) -> None:
    async with filled(tmp_path) as cluster:
        await asked_for_quota(cluster)

        await cluster.change_queue("cq", {"stopPolicy": "Hold"})
        await pass_time(cluster, 2 * MINUTE)

        assert await cluster.admitted() == {"old"}
        assert await phases(cluster) == ["Abandoned"]


async def test_quota_that_is_claimed_is_nobody_elses(tmp_path: Path) -> None:
    async with filled(tmp_path, asking("old", "2m")) as cluster:
        await asked_for_quota(cluster)
        await cluster.create(asking("late"))
        await pass_time(cluster, MINUTE)

        await end(cluster, "old")
        await cluster.until_admitted("new")


@pytest.mark.parametrize(
    ("resource", "name"), [(CLUSTER_QUEUES, "cq"), (LOCAL_QUEUES, "q")], ids=["cluster", "local"]
)
async def test_a_queue_allows_less(tmp_path: Path, resource: Any, name: str) -> None:
    async with filled(tmp_path, asking("old", "10m")) as cluster:
        note = {"metadata": {"annotations": {"reprieve.dev/notice-max": "20s"}}}
        namespace = NAMESPACE if name == "q" else ""
        await cluster.client.patch(resource, namespace, name, note, dict)
        await pass_time(cluster, SECOND)
        start = cluster.clock.wall()

        deadline = deadline_of(await asked_for_quota(cluster))

        assert 20 * SECOND <= deadline - start <= 25 * SECOND


async def test_the_workload_asks_where_its_pods_do_not(tmp_path: Path) -> None:
    async with filled(tmp_path, job("old", priority="low")) as cluster:
        name = (await cluster.workloads())["old"]["metadata"]["name"]
        note = {"metadata": {"annotations": {"reprieve.dev/notice": "30s"}}}
        await cluster.client.patch(WORKLOADS, NAMESPACE, name, note, dict)
        await pass_time(cluster, SECOND)
        start = cluster.clock.wall()

        deadline = deadline_of(await asked_for_quota(cluster))

        assert 30 * SECOND <= deadline - start <= 35 * SECOND


async def test_without_notice_nothing_is_as_it_was_not(tmp_path: Path) -> None:
    async with filled(tmp_path, options=QuotaOptions()) as cluster:
        await cluster.create(job("new", priority="high"))
        await cluster.until_admitted("new")

        (intent,) = await cluster.intents()
        assert "notice" not in intent["spec"]["victims"][0]


async def test_a_new_leader_takes_the_deadline_over_and_grants_none(tmp_path: Path) -> None:
    async with filled(tmp_path) as cluster:
        before = await asked_for_quota(cluster)
        deadline = deadline_of(before)
        await pass_time(cluster, MINUTE // 2)
        await cluster.stop()

        await cluster.start(OPTIONS)
        await pass_time(cluster, deadline - cluster.clock.wall() - 1)
        assert not await is_evicted(cluster, "old")
        assert [each["spec"] for each in await cluster.intents()] == [before["spec"]]
        await cluster.until_admitted("new")

        assert cluster.clock.wall() <= deadline + 10 * SECOND
        assert len(await cluster.intents()) == 1
        message = (await cluster.conditions("old"))["Preempted"][2]
        assert "due to prioritization in the ClusterQueue" in message


async def test_a_new_leader_pardons_what_is_not_needed(tmp_path: Path) -> None:
    olds = asking("old"), job("other", priority="high")
    async with filled(tmp_path, *olds, quota=4) as cluster:
        await asked_for_quota(cluster)
        await cluster.stop()
        await end(cluster, "other")
        await cluster.start(OPTIONS)

        await cluster.until_admitted("old", "new")

        await pass_time(cluster, 2 * MINUTE)
        assert await cluster.admitted() == {"old", "new"}
        assert await phases(cluster) == ["Abandoned"]


def two() -> tuple[Object, Object]:
    """Return two workloads, both of which have to go for `new`."""
    return asking("old-a", "10m", pods=1), asking("old-b", "10m", pods=1)


async def test_each_workload_of_a_plan_goes_as_soon_as_it_has_saved(tmp_path: Path) -> None:
    async with filled(tmp_path, *two()) as cluster:
        deadline = deadline_of(await asked_for_quota(cluster))
        await pass_time(cluster, 5 * SECOND)

        await report_saved(cluster, "old-a")
        await pass_time(cluster, 5 * SECOND)
        assert await is_evicted(cluster, "old-a")
        assert not await is_evicted(cluster, "old-b")
        assert await phases(cluster) == ["Noticed"]
        await pass_time(cluster, MINUTE)
        assert await cluster.admitted() == {"old-b"}  # nobody gets what is kept for `new`
        await report_saved(cluster, "old-b")
        await cluster.until_admitted("new")

        assert cluster.clock.wall() < deadline - 8 * MINUTE
        assert counted(cluster, "saved") == 2
        await until_phases(cluster, "Completed")


@pytest.mark.thorough
@pytest.mark.parametrize("restarted", [False, True])
async def test_who_has_not_been_released_stays_when_the_plan_ends(
    tmp_path: Path, restarted: bool
) -> None:
    async with filled(tmp_path, *two()) as cluster:
        await asked_for_quota(cluster)
        await report_saved(cluster, "old-a")
        await pass_time(cluster, 5 * SECOND)
        assert await is_evicted(cluster, "old-a")
        if restarted:
            await cluster.stop()
            await cluster.start(OPTIONS)
            await pass_time(cluster, 5 * SECOND)
            assert not await is_evicted(cluster, "old-b")

        await cluster.client.delete(JOBS, NAMESPACE, "new")
        await cluster.until_admitted("old-a", "old-b")

        await pass_time(cluster, 11 * MINUTE)
        assert await phases(cluster) == ["Completed"]
        (intent,) = await cluster.intents()
        states = {each["state"] for each in intent["status"]["victims"]}
        assert states == {"Evicted", "Spared"}
        assert "Evicted" not in await cluster.conditions("old-b")
        assert counted(cluster, "pardoned") == 1


@pytest.mark.thorough
@pytest.mark.parametrize("stage", [Stage.BEFORE, Stage.STORED])
async def test_wherever_a_process_dies_a_workload_goes_once_saved_or_at_its_deadline(
    tmp_path: Path, stage: Stage
) -> None:
    number, died = 0, True
    while died:
        number += 1
        died = await _dies_at(tmp_path / str(number), number, stage)
    assert number > 5


async def _dies_at(folder: Path, number: int, stage: Stage) -> bool:
    """Play two jobs of which one stays silent, with a death at a write; return if one came."""
    olds = asking("old-a", pods=1), asking("old-b", pods=1)
    dead, left = False, number
    async with filled(folder, *olds) as cluster:

        async def killed(write: Write, at: Stage) -> None:
            nonlocal dead, left
            counts = "/preemptions" in write.path or "/workloads/old" in write.path
            ours = write.user == OPERATOR_USER and ("job-old" in write.path or counts)
            if at is not stage or not ours or dead:
                return
            left -= 1
            if not left:
                dead = True
                for task in cluster._tasks:
                    task.cancel()
                if stage is Stage.BEFORE:
                    raise StatusError(500, "InternalError", "it died before")

        cluster.embedded.cluster.on_write = killed
        await cluster.create(job("new", priority="high"))
        await pass_time(cluster, 20 * SECOND)
        assert await cluster.admitted() == {"old-a", "old-b"}, f"write {number}"
        before = {d for i in await cluster.intents() for d in _deadlines(i)}
        if dead:
            await cluster.stop()
            await cluster.start(OPTIONS)
            await pass_time(cluster, SECOND)
        saved_at = cluster.clock.wall()
        await report_saved(cluster, "old-a")
        await pass_time(cluster, 20 * SECOND)
        assert "old-b" in await cluster.admitted(), f"write {number}"
        for _ in range(400):
            if dead and all(task.done() for task in cluster._tasks):
                await cluster.stop()
                await cluster.start(OPTIONS)
            if await cluster.admitted() == {"new"}:
                break
            await pass_time(cluster, SECOND // 4)
        intents = await cluster.intents()
        after = {d for each in intents for d in _deadlines(each)}

        assert await cluster.admitted() == {"new"}, f"write {number}"
        assert not before or after == before, f"write {number}: told anew"
        assert len(after) == 1 == len(intents)
        deadline = parse_instant(after.pop())
        gone = {n: _evicted_at(e) for n, e in (await cluster.workloads()).items() if n != "new"}
        # One that has saved goes at once, and at its deadline where a new leader has not heard it.
        assert saved_at <= gone["old-a"] + SECOND, f"write {number}: before it saved"
        assert deadline <= gone["old-b"] + SECOND, f"write {number}: before its deadline"
        return dead


def _deadlines(intent: Object) -> list[str]:
    return [victim["notice"]["deadline"] for victim in intent["spec"]["victims"]]


def _evicted_at(workload: Object) -> Nanos:
    (found,) = [c for c in workload["status"]["conditions"] if c["type"] == "Evicted"]
    return parse_instant(found["lastTransitionTime"])


@pytest.mark.thorough
async def test_a_workload_whose_priority_was_raised_is_pardoned(tmp_path: Path) -> None:
    async with filled(tmp_path) as cluster:
        await asked_for_quota(cluster)
        (name,) = [n for n in await cluster.workloads() if "old" in n]
        stored = (await cluster.workloads())[name]
        raised = {"spec": {"priority": 1_000_000}}
        await cluster.client.patch(WORKLOADS, NAMESPACE, stored["metadata"]["name"], raised, dict)
        await pass_time(cluster, SECOND)

        await pass_time(cluster, 2 * MINUTE)
        assert await cluster.admitted() == {"old"}
        assert await phases(cluster) == ["Abandoned"]
        (intent,) = await cluster.intents()
        assert "may not be preempted by it any more" in intent["status"]["reason"]


async def test_a_wish_that_cannot_be_read_is_told_when_its_work_is_preempted(
    tmp_path: Path,
) -> None:
    async with filled(tmp_path, asking("old", "soon")) as cluster:
        await cluster.create(job("new", priority="high"))
        await cluster.until_admitted("new")
        told_of = [each for each in await cluster.events() if "NoticeIgnored" in each]
        assert len(told_of) == 1
