"""Plans that share nodes while their victims save: each holds, and each victim is told once.

Every victim requests notice, and all preemptors are there before the first victim has saved. What
is asserted is counted from the records and deletions of the API server.
"""

from __future__ import annotations

from functools import partial
from itertools import permutations

import pytest

from kubeworld.units.durations import MINUTE, SECOND
from tests.scheduling.memory import Memory, memory
from tests.scheduling.site import Object, group, pod
from tests.scheduling.test_notice import ALLOWED, asking, phases, report_saved, told

ORDERS = list(permutations(range(3)))


def _more_than(cluster: Memory, before: int) -> bool:
    return len(cluster.intents()) > before


async def asked_by_three(cluster: Memory, *units: list[Object]) -> list[str]:
    """Let three preemptors come; return the names of their victims."""
    for unit in units:
        before = len(cluster.intents())
        cluster.create(*unit)
        await cluster.until(partial(_more_than, cluster, before))
        await cluster.pass_time(SECOND)
    assert phases(cluster) == ["Noticed"] * 3
    return sorted(cluster.planned())


async def saved_in_order(cluster: Memory, *turns: list[str]) -> None:
    for names in turns:
        assert all(told(cluster, name) is not None for name in names)
        report_saved(cluster, *names)
        for _ in range(7):
            await cluster.pass_time(SECOND)
            cluster.end_all()


def held(cluster: Memory, names: list[str]) -> None:
    """Every plan was carried out, nobody was told by another one, everybody went once."""
    assert len(cluster.intents()) == 3
    assert "Abandoned" not in phases(cluster)
    assert dict(cluster.api.deleted) == dict.fromkeys(names, 1)


@pytest.mark.parametrize("order", ORDERS)
async def test_pods_that_share_a_node_get_their_room(order: tuple[int, ...]) -> None:
    async with memory() as cluster:
        cluster.nodes([4])
        for number in range(4):
            cluster.running(asking(f"old-{number}", 1, "2m"), "node-0")
        cluster.start(section=ALLOWED)
        await cluster.pass_time(SECOND)
        news = [f"new-{number}" for number in range(3)]
        names = await asked_by_three(cluster, *([pod(new, 1, priority="high")] for new in news))
        assert len(names) == 3

        await saved_in_order(cluster, *([names[at]] for at in order))
        await cluster.until(lambda: set(news) <= cluster.placed().keys())

        held(cluster, names)


@pytest.mark.parametrize("order", ORDERS)
async def test_gangs_that_share_two_nodes_get_their_room(order: tuple[int, ...]) -> None:
    async with memory() as cluster:
        cluster.nodes([4, 4])
        for number in range(8):
            cluster.running(asking(f"old-{number}", 1, "2m"), f"node-{number % 2}")
        cluster.start(section=ALLOWED)
        await cluster.pass_time(SECOND)
        gangs = [
            [
                group(f"g{number}", min_count=2, priority="high"),
                *(pod(f"g{number}-{i}", 1, group=f"g{number}", priority="high") for i in range(2)),
            ]
            for number in range(3)
        ]
        await asked_by_three(cluster, *gangs)
        victims = [
            [victim["root"]["name"] for victim in intent["spec"]["victims"]]
            for intent in cluster.intents()
        ]
        # What the second and the third leave is room for the first, too: it needs nobody any more.
        going = order if order[-1] else order[:-1]

        await saved_in_order(cluster, *(victims[at] for at in going))
        members = {f"g{number}-{i}" for number in range(3) for i in range(2)}
        await cluster.until(lambda: members <= cluster.placed().keys())

        assert len(cluster.intents()) == 3
        assert dict(cluster.api.deleted) == {name: 1 for at in going for name in victims[at]}
        assert phases(cluster).count("Abandoned") == 3 - len(going)


async def test_a_new_leader_goes_on_with_all_plans_of_a_node() -> None:
    async with memory() as cluster:
        cluster.nodes([4])
        for number in range(4):
            cluster.running(asking(f"old-{number}", 1, "2m"), "node-0")
        cluster.start(section=ALLOWED)
        await cluster.pass_time(SECOND)
        news = [f"new-{number}" for number in range(3)]
        names = await asked_by_three(cluster, *([pod(new, 1, priority="high")] for new in news))
        await cluster.stop()
        cluster.start(section=ALLOWED)
        await cluster.until(lambda: all(told(cluster, name) is not None for name in names))

        await saved_in_order(cluster, *([name] for name in reversed(names)))
        await cluster.until(lambda: set(news) <= cluster.placed().keys())

        held(cluster, names)


async def test_pods_that_share_a_node_get_their_room_where_nobody_says_a_word() -> None:
    async with memory() as cluster:
        cluster.nodes([4])
        for number in range(4):
            cluster.running(asking(f"old-{number}", 1, "2m"), "node-0")
        cluster.start(section=ALLOWED)
        await cluster.pass_time(SECOND)
        news = [f"new-{number}" for number in range(3)]
        names = await asked_by_three(cluster, *([pod(new, 1, priority="high")] for new in news))

        for _ in range(150):
            await cluster.pass_time(SECOND)
            cluster.end_all()

        assert set(news) <= cluster.placed().keys()
        held(cluster, names)


async def test_a_victim_that_ends_by_itself_drops_no_plan() -> None:
    async with memory() as cluster:
        cluster.nodes([2])
        for number in range(2):
            cluster.running(asking(f"old-{number}", 1, "2m"), "node-0")
        cluster.start(section=ALLOWED)
        await cluster.pass_time(SECOND)
        cluster.create(pod("new", 2, priority="high"))
        await cluster.until(cluster.intents)
        await cluster.pass_time(SECOND)

        cluster.end("old-0")
        await cluster.pass_time(MINUTE)
        assert phases(cluster) == ["Noticed"]
        report_saved(cluster, "old-1")
        await cluster.settle()
        cluster.end_all()
        await cluster.until(lambda: "new" in cluster.placed())

        assert len(cluster.intents()) == 1
        assert cluster.api.deleted == {"old-1": 1}


async def test_room_that_was_left_by_a_victim_is_kept_while_others_save() -> None:
    async with memory() as cluster:
        cluster.nodes([2])
        for number in range(2):
            cluster.running(asking(f"old-{number}", 1, "2m"), "node-0")
        cluster.start(section=ALLOWED)
        await cluster.pass_time(SECOND)
        cluster.create(pod("new", 2, priority="high"))
        await cluster.until(cluster.intents)
        await cluster.pass_time(SECOND)

        cluster.create(pod("late", 1, priority="low"))
        cluster.end("old-0")
        await cluster.pass_time(30 * SECOND)
        assert "late" not in cluster.placed()
