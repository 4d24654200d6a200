"""A preemption priority protects work, within limits, and nobody preempts in turn."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from reprieve.engine.cluster.rows import Entry
from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.placement.profile import Policy, Protection
from reprieve.engine.scheduling.outcome import Attempt, Unit
from reprieve.engine.scheduling.proofs.proof import Fault, faults_of
from reprieve.engine.scheduling.session import Session
from reprieve.engine.scheduling.victims.hierarchy import effective_priority
from reprieve.units.ids import Uid
from tests.engine.builders import (
    cluster_of,
    gang,
    later,
    node,
    pod,
    priority_class,
    slot_of,
    snapshot_of,
)

POLICY = Policy(protection=Protection(cap=50))


def attempt(snapshot: Snapshot, policy: Policy, unit: Unit) -> Attempt:
    found = Session(snapshot, policy).attempt(unit)
    assert found is not None
    assert faults_of(snapshot, policy, found) == ()
    return found


def victims(found: Attempt) -> set[str]:
    return {v.root.name for v in found.plan.victims} if found.plan is not None else set()


def cluster(*classes: Entry, **facts: Any) -> Snapshot:
    """Two full nodes; the pod on the first, which is best by score, may be protected."""
    return snapshot_of(
        node("a", gpus=8, cpu=64_000),
        node("b", gpus=8, cpu=32_000),
        pod("first", gpus=8, priority=1, node="a", **facts),
        pod("second", gpus=8, priority=2, node="b"),
        gang(1, "train", gpus=8, cpu=1000, priority=10),
        *classes,
    )


TRAIN = Unit((Uid("pod-train-0"),), "default/train")


def test_protected_work_makes_way_for_nobody_below_its_preemption_priority() -> None:
    snapshot = cluster(priority_class("steady", 20), protection="steady")
    assert victims(attempt(snapshot, Policy(), TRAIN)) == {"first"}
    assert victims(attempt(snapshot, POLICY, TRAIN)) == {"second"}


@pytest.mark.parametrize(
    ("facts", "value"),
    [
        ({"protection": "steady"}, 20),
        ({"protection": "enormous"}, 50),  # the limit of all namespaces
        ({"protection": "enormous", "namespace": "team"}, 30),  # its own
        ({"protection": "least"}, 1),  # never lower than its own
        ({"protection": "unknown"}, 1),
        ({}, 1),
    ],
)
def test_a_class_counts_up_to_the_limit_and_never_lowers(facts: dict[str, str], value: int) -> None:
    policy = Policy(protection=Protection(50, (("team", 30),)))
    snapshot = snapshot_of(
        node("a", gpus=8),
        pod("p", priority=1, node="a", **facts),  # type: ignore[arg-type]
        priority_class("steady", 20),
        priority_class("enormous", 1_000),
        priority_class("least", -5),
    )
    slot = slot_of(snapshot, "p", facts.get("namespace", "default"))
    assert effective_priority(snapshot, policy)[slot] == value


def test_a_group_is_protected_as_a_group_and_its_pods_say_nothing() -> None:
    rows: list[Any] = gang(2, "low", gpus=4, priority=1, nodes=["a", "a"])
    rows[1] = replace(rows[1], protection="enormous")
    steady = [replace(rows[0], protection="steady"), *rows[1:]]
    classes = (priority_class("steady", 20), priority_class("enormous", 45))
    for group, value in ((rows, 1), (steady, 20)):
        snapshot = snapshot_of(node("a", gpus=8), group, classes)
        found = effective_priority(snapshot, POLICY)
        assert {int(found[slot_of(snapshot, f"low-{n}")]) for n in range(2)} == {value}


def test_it_may_change_while_the_work_runs() -> None:
    row = pod("p", priority=1, node="a")
    held = cluster_of(node("a", gpus=8), row, priority_class("steady", 20))
    for name, value in (("steady", 20), ("", 1)):
        row = later(row, protection=name)
        held.apply([row])
        snapshot = held.snapshot()
        assert effective_priority(snapshot, POLICY)[slot_of(snapshot, "p")] == value


def test_the_proof_knows_protections() -> None:
    snapshot = cluster(priority_class("steady", 20), protection="steady")
    found = Session(snapshot, Policy()).attempt(TRAIN)
    assert found is not None
    assert [each.fault for each in faults_of(snapshot, POLICY, found)] == [Fault.NOT_LOWER]


def test_no_two_units_can_preempt_each_other_in_turn() -> None:
    """A victim asks for the room again, once the other one has it."""
    preempted = returned = 0
    for seed in range(300):
        chosen = random.Random(seed)
        classes = [priority_class(f"c{n}", chosen.randint(-5, 80)) for n in range(4)]
        names = ["", *(f"c{n}" for n in range(4))]

        def unit(name: str, node_: str, chosen: random.Random = chosen, names: Any = names) -> Any:
            facts = {"priority": chosen.randint(0, 20), "protection": chosen.choice(names)}
            return pod(name, gpus=8, node=node_, **facts)

        running, waiting = unit("running", "a"), unit("waiting", "")
        first = snapshot_of(node("a", gpus=8), running, waiting, classes)
        if victims(attempt(first, POLICY, Unit((waiting.uid,)))) != {"running"}:
            continue
        preempted += 1
        again = [later(running, node=""), later(waiting, node="a")]
        second = snapshot_of(node("a", gpus=8), again, classes)
        found = attempt(second, POLICY, Unit((running.uid,)))
        returned += victims(found) == set()
        assert victims(found) == set(), seed
    assert preempted > 60 and returned == preempted
