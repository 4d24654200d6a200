"""The input of a scheduling decision is stored so that deciding it again gives the same plan."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from kubeworld.units.clock import VirtualClock
from reprieve.engine.cluster.cluster import Cluster
from reprieve.engine.cluster.rows import Change, HostPort, PodRow
from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.placement.profile import Policy
from reprieve.engine.scheduling.outcome import Attempt, Unit
from reprieve.engine.scheduling.session import GROUP_POST_FILTERS, Session
from reprieve.planes.scheduling.cycle.slices import decide
from reprieve.records.idle.record import DATA_LIMIT
from reprieve.records.idle.replay import InputOmitted, SpoiltInput
from reprieve.records.scheduling.record import MOST_PODS, encode_scheduling
from reprieve.records.scheduling.refusals import refusals
from reprieve.records.scheduling.replay import (
    Part,
    PluginMissing,
    SchedulingReplay,
    decide_scheduling_again,
    pod_answers,
)
from reprieve.records.scheduling.story import pod_answer_text, pods_named
from reprieve.units.ids import Uid
from tests.engine.api_objects import cluster_of, policy_of
from tests.engine.builders import budget, gang, node, pod, pod_class, service, snapshot_of
from tests.engine.scheduling.agreement import cases_of
from tests.engine.scheduling.engine_cycle import attempt_of, unit_of


def again(recorded: dict[str, Any]) -> SchedulingReplay:
    """Decide what comes back from the API server."""
    back = msgspec.json.decode(msgspec.json.encode(recorded))
    return decide_scheduling_again(back, GROUP_POST_FILTERS)


def decided(snapshot: Snapshot, policy: Policy, unit: Unit, *overdue: Uid) -> Attempt:
    attempt = Session(snapshot, policy, overdue=overdue).attempt(unit)
    assert attempt is not None
    return attempt


def unit(rows: list[Any]) -> Unit:
    """The unit of a gang made by `gang`."""
    return Unit(tuple(row.uid for row in rows[1:]), f"{rows[0].namespace}/{rows[0].name}")


def full(count: int = 4, **lower: Any) -> list[Any]:
    """Two nodes full of lower pods `low-0`..., half of them on each."""
    shared = pod_class(cpu=1000)
    names = [f"n{number % 2}" for number in range(count)]
    lows = [
        pod(f"low-{number}", pod_class=shared, node=name, start=number, **lower)
        for number, name in enumerate(names)
    ]
    cpu = 1000 * (count // 2)
    return [node("n0", cpu=cpu), node("n1", cpu=cpu), *lows]


def test_deciding_the_stored_input_again_gives_the_same_plan() -> None:
    counted: Counter[str] = Counter()
    for case in cases_of(range(400)):
        snapshot, policy = cluster_of(case).snapshot(), policy_of(case)
        attempt = attempt_of(case, snapshot, policy)
        if attempt is None or attempt.plan is None:
            continue
        recorded = encode_scheduling(snapshot, policy, unit_of(case, snapshot))
        replay = again(recorded)
        assert replay.attempt.plan == attempt.plan, case["seed"]
        assert replay.attempt.members == attempt.members, case["seed"]
        counted.update(case["situations"])
        counted["group" if attempt.unit.group else "pod"] += 1
        parts = Counter(each.part for each in pod_answers(replay))
        assert parts[Part.VICTIM] == len(attempt.plan.victims)
        counted["reprieved"] += bool(parts[Part.REPRIEVED])
        refused = refusals(snapshot, policy, attempt)
        assert attempt.preemption is not None
        counted["refused"] += len(refused)
        counted["victims"] += len(attempt.preemption.victims)
    assert counted["group"] >= 60 and counted["pod"] >= 15 and counted["reprieved"] >= 30
    assert len(counted) >= 12, counted
    # Rarely a unit is refused only because of others that returned before it.
    assert counted["refused"] >= 0.98 * counted["victims"] >= 200, counted


def test_nominations_of_earlier_attempts_and_overdue_victims_belong_to_the_input() -> None:
    first, second = gang(1, "first", priority=20, cpu=2000), gang(1, "then", priority=10, cpu=2000)
    snapshot = snapshot_of(*full(), *first, *second)
    policy, units = Policy(), [unit(first), unit(second)]
    made, left = decide(snapshot, policy, units, VirtualClock(), frozenset())
    assert left == [] and len(made) == 2
    plans = [each.attempt.plan for each in made if each.attempt is not None]
    assert None not in plans
    for each, plan in zip(made, plans, strict=True):
        assert each.record is not None
        assert again(each.record()).plan == plan
    alone = again(encode_scheduling(snapshot, policy, units[1]))
    assert alone.plan != plans[1]
    overdue = Uid("pod-low-0")
    attempt = decided(snapshot, policy, units[0], overdue)
    replay = again(encode_scheduling(snapshot, policy, units[0], (), [overdue]))
    assert replay.plan == attempt.plan
    (answer,) = pods_named(replay, "default", "low-0")
    assert answer.part is Part.OVERDUE


def test_assumed_pods_and_nominations_that_nobody_has_seen_yet_are_restored() -> None:
    members = gang(1, priority=10, cpu=2000)
    cluster = Cluster()
    mine, rival = pod("mine", cpu=1000, priority=5), pod("rival", cpu=1000, priority=50)
    rows: list[Any] = [*full(2), node("n2", cpu=2000), mine, rival, *members]
    cluster.apply(rows)
    cluster.assume(mine.uid, "n2", 10**18)
    cluster.nominate(rival.uid, "n1", 50, 10**18)
    snapshot = cluster.snapshot()
    attempt = decided(snapshot, Policy(), unit(members))
    assert attempt.plan is not None
    replay = again(encode_scheduling(snapshot, Policy(), unit(members)))
    assert replay.plan == attempt.plan
    assert [each.key for each in pod_answers(replay) if each.part is Part.VICTIM] == [
        "default/mine"
    ]


def test_what_decides_nothing_is_left_out() -> None:
    members = gang(1, priority=10, cpu=2000)
    elsewhere = replace(service("elsewhere", {"app": "x"}), namespace="far")
    others = [pod("waits"), elsewhere]
    rows = [*full(), *members, *others, budget("b", {"app": "x"})]
    snapshot = snapshot_of(*rows)
    replay = again(encode_scheduling(snapshot, Policy(), unit(members)))
    assert [row.name for row in replay.decided_on.pending] == ["g-0"]
    assert replay.decided_on.tables.selectors == ()
    assert [row.name for row in replay.decided_on.tables.budgets] == ["b"]


def test_an_input_that_is_too_large_says_so() -> None:
    members = gang(1, priority=10, cpu=2000)
    shared = pod_class(cpu=1000)
    lows: list[PodRow] = [
        pod(f"low-{n}", pod_class=shared, node="n0") for n in range(MOST_PODS + 1)
    ]
    snapshot = snapshot_of(node("n0"), *lows, *members)
    recorded = encode_scheduling(snapshot, Policy(), unit(members))
    assert recorded == {"version": 1, "omitted": f"{MOST_PODS + 1:,} pods"}
    with pytest.raises(InputOmitted, match="15,001 pods"):
        again(recorded)


def test_three_thousand_pods_with_random_names_fit_into_a_record() -> None:
    import hashlib

    def random(number: int) -> str:
        text = hashlib.sha256(str(number).encode()).hexdigest()
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:32]}"

    members = gang(1, priority=10, cpu=2000)
    shared = pod_class(cpu=1000)
    lows = [
        pod(f"job-{random(n)[:5]}{n}", uid=Uid(random(n)), pod_class=shared, node=f"n{n % 100}")
        for n in range(3_000)
    ]
    nodes = [node(f"n{n}", cpu=30_000) for n in range(100)]
    snapshot = snapshot_of(*nodes, *lows, *members)
    recorded = encode_scheduling(snapshot, Policy(), unit(members))
    assert len(recorded["data"]) < DATA_LIMIT
    assert again(recorded).plan == decided(snapshot, Policy(), unit(members)).plan


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda pods: pods["nodes"].__setitem__(0, 99), "contradicts itself"),
        (lambda pods: pods["nodes"].pop(), "contradicts itself"),
        (lambda pods: pods["classes"].__setitem__(0, 99), "contradicts itself"),
        (lambda pods: pods.pop("flags"), "another form"),
    ],
)
def test_an_input_that_nobody_wrote_is_refused(change: Any, why: str) -> None:
    import base64
    import hashlib
    import zlib

    members = gang(1, priority=10, cpu=2000)
    recorded = encode_scheduling(snapshot_of(*full(), *members), Policy(), unit(members))
    document = msgspec.json.decode(zlib.decompress(base64.b64decode(recorded["data"])))
    change(document["pods"])
    text = msgspec.json.encode(document)
    forged = {
        **recorded,
        "data": base64.b64encode(zlib.compress(text)).decode(),
        "sha256": hashlib.sha256(text).hexdigest(),
    }
    with pytest.raises(SpoiltInput, match=why):
        again(forged)


def test_without_a_plugin_that_took_part_nothing_is_decided_again() -> None:
    profile = Policy().profiles[0]
    policy = Policy((replace(profile, pod_group_post_filters=("Other", "DefaultPreemption")),))
    members = gang(1, priority=10, cpu=2000)
    with pytest.raises(PluginMissing, match="the plugin Other is not installed here"):
        again(encode_scheduling(snapshot_of(*full(), *members), policy, unit(members)))


def test_every_pod_has_an_answer_in_words() -> None:
    members = gang(1, "high", priority=10, cpu=2000)
    equal = pod("equal", cpu=0, priority=10, node="n0")
    whole = gang(2, "low", cpu=500, all_or_nothing=True, nodes=("n0", "n1"))
    rows = [node("n0", cpu=2000), node("n1", cpu=2000), equal, *whole, *members]
    snapshot = snapshot_of(*rows, pod("free", cpu=500, node="n1"))
    replay = again(encode_scheduling(snapshot, Policy(), unit(members)))

    def told(name: str) -> list[str]:
        return [pod_answer_text(each, replay) for each in pods_named(replay, "default", name)]

    assert told("high-0") == ["default/high-0 (priority 10, group default/high) is to run on n0"]
    assert told("high") == told("high-0")
    (low,) = told("low-0")
    assert low == (
        "default/low-0 (on n0, priority 0, group default/low) is preempted: its group is evicted "
        "as a whole (2 pods), and NodeResourcesFit refuses its reprieve"
    )
    assert len(told("low")) == 2
    assert told("free") == [
        "default/free (on n1, priority 0) stays: the preemptor fits with it in place"
    ]
    assert told("equal") == [
        "default/equal (on n0, priority 10) stays: its priority is not below the preemptor's 10"
    ]
    assert told("nobody") == []


def test_for_a_single_pod_other_nodes_than_its_own_are_told_apart() -> None:
    single = pod("single", cpu=2000, priority=10)
    snapshot = snapshot_of(*full(), single)
    replay = again(encode_scheduling(snapshot, Policy(), Unit((single.uid,))))
    assert replay.plan is not None
    parts = Counter(each.part for each in pod_answers(replay))
    assert parts == {Part.MEMBER: 1, Part.VICTIM: 2, Part.ELSEWHERE: 2}


def test_the_filter_that_refuses_a_single_pods_victim_is_named() -> None:
    single = pod("single", cpu=1000, priority=10, host_ports=(HostPort(80),))
    rows: list[Change] = [
        node("n", cpu=3000),
        pod("web", cpu=1000, node="n", host_ports=(HostPort(80),)),
    ]
    lows = [pod(f"low-{n}", cpu=1000, node="n", start=n) for n in range(2)]
    snapshot = snapshot_of(*rows, *lows, single)
    replay = again(encode_scheduling(snapshot, Policy(), Unit((single.uid,))))
    told = [pod_answer_text(each, replay) for each in pod_answers(replay)]
    assert told == [
        "default/single (priority 10) is to run on n",
        "default/web (on n, priority 0) is preempted: NodePorts refuses its reprieve",
        "default/low-0 (on n, priority 0) stays: the preemptor fits with it in place",
        "default/low-1 (on n, priority 0) stays: the preemptor fits with it in place",
    ]


def test_a_group_that_goes_as_a_whole_has_its_filter_whichever_of_its_pods_was_seen_first() -> None:
    on = ("n0", "n0", "n1", "n1")
    whole, *lows = gang(4, "low", priority=1, all_or_nothing=True, nodes=on, cpu=1000)
    high = gang(1, "high", priority=10, cpu=2000)
    nodes = [node(name, cpu=2000) for name in ("n0", "n1")]
    for order in (lows, lows[::-1]):
        snapshot = snapshot_of(*nodes, whole, *order, *high)
        attempt = decided(snapshot, Policy(), unit(high))
        assert attempt.preemption is not None
        (victim,) = attempt.preemption.victims
        assert len(victim.pods) == 4
        assert refusals(snapshot, Policy(), attempt) == {victim.pods[0]: "NodeResourcesFit"}
