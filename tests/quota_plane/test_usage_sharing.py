"""Admission fair sharing: what LocalQueues used decides whose workload comes next."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kubeworld.units.quantities import parse_milli
from reprieve.engine.quota.holdings.usage_based import UsageBased
from reprieve.engine.quota.model import Settings
from reprieve.planes.quota.context import QuotaOptions
from tests.quota_plane.site import (
    JOBS,
    LOCAL_QUEUES,
    NAMESPACE,
    Object,
    Site,
    TurnedClock,
    cluster_queue,
    flavor,
    job,
    local_queue,
    site,
)
from tests.quota_plane.test_time import complete, pods, until_suspended

HOUR = 3600
MODE: dict[str, Any] = {"admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"}}


async def consumed(cluster: Site, name: str) -> float | None:
    """Return how many cpus the status of a LocalQueue says that it used."""
    found: Object = await cluster.client.get(LOCAL_QUEUES, NAMESPACE, name, dict)
    sharing = (found.get("status") or {}).get("fairSharing") or {}
    said = sharing.get("admissionFairSharingStatus")
    return None if said is None else parse_milli(said["consumedResources"].get("cpu", "0")) / 1000


async def until_consumed(cluster: Site, name: str, wanted: float) -> None:
    async def holds() -> bool:
        found = await consumed(cluster, name)
        return found is not None and found == pytest.approx(wanted, abs=0.05)

    await cluster.until(f"{name} used {wanted}", holds)


async def ended(cluster: Site, name: str) -> None:
    await complete(cluster, name)

    async def finished() -> bool:
        return name not in await cluster.admitted()

    await cluster.until(f"{name} is finished", finished)


async def test_who_used_less_comes_next_also_after_a_restart(tmp_path: Path) -> None:
    clock = TurnedClock()
    options = QuotaOptions(
        settings=Settings(admission_fair_sharing=True),
        usage_based=UsageBased(half_life_s=HOUR, sampling_s=600),
    )
    objects = [
        flavor(),
        cluster_queue("cq", 2, **MODE),
        local_queue("greedy", "cq"),
        local_queue("modest", "cq"),
    ]
    async with site(tmp_path, *objects, options=options, without=("jobs",), clock=clock) as cluster:
        await cluster.create(job("first", "greedy"))
        await until_suspended(cluster, "first", suspended=False)
        await pods(cluster, "first", 2, 2)
        # One sampling interval is charged with the admission.
        charge = 2 * (1 - 0.5 ** (600 / HOUR))
        await until_consumed(cluster, "greedy", charge)
        await until_consumed(cluster, "modest", 0.0)
        # An hour of holding two cpus: half of them, and half of the charge.
        clock.turn(HOUR)
        await until_consumed(cluster, "greedy", charge / 2 + 1.0)

        # Two of each wait when quota comes free; that of `greedy` asked first.
        await cluster.create(job("again", "greedy"))

        async def both() -> bool:
            return {"again", "other"} <= (await cluster.workloads()).keys()

        await cluster.create(job("other", "modest"))
        await cluster.until("both wait", both)
        await ended(cluster, "first")
        await until_suspended(cluster, "other", suspended=False)
        await pods(cluster, "other", 2, 2)
        assert (await cluster.job("again"))["spec"]["suspend"] is True
        await until_consumed(cluster, "modest", charge)

        # The figures go on from the statuses.
        await cluster.stop()
        await cluster.start(options)
        await until_consumed(cluster, "greedy", charge / 2 + 1.0)
        await cluster.create(job("more", "modest"))
        clock.turn(HOUR)
        await until_consumed(cluster, "greedy", (charge / 2 + 1.0) / 2)
        await until_consumed(cluster, "modest", charge / 2 + 1.0)
        await ended(cluster, "other")
        await until_suspended(cluster, "again", suspended=False)
        assert (await cluster.job("more"))["spec"]["suspend"] is True
        await cluster.client.delete(JOBS, NAMESPACE, "again")
        await until_suspended(cluster, "more", suspended=False)
