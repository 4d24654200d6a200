"""Replays on nodes: gangs are placed whole, are preempted whole, and nobody waits beside room."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from reprieve.engine.placement.profile import Policy
from reprieve.simulation.policy import PolicySpec
from reprieve.simulation.replaying.lives import Admitted, Preempted, Replay
from reprieve.simulation.replaying.quota_cluster import key_of
from reprieve.simulation.replaying.replay import replay
from reprieve.simulation.study import read_study
from reprieve.simulation.trace import Job
from reprieve.units.errors import UsageError
from tests.oracle.gang_replay import Asked, Board
from tests.simulation.building import (
    SECOND,
    STUDY,
    job,
    life_of,
    random_jobs,
    same_twice,
    study_in,
    work,
)


def placing(harm: bool = False, preempts: bool = True) -> PolicySpec:
    policy = Policy(harm_order=harm)
    return PolicySpec("nodes", planes=("scheduling",), placing=policy, preempts=preempts)


def on_nodes(
    jobs: Sequence[Job], policy: PolicySpec, nodes: int = 2, devices: int = 4, checkpoint: int = 0
) -> Replay:
    ordered = sorted(jobs, key=lambda each: each.arrival)
    return replay(ordered, policy, work(checkpoint), ("a",), (nodes, devices))


def judged(done: Replay, nodes: int, devices: int) -> Counter[str]:
    """Play a replay's decisions on the board of the naive judge, instant by instant."""
    lives = {key_of(life.job): life for life in done.lives}
    jobs = {key: Asked(life.job.devices, life.job.priority or 0) for key, life in lives.items()}
    board = Board(nodes, devices, jobs)
    instants = {each.at for each in done.decisions}
    instants |= {life.job.arrival for life in done.lives}
    instants |= {life.finished or 0 for life in done.lives}
    decisions = list(done.decisions)
    for now in sorted(instants):
        for key, life in lives.items():
            if life.finished == now:
                board.leaves(key)
        leaving: list[str] = []
        while decisions and decisions[0].at == now:
            one = decisions.pop(0)
            if isinstance(one, Admitted):
                for name in leaving:
                    board.leaves(name)
                leaving = []
                board.starts(one.job, one.nodes)
            elif isinstance(one, Preempted):
                names = [victim.job for victim in one.victims]
                board.makes_way(one.preemptor, names)
                leaving += names
        assert not leaving, "the preemptor got no node at the instant at which its victims left"
        here = [key for key, life in lives.items() if life.job.arrival <= now]
        waiting = [k for k in here if k not in board.where and (lives[k].finished or 0) > now]
        board.waits_rightly(waiting)
    return board.told


def test_small_replays_on_nodes_stand_before_a_naive_judge() -> None:
    random, told = Random(5), Counter[str]()
    for round_ in range(16):
        nodes, devices = random.choice([(2, 4), (3, 2), (2, 8)])
        found = random_jobs(random, 25, nodes * devices)
        # One preemptor at an instant, so that each is judged by itself.
        jobs = [
            job(
                each.id,
                number * 97 + 1,
                each.devices,
                each.duration // SECOND,
                "a",
                each.priority or 0,
            )
            for number, each in enumerate(found)
        ]
        done = on_nodes(jobs, placing(harm=round_ % 2 == 1), nodes, devices)
        told += judged(done, nodes, devices)
    assert told["started"] > 400
    assert min(told["preempted"], told["refused"], told["ties"]) > 50, told


def test_a_job_that_fits_by_sum_alone_waits_and_what_is_free_is_stranded() -> None:
    jobs = [
        job("left", 0, 3, 100),
        job("right", 0, 3, 100),
        job("two", 10, 2, 50),
        job("last", 200, 1, 10),
    ]
    done = on_nodes(jobs, placing())
    assert life_of(done, "two").started == 100 * SECOND
    assert done.stranded_at_end == 2 * 90 * SECOND
    nodes = {each.job: each.nodes for each in done.decisions if isinstance(each, Admitted)}
    assert nodes["a/left"] == ("node-0",)
    assert nodes["a/right"] == ("node-1",)


def test_a_gang_over_two_nodes_makes_way_as_a_whole() -> None:
    jobs = [job("wide", 0, 8, 1_000), job("high", 60, 1, 10, priority=10)]
    done = on_nodes(jobs, placing())
    (one,) = [each for each in done.decisions if isinstance(each, Preempted)]
    assert [(each.job, each.rule) for each in one.victims] == [
        ("a/wide", "lower priority, whole group")
    ]
    assert (life_of(done, "high").started, life_of(done, "wide").displaced) == (60 * SECOND, 1)
    assert life_of(done, "wide").lost == 8 * 60 * SECOND


def test_two_preemptors_share_the_room_of_one_that_makes_way_once() -> None:
    jobs = [
        job("wide", 0, 8, 1_000),
        job("high", 60, 4, 10, priority=10),
        job("other", 60, 4, 10, priority=10),
    ]
    done = on_nodes(jobs, placing())
    (one,) = [each for each in done.decisions if isinstance(each, Preempted)]
    assert (one.preemptor, life_of(done, "wide").displaced) == ("a/high", 1)
    assert [life_of(done, name).started for name in ("high", "other")] == [60 * SECOND] * 2


def test_without_preemption_nobody_makes_way() -> None:
    jobs = [job("wide", 0, 8, 1_000), job("high", 60, 1, 10, priority=10)]
    done = on_nodes(jobs, placing(preempts=False))
    assert life_of(done, "high").started == 1_000 * SECOND


def test_with_harm_order_that_goes_which_saved_last() -> None:
    jobs = [
        job("old", 0, 4, 5_000),
        job("young", 700, 4, 5_000),
        job("high", 1_010, 4, 10, priority=10),
    ]

    def victims(harm: bool) -> list[str]:
        done = on_nodes(jobs, placing(harm), 1, 8, checkpoint=1_000)
        (one,) = [each for each in done.decisions if isinstance(each, Preempted)]
        return [each.job for each in one.victims]

    assert (victims(False), victims(True)) == (["a/young"], ["a/old"])


NODES = STUDY.replace("none: {preemption", "none: {planes: [scheduling], preemption").replace(
    "classical: {}", "classical: {planes: [scheduling], scheduling: {harmOrder: true}}"
)


def test_a_study_on_nodes_gives_the_same_bytes_twice_and_says_what_was_stranded(
    tmp_path: Path,
) -> None:
    study = study_in(tmp_path, NODES)
    decisions, outcomes = same_twice(tmp_path, study)
    for outcome in outcomes:
        assert len(outcome.rows) == 6
        assert any(float(row["stranded_device_hours"]) > 0 for row in outcome.rows)
        assert "by the scheduling engine, on nodes" in outcome.report
    assert '"nodes":["node-' in decisions
    assert read_study(study).notices == ()


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("planes: [idle, quota]", "[idle, scheduling] or [idle, quota, scheduling]"),
        ("planes: [scheduling], minRuntime: {preempt: 1m}", "minRuntime: changes nothing where"),
        ("planes: [scheduling], preemption: Always", "accepted: Never"),
        ("planes: [scheduling], podPreemption: Never", "podPreemption: changes nothing where"),
        ("podPreemption: Never", "podPreemption: changes nothing where nothing is placed"),
        ("planes: [quota, scheduling], podPreemption: Always", "accepted: Never"),
    ],
)
def test_what_a_policy_on_nodes_cannot_say_is_refused(tmp_path: Path, said: str, told: str) -> None:
    study = study_in(tmp_path, STUDY.replace("classical: {}", f"classical: {{{said}}}"))
    with pytest.raises(UsageError) as error:
        read_study(study)
    assert told in str(error.value)
