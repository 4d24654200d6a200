"""What `harmOrder` does in a replay: preemptors wait for saves, and less work is lost."""

from __future__ import annotations

from random import Random

from reprieve.engine.quota.model import Policy, Preemption, Settings
from reprieve.simulation.policy import PolicySpec
from reprieve.simulation.replaying.lives import Preempted
from reprieve.simulation.replaying.work import Run, Saved
from tests.simulation.building import SECOND, job, life_of, played, random_jobs, work


def harm() -> PolicySpec:
    rules = Preemption(Policy.LOWER_PRIORITY, Policy.ANY)
    return PolicySpec("harm", rules, settings=Settings(harm_order=True))


def classical() -> PolicySpec:
    return PolicySpec("classical", Preemption(Policy.LOWER_PRIORITY, Policy.ANY))


def test_a_run_says_up_to_when_it_is_saved_and_when_it_will_be_again() -> None:
    model, one = work(checkpoint=100, save=30, restart=60), job("j", 0, 1, 1_000)
    again = Run(0, 50 * SECOND, True)

    def said(at: float) -> tuple[float | None, float | None]:
        found = model.saved(one, again, int(at * SECOND))
        assert found != Saved()
        assert found.next is not None
        return (None if found.at is None else found.at / SECOND, found.next / SECOND)

    assert said(0) == said(189) == (None, 190)
    assert said(190) == said(289) == (160, 290)
    assert work().saved(one, again, 500 * SECOND) == Saved()
    # What it says agrees with what displacing it leaves.
    for at in range(0, 600, 7):
        found = model.saved(one, again, at * SECOND)
        saved = 60 * SECOND if found.at is None else found.at
        lost = model.displaced(one, again, at * SECOND).lost
        assert lost == max(0, at * SECOND - saved), at


def test_a_preemptor_waits_for_the_save_of_its_victim_and_then_it_goes() -> None:
    jobs = [job("low", 0, 4, 5_000), job("high", 900, 4, 100, priority=10)]
    model = work(checkpoint=1_000, save=10, restart=60)
    at_once, waited = (
        played(jobs, policy, model, tenants=("a",)) for policy in (classical(), harm())
    )
    (one,) = [each for each in at_once.decisions if isinstance(each, Preempted)]
    (other,) = [each for each in waited.decisions if isinstance(each, Preempted)]
    assert (one.at, one.victims[0].lost) == (900 * SECOND, 4 * 900 * SECOND)
    assert (other.at, other.victims[0].lost) == (1_010 * SECOND, 4 * 10 * SECOND)
    assert life_of(waited, "high").started == 1_010 * SECOND


def test_less_work_is_lost_and_a_replay_comes_to_an_end_where_work_contends() -> None:
    random, lost = Random(19), [0, 0]
    for _ in range(6):
        jobs = random_jobs(random, 40, 8)
        model = work(checkpoint=200, save=10, restart=20)
        for place, policy in enumerate((classical(), harm())):
            done = played(jobs, policy, model, devices=8)
            assert all(life.finished is not None for life in done.lives)
            lost[place] += sum(life.lost + life.idle for life in done.lives)
    assert 0 < lost[1] < 0.8 * lost[0]


def test_the_same_replay_twice_decides_alike() -> None:
    jobs, model = random_jobs(Random(5), 60, 8), work(checkpoint=200, save=10, restart=20)
    first, second = (played(jobs, harm(), model, devices=8) for _ in range(2))
    assert first.decisions == second.decisions
