"""A Disruption says since when its work runs again: once, whatever dies, and by one small write."""

from __future__ import annotations

from collections.abc import AsyncIterator
from unittest.mock import patch

import pytest

from kubeworld.units.durations import MINUTE, SECOND
from kubeworld.units.instants import Nanos, format_instant
from reprieve.engine.disruptions.lineage import Lineage, Participant
from reprieve.execution.accounts import returns
from reprieve.execution.accounts.returns import Unit
from tests.execution.test_disruptions import Story
from tests.execution.test_executor import PLANES, Death, When
from tests.kube.fakes import FakeAnswer
from tests.scheduling.memory import Target, memory
from tests.scheduling.site import pod
from tests.scheduling.test_governor import owned


def line(number: int) -> Participant:
    return Participant(Lineage(f"owner/train-{number}"))


def back(story: Story) -> list[str]:
    return [(each.get("status") or {}).get("backAt", "") for each in story.stories()]


def patched(story: Counted) -> list[str]:
    return [name for verb, kind, name in story.calls if (verb, kind) == ("patch", "disruptions")]


@pytest.fixture
async def story() -> AsyncIterator[Counted]:
    made = Counted(next(plane for plane in PLANES.values() if not plane.unit))
    yield made
    for task in made.tasks:
        task.cancel()


class Counted(Story):
    """Remembers the calls, and may die at a patch of a Disruption, before or after it."""

    def start(self) -> None:
        super().start()
        if not hasattr(self, "calls"):
            self.calls: list[tuple[str, str, str]] = []
        self.api.before = self._before
        self.api.after = self._after
        self.dies: When | None = None

    def _before(self, verb: str, where: Target) -> FakeAnswer | None:
        self.calls.append((verb, where.kind.partition(".")[0], where.name))
        self._die(When.BEFORE, verb, where)
        return None

    def _after(self, verb: str, where: Target) -> None:
        self._die(When.STORED, verb, where)

    def _die(self, when: When, verb: str, where: Target) -> None:
        if self.dies is when and verb == "patch" and where.kind.startswith("disruptions"):
            self.dies = None
            for task in self.tasks:
                task.cancel()
            raise Death


async def told(story: Counted) -> None:
    await story.carry()
    await story.until_closed()
    assert len(story.stories()) == 3 and back(story) == ["", "", ""]


async def test_work_that_runs_again_is_told_by_one_patch_for_each_unit(story: Counted) -> None:
    await told(story)
    now = story.clock.wall()
    for number in range(2):
        story.told.returns.runs(line(number), f"new-{number}", now)
    await story.clock.advance(5 * SECOND)
    said = format_instant(now)
    assert back(story) == [said, said, ""] and len(patched(story)) == 2
    # What goes on running, or what is told by another plane, too, is nothing new.
    story.told.returns.runs(line(0), "new-0", Nanos(now + SECOND))
    await story.clock.advance(5 * SECOND)
    assert back(story) == [said, said, ""] and len(patched(story)) == 2


async def test_what_ran_before_it_was_chosen_is_not_the_work_that_is_back(story: Counted) -> None:
    story.told.returns.runs(line(0), "beside", story.clock.wall())
    await story.clock.advance(SECOND)
    await told(story)
    await story.clock.advance(5 * SECOND)
    assert back(story) == ["", "", ""]


async def test_a_victim_that_was_seen_to_run_after_it_was_chosen_is_not_the_work_that_is_back(
    story: Counted,
) -> None:
    await story.carry()
    await story.clock.advance(SECOND)
    for number, name in enumerate(story.names):
        story.told.returns.runs(line(number), story.ref(name, "team").uid, story.clock.wall())
    await story.until_closed()
    await story.clock.advance(5 * SECOND)
    assert back(story) == ["", "", ""]


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
async def test_pods_of_a_root_that_was_deleted_are_not_the_work_that_is_back(
    story: Counted, late: bool
) -> None:
    await story.carry()
    await story.clock.advance(SECOND)

    def pods_run() -> None:
        for number, name in enumerate(story.names):
            root = story.ref(name, "team").uid
            story.told.returns.runs(line(number), f"pod-{name}", story.clock.wall(), root)

    if not late:
        pods_run()
    await story.until_closed()
    if late:  # seen before the garbage collector has come to them, say
        pods_run()
    await story.clock.advance(5 * SECOND)
    assert back(story) == ["", "", ""]
    # Another root of the same lineage is it.
    now = story.clock.wall()
    story.told.returns.runs(line(0), "new", now, "another-root")
    await story.clock.advance(5 * SECOND)
    assert back(story) == [format_instant(now), "", ""]


async def test_what_is_back_before_it_is_told_costs_no_write_of_its_own(story: Counted) -> None:
    await story.carry()
    await story.clock.advance(SECOND)
    now = story.clock.wall()
    for number in range(3):
        story.told.returns.runs(line(number), f"new-{number}", now)
    await story.until_closed()
    await story.clock.advance(5 * SECOND)
    assert back(story) == [format_instant(now)] * 3 and patched(story) == []


async def test_a_process_that_takes_over_tells_of_what_the_former_one_has_not(
    story: Counted,
) -> None:
    await told(story)
    now = story.clock.wall()
    story.told.returns.runs(line(0), "new-0", now)
    await story.clock.advance(5 * SECOND)
    await story.clock.advance(MINUTE)
    story.start()
    # It sees all that runs, with the instants at which that began.
    story.told.returns.runs(line(0), "new-0", now)
    story.told.returns.runs(line(1), "new-1", Nanos(now + SECOND))
    await story.recover()
    await story.clock.advance(5 * SECOND)
    first, second = format_instant(now), format_instant(Nanos(now + SECOND))
    assert back(story) == [first, second, ""] and len(patched(story)) == 2


@pytest.mark.parametrize("when", When)
async def test_a_death_at_that_write_leaves_it_said_once(story: Counted, when: When) -> None:
    await told(story)
    now = story.clock.wall()
    story.dies = when
    story.told.returns.runs(line(0), "new-0", now)
    await story.clock.advance(5 * SECOND)
    assert story.dies is None, "it did not die"
    story.start()
    story.told.returns.runs(line(0), "new-0", now)
    await story.recover()
    await story.clock.advance(5 * SECOND)
    assert back(story) == [format_instant(now), "", ""] and len(story.stories()) == 3


async def test_a_group_is_back_when_as_many_run_as_were_displaced() -> None:
    name = next(name for name, plane in PLANES.items() if plane.unit)
    story = Story(PLANES[name])
    await story.carry()
    await story.until_closed()
    (unit,) = story.specs()
    assert unit["objects"] == 3
    participant = Participant(Lineage(unit["lineage"]))
    for number in range(3):
        await story.clock.advance(5 * SECOND)
        assert back(story) == [""]
        now = story.clock.wall()
        story.told.returns.runs(participant, f"new-{number}", now)
    await story.clock.advance(5 * SECOND)
    assert back(story) == [format_instant(now)]
    for task in story.tasks:
        task.cancel()


async def test_a_pod_that_its_owner_makes_again_and_that_gets_a_node_is_back() -> None:
    async with memory() as cluster:
        cluster.nodes([4, 4])
        cluster.running(owned(pod("low-1", 4, priority="low"), "workers"), "node-0")
        cluster.running(pod("full", 4, priority="high"), "node-1")
        cluster.create(pod("high", 4, priority="high"))
        cluster.start(tells=True)
        await cluster.until(lambda: cluster.victims() == {"low-1"})
        cluster.create(owned(pod("low-2", 4, priority="low"), "workers"))
        cluster.end_all()

        def said() -> list[str]:
            found = cluster.api.objects["disruptions.reprieve.dev"].values()
            return [(each.get("status") or {}).get("backAt", "") for each in found]

        await cluster.until(lambda: said() == [""])
        await cluster.pass_time(MINUTE)
        assert said() == [""]
        cluster.end("full")
        await cluster.until(lambda: "low-2" in cluster.placed())
        await cluster.pass_time(5 * SECOND)
        assert said() != [""] and len(said()) == 1


async def test_of_too_many_lines_of_work_those_go_first_of_which_nothing_is_awaited() -> None:
    async with memory() as cluster:
        told = vars(cluster.start(tells=True).displacements)["_returns"]
        unit = Unit(("team", "displaced"), "owner/awaited", Nanos(0))
        with patch.object(returns, "_MOST_LINES", 20):
            assert told.displaced(unit) is None
            for number in range(100):
                told.runs(line(number), f"uid-{number}", Nanos(number))
                assert len(vars(told)["_lines"]) <= 20
            told.runs(Participant(Lineage("owner/awaited")), "uid", Nanos(200))
            assert told.displaced(unit) == 200
            for number in range(100):
                told.displaced(Unit(("team", f"gone-{number}"), f"owner/gone-{number}", Nanos(0)))
            assert len(vars(told)["_lines"]) <= 20


async def test_of_too_many_units_of_one_line_that_never_run_again_the_last_are_awaited() -> None:
    async with memory() as cluster:
        told = vars(cluster.start(tells=True).displacements)["_returns"]
        line_of_all = Participant(Lineage("owner/alike"))
        units = [
            Unit(("team", f"displaced-{number:03}"), line_of_all.lineage, Nanos(number))
            for number in range(100)
        ]
        with patch.object(returns, "_MOST_AWAY", 20):
            for unit in units:
                assert told.displaced(unit) is None
                (line,) = vars(told)["_lines"].values()
                assert len(line.away) <= 20
            for number in range(30):
                told.runs(line_of_all, f"uid-{number}", Nanos(200 + number))
        assert vars(told)["_due"] == {
            unit.name: Nanos(200 + number) for number, unit in enumerate(units[-20:])
        }
