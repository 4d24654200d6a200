"""What displaced work keeps and loses, against a life lived second by second."""

from __future__ import annotations

from collections import Counter
from random import Random

from reprieve.simulation.replaying.work import Displaced, Run
from tests.oracle.replay import progress_by_seconds
from tests.simulation.building import SECOND, job, work


def test_work_without_checkpoints_loses_all_since_its_start() -> None:
    found = work().displaced(job("j", 0, 2, 500), Run(0), 300 * SECOND)
    assert found == Displaced(300 * SECOND, 0, 300 * SECOND, 0)


def test_a_save_that_is_not_over_is_no_good() -> None:
    model, one = work(checkpoint=100, save=30), job("j", 0, 1, 1_000)
    assert model.displaced(one, Run(0), 229 * SECOND).kept == 100 * SECOND
    assert model.displaced(one, Run(0), 230 * SECOND).kept == 200 * SECOND


def test_a_grace_period_that_suffices_saves_everything_and_holds_the_devices_for_that_long() -> (
    None
):
    model = work(checkpoint=100, save=30, restart=60, grace=30)
    found = model.displaced(job("j", 0, 1, 1_000), Run(0, 50 * SECOND, True), 160 * SECOND)
    assert found == Displaced(190 * SECOND, 150 * SECOND, 0, 90 * SECOND)


def test_who_is_displaced_holds_its_devices_for_nothing_until_it_has_made_way() -> None:
    one, at = job("j", 0, 1, 1_000), 160 * SECOND
    found = work(checkpoint=100, save=30, evict=20).displaced(one, Run(0), at)
    assert found == Displaced(180 * SECOND, 100 * SECOND, 60 * SECOND, 20 * SECOND)
    # The last save is made meanwhile, and may take longer.
    longer = work(save=30, grace=30, evict=20).displaced(one, Run(0), at)
    assert longer == Displaced(190 * SECOND, 160 * SECOND, 0, 30 * SECOND)
    shorter = work(save=10, grace=30, evict=20).displaced(one, Run(0), at)
    assert shorter == Displaced(180 * SECOND, 160 * SECOND, 0, 20 * SECOND)


def test_a_restart_is_paid_only_by_who_was_displaced_before() -> None:
    model, one = work(restart=60), job("j", 0, 1, 1_000)
    assert model.finishes(one, Run(0)) == 1_000 * SECOND
    assert model.finishes(one, Run(0, 400 * SECOND, True)) == 660 * SECOND


def test_who_is_displaced_in_its_restart_loses_no_progress() -> None:
    model = work(checkpoint=100, save=10, restart=60, grace=30)
    found = model.displaced(job("j", 0, 1, 1_000), Run(0, 50 * SECOND, True), 20 * SECOND)
    assert found == Displaced(20 * SECOND, 50 * SECOND, 0, 20 * SECOND)


def test_kept_and_lost_are_those_of_a_life_lived_second_by_second() -> None:
    random, kinds = Random(3), Counter[str]()
    for _ in range(1_000):
        checkpoint, save = random.choice([0, random.randint(1, 60)]), random.randint(0, 40)
        restart, kept = random.choice([0, random.randint(1, 50)]), random.choice([0, 70])
        seconds = random.randint(1, 400)
        model = work(checkpoint, save, restart)
        found = model.displaced(
            job("j", 0, 1, 10_000), Run(0, kept * SECOND, True), seconds * SECOND
        )
        good, lost = progress_by_seconds(seconds, checkpoint, save, restart, kept)
        assert (found.kept, found.lost) == (good * SECOND, lost * SECOND)
        assert found.idle == min(seconds, restart) * SECOND
        kinds["saved"] += good > kept
        kinds["lost"] += lost > 0
        kinds["in restart"] += seconds <= restart
    assert min(kinds[kind] for kind in ("saved", "lost", "in restart")) >= 20, kinds
