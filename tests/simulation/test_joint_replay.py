"""Replays with quota and nodes: quota first, then nodes, and what becomes of who loses either."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from reprieve.engine.disruptions.questions import GovernorPolicy
from reprieve.engine.placement.profile import Policy
from reprieve.engine.quota.model import Preemption, Settings
from reprieve.engine.quota.waiting.requeuing import Backoff
from reprieve.settings.quota_configuration_parts import PodsReady
from reprieve.simulation.policy import PolicySpec
from reprieve.simulation.replaying.lives import (
    Admitted,
    Decision,
    Life,
    Preempted,
    Replay,
    Reserved,
    Unready,
)
from reprieve.simulation.replaying.loop_guard import ReplayFault
from reprieve.simulation.replaying.quota_cluster import key_of
from reprieve.simulation.replaying.replay import replay
from reprieve.simulation.replaying.work import WorkModel
from reprieve.simulation.study import read_study
from reprieve.simulation.trace import Job
from reprieve.units.errors import UsageError
from tests.oracle.gang_replay import Asked, Board, has_room, pods
from tests.oracle.quota_replay import Claim, Ledger
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

BOTH = ("quota", "scheduling")
BACKOFF = Backoff(10, 40)


def both(harm: bool = False, preempts: bool = True, settings: Settings | None = None) -> PolicySpec:
    # Without the governor: who is held from whom is nothing that a judge by hand would know.
    return PolicySpec(
        "both",
        planes=BOTH,
        settings=settings or Settings(harm_order=harm),
        placing=Policy(harm_order=harm),
        preempts=preempts,
        governor=GovernorPolicy(loop_limit=0),
    )


def with_both(
    jobs: Sequence[Job],
    policy: PolicySpec | None = None,
    nodes: tuple[int, int] = (2, 4),
    model: WorkModel | None = None,
) -> Replay:
    ordered = sorted(jobs, key=lambda each: each.arrival)
    return replay(ordered, policy or both(), model or work(), ("a", "b"), nodes)


class Judged:
    """A replay's decisions on the boards of the naive judges, instant by instant."""

    def __init__(
        self, done: Replay, nodes: int, devices: int, harm: bool, rules: PodsReady | None
    ) -> None:
        self.harm, self.rules = harm, rules
        self.since: dict[str, tuple[int, bool]] = {}  # who waits for nodes, and had some before
        self.away: dict[str, tuple[int, int]] = {}  # how often it gave up, and until when it is out
        self.lives: dict[str, Life] = {key_of(life.job): life for life in done.lives}
        jobs = {key: life.job for key, life in self.lives.items()}
        even, left = divmod(nodes * devices, 2)
        self.ledger = Ledger(
            {"a": even + left, "b": even},
            {key: Claim(one.tenant, one.devices, one.priority or 0) for key, one in jobs.items()},
        )
        self.board = Board(
            nodes,
            devices,
            {key: Asked(one.devices, one.priority or 0) for key, one in jobs.items()},
        )
        self.leaving: dict[str, int] = {}  # when who is preempted leaves
        self.told: Counter[str] = Counter()
        self.stranded = self.unplaced = 0
        self.last = max(life.job.arrival for life in done.lives)
        self._play(list(done.decisions))

    def _play(self, decisions: list[Decision]) -> None:
        lives = self.lives.values()
        instants = {each.at for each in decisions} | {life.job.arrival for life in lives}
        instants |= {life.finished or 0 for life in lives}
        instants |= {
            victim.leaves
            for each in decisions
            if isinstance(each, Preempted)
            for victim in each.victims
        }
        instants |= {each.queued_again for each in decisions if isinstance(each, Unready)}
        before = 0
        for now in sorted(instants):
            self._passed(before, now)
            before = now
            for key, life in self.lives.items():
                if life.finished == now:
                    self.board.leaves(key)
                    self.ledger.releases(key)
            self._leave(now)
            while decisions and decisions[0].at == now:
                self._one(decisions.pop(0), now)
            self._leave(now)
            self._look(now)
        assert not decisions

    def _one(self, one: Decision, now: int) -> None:
        if isinstance(one, Reserved):
            if not self.ledger.has_room(one.job) or one.job in self.ledger.held:
                self._leave(now)  # what left at once has left by now
            self.ledger.reserves(one.job, one.borrows)
            self.since[one.job] = now, False
        elif isinstance(one, Admitted):
            assert one.job in self.ledger.held, "placed without quota"
            if one.job in self.leaving or not self.board.has_room_for(one.job, one.nodes):
                self._leave(now)
            self.board.starts(one.job, one.nodes)
            del self.since[one.job]
        elif isinstance(one, Unready):
            assert now == self.until(one.job), "not at its time"
            self.ledger.releases(one.job)
            del self.since[one.job]
            count = self.away[one.job][0] + 1 if one.job in self.away else 1
            assert one.queued_again == now + min(10 << (count - 1), 40) * SECOND
            self.away[one.job] = count, one.queued_again
            self.told["unready"] += 1
        elif one.plane == "quota":
            if self.ledger.has_room(one.preemptor):
                self._leave(now)
            names = [victim.job for victim in one.victims]
            self.ledger.takes(one.preemptor, names)
            assert self._may_have_nodes(one.preemptor, names), "no node takes it afterwards"
            for victim in one.victims:
                if victim.job not in self.board.where:
                    self.told["returned"] += 1
                self.leaving.setdefault(victim.job, victim.leaves)
        else:
            if self.board.fits(one.preemptor):
                self._leave(now)
            names = [victim.job for victim in one.victims]
            assert one.preemptor in self.ledger.held, "pods without quota preempt"
            self.board.makes_way(one.preemptor, names, list(self.leaving))
            self.leaving |= {victim.job: victim.leaves for victim in one.victims}
            self.told["for nodes"] += len(names)

    def _leave(self, now: int) -> None:
        for key in [key for key, leaves in self.leaving.items() if leaves <= now]:
            del self.leaving[key]
            if key in self.board.where:
                self.board.leaves(key)
                self.since[key] = now, True
            if key in self.ledger.evicted:
                self.ledger.releases(key)
                del self.since[key]

    def until(self, key: str) -> int:
        """Return until when a job waits for nodes at most."""
        since, lost = self.since[key]
        seconds = self.rules and (self.rules.recovery_s if lost else self.rules.timeout_s)
        return since + int(seconds or 1e9) * SECOND

    def _look(self, now: int) -> None:
        assert set(self._for_nodes()) == set(self.since)
        assert all(now < self.until(key) for key in self.since), "somebody waits for too long"
        here = [key for key, life in self.lives.items() if life.job.arrival <= now]
        out = {key for key, (_, until) in self.away.items() if until > now}
        left = [key for key in here if (self.lives[key].finished or 0) > now and key not in out]
        if not self.leaving:
            waiting = [key for key in left if key not in self.ledger.held]
            refused = [key for key in waiting if self._for_nodes() or not self._may_have_nodes(key)]
            self.told["no nodes"] += len(refused)
            waiting = [key for key in waiting if key not in refused or self.ledger.has_room(key)]
            self.ledger.waits_rightly(waiting, for_saves=self.harm)
            self.board.waits_rightly(self._for_nodes())

    def _may_have_nodes(self, key: str, gone: Sequence[str] = ()) -> bool:
        """Whether nodes take a job once others are gone, and all that it may preempt there."""
        job = self.board.jobs[key]
        lower = [each for each in self.board.where if self.board.jobs[each].priority < job.priority]
        leaving = [each for each in self.leaving if each in self.board.where]
        there = [each for each in {*gone, *lower, *leaving} if each in self.board.where]
        return has_room(self.board.free(there), pods(job.devices, self.board.of_a_node))

    def _for_nodes(self) -> list[str]:
        return [key for key in self.ledger.held if key not in self.board.where]

    def _passed(self, since: int, until: int) -> None:
        """Add up what is stranded and unplaced."""
        waiting = [self.board.jobs[key].devices for key in self._for_nodes()]
        free, time = sum(self.board.free()), max(0, min(until, self.last) - since)
        if waiting and min(waiting) <= free:
            self.stranded += free * time
            self.told["stranded"] += 1
        self.unplaced += sum(waiting) * time


def test_small_replays_with_both_planes_stand_before_naive_judges(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("reprieve.simulation.replaying.loop_guard._MOST_ROUNDS", 50)
    random, told = Random(5), Counter[str]()
    rounds = 0
    wanted = {"reserved": 400, "quota": 60, "refused": 200, "for nodes": 30, "nodes": 60}
    wanted |= {"stranded": 60, "returned": 10, "unready": 20}
    while rounds < 12 or any(told[kind] < least for kind, least in wanted.items()):
        rounds += 1
        assert rounds < 80, told
        nodes, devices = random.choice([(2, 4), (3, 2), (2, 8), (4, 4)])
        # One arrival at an instant, so that few decide at once.
        jobs = [
            replace(each, arrival=(number * 97 + 1) * SECOND)
            for number, each in enumerate(random_jobs(random, 25, nodes * devices))
        ]
        model = work(100, 20, 10, random.choice([0, 30]))
        harm, rules = (
            rounds % 3 == 0,
            random.choice([None, PodsReady(150, 90, False, False, BACKOFF)]),
        )
        policy = replace(both(harm), pods_ready=rules)
        try:
            done = with_both(jobs, policy, (nodes, devices), model)
        except ReplayFault:  # quota goes round at one instant, which the governor would hold
            told["round"] += 1
            continue
        judged = Judged(done, nodes, devices, harm, rules)
        assert done.stranded_at_end == judged.stranded
        assert done.unplaced_at_end == judged.unplaced
        assert done.for_nodes == judged.told["for nodes"]
        assert done.returned == judged.told["returned"]
        assert done.unready == judged.told["unready"]
        told += judged.told
        told["reserved"] += judged.ledger.told["reserved"]
        told["quota"] += judged.ledger.told["preempted"]
        told["refused"] += judged.ledger.told["refused"]
        told["nodes"] += judged.board.told["refused"]


def fragmented(*others: Job) -> list[Job]:
    """Two jobs that leave one device free on each of two nodes, and others."""
    return [job("left", 0, 3, 1_000, "a"), job("right", 0, 3, 1_000, "b"), *others]


def reserved(done: Replay) -> list[tuple[int, str]]:
    return [(each.at // SECOND, each.job) for each in done.decisions if isinstance(each, Reserved)]


def test_who_has_quota_and_no_nodes_waits_for_them_and_nobody_else_gets_its_quota() -> None:
    done = with_both(fragmented(job("two", 10, 2, 50, "a"), job("one", 20, 1, 50, "a")))
    assert reserved(done)[2:] == [(10, "a/two"), (1_000, "a/one")]
    assert [life_of(done, name).started for name in ("two", "one")] == [1_000 * SECOND] * 2
    assert life_of(done, "two").waited == 990 * SECOND
    assert done.unplaced_at_end == done.stranded_at_end == 2 * 10 * SECOND
    assert not done.returned


def test_who_makes_way_on_nodes_keeps_its_quota_and_waits_for_others() -> None:
    done = with_both(
        fragmented(job("high", 60, 2, 10, "a", priority=10), job("last", 2_000, 1, 10, "b"))
    )
    (one,) = [each for each in done.decisions if isinstance(each, Preempted)]
    assert (one.plane, one.preemptor, one.at) == ("scheduling", "a/high", 60 * SECOND)
    (victim,) = one.victims
    life = next(each for each in done.lives if key_of(each.job) == victim.job)
    assert (life.displaced, life.lost, life.waited) == (1, 3 * 60 * SECOND, 10 * SECOND)
    assert [key for _, key in reserved(done)].count(victim.job) == 1
    assert (done.for_nodes, done.returned) == (1, 0)
    assert done.unplaced_at_end == 3 * 10 * SECOND
    assert life_of(done, "high").started == 60 * SECOND


def test_quota_that_is_taken_back_from_who_waits_for_nodes_costs_no_work() -> None:
    # The quota that `two` borrows is what `own` takes back.
    done = with_both(
        fragmented(job("two", 10, 2, 50, "a"), job("own", 20, 1, 50, "b")),
        model=work(restart=5),
    )
    (one,) = [each for each in done.decisions if isinstance(each, Preempted)]
    assert (one.plane, [victim.job for victim in one.victims]) == ("quota", ["a/two"])
    two = life_of(done, "two")
    assert (two.displaced, two.lost, two.idle, done.returned) == (0, 0, 0, 1)
    assert life_of(done, "own").started == 20 * SECOND
    assert reserved(done)[2:] == [(10, "a/two"), (20, "b/own"), (70, "a/two")]
    assert (two.waited, two.finished) == (990 * SECOND, 1_050 * SECOND)


def test_quota_may_preempt_while_pods_do_not() -> None:
    jobs = fragmented(job("high", 60, 2, 10, "a", priority=10))
    assert life_of(with_both(jobs, both(preempts=False)), "high").started == 1_000 * SECOND
    jobs = [job("wide", 0, 8, 1_000, "a"), job("own", 60, 1, 10, "b")]
    assert life_of(with_both(jobs, both(preempts=False)), "own").started == 60 * SECOND


def test_who_gets_no_nodes_in_time_gives_its_quota_back_and_waits_longer_each_time() -> None:
    rules = PodsReady(100, None, block_admission=False, backoff=Backoff(10, 15))
    jobs = fragmented(job("two", 10, 2, 50, "a"), job("one", 110, 1, 50, "a"))
    done = with_both(jobs, replace(both(), pods_ready=rules))
    given_up = [each for each in done.decisions if isinstance(each, Unready)]
    assert [(each.at // SECOND, each.queued_again // SECOND) for each in given_up][:2] == [
        (110, 120),
        # Quota is free again at 160, when `one` has ended; the limit counts from there.
        (260, 275),
    ]
    two = life_of(done, "two")
    assert life_of(done, "one").started == 110 * SECOND
    assert (two.displaced, two.unready) == (0, done.unready)
    assert two.waited == (two.started or 0) - 10 * SECOND


@pytest.mark.parametrize(("recovery_s", "given_up"), [(30.0, [90]), (None, [])])
def test_who_lost_its_nodes_gives_its_quota_back_after_the_recovery_timeout(
    recovery_s: float | None, given_up: list[int]
) -> None:
    rules = PodsReady(100, recovery_s, block_admission=False, backoff=Backoff(1_000))
    jobs = fragmented(job("high", 60, 2, 500, "a", priority=10))
    done = with_both(jobs, replace(both(), pods_ready=rules))
    found = [each.at // SECOND for each in done.decisions if isinstance(each, Unready)]
    assert (done.for_nodes, found) == (1, given_up)


def test_with_block_admission_nobody_gets_quota_while_somebody_has_no_nodes() -> None:
    jobs = fragmented(job("two", 10, 2, 50, "a"), job("one", 20, 1, 50, "b"))
    blocking = replace(both(), settings=Settings(block_admission=True))
    done = with_both(jobs, replace(blocking, preemption=Preemption()))
    assert [each for each in reserved(done) if each[1] == "b/one"] == [(1_000, "b/one")]
    # Without nodes to wait for, pods are ready at once.
    alone = with_both(jobs, replace(blocking, planes=("quota",)))
    assert life_of(alone, "right").started == 0
    assert life_of(alone, "two").started == 10 * SECOND


STUDY_OF_BOTH = (
    STUDY.replace("nodes: 2", "nodes: 3")
    .replace("none: {preemption", "none: {planes: [quota, scheduling], preemption")
    .replace(
        "classical: {}", "both: {planes: [scheduling, quota]}\n  nodes: {planes: [scheduling]}"
    )
)


def test_a_study_of_both_planes_gives_the_same_bytes_twice_and_tells_of_either(
    tmp_path: Path,
) -> None:
    decisions, outcomes = same_twice(tmp_path, study_in(tmp_path, STUDY_OF_BOTH))
    for outcome in outcomes:
        assert "both by both, first for quota and then on nodes" in outcome.report
    rows = {(row["seed"], row["policy"]): row for row in outcomes[-1].rows}
    told: list[dict[str, Any]] = [json.loads(line) for line in decisions.splitlines()]
    assert {one["decision"] for one in told if one["policy"] == "none"} == {
        "reserved",
        "admitted",
        "unready",
    }
    of_both = [one for one in told if one["policy"] == "both"]
    assert {one.get("plane") for one in of_both if "victims" in one} >= {"quota"}
    assert all(one["nodes"] for one in of_both if one["decision"] == "admitted")
    unplaced = [float(row["unplaced_device_hours"]) for row in rows.values()]
    assert max(unplaced) > 0
    nodes = rows["0", "nodes"]
    assert (nodes["unplaced_device_hours"], nodes["quota_lost_unplaced"]) == ("0.000", "0")
    assert nodes["preemptions_for_nodes"] == nodes["preemptions"] != "0"


def test_a_study_of_both_planes_is_read_by_the_operators_own_readers(tmp_path: Path) -> None:
    said = "{planes: [quota, scheduling], quota: {harmOrder: true}, scheduling: {harmOrder: true}}"
    study = read_study(study_in(tmp_path, STUDY.replace("classical: {}", f"classical: {said}")))
    policy = study.policies[1]
    assert policy.planes == BOTH and policy.preempts
    assert policy.settings.harm_order and policy.placing.harm_order
    assert study.notices == ()
    assert policy.pods_ready == PodsReady(1_800, 1_800, False)
    said = said.replace(
        "harmOrder: true}",
        "configuration: {apiVersion: config.kueue.x-k8s.io/v1beta2, "
        "kind: Configuration, waitForPodsReady: "
        "{timeout: 9m, requeuingStrategy: {backoffBaseSeconds: 7}}}}",
        1,
    )
    study = read_study(study_in(tmp_path, STUDY.replace("classical: {}", f"classical: {said}")))
    assert study.policies[1].pods_ready == PodsReady(540, 540, False, True, Backoff(7))
    wrong = said.replace("backoffBaseSeconds: 7", "backoffLimitCount: 7")
    with pytest.raises(UsageError, match=r":7: policies.*backoffLimitCount: 7; accepted: none,"):
        read_study(study_in(tmp_path, STUDY.replace("classical: {}", f"classical: {wrong}")))
    wrong = said.replace("scheduling: {harmOrder", "scheduling: {harm")
    with pytest.raises(UsageError, match=r":7: policies.classical: scheduling: unknown key 'harm'"):
        read_study(study_in(tmp_path, STUDY.replace("classical: {}", f"classical: {wrong}")))


OTHER_PROFILES = (
    "{planes: [quota, scheduling], quota: {profile: best}, scheduling: {profile: compatible}}"
)


@pytest.mark.parametrize(
    ("said", "chosen"),
    [("{planes: [quota, scheduling]}", (False, True)), (OTHER_PROFILES, (True, False))],
)
def test_a_study_names_the_profile_of_each_plane(
    said: str, chosen: tuple[bool, bool], tmp_path: Path
) -> None:
    study = read_study(study_in(tmp_path, STUDY.replace("classical: {}", f"classical: {said}")))
    policy = study.policies[1]
    assert (policy.settings.best, policy.placing.best) == chosen


def test_a_study_names_the_profile_of_the_idle_plane(tmp_path: Path) -> None:
    for said, best in (("{}", False), ("{profile: best}", True)):
        given = f"classical: {{planes: [idle], gpuPreemption: {said}}}"
        study = read_study(study_in(tmp_path, STUDY.replace("classical: {}", given)))
        assert study.policies[1].idle.policy.best is best
