"""Calls that fail, processes that die, victims that stay: nobody is evicted beyond a plan."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kubelocal.cluster import Stage, Write
from kubelocal.server.errors import StatusError
from reprieve.kube.resource import NODES
from reprieve.scenarios.embedded import OPERATOR_USER
from tests.scheduling.site import NAMESPACE, POD_GROUPS, Hook, Site, node, pod, site

_NODES = [node("node-0"), node("node-1")]


#: The rest of the twelve is left to the slow run.
_DELETIONS = ((0, 403), (1, 500), (2, 504), (3, 403))


def _error(code: int) -> StatusError:
    reason = {403: "Forbidden", 500: "InternalError", 504: "Timeout"}[code]
    return StatusError(code, reason, f"the test says {code}")


def fails(verb: str, ending: str, code: int, stage: Stage = Stage.BEFORE, times: int = 1) -> Hook:
    """Return a hook that answers the first `times` matching writes with an error."""
    left = times

    async def hook(write: Write, at: Stage) -> None:
        nonlocal left
        if left and at is stage and write.verb == verb and write.path.endswith(ending):
            left -= 1
            raise _error(code)

    return hook


async def nominated(cluster: Site) -> dict[str, str]:
    return {
        name: pod["status"]["nominatedNodeName"]
        for name, pod in (await cluster.pods()).items()
        if pod["status"].get("nominatedNodeName")
    }


async def group_is_scheduled(cluster: Site, name: str) -> bool:

    found = await cluster.client.get(POD_GROUPS, NAMESPACE, name, dict)
    conditions = found.get("status", {}).get("conditions", ())
    return any(
        each["type"] == "PodGroupInitiallyScheduled" and each["status"] == "True"
        for each in conditions
    )


@pytest.mark.parametrize("k", range(3))
async def test_when_one_binding_fails_the_others_stay_and_its_room_is_kept(
    k: int, tmp_path: Path
) -> None:
    async with site([node("node-0", 6)], tmp_path) as cluster:
        cluster.hook = fails("create", f"/high-{k}/binding", 403, times=1_000)
        await cluster.operator()
        await cluster.filled(count=1, cpu=1)
        members = await cluster.gang(3, 1)

        async def others() -> bool:
            bound = (await cluster.placed()).keys() & members
            return bound == members - {f"high-{k}"} and f"high-{k}" in await nominated(cluster)

        await cluster.until("two members bound, the third nominated", others)
        cluster.hook = None
        await cluster.until_placed(members)

        async def scheduled() -> bool:
            return await group_is_scheduled(cluster, "high")

        await cluster.until("the group is scheduled", scheduled)
        assert not await cluster.victims()

        async def told() -> bool:
            return any(
                event["reason"] == "FailedScheduling" and "the test says 403" in event["message"]
                for event in await cluster.events()
            )

        await cluster.until("the failure is told", told)


async def test_a_binding_whose_answer_is_lost_is_not_repeated(tmp_path: Path) -> None:
    async with site([node("node-0", 6)], tmp_path) as cluster:
        calls: Counter[str] = Counter()
        lost = fails("create", "/high-1/binding", 500, Stage.STORED)

        async def hook(write: Write, at: Stage) -> None:
            if at is Stage.BEFORE and write.path.endswith("/binding"):
                calls[write.path] += 1
            await lost(write, at)

        cluster.hook = hook
        await cluster.operator()
        await cluster.filled(count=1, cpu=1)
        await cluster.until_placed(await cluster.gang(3, 1))
        assert set(calls.values()) == {1}


@pytest.mark.parametrize(
    ("k", "code"),
    [
        pytest.param(k, code, marks=() if (k, code) in _DELETIONS else pytest.mark.slow)
        for k in range(4)
        for code in (403, 500, 504)
    ],
)
async def test_when_the_deletion_of_a_victim_fails_the_gang_gets_its_room_all_the_same(
    k: int, code: int, tmp_path: Path
) -> None:
    async with site(_NODES, tmp_path) as cluster:
        await cluster.operator()
        await cluster.filled()
        stage = Stage.STORED if code == 504 else Stage.BEFORE
        cluster.hook = fails("delete", f"/pods/low-{k}", code, stage)
        members = await cluster.gang()

        async def over() -> bool:
            await cluster.end()
            return members <= (await cluster.placed()).keys()

        await cluster.until("the gang is bound", over)
        assert set(cluster.deleted.values()) == {1}
        assert len(cluster.deleted) == 4
        await _every_victim_was_planned(cluster)


async def _every_victim_was_planned(cluster: Site) -> None:
    planned = {
        victim["root"]["uid"]
        for intent in await cluster.intents()
        for victim in intent["spec"]["victims"]
    }
    assert cluster.deleted.keys() <= planned


async def _until_closed(cluster: Site) -> None:
    async def closed() -> bool:
        intents = await cluster.intents()
        # One that was stored in the moment of a death has no status yet.
        phases = {(intent.get("status") or {}).get("phase") for intent in intents}
        return bool(intents) and phases <= {"Completed", "Abandoned"}

    await cluster.until("every intent is closed", closed)


#: From the intent over the victims' marks and deletions to the bindings.
_WRITES = (2, 3, 7, 12, 15, 20)


async def killed_after(k: int, stage: Stage, folder: Path) -> bool:
    """Play the story with a death at the k-th write; return whether there were so many."""
    async with site(_NODES, folder) as cluster:
        first = await cluster.operator_process()
        await cluster.filled()
        before = len(cluster._numbers)
        dead = asyncio.Event()

        async def kill(write: Write, at: Stage) -> None:
            if at is stage and write.index - before == k and not dead.is_set():
                dead.set()
                os.kill(first.pids[0], signal.SIGKILL)

        cluster.hook = kill
        members = await cluster.gang()

        async def over() -> bool:
            await cluster.end()
            return members <= (await cluster.placed()).keys()

        async def dead_or_over() -> bool:
            return dead.is_set() or await over()

        await cluster.until("a death or the end", dead_or_over)
        if dead.is_set():
            await cluster.free_leases()
            await cluster.operator_process()
        await cluster.until("the gang is bound", over)
        assert set(cluster.deleted.values()) == {1}, "somebody was deleted twice"
        assert len(cluster.deleted) == 4
        await _every_victim_was_planned(cluster)
        await _until_closed(cluster)
        return dead.is_set()


@pytest.mark.real_time
@pytest.mark.parametrize("k", _WRITES)
async def test_a_process_killed_after_a_write_is_finished_by_the_next(
    k: int, tmp_path: Path
) -> None:
    assert await killed_after(k, (Stage.STORED, Stage.ANSWERED)[k % 2], tmp_path)


@pytest.mark.real_time
@pytest.mark.slow
@pytest.mark.parametrize("stage", [Stage.BEFORE, Stage.STORED, Stage.ANSWERED])
@pytest.mark.parametrize("k", range(1, 30))
async def test_a_process_killed_at_any_write_is_finished_by_the_next(
    k: int, stage: Stage, tmp_path: Path
) -> None:
    await killed_after(k, stage, tmp_path)


@pytest.mark.real_time
async def test_a_stopped_leader_that_wakes_up_evicts_nobody_any_more(tmp_path: Path) -> None:
    async with site(_NODES, tmp_path) as cluster:
        first = await cluster.operator_process(lease="4s")
        await cluster.filled()
        stopped = asyncio.Event()

        async def stop(write: Write, at: Stage) -> None:
            if at is Stage.STORED and write.verb == "delete" and not stopped.is_set():
                stopped.set()
                os.kill(first.pids[0], signal.SIGSTOP)

        cluster.hook = stop
        members = await cluster.gang()
        await asyncio.wait_for(stopped.wait(), 60)
        await cluster.operator_process()

        async def over() -> bool:
            await cluster.end()
            return members <= (await cluster.placed()).keys()

        await cluster.until("the gang is bound", over)
        os.kill(first.pids[0], signal.SIGCONT)
        for text in ("the process lease is lost: this process restarts itself", "stands by"):
            await first.until_said(text)
        assert set(cluster.deleted.values()) == {1}
        assert len(cluster.deleted) == 4
        await _every_victim_was_planned(cluster)


async def test_a_victim_that_does_not_end_is_planned_around(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("scheduling: {victimDeadline: 1s}")
    async with site(_NODES, tmp_path) as cluster:
        await cluster.operator("--config", str(config))
        await cluster.classes()

        deleted: list[str] = []

        async def only_the_second_ends(write: Write, at: Stage) -> None:
            if at is Stage.STORED and write.verb == "delete" and "/pods/" in write.path:
                deleted.append(write.path.rpartition("/")[2])
                if len(deleted) == 2:
                    await cluster.end(deleted[1])

        cluster.hook = only_the_second_ends
        brief: dict[str, Any] = {"terminationGracePeriodSeconds": 1}
        await cluster.create(*(pod(f"low-{i}", 4, priority="low", **brief) for i in range(2)))
        await cluster.until_placed({"low-0", "low-1"})
        await cluster.run()
        await cluster.create(pod("high-0", 4, priority="high"))
        await cluster.until_placed({"high-0"})
        stuck, _ = deleted
        assert (await cluster.pods()).keys() == {stuck, "high-0"}

        async def told() -> bool:
            overdue = [e for e in await cluster.events() if e["reason"] == "VictimOverdue"]
            return [event["involvedObject"]["name"] for event in overdue] == [stuck]

        await cluster.until("who does not end is told of", told)


async def test_a_victim_whose_node_becomes_unreachable_is_planned_around(tmp_path: Path) -> None:
    async with site(_NODES, tmp_path, lifecycle=False) as cluster:
        await cluster.operator()
        await cluster.classes()
        await cluster.create(*(pod(f"low-{i}", 4, priority="low") for i in range(2)))
        await cluster.until_placed({"low-0", "low-1"})
        nodes = await cluster.placed()
        await cluster.run()
        await cluster.create(pod("high-0", 4, priority="high"))
        (first,) = await cluster.until_victims(1)
        taint = {"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}
        silent = {"spec": {"taints": [taint]}}
        await cluster.client.patch(NODES, "", nodes[first], silent, dict)
        (second,) = await cluster.until_victims(2) - {first}
        await cluster.end(second)
        await cluster.until_placed({"high-0"})
        assert (await cluster.placed())["high-0"] == nodes[second]
        assert [*cluster.deleted.values()] == [1, 1]


@pytest.mark.parametrize("seed", range(3))
async def test_a_server_that_often_answers_badly_costs_nobody_his_place(
    seed: int, tmp_path: Path
) -> None:
    async with site(_NODES, tmp_path) as cluster:
        await cluster.operator()
        await cluster.filled()
        faults = cluster.embedded.cluster.faults
        faults.configure(
            user=OPERATOR_USER,
            seed=seed,
            conflict=0.1,
            error=0.1,
            too_many=0.05,
            drop_watch=0.05,
        )
        members = await cluster.gang()

        async def over() -> bool:
            await cluster.end()
            return members <= (await cluster.placed()).keys()

        await cluster.until("the gang is bound", over)
        assert faults.counts, "nothing went wrong"
        assert len(cluster.deleted) == 4
        await _every_victim_was_planned(cluster)
