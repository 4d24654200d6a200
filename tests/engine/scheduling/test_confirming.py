"""Idle work goes first, unless it holds far more devices than what has to go by priority."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest

from reprieve.engine.cluster.rows import PodRow
from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.placement.profile import Policy
from reprieve.engine.scheduling.confirming import refusal
from reprieve.engine.scheduling.demand_devices import least_lacking
from reprieve.engine.scheduling.outcome import Unit
from reprieve.engine.victim_choice import VictimChoice
from tests.engine.builders import node, pod, snapshot_of
from tests.oracle.mixtures import Held, ways

POLICY = Policy(choice=VictimChoice.BEST).beside_others()
FAR_FEWER = "far fewer devices are evicted by priority"
TO_OTHERS = "pending work of higher priority would use what is freed"


def cluster(*pods: PodRow, wanted: int = 4, priority: int = 1000) -> tuple[Snapshot, Unit]:
    waiting = pod("wanted", gpus=wanted, priority=priority)
    nodes = [node("n0", gpus=8), node("n1", gpus=8)]
    return snapshot_of(*nodes, *pods, waiting), Unit((waiting.uid,))


@pytest.mark.parametrize(
    ("idle", "lower", "by_priority", "said"),
    [
        (8, 4, True, FAR_FEWER),
        (8, 4, False, ""),
        (8, 6, True, ""),
        (6, 4, True, ""),
        (4, 4, True, ""),
    ],
)
def test_idle_work_goes_up_to_half_as_many_devices_more(
    idle: int, lower: int, by_priority: bool, said: str
) -> None:
    resting = pod("idle", node="n0", gpus=idle, priority=1000)
    beside = pod("beside", node="n0", gpus=8 - idle, priority=2000) if idle < 8 else None
    others = [pod("lower", node="n1", gpus=lower, priority=0)]
    others += [pod("stays", node="n1", gpus=8 - lower, priority=2000)]
    others += [] if beside is None else [beside]
    snapshot, unit = cluster(resting, *others)
    gone = frozenset([resting.uid])
    found, among = refusal(
        snapshot, POLICY, [unit], gone, gone, frozenset(), 0, {}, by_priority=by_priority
    )
    assert (found, among) == (said, frozenset())


def test_idle_work_goes_where_priority_is_no_way() -> None:
    resting = pod("idle", node="n0", gpus=8, priority=1000)
    snapshot, unit = cluster(resting, pod("high", node="n1", gpus=8, priority=2000))
    gone = frozenset([resting.uid])
    assert refusal(snapshot, POLICY, [unit], gone, gone, frozenset(), 0, {}, by_priority=True) == (
        "",
        frozenset(),
    )


def lacking(nodes: dict[str, int], held: Sequence[Held], wanted: Sequence[int]) -> int:
    waiting = [pod(f"wanted-{n}", gpus=gpus) for n, gpus in enumerate(wanted)]
    snapshot = snapshot_of(
        *(node(name, gpus=gpus) for name, gpus in nodes.items()),
        *(pod(each.name, node=each.node, gpus=each.gpus) for each in held),
        *waiting,
    )
    return least_lacking(snapshot, [Unit((each.uid,)) for each in waiting])


def test_no_way_to_the_room_takes_fewer_devices_than_are_said_to_be_lacking() -> None:
    random, exact = Random("lacking"), 0
    for _ in range(400):
        nodes = {f"n{n}": random.choice((4, 8)) for n in range(random.randint(1, 3))}
        held: list[Held] = []
        for name, gpus in nodes.items():
            left = gpus - random.choice((0, 1, 2))
            while left > 0 and len(held) < 8:
                size = random.randint(1, min(4, left))
                held.append(Held(f"p{len(held)}", name, size, 0))
                left -= size
        wanted = [random.choice((1, 2, 4))] * random.randint(1, 3)
        known = ways(nodes, held, wanted, 1000)
        bound = lacking(nodes, held, wanted)
        if known.nobody:
            assert bound == 0
        elif known.priority is not None:
            assert bound <= known.priority
            exact += bound == known.priority
    assert exact >= 60


def test_work_of_a_higher_priority_goes_where_idle_work_of_the_lowest_holds_far_more() -> None:
    resting = pod("idle", node="n0", gpus=8, priority=0)
    busy = pod("busy", node="n1", gpus=4, priority=100)
    stays = pod("stays", node="n1", gpus=4, priority=2000)
    snapshot, unit = cluster(resting, busy, stays)
    gone = frozenset([resting.uid])
    found = refusal(snapshot, POLICY, [unit], gone, gone, frozenset(), 0, {}, by_priority=True)
    assert found == (FAR_FEWER, frozenset([busy.uid]))


def test_idle_work_of_the_lowest_priority_goes_where_the_others_hold_hardly_less() -> None:
    resting = pod("idle", node="n0", gpus=6, priority=0)
    busy = pod("busy", node="n1", gpus=4, priority=100)
    stays = [
        pod("stays", node="n1", gpus=4, priority=2000),
        pod("full", node="n0", gpus=2, priority=2000),
    ]
    snapshot, unit = cluster(resting, busy, *stays)
    gone = frozenset([resting.uid])
    found = refusal(snapshot, POLICY, [unit], gone, gone, frozenset(), 0, {}, by_priority=True)
    assert found == ("", frozenset())


def test_idle_work_stays_whose_room_a_higher_priority_would_use_beside_its_own_victims() -> None:
    random, counts = Random("joins"), Counter[bool]()
    for _ in range(900):
        free, held = [0, 0], list[PodRow]()
        lower, idle = [0, 0], random.randint(1, 4)
        resting = pod("idle", node="n0", gpus=idle, priority=2000)
        for number, room in enumerate((8 - idle, 8)):
            lower[number] = random.randint(0, room)
            free[number] = random.randint(0, room - lower[number])
            for kind, gpus, priority in (
                ("lower", lower[number], 500),
                ("stays", room - lower[number] - free[number], 3000),
            ):
                if gpus:
                    name = f"{kind}-{number}"
                    held.append(pod(name, node=f"n{number}", gpus=gpus, priority=priority))
        wanted = random.randint(1, 4)
        with_idle = free[0] + idle
        if wanted <= max(free) or wanted > with_idle:
            continue
        above = random.randint(max(with_idle, *free) + 1, 9)
        alone = any(above <= free[node] + lower[node] for node in (0, 1))
        joins = not alone and above <= with_idle + lower[0]
        waiting = pod("above", gpus=above, priority=1000)
        snapshot, unit = cluster(resting, *held, waiting, wanted=wanted, priority=100)
        gone = frozenset([resting.uid])
        ahead = [Unit((waiting.uid,))]
        found, _ = refusal(
            snapshot, POLICY, [unit], gone, gone, frozenset(), 0, {}, ahead, preempting=ahead
        )
        assert (found == TO_OTHERS) is joins, (free, lower, idle, above, wanted, found)
        counts[joins] += 1
    assert min(counts[True], counts[False]) > 20


@pytest.mark.parametrize("served_first", [True, False])
def test_idle_work_stays_whose_room_the_second_of_two_equal_pods_would_use_beside_its_victims(
    served_first: bool,
) -> None:
    """The first one has its victims, which end, and is nominated: it needs nothing more."""
    names = ("a-served", "b-lacking") if served_first else ("b-served", "a-lacking")
    served = pod(names[0], gpus=8, priority=1000, nominated="n1")
    lacking = pod(names[1], gpus=8, priority=1000)
    resting = pod("idle", node="n0", gpus=4, priority=2000)
    lower = pod("lower", node="n0", gpus=4, priority=500)
    ends = pod("ends", node="n1", gpus=8, priority=500, deleting=True)
    snapshot, unit = cluster(resting, lower, ends, served, lacking, wanted=4, priority=100)
    assert snapshot.nominations
    gone = frozenset([resting.uid])
    ahead = sorted((Unit((each.uid,)) for each in (served, lacking)), key=lambda each: each.pods)
    found, _ = refusal(
        snapshot, POLICY, [unit], gone, gone, frozenset(), 0, {}, ahead, preempting=ahead
    )
    assert found == TO_OTHERS
