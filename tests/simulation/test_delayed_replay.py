"""What takes time on a cluster takes it in a delayed replay, and nothing else changes."""

from __future__ import annotations

from bench.api_server_study import DEVICES, TENANTS, timed_study
from bench.cluster_study import Played
from bench.delayed_replay import Delayed, InRealTime, Step, beside_replays
from kubeworld.units.durations import SECOND
from reprieve.simulation.policy import PolicySpec
from reprieve.simulation.replaying.replay import replay
from reprieve.simulation.replaying.work import Checkpointing, Displaced, Run
from reprieve.simulation.trace import Job

_JOB = Job("j", 10 * SECOND, 1, 100 * SECOND, tenant="a", priority=0)
_TOOK = {
    Step.QUEUE: [1.0],
    Step.START: [2.0],
    Step.RELEASE: [4.0],
    Step.STOP: [8.0],
    Step.LEAVE: [16.0],
}


def test_each_step_takes_what_was_noted() -> None:
    delayed = Delayed(Checkpointing(30 * SECOND), _TOOK, 0)
    run = Run(20 * SECOND)
    assert [job.arrival for job in delayed.arrivals([_JOB])] == [11 * SECOND]
    assert delayed.finishes(_JOB, run) == 126 * SECOND
    # Its container ran from 22 s to 58 s: a save is good, six seconds are lost.
    cost = delayed.displaced(_JOB, run, 50 * SECOND)
    assert cost == Displaced(66 * SECOND, 30 * SECOND, 6 * SECOND, 0)


def test_without_anything_noted_it_is_the_replay_itself() -> None:
    jobs, model = timed_study(30, 2.0)
    delayed = Delayed(model, {}, 0)
    one = replay(jobs, PolicySpec("classical"), model, TENANTS, (1, DEVICES))
    other = replay(delayed.arrivals(jobs), PolicySpec("classical"), delayed, TENANTS, (1, DEVICES))
    assert one.decisions == other.decisions
    assert any(life.displaced for life in one.lives)


def test_a_cluster_that_does_as_the_replay_is_within_its_bound() -> None:
    jobs, model = timed_study(30, 2.0)
    plain = replay(jobs, PolicySpec("classical"), model, TENANTS, (1, DEVICES))
    lost_s = sum(life.lost + life.idle for life in plain.lives) / SECOND
    same = InRealTime(Played.of(plain), lost_s)
    holds, figures = beside_replays(jobs, model, same, TENANTS, DEVICES, draws=2)
    assert holds
    assert figures["makespan_off_percent"] == figures["lost_off_percent"] == 0
    assert figures["admissions_same_percent"] == figures["victims_same_percent"] == 100
    other = InRealTime(Played.of(plain), lost_s * 1.03)
    holds, figures = beside_replays(jobs, model, other, TENANTS, DEVICES, draws=2)
    assert not holds and figures["lost_off_percent"] == -2.91
