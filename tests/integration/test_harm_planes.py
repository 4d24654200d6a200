"""Harm budgets over the idle and the quota plane on a real API server.

A window that began nine minutes ago ends while the operator has been killed and started again; own
quota that a budget keeps from its ClusterQueue comes back when the stated time is over.
"""

from __future__ import annotations

import asyncio
import datetime
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from kubeworld.units.clock import SystemClock
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import parse_instant
from reprieve.kube.client import Client, connect
from reprieve.kube.credentials import load_connection
from reprieve.kube.resource import HARM_BUDGETS, NAMESPACES, PREEMPTIONS
from reprieve.scenarios.model import NodeSpec
from tests.integration.control_plane import Binaries
from tests.integration.group_plane import on_plane
from tests.integration.settled_story import Story, audited_plane
from tests.integration.site import JOBS, Object, Site
from tests.integration.site import job as gpu_job
from tests.integration.test_quota_plan import _FLAVORS
from tests.quota_plane.site import (
    CLUSTER_QUEUES,
    LOCAL_QUEUES,
    NAMESPACE,
    cluster_queue,
    flavor,
    job,
    local_queue,
)

_NODES: Final = (NodeSpec("node-0", {"cpu": "8", "memory": "16Gi", "pods": "20"}),)
_RECLAIM: Final = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}
_WAIT_S: Final = 25
_PATIENCE_S: Final = 180


def budget(**spec: Any) -> Object:
    """Return a HarmBudget."""
    return {
        "apiVersion": "reprieve.dev/v1alpha1",
        "kind": "HarmBudget",
        "metadata": {"name": "few"},
        "spec": spec,
    }


def ending_soon() -> tuple[str, datetime.datetime]:
    """Return a schedule whose window of ten minutes ends in two to three, and its end."""
    now = datetime.datetime.now(datetime.UTC).replace(second=0, microsecond=0)
    end = now + datetime.timedelta(minutes=3)
    began = end - datetime.timedelta(minutes=10)
    return f"{began.minute} {began.hour} * * *", end


@pytest.mark.slow
@pytest.mark.parametrize("site", ["real"], indirect=True)
async def test_idle_work_is_spared_over_a_kill_until_the_window_is_over(site: Site) -> None:
    for number in range(2):
        site.reports(f"Job/demand-{number}", 90)
    schedule, end = ending_soon()
    given = {"schedule": schedule, "duration": "10m", "planes": ["idle"]}
    await site.create(budget(limits={"displacements": 1}, **given))
    first = await site.operator()
    await _idle_then_wanted(site, 0)
    await site.in_phase("Job/demand-0", "Active")
    await site.delete(JOBS, "demand-0")

    async def stored() -> bool:
        found: Object = await site.client.get(HARM_BUDGETS, "", "few", dict)
        return bool((found.get("status") or {}).get("exhausted"))

    await site.until(stored, "the budget is used up")
    os.kill(first.pids[0], signal.SIGKILL)
    await site.operator()
    await _idle_then_wanted(site, 1)
    waiting = await site.in_phase("Job/demand-1", "PendingGpu")

    async def waits() -> bool:
        return "Normal Waiting" in await site.events(waiting)

    await site.until(waits, "the demand is told why it waits")
    assert datetime.datetime.now(datetime.UTC) < end, "the story was too slow to show it"
    assert len(await site.all(PREEMPTIONS)) == 1
    while datetime.datetime.now(datetime.UTC) < end:
        assert len(await site.all(PREEMPTIONS)) == 1
        await asyncio.sleep(1)
    await site.in_phase("Job/demand-1", "Active")
    decided = sorted(each["spec"]["decidedAt"] for each in await site.all(PREEMPTIONS))
    assert len(decided) == 2
    assert parse_instant(decided[1]) >= int(end.timestamp()) * SECOND


async def _idle_then_wanted(site: Site, number: int) -> None:
    await site.create(gpu_job(f"victim-{number}", 4, grace_period="1s"))
    await site.in_phase(f"Job/victim-{number}", "Idle")
    await site.create(gpu_job(f"demand-{number}", 4, enabled="true"))


@pytest.fixture
def story(with_pod_groups: Binaries, controllers: Binaries, tmp_path: Path) -> Iterator[Story]:
    assert with_pod_groups == controllers
    with audited_plane(controllers, tmp_path) as audited:
        yield audited


@pytest.mark.slow
async def test_own_quota_comes_back_when_the_stated_time_is_over(story: Story) -> None:
    given = (story.plane, story.folder, _NODES, "--controllers", "quota")
    async with on_plane(*given, kueue=True, ready="quota plane runs") as stage:
        connection = await load_connection(str(story.folder / "kubeconfig"))
        client = connect(connection, SystemClock(), field_manager="tests")
        operator = stage.launch({}, 1)
        await operator.start()
        try:
            await _prepared(client)
            for name in ("one", "two"):
                await client.create(JOBS, job(name, "theirs"), dict)
            await _until("both run", lambda: _run(client, "one", "two"))
            await client.create(JOBS, job("own", "ours"), dict)
            await _until("own quota is back", lambda: _run(client, "own"))
            (record,) = (await client.list(PREEMPTIONS, dict)).items
            own: Object = await client.get(JOBS, NAMESPACE, "own", dict)
        except AssertionError as failure:
            raise AssertionError("\n".join([str(failure), *operator.tail(40)])) from None
        finally:
            await operator.stop()
            await client.close()
    asked = parse_instant(own["metadata"]["creationTimestamp"])
    waited = parse_instant(record["spec"]["decidedAt"]) - asked
    assert _WAIT_S * SECOND <= waited <= (_WAIT_S + 20) * SECOND
    print(f"own quota came back after {waited / SECOND} s")


async def _prepared(client: Client) -> None:
    await client.create(NAMESPACES, {"metadata": {"name": NAMESPACE}}, dict)
    await client.create(_FLAVORS, flavor(), dict)
    for name, local in (("cq-own", "ours"), ("cq-other", "theirs")):
        made = cluster_queue(name, 2, "all", preemption=_RECLAIM)
        await client.create(CLUSTER_QUEUES, made, dict)
        await client.create(LOCAL_QUEUES, local_queue(local, name), dict)
    exempt = {"nominalReclaimAfter": f"{_WAIT_S}s"}
    await client.create(
        HARM_BUDGETS, budget(limits={"displacements": 0}, window="24h", exempt=exempt), dict
    )


async def _run(client: Client, *names: str) -> bool:
    page = await client.list(JOBS, dict, namespace=NAMESPACE)
    held = {each["metadata"]["name"]: each["spec"]["suspend"] for each in page.items}
    return not any(held.get(name, True) for name in names)


async def _until(what: str, holds: Callable[[], Awaitable[object]]) -> None:
    for _ in range(_PATIENCE_S * 4):
        if await holds():
            return
        await asyncio.sleep(0.25)
    raise AssertionError(f"not within {_PATIENCE_S} s: {what}")
