"""The quota plane counts the work that its victims lose, since their admission or checkpoint."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kubeworld.units.durations import MINUTE
from reprieve.answers.preemptions.recorded import judged
from reprieve.api.kueue import Workload
from reprieve.api.reprieve import Preemption
from reprieve.engine.harm_budgets.accounts import HarmAccounts
from reprieve.engine.notice.granting import NoticePolicy
from reprieve.planes.quota.context import QuotaOptions
from reprieve.planes.quota.queue_status.meters import lost_with
from reprieve.scenarios.model import NodeSpec
from tests.quota_plane.site import (
    Object,
    TurnedClock,
    cluster_queue,
    flavor,
    job,
    local_queue,
    priority_class,
    site,
)
from tests.quota_plane.test_jobs import LOWER
from tests.quota_plane.test_notice import OPTIONS, recorded, say_saved

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
        await say_saved(cluster, "low")
        await cluster.until_admitted("high")
        assert cluster.plane is not None
        assert cluster.plane.held_pairs.ledger is not None
        harm = cluster.plane.held_pairs.ledger.governor.harm
        await cluster.until("it is saved", lambda: is_saved(harm))


async def is_saved(harm: HarmAccounts) -> bool:
    ((_, row),) = harm.sums
    return row.lost_device_seconds < 4 * 60 < 4 * 600 - 4 * 60 < row.saved_device_seconds


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
