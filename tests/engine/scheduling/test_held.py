"""Who is held from a preemptor makes no way for it, and neither does what goes as one with it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from kubeworld.units.instants import Nanos
from reprieve.engine.cluster.rows import PodRow
from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.disruptions.questions import Hold, Rule
from reprieve.engine.placement.profile import Policy
from reprieve.engine.scheduling.outcome import Attempt, Unit
from reprieve.engine.scheduling.proofs.proof import faults_of
from reprieve.engine.scheduling.session import Session
from reprieve.engine.scheduling.victims.held import held_until
from reprieve.units.ids import Uid
from tests.engine.builders import gang, node, pod, slot_of, snapshot_of

POLICY = Policy()
FLOORS = replace(POLICY, non_uniform_groups=True)
HOLD = Hold(Nanos(1_000), Rule.REPEATED)

Holds = Mapping[Uid, Hold]


def held(*names: str) -> Holds:
    return {Uid(f"pod-{name}"): HOLD for name in names}


def decide(
    snapshot: Snapshot, holds: Holds, policy: Policy = POLICY, overdue: Iterable[Uid] = ()
) -> Attempt:
    """Decide about all that waits as one unit; its proof finds nothing wrong with the plan."""
    group = "default/train" if "default/train" in snapshot.group_index else ""
    unit = Unit(tuple(snapshot.pending), group)
    session = Session(snapshot, policy, holds={unit: holds}, overdue=frozenset(overdue))
    found = session.attempt(unit)
    assert found is not None
    faults = faults_of(snapshot, policy, found, holds=holds, overdue=frozenset(overdue))
    assert faults == ()
    return found


def victims(found: Attempt) -> set[str]:
    return {v.root.name for v in found.plan.victims} if found.plan is not None else set()


def left_by_one(**first: Any) -> Snapshot:
    """A group that goes as a whole on two full nodes, of which the first pod is said more."""
    group, one, other = gang(2, "g", gpus=8, priority=1, nodes=["a", "b"], all_or_nothing=True)
    return snapshot_of(
        node("a", gpus=8),
        node("b", gpus=8),
        group,
        replace(one, **first),
        other,
        pod("high", gpus=8, priority=10),
    )


def test_a_group_of_which_somebody_deleted_a_pod_is_held_with_that_pod() -> None:
    snapshot = left_by_one(deleting=True)
    for names in (("g-0",), ("g-1",), ("g-0", "g-1")):
        until = held_until(snapshot, POLICY, held(*names))
        assert until is not None and until.tolist() == [HOLD.until, HOLD.until]
        found = decide(snapshot, held(*names))
        assert (victims(found), found.held is not None) == (set(), True)


def test_a_group_that_is_being_preempted_is_not_held() -> None:
    snapshot = left_by_one(deleting=True, preempted=True)
    assert held_until(snapshot, POLICY, held("g-0", "g-1")) is None
    assert victims(decide(snapshot, held("g-0", "g-1"))) == {"g-0", "g-1"}


def test_a_pod_alone_that_somebody_deleted_is_not_held() -> None:
    snapshot = snapshot_of(
        node("a", gpus=8),
        pod("low", gpus=8, priority=1, node="a", deleting=True),
        pod("high", gpus=8, priority=10),
    )
    assert held_until(snapshot, POLICY, held("low")) is None
    assert victims(decide(snapshot, held("low"))) == {"low"}


def test_the_rest_of_a_group_goes_where_one_of_it_should_be_gone_and_is_not() -> None:
    snapshot = left_by_one()
    assert victims(decide(snapshot, {}, overdue=[Uid("pod-g-0")])) == {"g-1"}
    assert victims(decide(snapshot, {}, overdue=[Uid("pod-g-1")])) == {"g-0"}


def test_no_plan_takes_who_is_held_or_a_part_of_what_goes_as_one() -> None:
    seen: Counter[str] = Counter()
    for seed in range(600):
        chance = random.Random(seed)
        policy = chance.choice((POLICY, FLOORS))
        rows: list[Any] = [node(name, gpus=8) for name in "abc"]
        together: dict[str, set[str]] = {}
        leaving: set[str] = set()
        for number in range(4):
            size = chance.randint(1, 3)
            places = [chance.choice("abc") for _ in range(size)]
            whole = chance.random() < 0.7
            group, *members = gang(
                size, f"g{number}", gpus=3, priority=1, nodes=places, all_or_nothing=whole
            )
            rows.append(group)
            for each in members:
                assert isinstance(each, PodRow)
                deleting = chance.random() < 0.25
                preempted = deleting and chance.random() < 0.2
                rows.append(replace(each, deleting=deleting, preempted=preempted))
                leaving |= {each.name} if deleting else set()
            if whole:
                names = {each.name for each in members}
                together.update((name, names) for name in names)
        size = chance.randint(1, 3)
        rows += gang(size, "train", gpus=chance.choice((4, 8)), priority=10)
        snapshot = snapshot_of(*rows)
        placed = [key.removeprefix("default/") for key in snapshot.pod_keys if key]
        holds = held(*(name for name in placed if chance.random() < 0.3))
        overdue = [Uid(f"pod-{name}") for name in placed if chance.random() < 0.05]
        found = decide(snapshot, holds, policy, overdue)
        gone = victims(found)
        until = held_until(snapshot, policy, holds)
        if until is not None:
            assert not any(until[slot_of(snapshot, name)] for name in gone), seed
        for name in gone:
            # What leaves by itself, or should have left, goes without being named.
            stays = together.get(name, {name}) - gone - leaving
            assert not stays - {uid.removeprefix("pod-") for uid in overdue}, seed
        seen["preempted beside who is held"] += bool(gone) and found.preemption is not None
        seen["waited for who is held"] += found.held is not None
        seen["a part leaves"] += any(
            names & leaving and names - leaving for names in together.values()
        )
        seen["one is overdue"] += bool(overdue)
    assert min(seen.values()) > 100 and len(seen) == 4, seen
