"""For which demands the scheduling plane is asked whether less idle work would do."""

from __future__ import annotations

import pytest

from reprieve.engine.idle.asking import costly_demands
from reprieve.engine.idle.evaluation import evaluate
from reprieve.engine.idle.model import Fit, IdleSnapshot, NodeRow, Phase, Policy
from tests.engine.rows import NOW, pod, workload

GPU = "amd.com/gpu"


@pytest.mark.parametrize(
    ("pods", "free", "held", "most"),
    [
        (2, 0, 7, 5),
        (2, 0, 6, None),
        (2, 2, 4, 3),  # one of them has its capacity, and the other lacks 2
        (2, 2, 3, None),
        (1, 1, 2, 2),
        (1, 1, 1, None),
    ],
)
def test_a_demand_is_costly_where_more_than_one_and_a_half_times_goes_of_what_it_lacks(
    pods: int, free: int, held: int, most: int | None
) -> None:
    size = 2
    waiting = [pod(f"w-{n}", "Pending", gpus={GPU: size}, node=None) for n in range(pods)]
    demand = workload("w", Phase.PENDING_GPU, pods=waiting)
    idle = workload("idle", gpus=held, pods=[pod("idle-0", gpus={GPU: held}, node="n0")])
    both = (NodeRow("n0", {GPU: 0}), NodeRow("n1", {GPU: free}))
    nodes = both if pods > 1 else (NodeRow("n0", {GPU: free}),)
    snapshot = IdleSnapshot(1, (demand, idle), nodes)
    found = costly_demands(snapshot, evaluate(snapshot, Policy(fit=Fit.NODE), NOW))
    assert [each.most for each in found] == ([] if most is None else [most])
