"""Pods of one owner share their victims, judged by brute force over every set of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from random import Random
from typing import cast

from kubeworld.units.clock import Clock
from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.placement.profile import Policy
from reprieve.engine.scheduling.needless import is_served
from reprieve.engine.scheduling.nodes.leaving import Delayed
from reprieve.engine.scheduling.outcome import Attempt, Unit
from reprieve.engine.scheduling.session import GROUP_POST_FILTERS
from reprieve.engine.victim_choice import VictimChoice
from reprieve.planes.scheduling.cycle.slices import decide
from reprieve.records.scheduling.replay import decide_scheduling_again
from tests.engine.builders import node, pod, snapshot_of
from tests.oracle.mixtures import Held, fits_without

POLICY = Policy(choice=VictimChoice.BEST).beside_others()


class _Stopped:
    """A clock that stands still, so that a slice has no end."""

    def monotonic(self) -> int:
        return 0


def drawn(random: Random) -> tuple[dict[str, int], list[Held], list[int]]:
    """Return a small cluster without room for one pod of a demand, and the GPUs of its pods."""
    nodes = {f"n{n}": random.choice((4, 8, 8)) for n in range(random.randint(2, 3))}
    size = random.choice((2, 4))
    held: list[Held] = []
    for name, gpus in nodes.items():
        left = gpus - random.randint(0, size - 1)
        while left > 0:
            gpus = min(left, random.choice((1, 2, 4, 8)))
            held.append(Held(f"p{len(held)}", name, gpus, random.choice((0, 0, 100, 2000))))
            left -= gpus
    return nodes, held, [size] * random.randint(2, 3)


def cluster(
    nodes: Mapping[str, int], held: Sequence[Held], wanted: Sequence[int], owners: Sequence[str]
) -> tuple[Snapshot, list[Unit]]:
    waiting = [
        pod(f"wanted-{n}", gpus=gpus, priority=1000, controller=owner)
        for n, (gpus, owner) in enumerate(zip(wanted, owners, strict=True))
    ]
    standing = [
        pod(each.name, node=each.node, gpus=each.gpus, priority=each.priority) for each in held
    ]
    rows = [node(name, gpus=gpus) for name, gpus in nodes.items()]
    return snapshot_of(*rows, *standing, *waiting), [Unit((each.uid,)) for each in waiting]


def attempts(snapshot: Snapshot, units: list[Unit], patient: Collection[Unit]) -> list[Attempt]:
    waits = Delayed(patient=frozenset(patient))
    found, left = decide(snapshot, POLICY, units, cast("Clock", _Stopped()), waits=waits)
    assert not left and all(each.attempt is not None for each in found)
    return [each.attempt for each in found if each.attempt is not None]


def victims(attempt: Attempt) -> frozenset[str]:
    plan = attempt.plan
    return frozenset() if plan is None else frozenset(each.root.name for each in plan.victims)


def test_of_the_plans_for_pods_of_one_owner_none_is_needless_beside_the_others() -> None:
    random, counts = Random("needless"), Counter[str]()
    for _ in range(40):
        nodes, held, wanted = drawn(random)
        snapshot, units = cluster(nodes, held, wanted, ["job"] * len(wanted))
        alone = attempts(snapshot, units, ())
        together = attempts(snapshot, units, units)
        served = [sum(map(is_served, each)) for each in (alone, together)]
        plans = [each for each in map(victims, together) if each]
        gone = frozenset[str]().union(*plans)
        if served[1] == len(units):
            assert fits_without(nodes, held, gone, wanted)
            for plan in plans:
                assert not fits_without(nodes, held, gone - plan, wanted), (nodes, held, plans)
        assert served[1] >= served[0]
        counts["all served"] += served[1] == len(units)
        counts["shared"] += 1 < len([each for each in map(victims, alone) if each]) > len(plans)
    assert counts["all served"] >= 15 and counts["shared"] >= 8, counts


def test_pods_of_different_owners_choose_their_victims_for_themselves() -> None:
    """Those of the first one are small, and those of the second one have room for both."""
    nodes = {"n0": 4, "n1": 8}
    held = [Held("small", "n0", 1, 0), Held("rest", "n0", 2, 2000), Held("large", "n1", 8, 0)]
    for owners, expected in (
        (("job", "job", "job"), [{"large"}]),
        (("one", "two", "three"), [{"small"}, {"large"}]),
        (("", "", ""), [{"small"}, {"large"}]),
    ):
        snapshot, units = cluster(nodes, held, [2, 2, 2], owners)
        found = attempts(snapshot, units, units)
        assert [each for each in map(victims, found) if each] == expected
        assert all(map(is_served, found))


def test_where_one_plane_decides_alone_each_pod_has_its_own_victims() -> None:
    nodes = {"n0": 4, "n1": 8}
    held = [Held("small", "n0", 1, 0), Held("rest", "n0", 2, 2000), Held("large", "n1", 8, 0)]
    snapshot, units = cluster(nodes, held, [2, 2, 2], ["job"] * 3)
    found = [each for each in map(victims, attempts(snapshot, units, ())) if each]
    assert {"small"} in found


def test_a_plan_with_shared_victims_is_decided_again_from_its_stored_input() -> None:
    nodes = {"n0": 4, "n1": 8}
    held = [Held("small", "n0", 1, 0), Held("rest", "n0", 2, 2000), Held("large", "n1", 8, 0)]
    snapshot, units = cluster(nodes, held, [2, 2, 2], ["job"] * 3)
    waits = Delayed(patient=frozenset(units))
    found, _ = decide(snapshot, POLICY, units, cast("Clock", _Stopped()), waits=waits)
    (made,) = [each for each in found if each.attempt is not None and each.attempt.plan is not None]
    assert made.attempt is not None and made.attempt.plan is not None and made.record is not None
    again = decide_scheduling_again(made.record(), GROUP_POST_FILTERS).plan
    assert again is not None and again.victims == made.attempt.plan.victims
