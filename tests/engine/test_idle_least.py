"""Profile `best` in the idle plane: no idle work with fewer devices would do, by brute force."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from random import Random

import pytest

from reprieve.engine.idle.check import check
from reprieve.engine.idle.evaluation import evaluate
from reprieve.engine.idle.model import Fit, IdleSnapshot, NodeRow, Policy
from reprieve.engine.plan import Plan
from reprieve.engine.victim_choice import VictimChoice
from tests.engine.rows import NOW, ago, demand, pod, snapshot, workload

GPU = "amd.com/gpu"
Unit = tuple[tuple[int, int], ...]  # node and devices of each of its pods


def drawn(seed: int) -> tuple[list[int], list[Unit], list[int]]:
    """Free devices by node, idle units, and the devices of each pod that waits."""
    random = Random(f"least {seed}")
    free = [random.choice((0, 0, 1, 2)) for _ in range(random.randint(1, 3))]
    units = [
        tuple(
            (random.randrange(len(free)), random.choice((1, 1, 2, 3, 4)))
            for _ in range(random.choice((1, 1, 1, 2)))
        )
        for _ in range(random.randint(2, 7))
    ]
    pods = [random.choice((1, 2, 4)) for _ in range(random.randint(1, 3))]
    return free, units, pods


def given(free: Sequence[int], units: Sequence[Unit], pods: Sequence[int]) -> IdleSnapshot:
    rows = [
        workload(
            f"v{number}",
            gpus=sum(devices for _, devices in unit),
            pods=[
                pod(f"v{number}-{at}", gpus={GPU: devices}, node=f"n{node}")
                for at, (node, devices) in enumerate(unit)
            ],
            idle_since=ago(9_000 - number),
        )
        for number, unit in enumerate(units)
    ]
    waiting = [
        pod(f"d-{at}", "Pending", gpus={GPU: devices}, demand=True)
        for at, devices in enumerate(pods)
    ]
    nodes = tuple(NodeRow(f"n{number}", {GPU: left}) for number, left in enumerate(free))
    return snapshot(*rows, demand("d", gpus=sum(pods), pods=waiting), nodes=nodes)


def fits(free: Sequence[int], pods: Sequence[int], gone: Sequence[Unit]) -> bool:
    room = list(free)
    for unit in gone:
        for node, devices in unit:
            room[node] += devices

    def placed(left: Sequence[int], waiting: Sequence[int]) -> bool:
        if not waiting:
            return True
        return any(
            placed([*left[:at], have - waiting[0], *left[at + 1 :]], waiting[1:])
            for at, have in enumerate(left)
            if have >= waiting[0]
        )

    return placed(room, pods)


def least(free: Sequence[int], units: Sequence[Unit], pods: Sequence[int], fit: Fit) -> int | None:
    """The fewest devices of any set of units with which the demand fits."""
    found = [
        sum(devices for unit in gone for _, devices in unit)
        for count in range(len(units) + 1)
        for gone in combinations(units, count)
        if (
            fits(free, pods, gone)
            if fit is Fit.NODE
            else sum(devices for unit in gone for _, devices in unit) >= sum(pods)
        )
    ]
    return min(found, default=None)


def planned(snap: IdleSnapshot, policy: Policy) -> Plan | None:
    evaluation = evaluate(snap, policy, NOW)
    for plan in evaluation.plans:
        assert list(check(plan, snap, policy, NOW)) == []
    return next(iter(evaluation.plans), None)


def devices(plan: Plan) -> int:
    return sum(victim.amounts.get(GPU, 0) for victim in plan.victims)


@pytest.mark.parametrize("fit", [Fit.NODE, Fit.SUM])
def test_no_set_with_fewer_devices_would_do(fit: Fit) -> None:
    seen: Counter[str] = Counter()
    for seed in range(150):
        free, units, pods = drawn(seed)
        snap = given(free, units, pods)
        best = planned(snap, Policy(fit=fit, choice=VictimChoice.BEST))
        before = planned(snap, Policy(fit=fit))
        fewest = least(free, units, pods, fit)
        if best is None:
            assert not fewest, seed
            continue
        assert before is not None and devices(best) <= devices(before), seed
        assert devices(best) == fewest, seed
        assert (best.proof.profile, best.proof.gap) == ("best", 0), seed
        assert (before.proof.profile, before.proof.gap) == ("compatible", None), seed
        seen["plans"] += 1
        seen["fewer"] += devices(best) < devices(before)
    assert seen["plans"] >= 60 and seen["fewer"] >= 15, seen


def test_a_search_that_is_cut_off_states_how_far_it_is_from_the_bound() -> None:
    """Many sizes whose sums never meet the need: not all sets can be tried."""
    units: list[Unit] = [((0, 16 + 2 * number),) for number in range(30)]
    plan = planned(given([0], units, [301]), Policy(fit=Fit.NODE, choice=VictimChoice.BEST))
    assert plan is not None
    held = devices(plan)
    assert held >= 302 and plan.proof.gap is not None
    assert plan.proof.gap == -(-(held - 301) * 100 // 301)
