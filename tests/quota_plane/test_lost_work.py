"""The quota plane counts the work that its victims lose, since their admission or checkpoint."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kubelocal.cluster import Stage, Write
from kubelocal.server.errors import StatusError
from kubeworld.units.durations import MINUTE
from reprieve.answers.preemptions.recorded import judged
from reprieve.api.kueue import Workload
from reprieve.api.reprieve import Preemption
from reprieve.engine.harm_budgets.accounts import HarmAccounts
from reprieve.engine.notice.granting import NoticePolicy
from reprieve.planes.quota.context import QuotaOptions
from reprieve.planes.quota.queue_status.meters import lost_with
from reprieve.scenarios.embedded import OPERATOR_USER
from reprieve.scenarios.model import NodeSpec
from tests.quota_plane.site import (
    Object,
    Site,
    TurnedClock,
    cluster_queue,
    flavor,
    job,
    local_queue,
    priority_class,
    site,
)
from tests.quota_plane.test_jobs import LOWER
from tests.quota_plane.test_notice import (
    OPTIONS,
    deadline_of,
    is_evicted,
    phases,
    recorded,
    report_saved,
    until_phases,
)

GPU = "amd.com/gpu"
NODE = NodeSpec("node-0", {"cpu": "16", "memory": "32Gi", "pods": "110", GPU: "4"}, {})
NOW = 1_700_000_000  # 2023-11-14T22:13:20Z


def gpu_queue() -> Object:
    resources = [{"name": name, "nominalQuota": "4"} for name in ("cpu", GPU)]
    group = {
        "coveredResources": ["cpu", GPU],
        "flavors": [{"name": "default-flavor", "resources": resources}],
    }
    return cluster_queue("cq", 4, preemption=LOWER, resourceGroups=[group])


def gpu_job(name: str, **facts: Any) -> Object:
    made = job(name, pods=2, **facts)
    (container,) = made["spec"]["template"]["spec"]["containers"]
    container["resources"] = {"requests": {"cpu": "1"}, "limits": {GPU: "2"}}
    return made


async def test_what_a_preempted_workload_has_run_for_is_counted_once(tmp_path: Path) -> None:
    clock = TurnedClock()
    classes = [priority_class("low", 100), priority_class("high", 10_000)]
    objects = [flavor(), gpu_queue(), local_queue("q", "cq"), *classes]
    async with site(tmp_path, *objects, nodes=[NODE], clock=clock) as cluster:
        began = time.monotonic()
        await cluster.create(gpu_job("low", priority="low"))
        await cluster.until_admitted("low")
        clock.turn(600)
        await cluster.create(gpu_job("high", priority="high"))
        await cluster.until_admitted("high")
        (intent,) = await cluster.intents()
        (victim,) = intent["spec"]["victims"]
        lost = cluster.metrics.registry.get_sample_value(
            "reprieve_lost_device_seconds_total", {"plane": "quota", "reason": victim["rule"]}
        )
        assert lost is not None
        assert 4 * 600 <= lost <= 4 * (600 + time.monotonic() - began + 1)


#: With a limit of loops displacements are known.
KEPT = replace(OPTIONS, loop_limit=2)


async def test_what_a_workload_loses_that_has_saved_counts_from_when_it_had(tmp_path: Path) -> None:
    clock = TurnedClock()
    classes = [priority_class("low", 100), priority_class("high", 10_000)]
    objects = [flavor(), gpu_queue(), local_queue("q", "cq"), *classes]
    async with site(tmp_path, *objects, nodes=[NODE], clock=clock, options=KEPT) as cluster:
        low = gpu_job("low", priority="low")
        low["spec"]["template"]["metadata"] = {"annotations": {"reprieve.dev/notice": "10m"}}
        await cluster.create(low)
        await cluster.until_admitted("low")
        clock.turn(600)
        await cluster.create(gpu_job("high", priority="high"))
        await recorded(cluster)
        await report_saved(cluster, "low")
        await cluster.until_admitted("high")
        assert cluster.plane is not None
        assert cluster.plane.held_pairs.ledger is not None
        harm = cluster.plane.held_pairs.ledger.governor.harm
        await cluster.until("it is saved", lambda: is_saved(harm))


async def is_saved(harm: HarmAccounts) -> bool:
    ((_, row),) = harm.sums
    return row.lost_device_seconds < 4 * 60 < 4 * 600 - 4 * 60 < row.saved_device_seconds


@asynccontextmanager
async def two_that_save(folder: Path, clock: TurnedClock) -> AsyncIterator[Site]:
    """Two workloads run for ten minutes; both have to go for the next, and ask for notice."""
    classes = [priority_class("low", 100), priority_class("high", 10_000)]
    objects = [flavor(), gpu_queue(), local_queue("q", "cq"), *classes]
    async with site(folder, *objects, nodes=[NODE], clock=clock, options=KEPT) as cluster:
        await cluster.create(*(narrow(f"old-{each}", notice="10m") for each in "ab"))
        await cluster.until_admitted("old-a", "old-b")
        clock.turn(600)
        yield cluster


def harm_rows(cluster: Site) -> list[tuple[int, int]]:
    """Return what is lost and what was saved, in device seconds."""
    plane = cluster.plane
    ledger = None if plane is None else plane.held_pairs.ledger
    rows = [] if ledger is None else [row for _, row in ledger.governor.harm.sums]
    return sorted((row.lost_device_seconds, row.saved_device_seconds) for row in rows)


async def test_what_is_saved_outlives_a_process_that_is_away_over_the_deadline(
    tmp_path: Path,
) -> None:
    clock = TurnedClock()
    async with two_that_save(tmp_path, clock) as cluster:
        await cluster.create(gpu_job("high", priority="high"))
        await recorded(cluster)
        await report_saved(cluster, "old-a", 1)
        await cluster.until("the first is evicted", lambda: is_evicted(cluster, "old-a"))
        assert not await is_evicted(cluster, "old-b")
        await cluster.stop()
        clock.turn(700)
        await cluster.start(KEPT)
        await until_phases(cluster, "Completed")
        ((lost, saved), (late, nothing)) = harm_rows(cluster)
        assert lost < 60 < 1_140 < saved
        assert nothing == 0
        assert late >= 1_200


async def test_who_stands_as_saved_in_the_record_is_not_waited_for_again(tmp_path: Path) -> None:
    clock = TurnedClock()
    async with two_that_save(tmp_path, clock) as cluster:

        async def killed(write: Write, at: Stage) -> None:
            if at is Stage.STORED and b"lostAfterSave" in write.body and cluster.epoch == 1:
                for task in cluster._tasks:
                    task.cancel()

        cluster.embedded.cluster.on_write = killed
        await cluster.create(gpu_job("high", priority="high"))
        deadline = deadline_of(await recorded(cluster))
        await report_saved(cluster, "old-a", 1)
        await asyncio.wait(cluster._tasks)
        assert not await is_evicted(cluster, "old-a")
        await cluster.stop()
        await cluster.start(KEPT)
        await cluster.until("the first is evicted", lambda: is_evicted(cluster, "old-a"))
        assert not await is_evicted(cluster, "old-b")
        assert clock.wall() < deadline - 8 * MINUTE


@pytest.mark.thorough
@pytest.mark.parametrize("stage", [Stage.BEFORE, Stage.STORED])
async def test_what_is_saved_outlives_a_death_at_any_write(tmp_path: Path, stage: Stage) -> None:
    number = 1
    while await _dies_at(tmp_path / str(number), number, stage):
        number += 1
    assert number > 5


async def _dies_at(folder: Path, number: int, stage: Stage) -> bool:
    """Let two workloads save one after the other, with a death at a write; return if one came."""
    clock, dead, left = TurnedClock(), False, number
    async with two_that_save(folder, clock) as cluster:

        async def killed(write: Write, at: Stage) -> None:
            nonlocal dead, left
            counts = "/preemptions" in write.path or "/workloads/job-old" in write.path
            if at is not stage or write.user != OPERATOR_USER or not counts or dead:
                return
            left -= 1
            if not left:
                dead = True
                for task in cluster._tasks:
                    task.cancel()
                if stage is Stage.BEFORE:
                    raise StatusError(500, "InternalError", "it died before")

        async def until(what: str, holds: Callable[[], Awaitable[bool]]) -> None:
            for _ in range(1_000):
                if dead and all(task.done() for task in cluster._tasks):
                    await cluster.stop()
                    await cluster.start(KEPT)
                await report_saved(cluster, saving, 1)
                if await holds():
                    return
                await asyncio.sleep(0.25)
            raise AssertionError(f"never: {what}, write {number}")

        saving = "old-a"
        cluster.embedded.cluster.on_write = killed
        await cluster.create(gpu_job("high", priority="high"))
        await until("the first is evicted", lambda: is_evicted(cluster, "old-a"))
        clock.turn(300)
        saving = "old-b"
        await until("both are evicted", lambda: is_evicted(cluster, "old-b"))

        async def counted() -> bool:
            rows = harm_rows(cluster)
            closed = await phases(cluster) == ["Completed"]
            return (
                closed and len(rows) == 2 and all(lost < 60 < 1_140 < saved for lost, saved in rows)
            )

        await until("what was saved is counted", counted)
        return dead


def workload(*conditions: tuple[str, str], checkpoint: str = "", **usage: str) -> Workload:
    annotations = {"reprieve.dev/last-checkpoint": checkpoint} if checkpoint else {}
    said = [
        {"type": kind, "status": "True", "reason": kind, "message": "", "lastTransitionTime": at}
        for kind, at in conditions
    ]
    held: dict[str, str] = {"cpu": "8", "memory": "1Gi", **usage}
    sets = [{"name": "main", "count": 1, "resourceUsage": held}]
    admission = {"clusterQueue": "cq", "podSetAssignments": sets}
    return msgspec.convert(
        {
            "metadata": {"name": "w", "namespace": "team", "annotations": annotations},
            "status": {"conditions": said, "admission": admission},
        },
        Workload,
    )


ADMITTED = ("Admitted", "2023-11-14T22:03:20Z")  # 600 s ago


@pytest.mark.parametrize(
    ("found", "lost"),
    [
        (workload(ADMITTED, **{GPU: "3"}), 1_800),
        (workload(ADMITTED, **{GPU: "3", "example.com/fpga": "1"}), 2_400),
        (workload(ADMITTED), 0),
        (workload(("QuotaReserved", ADMITTED[1]), **{GPU: "3"}), 0),
        (workload(ADMITTED, checkpoint="2023-11-14T22:12:20Z", **{GPU: "3"}), 180),
        (workload(ADMITTED, checkpoint="2023-11-14T21:00:00Z", **{GPU: "3"}), 1_800),
        (workload(ADMITTED, checkpoint="lately", **{GPU: "3"}), 1_800),
    ],
)
def test_a_workload_starts_when_it_is_admitted(found: Workload, lost: int) -> None:
    assert lost_with(found, NOW) == lost


# With `harmOrder` the expected loss decides: without history half of what is undone is saved.


def narrow(name: str, **notes: str) -> Object:
    """Return a job of one pod with two devices."""
    made = gpu_job(name, priority="low")
    made["spec"].update(parallelism=1, completions=1)
    said = {f"reprieve.dev/{key.replace('_', '-')}": text for key, text in notes.items()}
    made["spec"]["template"]["metadata"] = {"annotations": said}
    return made


def weighed(most: int) -> QuotaOptions:
    settings = replace(OPTIONS.settings, harm_order=True)
    return replace(OPTIONS, settings=settings, notice=NoticePolicy(most))


@pytest.mark.parametrize(
    ("most", "younger_for", "goes"),
    [
        pytest.param(5 * MINUTE, 2_400, "older", id="told-it-loses-less"),
        pytest.param(5 * MINUTE, 1_200, "younger", id="told-it-loses-more"),
        pytest.param(0, 2_400, "younger", id="nobody-is-told"),
    ],
)
async def test_the_expected_loss_with_notice_orders_victims(
    tmp_path: Path, most: int, younger_for: int, goes: str
) -> None:
    clock = TurnedClock()
    classes = [priority_class("low", 100), priority_class("high", 10_000)]
    objects = [flavor(), gpu_queue(), local_queue("q", "cq"), *classes]
    async with site(
        tmp_path, *objects, nodes=[NODE], clock=clock, options=weighed(most)
    ) as cluster:
        await cluster.create(narrow("older", notice="5m", save_cost="30s"))
        await cluster.until_admitted("older")
        clock.turn(3_600 - younger_for)
        await cluster.create(narrow("younger"))
        await cluster.until_admitted("older", "younger")
        clock.turn(younger_for)
        # What notice spares is asked twice a minute.
        await asyncio.sleep(40)
        high = gpu_job("high", priority="high")
        high["spec"].update(parallelism=1, completions=1)
        await cluster.create(high)

        async def planned() -> bool:
            return bool(await cluster.intents())

        await cluster.until("somebody has to go", planned)
        (intent,) = await cluster.intents()
        (victim,) = intent["spec"]["victims"]
        assert victim["subject"]["name"].startswith(f"job-{goes}")
        assert ("notice" in victim) == (goes == "older")
        _, said, well = judged(msgspec.convert(intent, Preemption))
        assert well, said
