"""The states of a plan's victims are told by number, and are the same when they are read."""

from __future__ import annotations

from random import Random

from reprieve.api.reprieve import (
    IntentPhase,
    Metadata,
    ObjectRef,
    Preemption,
    PreemptionSpec,
    PreemptionStatus,
    Proof,
    Victim,
    VictimState,
    VictimStatus,
)
from reprieve.records.victim_states import numbers_by_state, victim_states

AT = "2026-03-04T10:15:00Z"


def victims(number: int) -> list[Victim]:
    refs = [ObjectRef("v1", "Pod", f"p-{i}", f"uid-{i}", "team") for i in range(number)]
    return [Victim(ref, ref, {}, "rule") for ref in refs]


def told(chosen: list[Victim], states: list[VictimStatus]) -> dict[str, VictimState]:
    status = PreemptionStatus(
        IntentPhase.COMPLETED, numbers_by_state=numbers_by_state(chosen, states), finished_at=AT
    )
    spec = PreemptionSpec("scheduling", "p", 1, Proof("Placement"), chosen, AT)
    found = victim_states(Preemption(Metadata("n"), spec, status))
    assert all(each.uid == uid and each.at == AT for uid, each in found.items())
    return {uid: each.state for uid, each in found.items()}


def test_ranges_are_as_short_as_people_write_them() -> None:
    chosen = victims(7)
    kept = (2, 3, 6)
    states = [
        VictimStatus(f"uid-{i}", VictimState.SPARED if i in kept else VictimState.EVICTED)
        for i in reversed(range(7))
    ]
    assert numbers_by_state(chosen, states) == {"Evicted": "0-1,4-5", "Spared": "2-3,6"}


def test_whatever_the_states_are_they_come_back() -> None:
    random = Random(5)
    several = 0
    for _ in range(300):
        chosen = victims(random.randrange(60))
        weights = [random.random() ** 4 for _ in VictimState]
        states = [
            VictimStatus(each.root.uid, random.choices(list(VictimState), weights)[0])
            for each in chosen
            if random.random() < 0.95
        ]
        random.shuffle(states)
        wanted = {each.uid: each.state for each in states}
        several += len(set(wanted.values())) > 2
        assert told(chosen, states) == wanted
    assert several >= 100


def test_the_states_of_a_hundred_thousand_fit_beside_what_else_stands_in_a_status() -> None:
    chosen = victims(100_000)
    # No other states are longer: no two neighbours have the same.
    both = (VictimState.GONE, VictimState.EVICTED)
    states = [VictimStatus(f"uid-{i}", both[i % 2]) for i in range(len(chosen))]
    assert sum(map(len, numbers_by_state(chosen, states).values())) <= 700_000
