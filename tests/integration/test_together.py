"""Three planes of one operator on a real API server: one demand, one plane that evicts.

Deletions and suspensions are counted from the API server's audit log.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from reprieve.api.reprieve import Preemption
from reprieve.kube.client import Client
from reprieve.kube.resource import LEASES, PREEMPTIONS
from reprieve.scenarios.embedded import OPERATOR_NAMESPACE
from tests.integration.audited_planes import (
    PATIENCE_S,
    create,
    decided,
    evictions,
    idle_for,
    runs,
    until,
    use,
)
from tests.integration.control_plane import ControlPlane
from tests.together.site import deployment, job, node
from tests.together.stories import STORIES, Unit

pytestmark = pytest.mark.usefixtures("with_pod_groups")


async def test_one_plane_evicts_for_each_demand(audited: ControlPlane, tmp_path: Path) -> None:
    """A job that its quota refuses gets no victim; another gets idle work before busy work."""
    async with decided(audited, tmp_path, (node("n0"), node("n1"))) as (stage, client, operator):
        idle, busy = deployment("ann", "b", priority="high"), deployment("bob", "b")
        tune = job("tune", "a", priority="high", queued=True)
        for unit in (idle, busy, tune, job("rest", "a", priority="high", opted=False)):
            await create(client, stage, unit)
        await until("all run", lambda: runs(client, "ann", "bob", "tune", "rest"))
        use(stage, idle, 0.0)
        # Its quota is all in use: it comes first, and nobody goes for it.
        await create(client, stage, job("refused", "a", priority="high", queued=True))
        await operator.until_said("Active -> Idle", PATIENCE_S)
        await until("ann's grace is over", lambda: idle_for(client, 6))
        # Were it served, nobody idle would be left for the next one, and bob would go.
        await create(client, stage, job("wanted", "c", priority="high"))
        await until("it runs", lambda: runs(client, "wanted", "bob", "tune", "rest"))
        assert _evicted(tmp_path) == {("b", "deployments", "ann")}


async def test_two_planes_evict_for_a_demand_where_neither_alone_makes_the_room(
    audited: ControlPlane, tmp_path: Path
) -> None:
    async with decided(audited, tmp_path, (node("n0"),)) as (stage, client, operator):
        idle, busy = deployment("ann", "b", priority="high"), job("bob", "b", opted=False)
        for unit in (idle, busy):
            await create(client, stage, unit)
        await until("all run", lambda: runs(client, "ann", "bob"))
        use(stage, idle, 0.0)
        await operator.until_said("Active -> Idle", PATIENCE_S)
        await until("ann's grace is over", lambda: idle_for(client, 6))
        await create(client, stage, job("wanted", "c", gpus=8, priority="high"))
        await until("it runs", lambda: runs(client, "wanted"))
        evicted = sorted((kind, name.partition("-")[0]) for _, kind, name in _evicted(tmp_path))
        assert evicted == [("deployments", "ann"), ("pods", "bob")]


@pytest.mark.slow
@pytest.mark.parametrize("name", STORIES)
async def test_nobody_goes_but_who_has_to(audited: ControlPlane, tmp_path: Path, name: str) -> None:
    story = STORIES[name]
    nodes = tuple(node(f"n{number}", gpus) for number, gpus in enumerate(story.nodes))
    async with decided(audited, tmp_path, nodes, story.quotas) as (stage, client, _operator):
        for unit in story.units:
            await create(client, stage, unit)
            running = unit[0]["metadata"]["name"]
            await until("it runs", partial(runs, client, running))
        for unit in story.units[: story.idle]:
            use(stage, unit, 0.0)
        if story.idle:
            await until("the grace is over", lambda: idle_for(client, 6, story.idle))
        await create(client, stage, story.wanted)
        await until("it runs", lambda: runs(client, "wanted"))
        if story.goes:
            await until("all records are closed", lambda: _closed(client))
        evicted = {
            root
            for _, kind, name in _evicted(tmp_path)
            for root in [_unit_of(kind, name, story.units)]
        }
        assert evicted == story.goes


def _unit_of(kind: str, name: str, units: tuple[list[dict[str, Any]], ...]) -> str:
    """Return the name of a root; of a pod that a controller made, that of its controller."""
    roots = [each["metadata"]["name"] for unit in units for each in unit]
    if kind != "pods" or name in roots:
        return name
    return next((root for root in roots if name.startswith(f"{root}-")), name)


async def test_a_new_leader_goes_on_with_a_demand_between_its_stages(
    audited: ControlPlane, tmp_path: Path
) -> None:
    """The leader is killed as soon as its quota plane has recorded whom it evicts."""
    async with decided(audited, tmp_path, (node("n0"),), operators=2) as (stage, client, operator):
        notebook = job("notebook", "b", priority="high")
        for unit in (job("sweep", "b", queued=True), notebook):
            await create(client, stage, unit)
        await until("both run", lambda: runs(client, "sweep", "notebook"))
        use(stage, notebook, 0.0)
        await operator.until_said("Active -> Idle", PATIENCE_S)
        await create(client, stage, job("wanted", "a", priority="high", queued=True))
        await until("a record", lambda: _recorded(client))
        os.kill(await _leader(client, operator.pids), signal.SIGKILL)
        await until("it runs", lambda: runs(client, "wanted"))
        await until("its record is closed", lambda: _closed(client))
        records = (await client.list(PREEMPTIONS, Preemption)).items
        said = [[stage.plane for stage in each.spec.stages] for each in records]
        evicted = {name for _, _, name in _evicted(tmp_path)}
        assert (evicted, said) == ({"sweep"}, [["quota", "scheduling"]])


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["recorded", "evicted", "recorded again", "all evicted"])
@pytest.mark.parametrize(
    ("gpus", "idle", "stays"),
    [
        (6, 4, job("stays", "b", gpus=2, priority="high", opted=False)),
        (4, 1, job("stays", "b", opted=False)),
    ],
    ids=["neither is enough", "priority is enough"],
)
async def test_a_new_leader_evicts_the_rest_of_a_mixture_and_nobody_twice(
    audited: ControlPlane, tmp_path: Path, moment: str, gpus: int, idle: int, stays: Unit
) -> None:
    """The leader is killed between the two planes of one demand; counted by the audit log."""
    given = (audited, tmp_path, (node("n0"),), {"a": 8, "b": 0})
    async with decided(*given, operators=2) as (stage, client, operator):
        moments = {
            "recorded": lambda: _recorded(client),
            "evicted": lambda: _gone(tmp_path, 1),
            "recorded again": lambda: _recorded(client, 2),
            "all evicted": lambda: _gone(tmp_path, 2),
        }
        ann = job("ann", "b", gpus=idle, priority="high")
        for unit in (ann, job("tim", "b", gpus=2, opted=False), stays):
            await create(client, stage, unit)
        await until("all run", lambda: runs(client, "ann", "tim", "stays"))
        use(stage, ann, 0.0)
        await operator.until_said("Active -> Idle", PATIENCE_S)
        await until("the grace is over", lambda: idle_for(client, 6))
        await create(client, stage, job("wanted", "a", gpus=gpus, priority="high"))
        await until(moment, moments[moment])
        os.kill(await _leader(client, operator.pids), signal.SIGKILL)
        await until("it runs", lambda: runs(client, "wanted"))
        await until("its records are closed", lambda: _closed(client))
        gone = Counter(each[2].partition("-")[0] for each in evictions(tmp_path))
        assert gone == {"ann": 1, "tim": 1}


async def _recorded(client: Client, records: int = 1) -> bool:
    return len((await client.list(PREEMPTIONS, Preemption)).items) >= records


async def _gone(folder: Path, units: int) -> bool:
    return len(_evicted(folder)) >= units


async def _closed(client: Client) -> bool:
    found = (await client.list(PREEMPTIONS, Preemption)).items
    return bool(found) and not any(each.status.phase.open for each in found)


async def _leader(client: Client, pids: list[int]) -> int:
    """Return the process that holds the operator's lease, whose holder names it."""
    for lease in (await client.list(LEASES, dict, namespace=OPERATOR_NAMESPACE)).items:
        holder = str(lease["spec"].get("holderIdentity", ""))
        for pid in pids:
            if f"_{pid}_" in holder:
                return pid
    raise AssertionError(f"none of {pids} leads")


def _evicted(folder: Path) -> set[tuple[str, str, str]]:
    """Return what the operator deleted or suspended, as namespace, resource and name."""
    return {each[:3] for each in evictions(folder)}
