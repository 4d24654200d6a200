"""Three planes of one process, and one demand: one plane evicts, and no more than helps."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from reprieve.api.reprieve import Preemption
from reprieve.engine.scheduling.session import GROUP_POST_FILTERS
from reprieve.kube.resource import PREEMPTIONS
from reprieve.records.scheduling.replay import decide_scheduling_again
from tests.together.site import PODS, deployment, gang, job, node, queued_pods, site

HOST = "kubernetes.io/hostname"
SLOW = "sim.reprieve.dev/termination-time"


async def test_no_idle_work_is_evicted_for_a_job_that_its_quota_refuses(tmp_path: Path) -> None:
    notebooks = [job(f"notebook-{number}", "b") for number in range(3)]
    async with site(tmp_path, [node("n0"), node("n1")], {"a": 4, "b": 0}) as cluster:
        await cluster.runs(job("tune", "a", priority="high", queued=True), *notebooks)
        await cluster.idle(*notebooks)
        evicted = await cluster.demand(job("wanted", "a", priority="high", queued=True))
        assert (evicted, cluster.placed("wanted")) == ({}, 0)


async def test_idle_work_is_evicted_before_busy_work_of_lower_priority(tmp_path: Path) -> None:
    idle, busy = deployment("ann", "b", priority="high"), deployment("bob", "b")
    async with site(tmp_path, [node("n0")], {"a": 8, "b": 0}) as cluster:
        await cluster.runs(idle, busy)
        await cluster.idle(idle)
        evicted = await cluster.demand(job("wanted", "a", priority="high"))
        assert (evicted, cluster.placed("wanted"), cluster.placed("bob")) == ({"ann": 4}, 1, 1)


@pytest.mark.thorough
async def test_work_that_has_not_opted_in_goes_by_priority_alone(tmp_path: Path) -> None:
    idle, busy = deployment("ann", "b", priority="high"), deployment("bob", "b", opted=False)
    async with site(tmp_path, [node("n0")], {"a": 8, "b": 0}) as cluster:
        await cluster.runs(idle, busy)
        await cluster.idle(idle)
        evicted = await cluster.demand(job("wanted", "a", priority="high", opted=False))
        assert (evicted, cluster.placed("wanted"), cluster.placed("ann")) == ({"bob": 4}, 1, 1)


@pytest.mark.thorough
@pytest.mark.parametrize("opted", [True, False])
async def test_idle_work_goes_for_the_demand_that_gets_its_room(
    tmp_path: Path, opted: bool
) -> None:
    """The older demand wants all of it, and the one of higher priority would take a half."""
    idle = [deployment(name, "b", priority="high") for name in ("ann", "bob")]
    async with site(tmp_path, [node("n0")], {"a": 8, "b": 0}) as cluster:
        await cluster.runs(*idle)
        await cluster.runs(job("wide", "a", gpus=8, priority="low"))
        await cluster.runs(job("wanted", "a", priority="high", opted=opted))
        await cluster.idle(*idle)
        await cluster.rest()
        assert (cluster.placed("wanted"), cluster.placed("wide")) == (int(opted), 0)
        # Nobody goes for who has not opted in, and so nobody goes in vain.
        assert sum(cluster.evicted.values()) == 4 * opted


async def test_a_gang_of_mode_all_is_evicted_whole_by_the_idle_plane(tmp_path: Path) -> None:
    ring = gang("ring", "b", priority="high")
    async with site(tmp_path, [node("n0")], {"a": 8, "b": 0}) as cluster:
        await cluster.runs(ring)
        await cluster.idle(ring)
        evicted = await cluster.demand(job("wanted", "a", priority="high"))
        assert (evicted, cluster.placed("wanted")) == ({"ring": 8}, 1)


@pytest.mark.thorough
async def test_a_gang_of_mode_all_stays_while_one_of_its_pods_works(tmp_path: Path) -> None:
    ring = gang("ring", "b", priority="high")
    async with site(tmp_path, [node("n0")], {"a": 8, "b": 0}) as cluster:
        await cluster.runs(ring)
        await cluster.idle(ring[:2])
        evicted = await cluster.demand(job("wanted", "a", priority="high"))
        assert (evicted, cluster.placed("wanted"), cluster.placed("ring")) == ({}, 0, 2)


@pytest.mark.thorough
async def test_nobody_is_evicted_for_a_gang_that_no_cluster_state_can_hold(tmp_path: Path) -> None:
    idle = [job(f"idle-{number}", "b", gpus=8) for number in range(2)]
    async with site(tmp_path, [node("n0"), node("n1")], {"a": 8, "b": 0}) as cluster:
        await cluster.runs(*idle)
        await cluster.idle(*idle)
        evicted = await cluster.demand(gang("wanted", "a", pods=3, gpus=8, priority="high"))
        assert (evicted, cluster.placed("wanted")) == ({}, 0)


@pytest.mark.thorough
async def test_a_gang_is_one_demand_and_takes_the_smallest_idle_work(tmp_path: Path) -> None:
    large, small = gang("large", "b", pods=2, mode="single"), job("small", "b", gpus=1)
    rest = job("rest", "b", gpus=4, priority="high", opted=False)
    async with site(tmp_path, [node("n0"), node("n1")], {"a": 8, "b": 0}) as cluster:
        await cluster.runs(large, rest, small)
        await cluster.idle(large, small)
        evicted = await cluster.demand(gang("wanted", "a", pods=2, priority="high"))
        assert evicted == {"large": 4} or evicted == {"small": 1, "large": 4}
        assert cluster.placed("wanted") == 2
        assert sum(evicted.values()) <= 5


async def test_nobody_is_evicted_for_a_gang_that_idle_work_helps_in_part(tmp_path: Path) -> None:
    idle, stays = job("ann", "b"), job("stays", "b", priority="high", opted=False)
    async with site(tmp_path, [node("n0", 4), node("n1", 4)], {"a": 8, "b": 0}) as cluster:
        await cluster.runs(idle, stays)
        await cluster.idle(idle)
        evicted = await cluster.demand(gang("wanted", "a", pods=2, priority="high"))
        assert (evicted, cluster.placed("wanted")) == ({}, 0)


async def test_room_of_quota_victims_that_still_end_is_waited_for(tmp_path: Path) -> None:
    borrower, idle = job("sweep", "b", queued=True), job("notebook", "b", priority="high")
    async with site(tmp_path, [node("n0")], {"a": 4, "b": 0}) as cluster:
        await cluster.runs(borrower, idle)
        await cluster.idle(idle)
        evicted = await cluster.demand(job("wanted", "a", priority="high", queued=True))
        assert (evicted, cluster.placed("wanted")) == ({"sweep": 4}, 1)
        assert cluster.placed("notebook") == 1


async def test_idle_work_stays_where_a_filter_of_the_scheduler_refuses_the_demand(
    tmp_path: Path,
) -> None:
    apart = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "topologyKey": "kubernetes.io/hostname",
                    "namespaces": ["b"],
                    "labelSelector": {"matchLabels": {"tests/unit": "neighbour"}},
                }
            ]
        }
    }
    idle = job("notebook", "b", priority="high")
    neighbour = job("neighbour", "b", priority="high", opted=False)
    labels = {"kubernetes.io/hostname": "n0"}
    async with site(tmp_path, [node("n0", labels=labels)], {"a": 8, "b": 0}) as cluster:
        await cluster.runs(idle, neighbour)
        await cluster.idle(idle)
        evicted = await cluster.demand(job("wanted", "a", priority="high", affinity=apart))
        assert (evicted, cluster.placed("wanted")) == ({}, 0)
        assert cluster.placed("notebook") == 1


@pytest.mark.thorough
async def test_one_pod_of_idle_work_goes_where_one_is_enough_and_its_priority_allows_it(
    tmp_path: Path,
) -> None:
    idle = deployment("notebooks", "b", pods=2, gpus=8, priority="low")
    async with site(tmp_path, [node("n0"), node("n1")], {"a": 8, "b": 0}) as cluster:
        await cluster.runs(idle)
        await cluster.idle(idle)
        evicted = await cluster.demand(job("wanted", "a", gpus=2, priority="high"))
        assert (evicted, cluster.placed("wanted")) == ({"notebooks": 8}, 1)
        (record,) = (await cluster.client.list(PREEMPTIONS, Preemption)).items
        assert record.spec.input is not None
        again = decide_scheduling_again(record.spec.input, GROUP_POST_FILTERS).plan
        assert again is not None
        assert [each.root.uid for each in again.victims] == [
            each.root.uid for each in record.spec.victims
        ]


@pytest.mark.thorough
async def test_pods_of_one_job_share_the_room_of_one_victim(tmp_path: Path) -> None:
    busy = [job(f"busy-{number}", "b", gpus=8, opted=False) for number in range(2)]
    async with site(tmp_path, [node("n0"), node("n1")], {"a": 8, "b": 0}) as cluster:
        await cluster.runs(*busy)
        evicted = await cluster.demand(job("wanted", "a", pods=2, gpus=4, priority="high"))
        assert (sum(evicted.values()), cluster.placed("wanted")) == (8, 2)


async def test_nobody_is_evicted_for_one_pod_of_a_job_whose_room_another_pod_makes(
    tmp_path: Path,
) -> None:
    """Small is the least for one pod alone; all three have room where large goes."""
    small = job("small", "b", gpus=1, nodeSelector={HOST: "n0"})
    large = job("large", "b", gpus=8, nodeSelector={HOST: "n1"})
    nodes = [node("n0", 4), node("n1", 8)]
    async with site(tmp_path, nodes, {"a": 8, "b": 0}) as cluster:
        await cluster.runs(small, large)
        evicted = await cluster.demand(job("wanted", "a", pods=3, gpus=2, priority="high"))
        assert (evicted, cluster.placed("wanted")) == ({"large": 8}, 3)


async def test_idle_work_is_evicted_for_the_quota_that_a_queued_job_lacks(tmp_path: Path) -> None:
    idle, busy = job("notebook", "a", queued=True), job("tune", "a", queued=True)
    async with site(tmp_path, [node("n0")], {"a": 8, "b": 0}) as cluster:
        await cluster.runs(idle, busy)
        await cluster.idle(idle)
        evicted = await cluster.demand(job("wanted", "a", queued=True))
        placed = {unit: cluster.placed(unit) for unit in ("wanted", "tune")}
        assert (evicted, placed) == ({"notebook": 4}, {"wanted": 1, "tune": 1})


@pytest.mark.thorough
@pytest.mark.parametrize("pods", [1, 2])
async def test_idle_work_is_evicted_for_the_quota_that_queued_pods_without_an_owner_lack(
    tmp_path: Path, pods: int
) -> None:
    idle, busy = job("notebook", "a", queued=True), job("tune", "a", queued=True)
    wanted = queued_pods("wanted", "a", pods=pods, gpus=4 // pods)
    async with site(tmp_path, [node("n0")], {"a": 8, "b": 0}, config=PODS) as cluster:
        await cluster.runs(idle, busy)
        await cluster.idle(idle)
        evicted = await cluster.demand(wanted)
        placed = {unit: cluster.placed(unit) for unit in ("wanted", "tune")}
        assert (evicted, placed) == ({"notebook": 4}, {"wanted": pods, "tune": 1})


@pytest.mark.thorough
@pytest.mark.parametrize("pods", [1, 2])
async def test_idle_work_goes_before_a_queue_takes_quota_back_for_pods_without_an_owner(
    tmp_path: Path, pods: int
) -> None:
    idle = job("notebook", "b", priority="high", queued=True)
    busy = job("tune", "b", queued=True)  # whom the rules of quota would take first
    wanted = queued_pods("wanted", "a", pods=pods, gpus=4 // pods)
    async with site(tmp_path, [node("n0")], {"a": 4, "b": 4}, config=PODS) as cluster:
        await cluster.runs(idle, busy)
        await cluster.idle(idle)
        evicted = await cluster.demand(wanted)
        assert (evicted, cluster.placed("wanted")) == ({"notebook": 4}, pods)


@pytest.mark.parametrize(
    "wanted",
    [
        pytest.param(queued_pods("wanted", "a"), marks=pytest.mark.thorough),
        pytest.param(queued_pods("wanted", "a", pods=2, gpus=2), marks=pytest.mark.slow),
        pytest.param(job("wanted", "a", queued=True), marks=pytest.mark.thorough),
    ],
    ids=["pod", "group", "job"],
)
async def test_a_queue_waits_for_idle_work_that_ends_slowly(
    tmp_path: Path, wanted: list[dict[str, Any]]
) -> None:
    idle = job("notebook", "b", priority="high", queued=True)
    idle[0]["metadata"]["finalizers"] = ["tests.example/stays"]
    busy = job("tune", "b", queued=True)
    async with site(tmp_path, [node("n0")], {"a": 4, "b": 4}, config=PODS) as cluster:
        await cluster.runs(idle, busy)
        await cluster.idle(idle)
        assert await cluster.demand(wanted) == {"notebook": 4}


@pytest.mark.thorough
async def test_other_idle_work_goes_for_a_queue_where_the_first_does_not_end_in_time(
    tmp_path: Path,
) -> None:
    """A finalizer of its owner keeps the root, so that nobody ends its pods."""
    kept, other = (job(name, "b", gpus=8, queued=True) for name in ("kept", "other"))
    kept[0]["metadata"]["finalizers"] = ["tests.example/stays"]
    async with site(tmp_path, [node("n0"), node("n1")], {"a": 8, "b": 8}) as cluster:
        for each in (kept, other):
            await cluster.runs(each)
            await cluster.idle(each)
        evicted = await cluster.demand(job("wanted", "a", gpus=8, queued=True))
        assert (evicted, cluster.placed("wanted")) == ({"kept": 8}, 0)
        await asyncio.sleep(330)
        await cluster.rest()
        assert (cluster.evicted, cluster.placed("wanted")) == ({"kept": 8, "other": 8}, 1)


@pytest.mark.thorough
async def test_a_queued_group_of_pods_is_one_demand_while_idle_work_ends_slowly(
    tmp_path: Path,
) -> None:
    notebooks = [job(f"notebook-{number}", "a", queued=True) for number in range(4)]
    for each in notebooks:
        each[0]["metadata"]["finalizers"] = ["tests.example/stays"]
    nodes = [node("n0"), node("n1")]
    async with site(tmp_path, nodes, {"a": 16, "b": 0}, config=PODS) as cluster:
        await cluster.runs(*notebooks)
        await cluster.idle(*notebooks)
        evicted = await cluster.demand(queued_pods("wanted", "a", pods=2))
        assert sum(evicted.values()) == 8


async def test_idle_work_is_evicted_before_a_queue_takes_its_quota_back(tmp_path: Path) -> None:
    idle = job("notebook", "b", priority="high", queued=True)
    busy = job("tune", "b", queued=True)  # whom the rules of quota would take first
    async with site(tmp_path, [node("n0")], {"a": 4, "b": 4}) as cluster:
        await cluster.runs(idle, busy)
        await cluster.idle(idle)
        evicted = await cluster.demand(job("wanted", "a", queued=True))
        assert (evicted, cluster.placed("wanted")) == ({"notebook": 4}, 1)


@pytest.mark.thorough
async def test_no_idle_work_is_evicted_for_quota_that_another_would_get(tmp_path: Path) -> None:
    """The eight that wait first would take what comes free, and fit no better for it."""
    idle = job("notebook", "a", queued=True)
    first = job("first", "a", pods=2, queued=True, opted=False)
    async with site(tmp_path, [node("n0"), node("n1", 4)], {"a": 12, "b": 0}) as cluster:
        await cluster.runs(job("tune", "a", queued=True), job("train", "a", queued=True), idle)
        await cluster.runs(first)
        await cluster.idle(idle)
        evicted = await cluster.demand(job("wanted", "a", pods=1, queued=True))
        assert (evicted, cluster.placed("wanted"), cluster.placed("first")) == (
            {"notebook": 4},
            1,
            0,
        )


@pytest.mark.parametrize("rival", [True, False])
async def test_no_idle_work_is_evicted_for_quota_that_an_earlier_job_would_take(
    tmp_path: Path, rival: bool
) -> None:
    """What waits first has not opted in, so that nobody goes for it."""
    idle = job("notebook", "a", queued=True)
    async with site(tmp_path, [node("n0")], {"a": 8, "b": 0}) as cluster:
        await cluster.runs(job("tune", "a", queued=True), idle)
        if rival:
            await cluster.runs(job("first", "a", queued=True, opted=False))
        await cluster.idle(idle)
        evicted = await cluster.demand(job("wanted", "a", queued=True))
        assert (evicted, cluster.placed("wanted")) == (({}, 0) if rival else ({"notebook": 4}, 1))


@pytest.mark.thorough
@pytest.mark.parametrize(("policy", "goes"), [("PreemptLowerPriority", True), ("Never", False)])
async def test_quota_evicts_for_no_pods_that_could_not_make_the_rest_of_their_room(
    tmp_path: Path, policy: str, goes: bool
) -> None:
    nodes = [node(f"n{n}", 4, {"rack": str(n)}) for n in range(2)]
    units = [
        job(f"{name}-{n}", "b", gpus=2, queued=queued, opted=False, nodeSelector={"rack": str(n)})
        for name, queued in (("sweep", True), ("beside", False))
        for n in range(2)
    ]
    async with site(tmp_path, nodes, {"a": 4, "b": 0}) as cluster:
        made = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 500}
        await cluster.create({**made, "metadata": {"name": "own"}, "preemptionPolicy": policy})
        await cluster.runs(*units)
        evicted = await cluster.demand(job("wanted", "a", priority="own", queued=True))
        assert (evicted != {}, cluster.placed("wanted")) == (goes, int(goes))


async def test_idle_work_and_work_of_lower_priority_go_together_where_neither_is_enough(
    tmp_path: Path,
) -> None:
    idle, busy = deployment("ann", "b", priority="high"), deployment("bob", "b")
    spare = job("spare", "b", gpus=2, priority="high")  # idle, and of no use
    async with site(tmp_path, [node("n0"), node("n1", 2)], {"a": 8, "b": 0}) as cluster:
        await cluster.runs(idle, busy, spare)
        await cluster.idle(idle, spare)
        evicted = await cluster.demand(job("wanted", "a", gpus=8, priority="high"))
        assert (evicted, cluster.placed("wanted")) == ({"ann": 4, "bob": 4}, 1)


@pytest.mark.thorough
async def test_nobody_goes_where_idle_work_and_work_of_lower_priority_together_are_too_little(
    tmp_path: Path,
) -> None:
    idle = deployment("ann", "b", gpus=2, priority="high")
    low, high = deployment("bob", "b", gpus=2), job("tune", "b", priority="high", opted=False)
    async with site(tmp_path, [node("n0")], {"a": 8, "b": 0}) as cluster:
        await cluster.runs(idle, low, high)
        await cluster.idle(idle)
        evicted = await cluster.demand(job("wanted", "a", gpus=8, priority="high"))
        assert (evicted, cluster.placed("wanted")) == ({}, 0)


@pytest.mark.thorough
async def test_a_gang_takes_idle_work_and_work_of_lower_priority(tmp_path: Path) -> None:
    idle = job("ann", "b", gpus=8, priority="high")
    low = job("bob", "b", gpus=8, opted=False)
    async with site(tmp_path, [node("n0"), node("n1")], {"a": 8, "b": 0}) as cluster:
        await cluster.runs(idle, low)
        await cluster.idle(idle)
        evicted = await cluster.demand(gang("wanted", "a", pods=2, gpus=8, priority="high"))
        assert (evicted, cluster.placed("wanted")) == ({"ann": 8, "bob": 8}, 2)


@pytest.mark.thorough
async def test_idle_work_goes_for_quota_where_lower_priority_makes_the_rest_of_the_room(
    tmp_path: Path,
) -> None:
    idle, busy = job("notebook", "b", priority="high", queued=True), job("bob", "b")
    async with site(tmp_path, [node("n0")], {"a": 4, "b": 4}) as cluster:
        await cluster.runs(idle, busy)
        await cluster.idle(idle)
        evicted = await cluster.demand(job("wanted", "a", gpus=8, priority="high", queued=True))
        assert (evicted, cluster.placed("wanted")) == ({"notebook": 4, "bob": 4}, 1)


@pytest.mark.thorough
async def test_no_idle_work_goes_for_quota_where_the_rest_of_the_room_cannot_be_made(
    tmp_path: Path,
) -> None:
    idle, busy = job("notebook", "b", priority="high", queued=True), job("tune", "b")
    async with site(tmp_path, [node("n0")], {"a": 4, "b": 4}) as cluster:
        await cluster.runs(idle, busy)
        await cluster.idle(idle)
        evicted = await cluster.demand(job("wanted", "a", gpus=8, queued=True))
        assert (evicted, cluster.placed("wanted")) == ({}, 0)


@pytest.mark.thorough
async def test_a_queued_job_gets_the_flavor_whose_nodes_have_room_for_it(tmp_path: Path) -> None:
    nodes = [node("n0", 4, {"gpu": "new"}), node("n1", 4, {"gpu": "old"})]
    busy = job("tune", "b", priority="high", opted=False, nodeSelector={"gpu": "new"})
    flavors = ("new", "old")
    async with site(tmp_path, nodes, {"a": 4, "b": 0}, flavors=flavors) as cluster:
        await cluster.runs(busy)
        evicted = await cluster.demand(job("wanted", "a", queued=True))
        assert (evicted, cluster.placed("wanted"), cluster.placed("tune")) == ({}, 1, 1)


async def test_a_queued_job_gets_the_flavor_whose_nodes_can_be_made_free(tmp_path: Path) -> None:
    nodes = [node("n0", 4, {"gpu": "new"}), node("n1", 4, {"gpu": "old"})]
    busy = job("tune", "b", priority="high", opted=False, nodeSelector={"gpu": "new"})
    low = job("bob", "b", opted=False, nodeSelector={"gpu": "old"})
    flavors = ("new", "old")
    async with site(tmp_path, nodes, {"a": 4, "b": 0}, flavors=flavors) as cluster:
        await cluster.runs(busy, low)
        evicted = await cluster.demand(job("wanted", "a", priority="high", queued=True))
        assert (evicted, cluster.placed("wanted")) == ({"bob": 4}, 1)


@pytest.mark.thorough
async def test_idle_work_goes_where_room_is_promised_to_a_demand_that_has_not_opted_in(
    tmp_path: Path,
) -> None:
    """The room that bob leaves is the first one's; the idle plane knows no demand of it."""
    names = ("n0", "n1", "n2")
    nodes = [node(name, 4) for name in names]
    slow = job("bob", "b", nodeSelector={HOST: "n0"}, terminationGracePeriodSeconds=600)
    slow[0]["spec"]["template"]["metadata"]["annotations"] = {SLOW: "120s"}
    idle = job("ann", "b", priority="high", nodeSelector={HOST: "n1"})
    busy = job("cat", "b", nodeSelector={HOST: "n2"})
    async with site(tmp_path, nodes, {"a": 8, "b": 0}) as cluster:
        await cluster.runs(slow, idle, busy)
        await cluster.idle(idle)
        first = job("first", "a", priority="high", opted=False, nodeSelector={HOST: "n0"})
        await cluster.runs(first)
        assert cluster.evicted == {"bob": 4} and not cluster.placed("first")
        evicted = await cluster.demand(job("wanted", "a", priority="high"))
        assert (evicted, cluster.placed("wanted"), cluster.placed("cat")) == ({"ann": 4}, 1, 1)


@pytest.mark.thorough
async def test_idle_work_goes_for_a_later_demand_where_the_first_would_not_get_its_room(
    tmp_path: Path,
) -> None:
    """Another one of higher priority would use a half of it, which the second one leaves it."""
    idle = deployment("ann", "b", priority="high")
    async with site(tmp_path, [node("n0", 4)], {"a": 8, "b": 0}) as cluster:
        await cluster.runs(idle)
        await cluster.runs(job("above", "a", gpus=2, priority="high", opted=False))
        await cluster.runs(job("first", "a", gpus=4, priority="low"))
        await cluster.idle(idle)
        await cluster.rest()
        assert cluster.evicted == {}
        evicted = await cluster.demand(job("second", "a", gpus=2, priority="low"))
        placed = {name: cluster.placed(name) for name in ("above", "first", "second")}
        assert (evicted, placed) == ({"ann": 4}, {"above": 1, "first": 0, "second": 1})
