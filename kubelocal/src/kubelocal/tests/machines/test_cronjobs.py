"""CronJobs on a clock that starts at 10:00:00 UTC."""

from __future__ import annotations

from typing import Any

import pytest

from kubelocal.tests.machines.cluster import Cluster, running, sim, template


def cron_job(schedule: str, run_time: str = "10s", **spec: Any) -> dict[str, Any]:
    body = template(0, restartPolicy="Never", annotations=sim(run_time=run_time))
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "tick"},
        "spec": {"schedule": schedule, "jobTemplate": {"spec": {"template": body}}, **spec},
    }


def scheduled(cluster: Cluster) -> list[str]:
    """Return the times for which Jobs exist."""
    name = "batch.kubernetes.io/cronjob-scheduled-timestamp"
    jobs = cluster.all("jobs.batch")
    return sorted(job["metadata"]["annotations"][name][11:16] for job in jobs)


async def test_jobs_come_at_the_times_of_the_schedule_and_the_last_three_are_kept() -> None:
    async with running() as cluster:
        await cluster.create(cron_job("*/10 * * * *"))
        await cluster.wait(599)
        assert scheduled(cluster) == []
        await cluster.wait(5)
        assert scheduled(cluster) == ["10:10"]
        status = cluster.one("cronjobs.batch", "tick")["status"]
        assert [job["name"] for job in status["active"]] == cluster.names("jobs.batch")
        await cluster.wait(45 * 60)
        assert scheduled(cluster) == ["10:30", "10:40", "10:50"]
        status = cluster.one("cronjobs.batch", "tick")["status"]
        assert status["lastScheduleTime"][11:19] == "10:50:00"
        assert status["lastSuccessfulTime"][11:16] == "10:50"
        assert "active" not in status


@pytest.mark.parametrize(
    ("policy", "kept"),
    [
        ("Allow", ["10:01", "10:02", "10:03"]),
        ("Forbid", ["10:01"]),
        ("Replace", ["10:03"]),
    ],
)
async def test_the_concurrency_policy_decides_about_jobs_that_still_run(
    policy: str, kept: list[str]
) -> None:
    async with running() as cluster:
        await cluster.create(cron_job("* * * * *", "1h", concurrencyPolicy=policy))
        await cluster.wait(185)
        assert scheduled(cluster) == kept


async def test_a_suspended_cron_job_starts_nothing_and_then_only_the_last_missed_time() -> None:
    async with running() as cluster:
        await cluster.create(cron_job("* * * * *", suspend=True))
        await cluster.wait(205)
        assert scheduled(cluster) == []
        await cluster.change("cronjobs.batch", "tick", suspend=False)
        await cluster.wait(5)
        assert scheduled(cluster) == ["10:03"]


async def test_a_time_missed_by_more_than_the_deadline_is_left_out() -> None:
    async with running() as cluster:
        await cluster.create(cron_job("* * * * *", suspend=True, startingDeadlineSeconds=5))
        await cluster.wait(205)
        await cluster.change("cronjobs.batch", "tick", suspend=False)
        await cluster.wait(5)
        assert scheduled(cluster) == []
        await cluster.wait(32)
        assert scheduled(cluster) == ["10:04"]


async def test_a_time_zone_moves_the_schedule() -> None:
    async with running() as cluster:
        await cluster.create(cron_job("30 15 * * *", timeZone="Asia/Kolkata"))
        await cluster.wait(5)
        assert scheduled(cluster) == []
        zoned = cron_job("31 15 * * *", timeZone="Asia/Kolkata")
        zoned["metadata"]["name"] = "later"
        await cluster.create(zoned)
        await cluster.wait(60)
        assert scheduled(cluster) == ["10:01"]


@pytest.mark.parametrize("spec", [{"schedule": "no"}, {"timeZone": "Middle/Earth"}])
async def test_a_schedule_that_cannot_be_read_is_named_in_an_event(spec: dict[str, str]) -> None:
    async with running() as cluster:
        await cluster.create(cron_job(**{"schedule": "* * * * *", **spec}))
        await cluster.wait(120)
        assert scheduled(cluster) == []
        [warning] = [e for e in cluster.all("events") if e["type"] == "Warning"]
        assert warning["reason"] == "UnparseableSchedule"
