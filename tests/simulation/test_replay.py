"""A replay: who runs when, what displacing costs, and what may never happen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest

from bench.simulate import NODES, POLICIES, stream
from kubeworld.units.durations import HOUR
from reprieve.engine.quota.displacements import participant_of
from reprieve.engine.quota.model import QueueingStrategy
from reprieve.simulation.demand import Tenants, demand
from reprieve.simulation.replaying.lives import Admitted, Preempted, Replay, Victim
from reprieve.simulation.replaying.loop_guard import ReplayFault
from reprieve.simulation.replaying.quota_cluster import workload
from reprieve.simulation.replaying.replay import replay
from reprieve.simulation.reporting.measures import measured
from reprieve.simulation.trace import Trace
from tests.oracle.replay import first_come_waits, strict_waits
from tests.simulation.building import (
    SECOND,
    classical,
    job,
    life_of,
    never,
    played,
    random_jobs,
    work,
)


def test_who_lent_its_devices_takes_them_back_and_the_other_goes_on_from_its_last_save() -> None:
    done = played(
        [job("wide", 0, 4, 1_000), job("own", 350, 2, 100, "b")],
        classical(),
        work(checkpoint=100, save=10, restart=60),
    )
    assert done.decisions == [
        Admitted(0, "a/wide", False, True),
        Preempted(
            350 * SECOND,
            "b/own",
            (Victim("a/wide", "InCohortReclamation", 4 * 50 * SECOND, 350 * SECOND),),
            done.decisions[1].why,  # type: ignore[union-attr]
        ),
        Admitted(350 * SECOND, "b/own", False, False),
        Admitted(450 * SECOND, "a/wide", True, True),
    ]
    wide = life_of(done, "wide")
    assert wide.finished == (450 + 60 + 700) * SECOND
    assert (wide.waited, wide.displaced) == (100 * SECOND, 1)
    assert (wide.lost, wide.idle) == (200 * SECOND, 240 * SECOND)


def test_devices_are_free_only_when_the_last_save_of_the_displaced_is_over() -> None:
    done = played(
        [job("wide", 0, 4, 1_000), job("own", 300, 2, 100, "b")],
        classical(),
        work(save=20, grace=30),
    )
    assert life_of(done, "own").started == 320 * SECOND
    assert life_of(done, "wide").lost == 0
    assert life_of(done, "wide").finished == (420 + 700) * SECOND


def test_displaced_takes_the_time_that_the_study_says() -> None:
    jobs = [job("wide", 0, 4, 1_000), job("own", 300, 2, 100, "b")]
    done = played(jobs, classical(), work(checkpoint=100, evict=30))
    assert life_of(done, "own").started == 330 * SECOND
    assert (life_of(done, "wide").lost, life_of(done, "wide").idle) == (0, 4 * 30 * SECOND)
    assert life_of(done, "wide").finished == (430 + 700) * SECOND


def test_where_making_way_takes_time_fair_sharing_does_not_go_round_at_one_instant() -> None:
    tenants = Tenants(8, 1.1, {0: 0.6, 100: 0.3, 1000: 0.1})
    jobs = demand(Trace("poisson", stream(400)), tenants, 128, 1.3, 0).jobs
    most = {}
    for evict in (0, 30):
        done = replay(jobs, POLICIES["fair"], work(1_800, 90, 180, 30, evict), tenants.names, NODES)
        turns = Counter(
            (each.at, each.preemptor, victim.job)
            for each in done.decisions
            if isinstance(each, Preempted)
            for victim in each.victims
        )
        most[evict] = max(turns.values())
    assert most[30] == 1 < most[0], most
    # Within an hour a pair turns in both directions no more often than `loopLimit`, and one of
    # equals in one direction neither; a strictly higher priority is paused, and not held.
    priorities = {f"{each.tenant}/{each.id}": each.priority or 0 for each in jobs}
    often = {pair: _most_within(HOUR, found) for pair, found in _preempted(done).items()}
    assert max(often.values()) > 2
    for (preemptor, victim), times in often.items():
        assert min(times, often.get((victim, preemptor), 0)) <= 2
        assert times <= 2 or priorities[preemptor] > priorities[victim]


def _preempted(done: Replay) -> dict[tuple[str, str], list[int]]:
    """Return the instants at which each job preempted each other one."""
    found: dict[tuple[str, str], list[int]] = {}
    for each in done.decisions:
        if isinstance(each, Preempted):
            for victim in each.victims:
                found.setdefault((each.preemptor, victim.job), []).append(each.at)
    return found


def _most_within(window: int, instants: Sequence[int]) -> int:
    """Return how many different instants lie within a window at most."""
    ordered = sorted(set(instants))
    return max(sum(at <= each < at + window for each in ordered) for at in ordered)


def test_without_preemption_nobody_makes_way() -> None:
    done = played([job("wide", 0, 4, 1_000), job("own", 300, 2, 100, "b", 1000)], never())
    assert life_of(done, "own").started == 1_000 * SECOND
    assert life_of(done, "wide").displaced == 0


def test_a_minimum_runtime_puts_the_preemption_off_until_it_is_over() -> None:
    from dataclasses import replace

    patient = replace(classical(), reclaim_min_runtime_s=600)
    done = played([job("wide", 0, 4, 1_000), job("own", 300, 2, 100, "b")], patient)
    assert life_of(done, "own").started == 600 * SECOND


def test_who_makes_way_at_once_holds_its_quota_until_all_is_decided_as_on_a_cluster() -> None:
    # Quota: three of `a`, two of `b`. When `short` ends, `reclaims` has `wide` are preempted, and
    # while that is still there `small`, behind `large` in its queue, is given what is free.
    jobs = [
        job("wide", 0, 4, 1_000, "b"),
        job("small", 10, 1, 800, "b"),
        job("large", 20, 3, 500, "b", 100),
        job("short", 30, 1, 800),
        job("reclaims", 40, 3, 800),
    ]
    done = played(jobs, classical(), devices=5)
    at_830 = [
        (each.preemptor, each.victims[0].job) if isinstance(each, Preempted) else each.job
        for each in done.decisions
        if each.at == 830 * SECOND
    ]
    assert at_830 == [("a/reclaims", "b/wide"), "b/small", "a/reclaims"]


def test_decisions_that_go_on_without_an_end_at_one_instant_fail_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("reprieve.simulation.replaying.loop_guard._MOST_ROUNDS", 0)
    jobs = [job("wide", 0, 4, 1_000), job("own", 350, 2, 100, "b")]
    with pytest.raises(ReplayFault, match="at 350 s decisions continue without an end: 0 times"):
        played(jobs, classical(), work())


def test_waits_are_those_of_a_queue_played_by_hand() -> None:
    random = Random(5)
    waited = 0
    for servers in (1, 3):
        jobs, now = [], 0
        for number in range(150):
            now += random.randint(0, 200 // servers)
            jobs.append(job(f"j{number}", now, 1, random.randint(1, 180)))
        done = played(jobs, never(), devices=servers, tenants=("a",))
        expected = first_come_waits(
            [(each.arrival / SECOND, each.duration / SECOND) for each in jobs], servers
        )
        assert [life.waited / SECOND for life in done.lives] == expected
        waited += sum(wait > 0 for wait in expected)
    assert waited > 100


def test_a_strict_queue_is_blocked_by_its_head_as_played_by_hand() -> None:
    random = Random(6)
    jobs, now = [], 0
    for number in range(80):
        now += random.randint(0, 60)
        jobs.append(job(f"j{number}", now, random.choice([1, 2, 4]), random.randint(1, 90)))
    done = played(jobs, never(QueueingStrategy.STRICT_FIFO), tenants=("a",))
    plain = [(j.arrival // SECOND, j.devices, j.duration // SECOND) for j in jobs]
    assert [life.waited // SECOND for life in done.lives] == strict_waits(plain, 4)


def test_device_time_is_neither_made_nor_lost_sight_of() -> None:
    """All that is held is a job's own work, what was undone of it, or idle; never over capacity."""
    kinds = Counter[str]()
    for seed in range(6):
        random = Random(seed)
        model = work(random.choice([0, 100]), random.choice([0, 20]), random.choice([0, 40]), 30)
        if seed % 3 == 2:
            model = work(100, 20, 40, 30, evict=random.choice([5, 30]))
        jobs = random_jobs(random, 60, 8)
        done = played(jobs, classical(), model, devices=8)
        held = sum(
            devices * (until - since)
            for (since, devices), (until, _) in zip(done.use, done.use[1:], strict=False)
        )
        asked = sum(each.devices * each.duration for each in jobs)
        wasted = sum(life.lost + life.idle for life in done.lives)
        assert held == asked + wasted
        assert all(0 <= devices <= 8 for _, devices in done.use)
        assert done.use[-1][1] == 0
        for life in done.lives:
            assert life.finished is not None
            ran = (life.finished - life.job.arrival - life.waited) * life.job.devices
            assert ran == life.job.duration * life.job.devices + life.lost + life.idle
            kinds["displaced"] += life.displaced > 0
            kinds["again"] += life.displaced > 1
            kinds["idle"] += life.idle > 0
            kinds["undone"] += life.lost > 0
    assert min(kinds[kind] for kind in ("displaced", "again", "idle", "undone")) >= 10, kinds


def test_the_same_jobs_give_the_same_decisions() -> None:
    def once() -> Replay:
        return played(random_jobs(Random(9), 40, 8), classical(), work(100, 10, 20), devices=8)

    first, second = once(), once()
    assert first.decisions == second.decisions
    assert measured(first, 8) == measured(second, 8)
    assert any(isinstance(each, Preempted) for each in first.decisions)


def test_a_job_that_can_never_run_ends_the_replay_with_its_name() -> None:
    with pytest.raises(ReplayFault, match=r"with 1 unfinished job, among them wide of a"):
        played([job("wide", 0, 5, 10)], never())


def test_the_line_of_work_that_a_job_says_is_the_one_that_it_has_without_saying_it() -> None:
    """So that the governor decides alike, and strangers to it are told apart at once."""
    said = workload(job("x", 0, 4, 100), 7, classical(), 8)
    assert said.participant == participant_of(replace(said, participant=None))
