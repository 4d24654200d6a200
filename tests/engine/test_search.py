"""What it costs to find who is preempted on nodes: counted, never timed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from reprieve.engine.idle import placement, search
from reprieve.engine.idle.check import check
from reprieve.engine.idle.evaluation import evaluate
from reprieve.engine.idle.model import Fit, IdleSnapshot, NodeRow, PodRow, Policy, Workload
from tests.engine.rows import NOW, demand, pod, snapshot, workload

POLICY = Policy(fit=Fit.NODE)
GPU = "amd.com/gpu"


def counted(function: Callable[..., Any]) -> tuple[list[int], Callable[..., Any]]:
    """The function, and a list that gets an entry with each call of it."""
    calls: list[int] = []

    def call(*arguments: Any) -> Any:
        calls.append(1)
        return function(*arguments)

    return calls, call


def idle_on(nodes: int, *, spread: bool = False) -> list[Workload]:
    """Idle workloads of one GPU each, eight to a node: node after node, or `spread` in turns."""
    places = [n % nodes if spread else n // 8 for n in range(8 * nodes)]
    return [
        workload(f"v{n:03}", gpus=1, pods=[pod(f"v{n:03}-0", gpus={GPU: 1}, node=f"n{place}")])
        for n, place in enumerate(places)
    ]


def gang_of(sizes: Sequence[int]) -> Workload:
    pods = [pod(f"d-{n}", "Pending", gpus={GPU: s}, demand=True) for n, s in enumerate(sizes)]
    return demand("d", gpus=sum(sizes), pods=pods)


def full(nodes: int, *rows: Workload) -> IdleSnapshot:
    return snapshot(*rows, nodes=tuple(NodeRow(f"n{n}", {GPU: 0}) for n in range(nodes)))


@pytest.mark.parametrize(
    ("sizes", "victims", "searches"),
    [
        pytest.param([1] * 40, 40, 1, id="as-many-as-the-sum"),
        pytest.param([8] * 4, 32, 1, id="whole-nodes"),
        # A node has capacity for two pods of 3 or 4, or one of each: what is left of it is lost.
        pytest.param([3, 4] * 8, 56, 12, id="pieces-are-left-over"),
        pytest.param([5] * 12, None, 12, id="never"),
    ],
)
def test_a_placement_is_searched_for_a_few_times_whatever_the_number_of_victims(
    sizes: list[int], victims: int | None, searches: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, place = counted(placement.place)
    monkeypatch.setattr(search, "place", place)
    plans = evaluate(full(10, *idle_on(10), gang_of(sizes)), POLICY, NOW).plans
    assert [len(plan.victims) for plan in plans] == ([] if victims is None else [victims])
    assert len(calls) <= searches


def test_who_is_put_back_is_found_without_comparing_everybody_with_everybody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = [*idle_on(10, spread=True), demand("d", gpus=8)]
    snap = full(10, *rows)
    calls, equal = counted(Workload.__eq__)
    monkeypatch.setattr(Workload, "__eq__", equal)
    (plan,) = evaluate(snap, POLICY, NOW).plans
    assert (len(plan.victims), plan.reprieved) == (8, {"NotNeeded": 63})
    assert len(calls) <= len(rows)


def test_a_plan_is_checked_by_reading_each_row_a_few_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    others = [demand(f"other-{n}", gpus=9, created=NOW) for n in range(20)]
    snap = full(10, *idle_on(10), gang_of([8] * 6), *others)
    (plan,) = evaluate(snap, POLICY, NOW).plans
    assert len(plan.victims) == 48
    keys, key = counted(cast("Any", Workload.key).fget)
    monkeypatch.setattr(Workload, "key", property(key))
    amounts, read = counted(cast("Any", PodRow.amounts).fget)
    monkeypatch.setattr(PodRow, "amounts", property(read))
    assert check(plan, snap, POLICY, NOW) == ()
    pods = sum(len(row.pods) for row in snap.workloads)
    assert len(keys) <= 4 * len(snap.workloads)
    assert len(amounts) <= 4 * pods
