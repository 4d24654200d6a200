"""What time does to Workloads: pods not ready, lost, too long a run, backoff, deactivation, ends.

The plane's clock is turned by hand, and Jobs are played by the test, which says how many of their
pods run and are ready.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from reprieve.engine.quota.model import Settings
from reprieve.engine.quota.waiting.requeuing import Backoff
from reprieve.kube.errors import NotFound
from reprieve.planes.quota.context import QuotaOptions
from reprieve.settings.quota_configuration_parts import PodsReady
from tests.quota_plane.site import (
    JOBS,
    NAMESPACE,
    WORKLOADS,
    Object,
    Site,
    TurnedClock,
    job,
    site,
)
from tests.quota_plane.test_jobs import base

MINUTE = 60
SPENT = "accumulatedPastExecutionTimeSeconds"


async def pods(cluster: Site, name: str, active: int, ready: int, succeeded: int = 0) -> None:
    """Say how many pods of a Job there are."""
    status = {"active": active, "ready": ready, "succeeded": succeeded}
    await cluster.client.patch_status(JOBS, NAMESPACE, name, status, dict)


async def complete(cluster: Site, name: str) -> None:
    """Say that a Job is complete."""
    condition = {"type": "Complete", "status": "True", "message": "Reached expected number"}
    status = {"active": 0, "ready": 0, "succeeded": 2, "conditions": [condition]}
    await cluster.client.patch_status(JOBS, NAMESPACE, name, status, dict)


async def workload(cluster: Site, name: str) -> Object:
    """Return the Workload of a job."""
    return (await cluster.workloads())[name]


async def until_said(cluster: Site, name: str, **wanted: tuple[str, str, str]) -> None:
    """Wait until the Workload of a job has exactly these conditions among its own."""

    async def holds() -> bool:
        said = await cluster.conditions(name)
        return all(said.get(kind) == text for kind, text in wanted.items())

    await cluster.until(f"{name} says {wanted}", holds)


async def until_suspended(cluster: Site, name: str, suspended: bool = True) -> None:
    async def holds() -> bool:
        return bool((await cluster.job(name))["spec"]["suspend"] is suspended)

    await cluster.until(f"{name} is {'' if suspended else 'not '}suspended", holds)


async def until_told(
    cluster: Site, reasons: tuple[str, ...], *wanted: tuple[str, str, str, str]
) -> None:
    """Wait until the events with these reasons are exactly these."""

    async def holds() -> bool:
        return await told(cluster, *reasons) == set(wanted)

    await cluster.until(f"{wanted} are told", holds)


async def told(cluster: Site, *reasons: str) -> set[tuple[str, str, str, str]]:
    """Return kind of the object, type, reason and message of the events with these reasons."""
    return {
        (kind, kind_of_event, reason, message)
        for kind, _, kind_of_event, reason, message in await cluster.events()
        if reason in reasons
    }


async def test_pods_that_are_never_ready_are_put_off_then_given_up_and_their_job_is_deleted(
    tmp_path: Path,
) -> None:
    clock = TurnedClock()
    options = QuotaOptions(
        pods_ready=PodsReady(5 * MINUTE, 5 * MINUTE, block_admission=False),
        backoff=Backoff(base_s=60, max_s=90, limit=2),
        after_deactivated_s=600,
    )
    async with site(tmp_path, *base(2), options=options, without=("jobs",), clock=clock) as cluster:
        await cluster.create(job("late"))
        await until_suspended(cluster, "late", suspended=False)
        await pods(cluster, "late", 2, 1)
        at = f"{NAMESPACE}/{(await workload(cluster, 'late'))['metadata']['name']}"
        timeout = f"Exceeded the PodsReady timeout {at}"
        not_ready = ("False", "WaitForStart", "Not all pods are ready or succeeded")
        await until_said(cluster, "late", PodsReady=not_ready)
        for count in (1, 2):
            clock.turn(5 * MINUTE + 1)
            await until_said(cluster, "late", Evicted=("True", "PodsReadyTimeout", timeout))
            await until_suspended(cluster, "late")
            # It keeps its quota until its pods are gone.
            assert (await cluster.conditions("late"))["QuotaReserved"][0] == "True"
            await pods(cluster, "late", 0, 0)
            await until_said(
                cluster,
                "late",
                Requeued=("False", "PodsReadyTimeout", timeout),
                QuotaReserved=("False", "PendingEvaluation", timeout),
                Admitted=("False", "NoReservation", "The workload has no reservation"),
                PodsReady=not_ready,
            )
            status = (await workload(cluster, "late"))["status"]
            assert status["requeueState"]["count"] == count
            assert status["schedulingStats"]["evictions"] == [
                {"reason": "PodsReadyTimeout", "underlyingCause": "WaitForStart", "count": count}
            ]
            clock.turn(61 if count == 1 else 91)
            await until_said(
                cluster,
                "late",
                Requeued=("True", "BackoffFinished", "The workload backoff was finished"),
                Admitted=("True", "Admitted", "The workload is admitted"),
                Evicted=("False", "QuotaReserved", f"Previously: {timeout}"),
            )
            assert (await workload(cluster, "late"))["status"]["requeueState"] == {"count": count}
            await until_suspended(cluster, "late", suspended=False)
            await pods(cluster, "late", 2, 0)
        clock.turn(5 * MINUTE + 1)
        why = (
            "The workload is deactivated due to exceeding the maximum number of re-queuing retries"
        )
        reason = "DeactivatedDueToRequeuingLimitExceeded"
        await until_said(cluster, "late", Evicted=("True", reason, why))
        await until_suspended(cluster, "late")
        await pods(cluster, "late", 0, 0)
        await until_said(
            cluster,
            "late",
            Requeued=("False", reason, why),
            QuotaReserved=("False", "Deactivated", "The workload is deactivated"),
        )
        found = await workload(cluster, "late")
        assert found["spec"]["active"] is False
        assert "requeueState" not in found["status"]
        assert "DeactivationTarget" not in await cluster.conditions("late")
        assert found["status"]["schedulingStats"]["evictions"][-1] == {
            "reason": "Deactivated",
            "underlyingCause": "RequeuingLimitExceeded",
            "count": 1,
        }
        await until_told(
            cluster,
            ("EvictedDueToPodsReadyTimeout", f"EvictedDueTo{reason}"),
            ("Workload", "Normal", "EvictedDueToPodsReadyTimeout", timeout),
            ("Workload", "Normal", f"EvictedDueTo{reason}", why),
        )
        clock.turn(601)

        async def deleted() -> bool:
            try:
                await cluster.job("late")
            except NotFound:
                return not await cluster.workloads()
            return False

        await cluster.until("the job and its Workload are deleted", deleted)
        text = "Deleted job: deactivation retention period expired"
        await until_told(cluster, ("Deleted",), ("Job", "Normal", "Deleted", text))


async def test_nothing_is_admitted_until_pods_are_ready_and_lost_pods_are_waited_for(
    tmp_path: Path,
) -> None:
    clock = TurnedClock()
    options = QuotaOptions(
        settings=Settings(block_admission=True),
        pods_ready=PodsReady(30 * MINUTE, 2 * MINUTE, block_admission=True),
    )
    async with site(tmp_path, *base(4), options=options, without=("jobs",), clock=clock) as cluster:
        await cluster.create(job("first"))
        await until_suspended(cluster, "first", suspended=False)
        await pods(cluster, "first", 2, 1)
        await cluster.create(job("second"))
        await until_said(
            cluster,
            "second",
            QuotaReserved=(
                "False",
                "WaitingForPodsReady",
                "waiting for all admitted workloads to be in PodsReady condition",
            ),
        )
        await pods(cluster, "first", 2, 2)
        await until_said(
            cluster,
            "first",
            PodsReady=(
                "True",
                "Started",
                "All pods reached readiness and the workload is running",
            ),
        )
        await until_suspended(cluster, "second", suspended=False)
        await pods(cluster, "second", 2, 2)
        await pods(cluster, "first", 1, 1)
        lost = ("False", "WaitForRecovery", "At least one pod has failed, waiting for recovery")
        await until_said(cluster, "first", PodsReady=lost)
        clock.turn(MINUTE)
        await pods(cluster, "first", 2, 2)
        ready = "All pods reached readiness and the workload is running"
        await until_said(cluster, "first", PodsReady=("True", "Recovered", ready))
        await pods(cluster, "first", 1, 1)
        await until_said(cluster, "first", PodsReady=lost)
        clock.turn(2 * MINUTE + 1)
        await until_suspended(cluster, "first")
        assert (await workload(cluster, "first"))["status"]["schedulingStats"]["evictions"] == [
            {"reason": "PodsReadyTimeout", "underlyingCause": "WaitForRecovery", "count": 1}
        ]
        assert await cluster.admitted() >= {"second"}


async def test_a_run_that_takes_too_long_is_ended_and_what_is_finished_is_deleted_later(
    tmp_path: Path,
) -> None:
    clock = TurnedClock()
    options = QuotaOptions(after_finished_s=3600)
    brief: Any = job("brief")
    brief["metadata"]["labels"]["kueue.x-k8s.io/max-exec-time-seconds"] = "100"
    drained = {"stopPolicy": "HoldAndDrain"}
    async with site(tmp_path, *base(2), options=options, without=("jobs",), clock=clock) as cluster:
        await cluster.create(brief)
        await until_suspended(cluster, "brief", suspended=False)
        await pods(cluster, "brief", 2, 2)
        clock.turn(60)
        # What it ran before it was evicted counts.
        await cluster.change_queue("cq", drained)
        await until_suspended(cluster, "brief")
        await pods(cluster, "brief", 0, 0)
        stopped = ("False", "ClusterQueueStopped", "The ClusterQueue is stopped")
        await until_said(cluster, "brief", Requeued=stopped)
        assert 60 <= (await workload(cluster, "brief"))["status"][SPENT] < 90
        await cluster.change_queue("cq", {"stopPolicy": "None"})
        await until_suspended(cluster, "brief", suspended=False)
        await pods(cluster, "brief", 2, 2)
        clock.turn(41)
        why = "The workload is deactivated due to exceeding the maximum execution time"
        reason = "DeactivatedDueToMaximumExecutionTimeExceeded"
        await until_said(cluster, "brief", Evicted=("True", reason, why))
        await until_suspended(cluster, "brief")
        await pods(cluster, "brief", 0, 0)
        await until_said(
            cluster,
            "brief",
            Requeued=("False", reason, why),
            QuotaReserved=("False", "Deactivated", "The workload is deactivated"),
        )
        await until_told(
            cluster,
            ("MaximumExecutionTimeExceeded", f"EvictedDueTo{reason}"),
            (
                "Workload",
                "Warning",
                "MaximumExecutionTimeExceeded",
                "The maximum execution time (100s) exceeded",
            ),
            ("Workload", "Normal", f"EvictedDueTo{reason}", why),
        )
        name = (await workload(cluster, "brief"))["metadata"]["name"]
        active = {"spec": {"active": True}}
        await cluster.client.patch(WORKLOADS, NAMESPACE, name, active, dict)
        # Whoever lets it run again gives it all its time again.
        await until_said(
            cluster, "brief", Requeued=("True", "Reactivated", "The workload was reactivated")
        )
        await until_suspended(cluster, "brief", suspended=False)
        await pods(cluster, "brief", 2, 2)
        await complete(cluster, "brief")
        await until_said(
            cluster, "brief", Finished=("True", "Succeeded", "Reached expected number")
        )
        clock.turn(3601)

        async def deleted() -> bool:
            return not await cluster.workloads()

        await cluster.until("the Workload is deleted", deleted)
        assert (await cluster.job("brief"))["status"]["succeeded"] == 2
        text = "Deleted finished workload due to elapsed retention"
        await until_told(cluster, ("Deleted",), ("Workload", "Normal", "Deleted", text))


async def test_a_run_that_took_too_long_has_all_of_its_time_again_once_it_is_activated(
    tmp_path: Path,
) -> None:
    async with site(tmp_path, *base(2)) as cluster:
        brief = job("brief")
        brief["metadata"]["labels"]["kueue.x-k8s.io/max-exec-time-seconds"] = "20"
        await cluster.create(brief)

        async def ended() -> bool:
            said = (await cluster.conditions("brief")).get("QuotaReserved", ("",))
            return said[0] == "False"

        for _ in range(2):
            await cluster.until_admitted("brief")
            await asyncio.sleep(15)
            assert await cluster.admitted() == {"brief"}
            await cluster.until("it has run for too long", ended, 15)
            found = await workload(cluster, "brief")
            assert not found["status"].get(SPENT)
            at = found["metadata"]["name"]
            await cluster.client.patch(WORKLOADS, NAMESPACE, at, {"spec": {"active": True}}, dict)
        await cluster.until_admitted("brief")
