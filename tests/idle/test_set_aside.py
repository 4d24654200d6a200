"""An evaluation that breaks on some GpuWorkloads is made without them, unless they are claimed."""

from __future__ import annotations

from typing import Any

import pytest

from reprieve.controllers.idle.set_aside import evaluate_others
from reprieve.engine.idle import evaluation
from reprieve.engine.idle.model import Phase, Policy, Workload
from reprieve.units.ids import GpuWorkloadKey, Uid
from tests.engine.rows import NOW, demand, snapshot, workload

POLICY = Policy()


@pytest.fixture(autouse=True)
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deciding about whoever is named `odd-...` raises."""
    real = evaluation._eligible

    def eligible(run: Any, row: Workload) -> bool:
        if row.ref.name.startswith("odd"):
            raise ZeroDivisionError("the test says so")
        return real(run, row)

    monkeypatch.setattr(evaluation, "_eligible", eligible)


@pytest.mark.parametrize("odd", [1, 2, 5])
def test_others_are_decided_about_as_if_the_odd_ones_were_not_there(odd: int) -> None:
    plain = [*(workload(f"idle-{number}") for number in range(9)), demand(gpus=8)]
    odd_ones = [workload(f"odd-{number}") for number in range(odd)]
    mixed = [*plain[:3], *odd_ones[:1], *plain[3:], *odd_ones[1:]]
    found = evaluate_others(snapshot(*mixed), POLICY, NOW)
    assert {row.ref.name for row in found.odd} == {row.ref.name for row in odd_ones}
    assert isinstance(found.fault, ZeroDivisionError)
    calm = evaluate_others(snapshot(*plain), POLICY, NOW)
    assert calm.odd == () and calm.fault is None
    assert found.evaluation == calm.evaluation
    assert len(calm.evaluation.plans[0].victims) == 2
    assert found.snapshot == calm.snapshot


def test_nothing_is_decided_while_the_odd_one_is_about_to_be_evicted_or_served() -> None:
    leaving = workload("odd-0", Phase.PREEMPTING)
    rows = (leaving, workload("idle-0"), demand(gpus=4))
    claims = {Uid("odd-0-uid"): GpuWorkloadKey("ml-team/demand")}
    with pytest.raises(ZeroDivisionError):
        evaluate_others(snapshot(*rows, claims=claims), POLICY, NOW)
    served = (workload("idle-0"), workload("idle-1"), demand("odd-1", gpus=4))
    claims = {Uid("idle-0-uid"): GpuWorkloadKey("ml-team/odd-1")}
    with pytest.raises(ZeroDivisionError):
        evaluate_others(snapshot(*served, claims=claims), POLICY, NOW)
