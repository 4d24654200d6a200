"""The second reprieve pass with constraints that removing pods can break as well as mend."""

from __future__ import annotations

from tests.engine.scheduling import engine_cycle
from tests.engine.scheduling.agreement import sound
from tests.oracle.scheduling.clusters import random_cluster
from tests.oracle.scheduling.objects import Cluster
from tests.oracle.scheduling.preemption import refused_with, returnable


def test_company_that_affinity_asks_for_is_not_taken_out_for_spread() -> None:
    """Here the pass would evict the pod that a member follows, and keep one of another zone."""
    case = random_cluster(2857)
    assert {"spread", "affinity"} <= set(case["situations"])
    choice = engine_cycle.cycle(case, second_reprieve_pass=True).choice
    assert choice is not None and choice.victims
    assert refused_with(choice, Cluster.of(sound(case)), case["pending"]) == []


def test_a_unit_that_affinity_refused_returns_once_its_company_is_back() -> None:
    case = random_cluster(2217)
    assert case["situations"] == ["affinity"]
    state = Cluster.of(sound(case))
    first = engine_cycle.cycle(case).choice
    second = engine_cycle.cycle(case, second_reprieve_pass=True).choice
    assert first is not None and second is not None
    assert returnable(first, state, case["pending"]) != []
    assert returnable(second, state, case["pending"]) == []
    assert set(second.victims) < set(first.victims)
