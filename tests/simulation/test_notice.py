"""Notice in a replay: who asks, who is told, what that spares and what it delays."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kubeworld.units.durations import HOUR, MINUTE, SECOND
from reprieve.engine.disruptions.questions import GovernorPolicy
from reprieve.engine.notice.granting import NoticePolicy
from reprieve.simulation.idle_policy import IdlePolicy
from reprieve.simulation.policy import PolicySpec
from reprieve.simulation.replaying.notified_jobs import Asking
from reprieve.simulation.replaying.replay import replay
from reprieve.simulation.replaying.work import Checkpointing
from reprieve.simulation.reporting.measures import measured
from reprieve.simulation.study import read_study
from reprieve.simulation.trace import Job
from reprieve.units.errors import UsageError

_MODEL = Checkpointing(checkpoint=30 * MINUTE, save=60 * SECOND, restart=2 * MINUTE)
_TOLD = PolicySpec("told", notice=NoticePolicy(5 * MINUTE))


def jobs(notice: int = 5 * MINUTE) -> list[Job]:
    """Return a job that runs for 20 minutes before one of higher priority wants its devices."""
    old = Job("old", 0, 8, 4 * HOUR, tenant="a", priority=0, notice=notice)
    return [old, Job("new", 20 * MINUTE, 8, HOUR, tenant="a", priority=100)]


def played(policy: PolicySpec, given: list[Job]) -> tuple[float, int, float, float]:
    """Return the GPU-hours that are undone, who was told, what that spared, and the wait."""
    found = measured(replay(given, policy, _MODEL, ("a",), (1, 8)), 8)
    return found.undone_h, found.notified, found.spared_h, found.urgent_wait_p95_s


def test_a_job_that_is_told_saves_and_leaves_as_soon_as_it_has() -> None:
    undone = 8 * 20 / 60
    assert played(PolicySpec("none"), jobs()) == (undone, 0, 0.0, 0.0)
    assert played(_TOLD, jobs()) == (0.0, 1, undone, 60.0)


def test_who_does_not_ask_or_whose_save_takes_longer_goes_as_always() -> None:
    assert played(_TOLD, jobs(0))[1] == 0
    # It works on until its deadline, and what it did is undone.
    assert played(_TOLD, jobs(30 * SECOND)) == (8 * 20.5 / 60, 1, 0.0, 30.0)


def test_with_harm_order_a_job_that_has_just_saved_is_not_told() -> None:
    settings = PolicySpec("h").settings
    weighed = PolicySpec(
        "both",
        notice=NoticePolicy(5 * MINUTE),
        settings=type(settings)(harm_order=True, max_save_wait=0),
    )
    assert played(weighed, jobs())[1] == 1
    early = [jobs()[0], Job("new", 40 * SECOND, 8, HOUR, tenant="a", priority=100)]
    assert played(weighed, early)[1] == 0


def test_a_preemption_delay_lets_what_comes_free_meanwhile_do() -> None:
    delayed = PolicySpec("delayed", delay=10 * MINUTE)
    given = [Job("old", 0, 8, 25 * MINUTE, tenant="a", priority=0), jobs()[1]]
    found = replay(given, delayed, _MODEL, ("a",), (1, 8))
    assert [life.displaced for life in found.lives] == [0, 0]
    assert found.lives[1].waited == 5 * MINUTE
    found = replay(jobs(0), delayed, _MODEL, ("a",), (1, 8))
    assert found.lives[0].displaced == 1
    assert found.lives[1].waited == 10 * MINUTE


def test_on_nodes_a_delay_does_the_same() -> None:
    nodes = PolicySpec("nodes", planes=("scheduling",), places=True, node_delay=10 * MINUTE)
    given = [Job("old", 0, 8, 25 * MINUTE, tenant="a", priority=0), jobs()[1]]
    found = replay(given, nodes, _MODEL, ("a",), (1, 8))
    assert [life.displaced for life in found.lives] == [0, 0]
    assert found.lives[1].waited == 5 * MINUTE
    found = replay(jobs(0), nodes, _MODEL, ("a",), (1, 8))
    assert found.lives[0].displaced == 1
    assert found.lives[1].waited == 10 * MINUTE
    urgent = replace(nodes, governor=GovernorPolicy(emergency_priority=100))
    assert replay(jobs(0), urgent, _MODEL, ("a",), (1, 8)).lives[1].waited == 0


def test_for_quota_and_nodes_each_plane_has_its_own_delay() -> None:
    both = PolicySpec(
        "both", planes=("quota", "scheduling"), places=True, delay=MINUTE, node_delay=4 * MINUTE
    )
    found = replay(jobs(0), both, _MODEL, ("a",), (1, 8))
    assert found.lives[0].displaced == 1
    assert found.lives[1].waited == MINUTE


def test_idle_work_stays_until_its_demand_has_waited_for_long_enough() -> None:
    def waited(delay: int) -> int:
        policy = PolicySpec(
            "idle",
            planes=("idle",),
            places=True,
            preempts=False,
            idle=replace(IdlePolicy(), delay=delay),
        )
        idle = Job("old", 0, 8, 4 * HOUR, tenant="a", priority=0, idle_from=0)
        found = replay([idle, jobs()[1]], policy, _MODEL, ("a",), (1, 8))
        assert found.lives[0].displaced == 1
        return found.lives[1].waited

    assert waited(10 * MINUTE) - waited(0) == 10 * MINUTE


_STUDY = """
cluster: {nodes: 1, devices: 8}
workload: {trace: csv, path: trace.csv}
work: {checkpoint: 30m, save: 60s, notice: {time: 5m, share: 0.5}}
policies:
  base: {}
  told: {quota: {notice: {max: 5m}, preemptionDelay: 1m}}
  nodes: {planes: [scheduling], scheduling: {notice: {max: 2m}, harmOrder: true}}
"""


def written(folder: Path, text: str = _STUDY) -> Path:
    (folder / "trace.csv").write_text("arrival_s,gpus,duration_s,notice_s\n0,1,10,30\n")
    (folder / "study.yaml").write_text(text)
    return folder / "study.yaml"


def test_a_study_says_who_asks_and_what_policies_allow(tmp_path: Path) -> None:
    study = read_study(written(tmp_path))
    assert study.asking == Asking(5 * MINUTE, 0.5)
    base, told, nodes = study.policies
    assert (base.notice.most, told.notice.most, told.delay) == (0, 5 * MINUTE, MINUTE)
    assert nodes.notice.most == 2 * MINUTE


@pytest.mark.parametrize(
    ("said", "wrong", "place"),
    [
        ("time: 5m", "time: 2h", "work.notice.time"),
        ("share: 0.5", "share: 2", "work.notice.share"),
        ("harmOrder: true", "preemptionDelay: 2h", "preemptionDelay"),
    ],
)
def test_what_is_not_accepted_is_named(tmp_path: Path, said: str, wrong: str, place: str) -> None:
    with pytest.raises(UsageError, match=place):
        read_study(written(tmp_path, _STUDY.replace(said, wrong)))


def test_on_nodes_the_gang_that_saves_when_it_is_told_goes_first(tmp_path: Path) -> None:
    nodes = read_study(written(tmp_path)).policies[2]
    for notice, goes in ((0, "young"), (2 * MINUTE, "old")):
        given = [
            Job("old", 0, 4, 4 * HOUR, tenant="a", priority=0, notice=notice),
            Job("young", 8 * MINUTE, 4, 4 * HOUR, tenant="a", priority=0),
            Job("new", 28 * MINUTE, 4, HOUR, tenant="a", priority=100),
        ]
        found = replay(given, nodes, _MODEL, ("a",), (1, 8))
        assert [life.job.id for life in found.lives if life.displaced] == [goes]
