"""Idle work and work of lower priority together, beside every set that there is.

Nobody is named where idle work is enough, or where not even all of both is; who is named makes the
room, and none of the idle work could stay. Where priority alone is enough less is evicted with it.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.mixed import IdlePods, Mixture
from reprieve.engine.placement.profile import Policy
from reprieve.engine.scheduling.mixtures import mixture
from reprieve.engine.scheduling.nodes.leaving import Delayed, left_out
from reprieve.engine.scheduling.outcome import Unit
from reprieve.engine.scheduling.proofs.proof import faults_of
from reprieve.engine.scheduling.session import Session
from reprieve.engine.victim_choice import VictimChoice
from reprieve.units.ids import Uid
from tests.engine.builders import group, node, pod, snapshot_of
from tests.oracle.mixtures import Held, fits_without, ways

PRIORITY = 1000
BEST = Policy(choice=VictimChoice.BEST).beside_others()


def drawn(random: Random, *, alike: bool) -> tuple[dict[str, int], list[Held], list[int]]:
    """Return a full small cluster, and the GPUs of each pod of a demand."""
    nodes = {f"n{n}": random.choice((4, 8)) for n in range(random.randint(1, 3))}
    held: list[Held] = []
    units = [f"u{n}" for n in range(random.randint(1, 3))]
    for name, gpus in nodes.items():
        left = gpus - random.choice((0, 0, 1))
        while left > 0 and len(held) < 9:
            idle = random.choice((*units, "", ""))
            size = 2 if alike and not idle else random.choice((1, 2, 4))
            if size > left:
                break
            priority = PRIORITY if idle and random.random() < 0.7 else random.choice((0, 0, 2000))
            if alike and priority < PRIORITY and idle:
                priority = PRIORITY
            held.append(Held(f"p{len(held)}", name, size, priority, idle))
            left -= size
    wanted = [random.choice((2, 4, 8))] * random.choice((1, 1, 2))
    return nodes, held, wanted


def answer(
    nodes: dict[str, int],
    held: list[Held],
    wanted: list[int],
    *,
    grouped: bool,
    most: int = 0,
    policy: Policy | None = None,
    begun: list[Delayed] | None = None,
) -> tuple[Mixture | None, Snapshot, list[Unit]]:
    """Return what the engine names; `begun`: what it said of each session that it began."""
    pods = [
        pod(e.name, node=e.node, gpus=e.gpus, priority=e.priority, start=n)
        for n, e in enumerate(held)
    ]
    gang: dict[str, Any] = {"group": "wanted"} if grouped else {}
    waiting = [
        pod(f"wanted-{n}", gpus=gpus, priority=PRIORITY, **gang) for n, gpus in enumerate(wanted)
    ]
    groups = [group("wanted", min_count=len(wanted), priority=PRIORITY)] if grouped else []
    machines = [node(name, gpus=gpus) for name, gpus in nodes.items()]
    snapshot = snapshot_of(machines, groups, pods, waiting)
    units = [Unit((each.uid,)) for each in waiting]
    if grouped:
        units = [Unit(tuple(each.uid for each in waiting), "default/wanted")]
    members: dict[str, list[Uid]] = {}
    for each in held:
        if each.idle:
            members.setdefault(each.idle, []).append(Uid(f"pod-{each.name}"))
    idle = [IdlePods(name, tuple(uids)) for name, uids in sorted(members.items())]
    policy = policy or (BEST if most else Policy())

    def begin(waits: Delayed) -> Session:
        if begun is not None:
            begun.append(waits)
        return Session(snapshot, policy, waits=waits)

    found = mixture(snapshot, units, idle, begin, most)
    return found, snapshot, units


@pytest.mark.parametrize("grouped", [False, True], ids=["pods", "gang"])
@pytest.mark.parametrize("alike", [False, True], ids=["any", "alike"])
def test_both_go_only_where_neither_is_enough_and_together_they_are(
    grouped: bool, alike: bool
) -> None:
    random, mixed, nobody = Random(f"{grouped} {alike}"), 0, 0
    for number in range(2_000):
        if mixed >= 20 and nobody >= 20:
            break
        nodes, held, wanted = drawn(random, alike=alike)
        known = ways(nodes, held, wanted, PRIORITY)
        if known.nobody or (not grouped and fits_without(nodes, held, (), wanted[:1])):
            continue  # a pod that has a node is bound before anybody else is looked at
        found, _, _ = answer(nodes, held, wanted, grouped=grouped)
        said = (number, nodes, held, wanted, found)
        if known.priority is not None:
            continue  # see below
        if known.idle is not None or known.both is None:
            assert found is None, said
            nobody += 1
            continue
        mixed += 1
        assert found is not None, said
        going = {e.name for e in held if e.idle in found.idle}
        gone = going | {uid.removeprefix("pod-") for uid in found.pods}
        assert fits_without(nodes, held, gone, wanted), said
        for idle in found.idle:
            back = {e.name for e in held if e.idle == idle}
            assert not fits_without(nodes, held, gone - back, wanted), said
        size = sum(e.gpus for e in held if e.name in gone)
        assert size >= known.both, said
        if alike and len(wanted) == 1 and not grouped:
            assert size == known.both, said
    assert mixed >= 10, "too few of the drawn clusters want both"


@pytest.mark.parametrize("grouped", [False, True], ids=["pods", "gang"])
def test_both_go_instead_of_priority_alone_where_fewer_devices_are_evicted(grouped: bool) -> None:
    random, mixed, nobody = Random(f"instead {grouped}"), 0, 0
    for number in range(6_000):
        if mixed >= 15 and nobody >= 30:
            break
        nodes, held, wanted = drawn(random, alike=True)
        known = ways(nodes, held, wanted, PRIORITY)
        if known.nobody or known.idle is not None or known.priority is None:
            continue
        if not grouped and (len(wanted) > 1 or fits_without(nodes, held, (), wanted[:1])):
            continue
        found, _, _ = answer(nodes, held, wanted, grouped=grouped, policy=BEST)
        said = (number, nodes, held, wanted, found, known)
        if known.both is None or known.both >= known.priority:
            assert found is None, said
            nobody += 1
            continue
        mixed += 1
        assert found is not None and found.idle and found.pods, said
        gone = {e.name for e in held if e.idle in found.idle}
        gone |= {uid.removeprefix("pod-") for uid in found.pods}
        assert fits_without(nodes, held, gone, wanted), said
        assert sum(e.gpus for e in held if e.name in gone) == known.both, said
        # Asked about these alone, as before they are evicted, the answer is the same.
        named = [each if each.idle in found.idle else replace(each, idle="") for each in held]
        again, _, _ = answer(nodes, named, wanted, grouped=grouped, policy=BEST)
        assert again is not None and again.idle == found.idle, said
    assert mixed >= 15 and nobody >= 30, "too few of the drawn clusters want both"


def test_idle_work_that_would_be_evicted_by_priority_is_evicted_as_idle_work() -> None:
    """As many devices; but idle work of low priority does not come back to displace others."""
    held = [Held("a", "n0", 4, 0, "u"), Held("b", "n1", 4, 0), Held("c", "n1", 4, 2000)]
    held += [Held("d", "n0", 4, 2000)]
    found, _, _ = answer({"n0": 8, "n1": 8}, held, [4, 4], grouped=True, policy=BEST)
    assert found is not None
    assert (found.idle, found.pods) == (("u",), frozenset({"pod-b"}))


def test_idle_work_stays_where_priority_alone_evicts_as_few_devices() -> None:
    held = [Held("a", "n0", 2, PRIORITY, "u"), Held("b", "n0", 6, 2000), Held("c", "n1", 8, 0)]
    found, _, _ = answer({"n0": 8, "n1": 8}, held, [8], grouped=True, policy=BEST)
    assert found is None


def test_on_many_nodes_few_sets_are_tried_where_priority_alone_is_enough() -> None:
    held = [Held(f"a{n}", "n0", 1, PRIORITY, f"u{n}") for n in range(4)]
    held += [Held("b", "n0", 2, 0), Held("c", "n0", 1, 2000), Held("d", "n1", 8, 0)]
    tries = []
    for more in (0, 4_998):
        nodes = {"n0": 8, "n1": 8} | {f"m{n}": 0 for n in range(more)}
        sessions: list[Delayed] = []
        found, _, _ = answer(nodes, held, [7], grouped=False, policy=BEST, begun=sessions)
        tries.append(len(sessions))
        assert found is None or len(found.idle) == 4
    assert tries[1] <= 6 < tries[0]


def test_both_go_where_idle_work_alone_holds_more_than_is_allowed() -> None:
    random, mixed, nobody = Random("most"), 0, 0
    for number in range(3_000):
        if mixed >= 6 and nobody >= 15:
            break
        nodes, held, wanted = drawn(random, alike=False)
        known = ways(nodes, held, wanted[:1], PRIORITY)
        if known.nobody or known.idle is None or known.priority is not None or known.both is None:
            continue
        if not any(each.priority < PRIORITY and not each.idle for each in held):
            continue  # there is nobody but idle work
        most = -(-2 * known.idle // 3)
        found, _, _ = answer(nodes, held, wanted[:1], grouped=False, most=most)
        said = (number, nodes, held, wanted, found, most)
        if known.both >= most:
            assert found is None, said
            nobody += 1
            continue
        mixed += 1
        assert found is not None and found.idle and found.pods, said
        gone = {e.name for e in held if e.idle in found.idle}
        gone |= {uid.removeprefix("pod-") for uid in found.pods}
        assert fits_without(nodes, held, gone, wanted[:1]), said
        assert sum(e.gpus for e in held if e.name in gone) == known.both, said
    assert mixed >= 6 and nobody >= 15, "too few of the drawn clusters have far too much idle work"


def test_the_rest_of_the_room_is_proven_without_the_pods_that_idle_work_leaves() -> None:
    nodes, held = {"n0": 8}, [Held("a", "n0", 4, PRIORITY, "u"), Held("b", "n0", 4, 0)]
    found, snapshot, (unit,) = answer(nodes, held, [8], grouped=False)
    assert found is not None and found.idle == ("u",)
    gone = frozenset({Uid("pod-a")})
    session = Session(snapshot, Policy(), waits=Delayed(without={unit: gone}))
    attempt = session.attempt(unit)
    assert attempt is not None and attempt.plan is not None
    assert [each.root.uid for each in attempt.plan.victims] == ["pod-b"]
    assert faults_of(snapshot, Policy(), attempt) != ()
    assert faults_of(left_out(snapshot, gone), Policy(), attempt) == ()


def test_a_unit_is_never_placed_on_room_that_idle_work_has_not_left_yet() -> None:
    held = [Held("a", "n0", 8, PRIORITY, "u")]
    _, snapshot, (unit,) = answer({"n0": 8}, held, [8], grouped=False)
    session = Session(snapshot, Policy(), waits=Delayed(without={unit: frozenset({Uid("pod-a")})}))
    attempt = session.attempt(unit)
    assert attempt is not None and attempt.plan is None
    assert [(each.bind, each.nominate) for each in attempt.members] == [("", "n0")]


def test_of_many_idle_units_those_that_are_enough_go() -> None:
    """More units than all sets of are tried."""
    nodes = {f"n{n}": 8 for n in range(8)}
    held = [Held(f"i{n}", f"n{n}", 4 if n == 5 else 8, PRIORITY, f"u{n}") for n in range(8)]
    held[0] = Held("i0", "n0", 2, PRIORITY, "u0")
    held += [Held("k", "n0", 6, 2000), Held("b", "n5", 4, 0)]
    found, _, _ = answer(nodes, held, [8, 8, 8, 8, 8, 8, 8], grouped=True)
    assert found is not None
    assert found.idle == tuple(f"u{n}" for n in range(1, 8)) and found.pods == {"pod-b"}
