"""Replays of the idle plane: who is idle is preempted as its policy says, and what that gains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from random import Random

import pytest

from kubeworld.units.instants import Nanos
from reprieve.engine.idle.model import Fit, PreemptionPolicy, Workload
from reprieve.engine.idle.model import Policy as IdlePlane
from reprieve.engine.idle.outcome import RULE_BESIDE_PRIORITY
from reprieve.engine.plan import ProofLevel
from reprieve.settings.idle import FALLBACK
from reprieve.simulation.idle_policy import IdlePolicy
from reprieve.simulation.policy import PolicySpec
from reprieve.simulation.replaying.idle_decider import IdleDecider
from reprieve.simulation.replaying.lives import (
    Admitted,
    Decision,
    Life,
    Preempted,
    Replay,
    Reserved,
)
from reprieve.simulation.replaying.quota_cluster import key_of
from reprieve.simulation.replaying.replay import replay
from reprieve.simulation.trace import Job
from tests.oracle.gang_replay import has_room, pods
from tests.oracle.idle_replay import Judge, Person, Rules
from tests.simulation.building import SECOND, job, life_of, random_jobs, work

GRACE = 60


def idling(
    always: bool = False,
    planes: tuple[str, ...] = ("idle",),
    grace: int = GRACE,
    threshold: float = 5.0,
) -> PolicySpec:
    policy = PreemptionPolicy.ALWAYS if always else PreemptionPolicy.ON_PRESSURE
    settings = replace(FALLBACK, grace_period=grace * SECOND, policy=policy, threshold=threshold)
    return PolicySpec(
        "idle",
        planes=planes,
        preempts="scheduling" in planes,
        places=True,
        idle=IdlePolicy(settings),
    )


def idle_job(each: Job, busy: float, idle: float | None = None) -> Job:
    lasts = None if idle is None else int(idle * SECOND)
    return replace(each, idle_from=int(busy * SECOND), idle_for=lasts)


def played(
    jobs: Sequence[Job],
    policy: PolicySpec,
    nodes: tuple[int, int] = (2, 4),
    rules: Rules | None = None,
    utilization: float = 0.0,
) -> Replay:
    rules = rules or Rules(GRACE, False)
    model = work(rules.checkpoint, rules.save, rules.restart)
    ordered = sorted(jobs, key=lambda each: each.arrival)
    return replay(ordered, policy, model, ("a",), nodes, None, utilization)


def judged(
    done: Replay, nodes: tuple[int, int], rules: Rules, *, together: bool = False
) -> Counter[str]:
    """Play a replay's decisions before the naive judge, instant by instant."""
    lives = {key_of(life.job): life for life in done.lives}
    people = {key: _person(life.job) for key, life in lives.items()}
    judge = Judge(*nodes, people, rules, together=together)
    instants = {each.at for each in done.decisions} | {life.job.arrival for life in done.lives}
    instants |= {life.finished or 0 for life in done.lives}
    decisions = list(done.decisions)
    reclaimed_by = set[str]()
    while instants:
        now = min(instants)
        instants.remove(now)
        at, leaving, freed = now // SECOND, list[str](), False
        claims = dict[str, bool]()  # for whom some are leaving, and whether these are idle
        for key, life in lives.items():
            if life.finished == now and not life.ends:
                judge.finishes(key, at)
        while decisions and decisions[0].at == now:
            one = decisions.pop(0)
            if isinstance(one, Admitted):
                for name in leaving:
                    judge.board.leaves(name)
                leaving = []
                judge.starts(one.job, one.nodes, at)
                claims.pop(one.job, None)
                reclaimed_by.update({one.job} if freed else ())
                continue
            assert isinstance(one, Preempted)
            if one.plane != "idle":
                names = [victim.job for victim in one.victims]
                claims.pop(one.preemptor, None)
                judge.preempts(one.preemptor, names, leaving, at, claims)
                claims[one.preemptor] = False
                for name in names:
                    judge.displaced(name, at, one.preemptor)
                leaving += names
                continue
            plans = [one]
            while decisions and decisions[0].at == now and _is_idle_plan(decisions[0]):
                plans.append(decisions.pop(0))  # type: ignore[arg-type]
            beside = [p for p in plans if p.victims[0].rule == RULE_BESIDE_PRIORITY]
            for plan in beside:
                judge.beside(plan.preemptor, [victim.job for victim in plan.victims], at)
            others = [(p.preemptor, [v.job for v in p.victims]) for p in plans if p not in beside]
            if others:
                waiting = _waiting(lives, judge, at)
                judge.makes_way(others, waiting, at)
            claims |= {plan.preemptor: True for plan in plans if plan.preemptor}
            for name in [victim.job for plan in plans for victim in plan.victims]:
                judge.reclaimed(name, at)
                leaving.append(name)
                freed = True
                back = judge.jobs[name].away
                if back is not None:
                    instants.add(back * SECOND)
        for name in leaving:
            judge.board.leaves(name)
        judge.waits_rightly(_waiting(lives, judge, at), at)
    for key, life in lives.items():
        person = judge.jobs[key]
        found = (life.unused, life.lost, life.reclaimed, life.ends)
        wide = person.devices * SECOND
        assert found == (
            person.unused * wide,
            person.undone * wide,
            person.given_back * wide,
            person.over,
        ), key
    assert reclaimed_by == {key for key, life in lives.items() if life.reclaim_wait is not None}
    judge.told["reclaimed_by"] += len(reclaimed_by)
    return judge.told


def _waiting(lives: Mapping[str, Life], judge: Judge, at: int) -> list[str]:
    """Return the jobs that wait for nodes, `at`: seconds."""
    return [
        key
        for key, life in lives.items()
        if life.job.arrival <= at * SECOND
        and key not in judge.board.where
        and (life.finished or 0) > at * SECOND
        and (judge.jobs[key].away or 0) <= at
    ]


def _is_idle_plan(one: object) -> bool:
    return isinstance(one, Preempted) and one.plane == "idle"


def _person(each: Job) -> Person:
    return Person(
        each.devices,
        each.priority or 0,
        each.duration // SECOND,
        None if each.idle_from is None else each.idle_from // SECOND,
        None if each.idle_for is None else each.idle_for // SECOND,
    )


def _jobs(random: Random, nodes: tuple[int, int], count: int = 25) -> list[Job]:
    """Jobs that contend, one at an instant, of which two of three go idle."""
    found = []
    for number, each in enumerate(random_jobs(random, count, nodes[0] * nodes[1], "a")):
        length = each.duration // SECOND
        made = job(each.id, number * 97 + 1, each.devices, length, "a", each.priority or 0)
        if random.random() < 2 / 3:
            busy = random.randint(0, length - 1)
            lasts = random.choice([None, random.randint(1, 600)])
            made = idle_job(made, busy, lasts)
        found.append(made)
    return found


@pytest.mark.parametrize("planes", [("idle",), ("idle", "scheduling")], ids=" and ".join)
def test_small_replays_stand_before_a_naive_judge(planes: tuple[str, ...]) -> None:
    random, told, round_ = Random(11), Counter[str](), 0
    together = "scheduling" in planes
    wanted = (
        "for a demand",
        "several victims",
        "by priority beside idle" if together else "passed over",
        "over",
        "came back",
        "undone",
        "reclaimed_by",
    )
    while min(told[each] for each in (*wanted, "always", "refused beside idle")) < 5:
        assert round_ < 80, told
        nodes = random.choice([(2, 4), (3, 2), (2, 8)])
        always = round_ % 3 == 2
        rules = Rules(random.choice([0, 30, 60, 200]), always, random.choice([0, 50]), 5, 7)
        done = played(_jobs(random, nodes), idling(always, planes, rules.grace), nodes, rules)
        told += judged(done, nodes, rules, together=together)
        round_ += 1
    assert told["refused"] > 100


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12, 40))
def test_more_small_replays_stand_before_the_naive_judge(seed: int) -> None:
    told = sum((_judged_round(seed, number) for number in range(25)), Counter[str]())
    assert told["refused"] > 100


def _judged_round(seed: int, round_: int) -> Counter[str]:
    """Return what the judge counts of one of the rounds that a seed draws, with both planes."""
    random = Random(seed)
    for number in range(round_ + 1):
        nodes = random.choice([(2, 4), (3, 2), (2, 8)])
        rules = Rules(
            random.choice([0, 30, 60, 200]), number % 3 == 2, random.choice([0, 50]), 5, 7
        )
        jobs = _jobs(random, nodes)
    done = played(jobs, idling(rules.always, ("idle", "scheduling"), rules.grace), nodes, rules)
    return judged(done, nodes, rules, together=True)


@pytest.mark.parametrize(("seed", "round_"), [(12, 19), (15, 3), (30, 3)])
def test_a_job_that_was_placed_is_not_tried_again_at_that_instant(seed: int, round_: int) -> None:
    # Another job's answer had the placed one tried again, and the replay ended with a KeyError.
    assert _judged_round(seed, round_)["reclaimed_by"] > 0


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("seed", "round_", "held"),
    [
        (12, 1, "others would have been first"),
        (15, 12, "for a demand"),
        (22, 20, "always"),
        (28, 1, "others would have been first"),
        (12, 3, "overtook"),
        (14, 3, "by debt to a priority"),
        # Others would use what has been idle for longer, or less of it; a next set is enough.
        (18, 12, "overtook"),
        (30, 4, "a next set"),
        (33, 24, "a next set"),
    ],
)
def test_idle_work_goes_for_whom_it_makes_room(seed: int, round_: int, held: str) -> None:
    """Refused plans leave their victims to later demands; higher priorities are served first."""
    assert _judged_round(seed, round_)[held] > 0


def test_idle_work_goes_beside_lower_ones_where_these_alone_hold_more_devices() -> None:
    assert _judged_round(25, 1)["beside lower ones that were enough"] == 1


_rows = IdleDecider._demand_rows


def _all_demands(own: IdleDecider, _: int, now: Nanos) -> Iterator[Workload]:
    return _rows(own, 10**9, now)


def test_nothing_that_could_come_of_an_evaluation_is_spared() -> None:
    """Evaluated at every instant with every demand, the same is decided."""
    random, plans = Random(3), 0
    for round_ in range(6):
        nodes = random.choice([(2, 4), (3, 2)])
        jobs = _jobs(random, nodes)
        policy = idling(round_ % 3 == 2, ("idle", "scheduling"))
        one = played(jobs, policy, nodes)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(IdleDecider, "_is_due", lambda *_: True)
            patch.setattr(IdleDecider, "_demand_rows", _all_demands)
            other = played(jobs, policy, nodes)
        assert one.decisions == other.decisions
        plans += sum(_is_idle_plan(each) for each in one.decisions)
    assert plans > 25


def test_who_is_idle_to_its_end_is_over_when_it_makes_way_and_loses_nothing() -> None:
    jobs = [idle_job(job("left", 0, 4, 1_000), 100), job("waits", 200, 2, 50)]
    done = played(jobs, idling(), (1, 4))
    (one,) = [each for each in done.decisions if isinstance(each, Preempted)]
    (victim,) = one.victims
    assert (one.at, one.preemptor, victim.job, victim.rule) == (
        200 * SECOND,
        "a/waits",
        "a/left",
        "OldestIdle",
    )
    assert victim.idle is not None
    assert victim.idle.why == "Preempted to free 4 nvidia.com/gpu for pending workload waits"
    assert one.why == (
        "needs 2 nvidia.com/gpu: 0 free, 0 on their way, 4 of idle work; every pod has a node"
    )
    assert life_of(done, "waits").reclaim_wait == 0
    left = life_of(done, "left")
    assert (left.finished, left.worked, left.lost) == (200 * SECOND, 100 * SECOND, 0)
    assert (left.unused, left.reclaimed) == (4 * 100 * SECOND, 4 * 800 * SECOND)
    assert life_of(done, "waits").started == 200 * SECOND


def test_who_would_be_used_again_comes_back_then_and_loses_what_it_had_not_saved() -> None:
    jobs = [idle_job(job("gap", 0, 4, 1_000), 100, 500), job("waits", 200, 4, 50)]
    done = played(jobs, idling(), (1, 4), Rules(GRACE, False, 80, 0, 7))
    gap = life_of(done, "gap")
    # Its saves at 80 s and, idle already, at 160 s hold all that it did.
    assert (gap.lost, gap.reclaimed, gap.unused) == (0, 4 * 400 * SECOND, 4 * 100 * SECOND)
    starts = [each.at for each in done.decisions if isinstance(each, Admitted)]
    assert starts == [0, 200 * SECOND, 600 * SECOND]
    assert gap.finished == (600 + 7 + 400) * SECOND
    without = played(jobs, idling(), (1, 4), Rules(GRACE, False, 0, 0, 7))
    assert life_of(without, "gap").lost == 4 * 100 * SECOND
    assert life_of(without, "gap").finished == (600 + 7 + 500) * SECOND


def test_nobody_goes_before_the_grace_period_is_over_nor_for_who_fits_beside() -> None:
    jobs = [
        idle_job(job("idle", 0, 4, 1_000), 100),
        job("fits", 150, 4, 10),
        job("early", 155, 8, 10),
    ]
    done = played(jobs, idling(), (2, 4))
    (one,) = [each for each in done.decisions if isinstance(each, Preempted)]
    assert (one.at, one.preemptor) == (160 * SECOND, "a/early")
    assert life_of(done, "fits").started == 150 * SECOND
    assert (life_of(done, "fits").reclaim_wait, life_of(done, "early").reclaim_wait) == (
        None,
        5 * SECOND,
    )


def test_by_policy_always_idle_work_goes_for_nobody_when_its_grace_is_over() -> None:
    done = played([idle_job(job("idle", 0, 4, 1_000), 100)], idling(always=True))
    (one,) = [each for each in done.decisions if isinstance(each, Preempted)]
    assert (one.at, one.preemptor, one.victims[0].rule) == (160 * SECOND, "", "Always")
    assert done.for_idle == 1


@pytest.mark.parametrize(("shown", "goes"), [(0.0, 1), (4.9, 1), (5.0, 0), (40.0, 0)])
def test_what_is_below_the_threshold_is_idle(shown: float, goes: int) -> None:
    jobs = [idle_job(job("idle", 0, 4, 1_000), 100)]
    assert played(jobs, idling(always=True), utilization=shown).for_idle == goes


def test_who_was_used_again_in_time_stays() -> None:
    jobs = [idle_job(job("short", 0, 4, 1_000), 100, GRACE - 1), job("waits", 110, 8, 10)]
    done = played(jobs, idling(), (2, 4))
    assert done.for_idle == 0
    assert life_of(done, "short").unused == 4 * (GRACE - 1) * SECOND


def test_who_is_displaced_while_idle_by_priority_is_idle_again_and_undoes_no_idle_time() -> None:
    jobs = [idle_job(job("idle", 0, 4, 1_000), 100), job("high", 130, 4, 10, priority=10)]
    done = played(jobs, idling(planes=("idle", "scheduling"), grace=300), (1, 4))
    idle = life_of(done, "idle")
    assert (idle.displaced, done.for_idle) == (1, 0)
    assert idle.lost == 4 * 100 * SECOND
    assert idle.unused == 4 * (30 + 900) * SECOND
    assert idle.worked == (140 + 100) * SECOND


def test_without_the_idle_plane_idle_work_stays_and_is_counted() -> None:
    jobs = [idle_job(job("idle", 0, 4, 1_000), 100), job("waits", 200, 4, 50)]
    for policy in (PolicySpec("nodes", planes=("scheduling",)), PolicySpec("quota")):
        done = played(jobs, policy, (1, 4))
        assert life_of(done, "waits").started == 1_000 * SECOND
        assert life_of(done, "idle").unused == 4 * 900 * SECOND
        assert (done.unused_at_end, done.done_at_end) == (4 * 100 * SECOND, 4 * 100 * SECOND)


def test_with_quota_too_idle_work_makes_way_for_who_waits_for_either() -> None:
    random, told, round_ = Random(23), Counter[str](), 0
    while min(told[each] for each in ("quota", "nodes", "over", "came back", "ousted")) < 5:
        assert round_ < 60, told
        nodes = random.choice([(2, 4), (3, 2), (2, 8)])
        rules = Rules(random.choice([0, 30, 60]), round_ % 4 == 3, 50, 5, 7)
        jobs = [replace(each, tenant=random.choice("ab")) for each in _jobs(random, nodes)]
        policy = idling(rules.always, ("idle", "quota", "scheduling"), rules.grace)
        told += _judged_with_quota(played(jobs, policy, nodes, rules), nodes, rules)
        round_ += 1


def _judged_with_quota(done: Replay, nodes: tuple[int, int], rules: Rules) -> Counter[str]:
    """Judge idle plans alone, whoever else goes; and what everybody held unused and lost."""
    lives = {key_of(life.job): life for life in done.lives}
    judge = Judge(*nodes, {key: _person(life.job) for key, life in lives.items()}, rules)
    capacity, quota = nodes[0] * nodes[1], set[str]()
    decisions: dict[int, list[Decision]] = {}
    for each in done.decisions:
        decisions.setdefault(each.at, []).append(each)
    finished = {life.finished or 0 for life in done.lives}
    for now in sorted({*decisions, *finished}):
        at, leaving = now // SECOND, list[str]()
        for key, life in lives.items():
            if life.finished == now and not life.ends:
                judge.finishes(key, at)
                quota.discard(key)
        for one in decisions.get(now, ()):
            if isinstance(one, Reserved):
                quota.update({one.job})
            elif isinstance(one, Admitted):
                for name in leaving:
                    judge.board.leaves(name)
                leaving = []
                judge.starts(one.job, one.nodes, at)
            elif isinstance(one, Preempted):
                gone = [victim.job for victim in one.victims]
                if one.plane == "quota":
                    quota.difference_update(gone)
                if one.plane != "idle":
                    # Who leaves as idle work already goes only once.
                    there = judge.board.where.keys() - set(leaving)
                    gone = [name for name in gone if name in there]
                    for name in gone:
                        judge.displaced(name, at, one.preemptor)
                    leaving += gone
                    continue
                if one.preemptor in leaving:  # it has left, and waits again
                    for name in leaving:
                        judge.board.leaves(name)
                    leaving = []
                for name in gone:
                    judge.reclaimed(name, at)
                leaving += gone
                had = set(quota)
                quota.difference_update(gone)
                if not rules.always:
                    _needed(judge, one, quota, had, capacity)
        for name in leaving:
            judge.board.leaves(name)
        assert not (judge.idle_long(at) and rules.always)
    for key, life in lives.items():
        person, wide = judge.jobs[key], life.job.devices * SECOND
        assert (life.unused, life.lost) == (person.unused * wide, person.undone * wide)
        judge.told["ousted"] += life.displaced > 1
    return judge.told


def _needed(judge: Judge, plan: Preempted, quota: set[str], had: set[str], capacity: int) -> None:
    """Judge whether a demand waits, and what it is freed suffices, in quota where it lacks that.

    `quota`: who holds it afterwards, `had`: who held it.
    """
    wanted = judge.jobs[plan.preemptor].devices
    assert plan.preemptor not in judge.board.where
    assert plan.proof is not None
    if plan.preemptor in quota:
        judge.told["nodes"] += 1
        assert plan.proof.level is ProofLevel.PLACEMENT
        return
    judge.told["quota"] += 1
    assert plan.proof.level is ProofLevel.QUOTA
    left = capacity - sum(judge.jobs[key].devices for key in quota)
    assert left >= wanted, "its quota is not free afterwards"
    gone = [victim.job for victim in plan.victims]
    free = judge.board.free(gone)
    if has_room(free, pods(wanted, judge.of_a_node)):
        judge.told["quota and nodes"] += 1
    for name in gone:
        others = [each for each in gone if each != name]
        room = has_room(judge.board.free(others), pods(wanted, judge.of_a_node))
        held = judge.jobs[name].devices if name in had else 0
        assert left - held < wanted or not room, f"{name} goes in vain"


@pytest.mark.parametrize(("fit", "goes"), [(Fit.NODE, 0), (Fit.SUM, 2)])
def test_by_sum_idle_work_goes_for_who_has_no_node_afterwards(fit: Fit, goes: int) -> None:
    jobs = [
        idle_job(job("left", 0, 2, 1_000), 100),
        job("busy", 1, 2, 1_000),
        idle_job(job("right", 2, 2, 1_000), 100),
        job("too", 3, 2, 1_000),
        job("whole", 200, 4, 50),
    ]
    policy = idling()
    policy = replace(policy, idle=replace(policy.idle, policy=IdlePlane(fit=fit)))
    done = played(jobs, policy)
    assert done.for_idle == goes
    assert life_of(done, "whole").started == 1_001 * SECOND


def test_two_demands_are_served_at_once_by_different_idle_jobs() -> None:
    jobs = [
        idle_job(job("one", 0, 4, 1_000), 100),
        idle_job(job("two", 0, 4, 1_000), 100),
        job("waits", 120, 3, 50),
        job("too", 130, 3, 50),
    ]
    done = played(jobs, idling())
    found = [each for each in done.decisions if isinstance(each, Preempted)]
    assert [(each.at, each.preemptor, each.victims[0].job) for each in found] == [
        (160 * SECOND, "a/waits", "a/one"),
        (160 * SECOND, "a/too", "a/two"),
    ]
    assert judged(done, (2, 4), Rules(GRACE, False))["several"] == 1
