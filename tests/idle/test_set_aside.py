"""An evaluation that breaks on some GpuWorkloads is made without them, unless they are claimed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.engine.idle import evaluation
from reprieve.engine.idle.evaluation import evaluate
from reprieve.engine.idle.model import IdleSnapshot, Phase, Policy, Workload
from reprieve.engine.idle.outcome import Evaluation
from reprieve.engine.plan import Plane
from reprieve.planes.common.solve import DecisionLimit, Solver, TookTooLong
from reprieve.planes.common.suspects import Ended
from reprieve.planes.idle.evaluating.set_aside import SetAside, evaluate_others
from reprieve.units.ids import GpuWorkloadKey, Uid
from tests.engine.rows import NOW, demand, snapshot, workload

pytestmark = pytest.mark.real_time


POLICY = Policy()


async def at_once(part: IdleSnapshot) -> Evaluation:
    return evaluate(part, POLICY, NOW)


@pytest.fixture(autouse=True)
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deciding about whoever is named `odd-...` raises, about `endless-...` it never ends."""
    real = evaluation._eligible

    def eligible(run: Any, row: Workload) -> bool:
        if row.ref.name.startswith("odd"):
            raise ZeroDivisionError("the test says so")
        while row.ref.name.startswith("endless"):
            pass
        return real(run, row)

    monkeypatch.setattr(evaluation, "_eligible", eligible)


@pytest.mark.parametrize("odd", [1, 2, 5])
async def test_others_are_decided_about_as_if_the_odd_ones_were_not_there(odd: int) -> None:
    plain = [*(workload(f"idle-{number}") for number in range(9)), demand(gpus=8)]
    odd_ones = [workload(f"odd-{number}") for number in range(odd)]
    mixed = [*plain[:3], *odd_ones[:1], *plain[3:], *odd_ones[1:]]
    found = await evaluate_others(at_once, snapshot(*mixed))
    assert {row.ref.name for row in found.odd} == {row.ref.name for row in odd_ones}
    assert isinstance(found.fault, ZeroDivisionError)
    calm = await evaluate_others(at_once, snapshot(*plain))
    assert calm.odd == () and calm.fault is None
    assert found.evaluation == calm.evaluation
    assert len(calm.evaluation.plans[0].victims) == 2
    assert found.snapshot == calm.snapshot


async def test_nothing_is_decided_while_the_odd_one_is_about_to_be_evicted_or_served() -> None:
    leaving = workload("odd-0", Phase.PREEMPTING)
    rows = (leaving, workload("idle-0"), demand(gpus=4))
    claims = {Uid("odd-0-uid"): GpuWorkloadKey("ml-team/demand")}
    with pytest.raises(ZeroDivisionError):
        await evaluate_others(at_once, snapshot(*rows, claims=claims))
    served = (workload("idle-0"), workload("idle-1"), demand("odd-1", gpus=4))
    claims = {Uid("idle-0-uid"): GpuWorkloadKey("ml-team/odd-1")}
    with pytest.raises(ZeroDivisionError):
        await evaluate_others(at_once, snapshot(*served, claims=claims))


async def test_one_that_deciding_about_never_ends_is_left_out() -> None:
    solver = Solver(Plane.IDLE, DecisionLimit(SECOND // 2))
    rows = (workload("idle-0"), workload("idle-1"), demand(gpus=4), workload("endless-0"))

    async def in_thread(part: IdleSnapshot) -> Evaluation:
        return await solver.run(evaluate, part, POLICY, NOW)

    found = await evaluate_others(in_thread, snapshot(*rows))
    solver.close()
    assert [row.ref.name for row in found.odd] == ["endless-0"]
    assert isinstance(found.fault, TookTooLong) and not found.fault.left
    calm = await evaluate_others(at_once, snapshot(*rows[:3]))
    assert found.evaluation == calm.evaluation
    assert len(found.evaluation.plans) == 1


async def test_who_is_left_out_is_tried_again_later_each_time_and_when_it_changes() -> None:
    aside, tried = SetAside(), []
    odd = workload("odd-0")

    async def seen(part: IdleSnapshot) -> Evaluation:
        if len(part.workloads) == 2 and odd.key in {row.key for row in part.workloads}:
            tried.append(second)
        return await at_once(part)

    for second in range(80):
        rows = snapshot(workload("idle-0"), odd)
        found = await aside.evaluate(seen, rows, Nanos(NOW + second * SECOND))
        assert [row.ref.name for row in found.snapshot.workloads] == ["idle-0"]
    assert list(dict.fromkeys(tried)) == [0, 10, 30, 70]
    assert aside.next_try(Nanos(NOW + 79 * SECOND)) == NOW + 150 * SECOND
    tried.clear()
    changed = replace(odd, status=replace(odd.status, phase=Phase.ACTIVE))
    await aside.evaluate(seen, snapshot(workload("idle-0"), changed), Nanos(NOW + 80 * SECOND))
    assert tried, "what has changed is tried at once"


async def test_who_ended_an_earlier_process_is_left_out_for_that_long() -> None:
    aside, now = SetAside(), NOW
    hung = workload("endless-0")
    ended = Ended(hung.key, 600)
    aside.hold(hung, Nanos(now + 600 * SECOND), ended)
    found = await aside.evaluate(at_once, snapshot(workload("idle-0"), hung), now)
    assert [row.ref.name for row in found.snapshot.workloads] == ["idle-0"]
    claims = {Uid("endless-0-uid"): GpuWorkloadKey("ml-team/demand")}
    with pytest.raises(Ended):
        await aside.evaluate(at_once, snapshot(workload("idle-0"), hung, claims=claims), now)
    odd = workload("odd-0")
    aside.hold(odd, Nanos(now + 600 * SECOND), Ended(odd.key, 600))
    later = Nanos(now + 601 * SECOND)
    assert (await aside.evaluate(at_once, snapshot(odd), later)).odd == (odd,), "tried again"


async def test_who_ended_an_earlier_process_holds_up_no_preemption_that_is_not_about_it() -> None:
    """Another one that is left out is claimed: that one is evaluated again, and nobody else."""
    aside, hung, was_odd = SetAside(), workload("endless-0"), workload("idle-0")
    aside.hold(hung, Nanos(NOW + 600 * SECOND), Ended(hung.key, 600))

    async def breaks(part: IdleSnapshot) -> Evaluation:
        if was_odd in part.workloads:
            raise ZeroDivisionError("the test says so")
        return await at_once(part)

    found = await aside.evaluate(breaks, snapshot(was_odd, hung), NOW)
    assert found.odd == (was_odd,) and found.snapshot.workloads == ()
    claims = {Uid("idle-0-uid"): GpuWorkloadKey("ml-team/demand")}
    found = await aside.evaluate(at_once, snapshot(was_odd, hung, claims=claims), NOW)
    assert found.snapshot.workloads == (was_odd,)


@pytest.mark.parametrize("how", ["gone", "well"])
async def test_who_was_gone_or_well_meanwhile_is_left_out_for_the_shortest_time_again(
    how: str,
) -> None:
    aside, odd = SetAside(), workload("odd-0")

    async def calm(part: IdleSnapshot) -> Evaluation:
        return Evaluation((), (), None, ())

    for second, pause in ((0, 10), (10, 20)):
        now = Nanos(NOW + second * SECOND)
        await aside.evaluate(at_once, snapshot(odd), now)
        assert aside.next_try(now) == now + pause * SECOND
    meanwhile = Nanos(NOW + 30 * SECOND)
    await aside.evaluate(calm, snapshot(*([odd] if how == "well" else [])), meanwhile)
    assert aside.next_try(meanwhile) is None
    await aside.evaluate(at_once, snapshot(odd), meanwhile)
    assert aside.next_try(meanwhile) == meanwhile + 10 * SECOND
