"""Beside other planes the victims with the fewest devices go, of those with the lowest priority."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from random import Random
from typing import Any

import pytest

from reprieve.engine.placement.profile import Policy
from reprieve.engine.scheduling.outcome import Unit
from reprieve.engine.scheduling.proofs.proof import faults_of
from reprieve.engine.scheduling.session import Session
from reprieve.engine.victim_choice import VictimChoice
from tests.engine.builders import group, node, pod, snapshot_of
from tests.oracle.mixtures import Held, fits_without

BEST = Policy(choice=VictimChoice.BEST)
PRIORITY = 1000


def drawn(random: Random) -> tuple[dict[str, int], list[Held], list[int]]:
    """Return a small cluster without idle work, and the GPUs of each pod of a demand."""
    nodes = {f"n{n}": random.choice((4, 8)) for n in range(random.randint(1, 3))}
    held: list[Held] = []
    for name, gpus in nodes.items():
        left = gpus - random.choice((0, 0, 1))
        while left > 0 and len(held) < 9:
            size = random.choice((1, 2, 4, 8))
            if size > left:
                continue
            held.append(Held(f"p{len(held)}", name, size, random.choice((0, 100, 100, 2000))))
            left -= size
    return nodes, held, [random.choice((2, 4, 8))] * random.choice((1, 1, 2))


def least(
    nodes: dict[str, int], held: Sequence[Held], wanted: Sequence[int]
) -> tuple[int, int] | None:
    """Return the lowest top priority that is enough and the fewest GPUs with it, by every set."""
    lower = [each for each in held if each.priority < PRIORITY]

    def ways() -> Iterator[tuple[int, int]]:
        for number in range(1, len(lower) + 1):
            for gone in combinations(lower, number):
                if fits_without(nodes, held, [each.name for each in gone], wanted):
                    yield max(e.priority for e in gone), sum(e.gpus for e in gone)

    return min(ways(), default=None)


def chosen(
    policy: Policy, nodes: dict[str, int], held: Sequence[Held], wanted: Sequence[int], gang: bool
) -> list[Held] | None:
    """Return whom the engine evicts, None where it evicts nobody; the proof accepts it."""
    pods = [pod(e.name, node=e.node, gpus=e.gpus, priority=e.priority) for e in held]
    member: dict[str, Any] = {"group": "wanted"} if gang else {}
    waiting = [
        pod(f"wanted-{n}", gpus=gpus, priority=PRIORITY, **member) for n, gpus in enumerate(wanted)
    ]
    groups = [group("wanted", min_count=len(wanted), priority=PRIORITY)] if gang else []
    snapshot = snapshot_of([node(n, gpus=g) for n, g in nodes.items()], groups, pods, waiting)
    unit = Unit(tuple(each.uid for each in waiting), "default/wanted" if gang else "")
    attempt = Session(snapshot, policy).attempt(unit)
    if attempt is None or attempt.plan is None:
        return None
    assert faults_of(snapshot, policy, attempt) == ()
    gone = {victim.root.uid for victim in attempt.plan.victims}
    return [each for each in held if f"pod-{each.name}" in gone]


@pytest.mark.parametrize("gang", [False, True], ids=["pod", "gang"])
def test_victims_hold_the_fewest_devices_that_the_lowest_priority_allows(gang: bool) -> None:
    random, seen, fewer = Random(f"fewest devices {gang}"), 0, 0
    for number in range(2_000):
        if seen >= 60 and fewer >= 3:
            break
        nodes, held, wanted = drawn(random)
        if not gang:
            wanted = wanted[:1]
        known = least(nodes, held, wanted)
        if known is None or fits_without(nodes, held, (), wanted):
            continue
        gone = chosen(BEST.beside_others(), nodes, held, wanted, gang)
        said = (number, nodes, held, wanted, gone)
        assert gone is not None, said
        assert (max(e.priority for e in gone), sum(e.gpus for e in gone)) == known, said
        alone = chosen(BEST, nodes, held, wanted, gang) or []
        seen, fewer = seen + 1, fewer + (sum(e.gpus for e in alone) > known[1])
    assert seen >= 60 and fewer >= 3, "too few of the drawn clusters tell devices from pods"


def test_one_plane_alone_evicts_the_fewest_pods() -> None:
    held = [Held("one", "n0", 8, 0), Held("first", "n1", 2, 0), Held("second", "n1", 2, 0)]
    nodes = {"n0": 8, "n1": 4}
    for policy, names in ((BEST, ["one"]), (BEST.beside_others(), ["first", "second"])):
        gone = chosen(policy, nodes, held, [4], False)
        assert gone is not None and [each.name for each in gone] == names


def test_a_policy_says_of_lost_work_and_of_released_programs_what_it_said() -> None:
    lost = Policy(choice=VictimChoice.BEST, harm_order=True)
    for policy in (Policy(), lost):
        assert policy.beside_others() == policy
