"""The bar of a lineage has every instant that is known, in order, without a gap."""

from __future__ import annotations

from itertools import pairwise
from random import Random

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.web.records.life import Displacement, Present, Segment, Stage, life


def at(seconds: int) -> Nanos:
    return Nanos((1_000_000 + seconds) * SECOND)


def displaced(
    evicting: int,
    ended: int | None,
    *,
    begun: int | None = None,
    lost: int | None = None,
    devices: int | None = 64,
) -> Displacement:
    return Displacement(
        "p",
        at(evicting - 1),
        at(evicting),
        None if ended is None else at(ended),
        devices,
        lost,
        None if begun is None else at(begun),
    )


def told(segments: list[Segment]) -> list[tuple[str, int | None, int | None]]:
    return [
        (
            each.stage.value,
            None if each.begin is None else each.begin // SECOND - 1_000_000,
            None if each.end is None else each.end // SECOND - 1_000_000,
        )
        for each in segments
    ]


def test_work_that_waited_ran_made_way_and_runs_again() -> None:
    present = Present(Stage.RUNS, 64, at(0), admitted=at(5_400), bound=at(5_410), ready=at(5_460))
    segments = life([displaced(3_000, 3_060, begun=600)], present)
    assert told(segments) == [
        ("Waits", 0, 600),
        ("Runs", 600, 3_000),
        ("Leaves", 3_000, 3_060),
        ("Waits", 3_060, 5_400),
        ("Starts", 5_400, 5_460),
        ("Runs", 5_460, None),
    ]
    assert all(each.exact for each in segments)


def test_a_run_begins_no_later_than_what_it_lost_says() -> None:
    segments = life([displaced(3_000, 3_060, lost=64 * 960)], Present(Stage.WAITS, 64, at(0)))
    assert told(segments) == [
        ("Waits", 0, 2_039),
        ("Runs", 2_039, 3_000),
        ("Leaves", 3_000, 3_060),
        ("Waits", 3_060, None),
    ]
    assert [each.exact for each in segments] == [False, False, True, True]


def test_what_is_not_known_of_the_past_has_no_begin() -> None:
    assert told(life([displaced(3_000, 3_060)], Present(None))) == [
        ("Runs", None, 3_000),
        ("Leaves", 3_000, 3_060),
    ]


def test_work_that_is_leaving_has_no_end() -> None:
    assert told(life([displaced(3_000, None, begun=0)], Present(Stage.LEAVES, 64, at(0)))) == [
        ("Runs", 0, 3_000),
        ("Leaves", 3_000, None),
    ]


def test_what_is_over_ends_with_its_end() -> None:
    present = Present(Stage.FINISHED, 8, at(0), admitted=at(10), ready=at(20), finished=at(90))
    assert told(life([], present)) == [
        ("Waits", 0, 10),
        ("Starts", 10, 20),
        ("Runs", 20, 90),
        ("Finished", 90, 90),
    ]


def test_instants_of_an_earlier_attempt_are_not_taken_for_this_one() -> None:
    present = Present(Stage.STARTS, 8, at(0), admitted=at(10), bound=at(500), ready=at(20))
    assert told(life([displaced(300, 400, begun=20)], present))[-2:] == [
        ("Waits", 400, 500),
        ("Starts", 500, None),
    ]


def test_segments_follow_one_another_whatever_is_known() -> None:
    random, gaps = Random(3), 0
    for _ in range(2_000):
        now, turns = 0, []
        for _ in range(random.randint(0, 4)):
            begun = now + random.randint(0, 50)
            evicting = begun + random.randint(1, 50)
            now = evicting + random.randint(0, 20)
            known = random.choice(("begun", "lost", "nothing"))
            turns.append(
                displaced(
                    evicting,
                    now,
                    begun=begun if known == "begun" else None,
                    lost=random.randint(0, 100) * 64 if known == "lost" else None,
                )
            )
        admitted, bound, ready = (
            at(each) if random.random() < 0.7 else None
            for each in sorted(random.sample(range(now, now + 200), 3))
        )
        present = Present(
            random.choice((*Stage, None)),
            8,
            at(0) if random.random() < 0.7 else None,
            admitted,
            bound,
            ready,
            at(now + 300),
        )
        segments = life(turns, present)
        for one, other in pairwise(segments):
            assert one.end is not None
            assert one.begin is None or one.begin <= one.end
            assert other.begin == one.end or (one.stage is Stage.LEAVES and turns)
            gaps += other.begin != one.end
    assert gaps == 0
