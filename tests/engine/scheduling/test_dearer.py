"""The proof refuses victims that are said to be the least costly ones and are not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.optimum import instance
from reprieve.engine.cluster.cluster import Cluster
from reprieve.engine.cluster.rows import Change, GroupRow, NodeRow, PodClass, PodRow
from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.placement.profile import Policy, VictimChoice
from reprieve.engine.scheduling import group_preemption
from reprieve.engine.scheduling.least_cost import fewest
from reprieve.engine.scheduling.outcome import Attempt, Unit
from reprieve.engine.scheduling.proofs.proof import Fault, faults_of
from reprieve.engine.scheduling.session import Session
from reprieve.units.ids import Uid

NOW = 1_800_000_000
GPU = "nvidia.com/gpu"
BEST = Policy(choice=VictimChoice.BEST)
LEAST_LOST = replace(BEST, harm_order=True)
TRAIN = Unit((Uid("train"),))


def pod(
    name: str, gpus: int, priority: int, node: str = "", start: int | None = None, group: str = ""
) -> PodRow:
    entry = PodClass((("cpu", 1_000 * gpus), (GPU, gpus)), 1_000 * gpus, 200 * 2**20)
    return PodRow(
        Uid(name),
        "default",
        name,
        1,
        entry,
        node=node,
        priority=priority,
        start=start,
        group=group,
    )


def cluster(*rows: Change) -> Snapshot:
    nodes = [
        NodeRow(Uid(n), n, 1, {"pods": 110, "cpu": cpu, GPU: 8}, {})
        for n, cpu in (("a", 64_000), ("b", 8_000))
    ]
    found = Cluster()
    found.apply([*nodes, *rows])
    return found.snapshot()


def claimed(snapshot: Snapshot, policy: Policy, gap: int | None, *evictable: str) -> Attempt:
    """What is decided when only these pods exist as victims, said to be the least costly."""
    compatible = replace(policy, choice=VictimChoice.COMPATIBLE)
    others = {Uid(uid) for uid in snapshot.pod_uids if uid and uid not in evictable}
    attempt = Session(snapshot, compatible, now=NOW, overdue=others).attempt(TRAIN)
    assert attempt is not None and attempt.plan is not None
    assert {victim.root.name for victim in attempt.plan.victims} == set(evictable)
    proof = replace(attempt.plan.proof, profile="best", gap=gap)
    return replace(attempt, plan=replace(attempt.plan, proof=proof))


def faults(snapshot: Snapshot, policy: Policy, attempt: Attempt) -> list[str]:
    return [each.fault for each in faults_of(snapshot, policy, attempt, NOW)]


def test_a_higher_priority_than_is_needed_is_refused() -> None:
    snapshot = cluster(pod("low", 8, 1, "a"), pod("middle", 8, 5, "b"), pod("train", 8, 10))
    assert faults(snapshot, BEST, claimed(snapshot, BEST, None, "low")) == []
    assert faults(snapshot, BEST, claimed(snapshot, BEST, None, "middle")) == [Fault.TOO_HIGH]


def test_who_may_be_no_victim_makes_no_room() -> None:
    snapshot = cluster(pod("low", 8, 1, "a"), pod("middle", 8, 5, "b"), pod("train", 8, 10))
    attempt = claimed(snapshot, BEST, None, "middle")
    found = faults_of(snapshot, BEST, attempt, NOW, overdue={Uid("low")})
    assert found == ()


def test_a_plan_of_which_nothing_was_said_is_not_asked() -> None:
    snapshot = cluster(pod("low", 8, 1, "a"), pod("middle", 8, 5, "b"), pod("train", 8, 10))
    attempt = claimed(snapshot, BEST, None, "middle")
    assert attempt.plan is not None
    plain = replace(attempt.plan, proof=replace(attempt.plan.proof, profile=""))
    assert faults_of(snapshot, BEST, replace(attempt, plan=plain), NOW) == ()


def test_more_lost_work_than_the_plan_says_is_refused() -> None:
    snapshot = cluster(
        pod("old", 8, 1, "a", start=NOW - 3_000),
        pod("young", 4, 1, "b", start=NOW - 60),
        pod("elder", 4, 1, "b", start=NOW - 900),
        pod("train", 4, 10),
    )
    assert faults(snapshot, LEAST_LOST, claimed(snapshot, LEAST_LOST, 0, "young")) == []
    worse = claimed(snapshot, LEAST_LOST, 0, "elder")
    assert faults(snapshot, LEAST_LOST, worse) == [Fault.ABOVE_BOUND, Fault.DEARER]
    assert faults(snapshot, LEAST_LOST, claimed(snapshot, LEAST_LOST, 60, "elder")) == []


def test_more_pods_than_the_plan_says_are_refused() -> None:
    snapshot = cluster(
        *(pod(f"small-{number}", 2, 1, "a") for number in range(2)),
        pod("large", 4, 1, "a"),
        pod("middle", 8, 9, "b"),
        pod("train", 4, 10),
    )
    assert faults(snapshot, BEST, claimed(snapshot, BEST, 0, "large")) == []
    worse = claimed(snapshot, BEST, 0, "small-0", "small-1")
    assert faults(snapshot, BEST, worse) == [Fault.ABOVE_BOUND, Fault.DEARER]


def test_a_group_that_goes_whole_makes_no_room_with_a_part() -> None:
    gang = GroupRow(Uid("g"), "default", "g", 1, min_count=2, all_or_nothing=True, priority=20)
    snapshot = cluster(
        gang,
        pod("g-0", 8, 20, "a", group="g"),
        pod("middle", 8, 5, "b"),
        pod("train", 8, 10),
    )
    assert faults(snapshot, BEST, claimed(snapshot, BEST, None, "middle")) == []


@pytest.mark.parametrize("kind", ["mixed", "equal"])
def test_a_search_that_takes_too_high_a_priority_is_noticed(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compatible victims stand where the search finds nothing; the proof sees their priority."""
    monkeypatch.setattr(fewest.Proposals, "_solved", lambda self, passes, case=(): None)
    monkeypatch.setattr(group_preemption, "costs_less", lambda search, other, found: False)
    noticed = 0
    for seed in range(30):
        given = instance(seed, kind)
        snapshot = given.snapshot()
        attempt = Session(snapshot, BEST, now=NOW).attempt(given.unit)
        assert attempt is not None
        if attempt.plan is not None:
            noticed += Fault.TOO_HIGH in faults(snapshot, BEST, attempt)
    assert noticed >= 5, noticed
