"""The process dies before or after any of its writes; the next one finishes what was begun.

In memory, so that all writes of a story can be taken. Afterwards every victim belongs to a plan
that was committed and was deleted once, nobody went for a preemptor that had let go, the room that
was made is still kept, and the preemptor has it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import pytest

from kubeworld.units.durations import MINUTE, SECOND
from kubeworld.units.instants import Nanos
from reprieve.records.plans.parts import Sizes
from tests.kube.fakes import FakeAnswer
from tests.scheduling.memory import Held, Memory, Target, memory
from tests.scheduling.site import NAMESPACE, Object, group, pod

#: More than a calm run of any story takes; the tests hold it to that.
_MOST_WRITES = 40


class When(StrEnum):
    BEFORE = "before"
    STORED = "stored"


@dataclass(frozen=True)
class Story:
    """Who comes, and whom that costs: always one plan, of four possible victims of eight."""

    preemptor: tuple[Object, ...]
    victims: int
    context: Mapping[str, Any] = field(default_factory=dict)  # of the plane

    @property
    def names(self) -> set[str]:
        return {each["metadata"]["name"] for each in self.preemptor if each["kind"] == "Pod"}


def _gang(minimum: int, size: int, cpu: int) -> tuple[Object, ...]:
    members = (pod(f"high-{i}", cpu, group="high", priority="high") for i in range(size))
    return (group("high", min_count=minimum, priority="high"), *members)


STORIES = {
    "gang": Story(_gang(2, 2, 4), 4),
    "gang above its minimum": Story(_gang(1, 2, 4), 4),
    "pod": Story((pod("high-0", 4, priority="high"),), 2),
    # Two parts with victims and one with the placement, and parts of the input.
    "gang in parts": Story(_gang(2, 2, 4), 4, {"record_sizes": Sizes(head=10, part=560)}),
}


def _low_side(cluster: Memory) -> None:
    cluster.nodes([4, 4, 4, 4])
    for index in range(8):
        cluster.running(pod(f"low-{index}", 2, priority="low"), f"node-{index // 2}")


def _counting(at: int, act: Callable[[], None]) -> Callable[[str, Target], FakeAnswer | None]:
    """Return a hook that acts at the `at`-th write, events left aside."""
    seen = 0

    def hook(verb: str, where: Target) -> FakeAnswer | None:
        nonlocal seen
        if where.kind.startswith("events"):
            return None
        seen += 1
        if seen == at:
            act()
        return None

    return hook


async def _finish(cluster: Memory, story: Story) -> None:
    """Let victims end as they are told to, a rival waits; check what must hold at the end."""

    def over() -> bool:
        cluster.end_all()
        return story.names <= cluster.placed().keys()

    cluster.create(pod("rival", 1, priority="middle", preemptionPolicy="Never"))
    await cluster.until(over, 3 * MINUTE)
    await cluster.pass_time(5 * SECOND)
    cluster.end_all()
    # The next process may have found what was not told, and may have to try again.
    await cluster.pass_time(15 * SECOND)
    assert set(cluster.api.deleted.values()) == {1}, "somebody was deleted twice"
    assert cluster.api.deleted.keys() <= cluster.planned()
    assert len(cluster.api.deleted) == story.victims, cluster.told()
    assert {each["status"]["phase"] for each in cluster.intents()} <= {"Completed", "Abandoned"}
    told = [each["spec"] for _, each in cluster.api.objects["disruptions.reprieve.dev"].items()]
    assert sorted(each["subject"]["name"] for each in told) == sorted(cluster.api.deleted)
    assert {each["planId"] for each in told} <= {i["spec"]["planId"] for i in cluster.intents()}


async def _killed(at: int, when: When, story: Story) -> bool:
    """Play with a death; return whether there were so many writes."""
    async with memory() as cluster:
        _low_side(cluster)
        cluster.start(tells=True, **story.context)
        await cluster.settle()
        hook = _counting(at, cluster.kill)
        if when is When.BEFORE:
            cluster.api.before = hook
        else:
            cluster.api.after = hook
        cluster.create(*story.preemptor)
        for _ in range(20):
            await cluster.pass_time(SECOND // 10)
            cluster.end_all()
        dead = cluster.dead
        cluster.api.before = cluster.api.after = lambda verb, where: None
        if dead:
            cluster.start(tells=True, **story.context)
        await _finish(cluster, story)
        return dead


@pytest.mark.parametrize("when", When)
@pytest.mark.parametrize("name", STORIES)
async def test_a_death_at_any_write_is_made_good_by_the_next_process(name: str, when: When) -> None:
    deaths = [await _killed(at, when, STORIES[name]) for at in range(1, _MOST_WRITES)]
    number = sum(deaths)
    assert deaths == [True] * number + [False] * (len(deaths) - number)
    assert 8 <= number < len(deaths), "all writes of the story were taken"


async def _let_go(at: int, when: When, story: Story) -> int | None:
    """Die, and let the preemptor go before the next process comes.

    Returns how many had been deleted, None where nobody died.
    """
    async with memory() as cluster:
        _low_side(cluster)
        cluster.start(**story.context)
        await cluster.settle()
        hook = _counting(at, cluster.kill)
        if when is When.BEFORE:
            cluster.api.before = hook
        else:
            cluster.api.after = hook
        cluster.create(*story.preemptor)
        await cluster.pass_time(SECOND)
        if not cluster.dead:
            return None
        before = Counter(cluster.api.deleted)
        for name in story.names:
            cluster.end(name)
        cluster.api.remove("podgroups.scheduling.k8s.io", NAMESPACE, "high")
        cluster.api.before = cluster.api.after = lambda verb, where: None
        cluster.start(**story.context)
        await cluster.pass_time(MINUTE)
        assert cluster.api.deleted == before, "somebody went for a preemptor that had let go"
        for name in cluster.pods.keys() - cluster.victims():
            assert cluster.condition(cluster.pod(name), "DisruptionTarget")[0] != "True"
        cluster.end_all()
        await cluster.pass_time(5 * SECOND)
        assert {i["status"]["phase"] for i in cluster.intents()} <= {"Completed", "Abandoned"}
        cluster.create(pod("next", 4, priority="high"))
        await cluster.until(lambda: bool(cluster.victims()) or "next" in cluster.placed())
        return sum(before.values())


@pytest.mark.parametrize("when", When)
@pytest.mark.parametrize("name", ["gang", "gang in parts"])
async def test_nobody_goes_for_a_preemptor_that_let_go_while_nobody_led(
    name: str, when: When
) -> None:
    deleted = [await _let_go(at, when, STORIES[name]) for at in range(1, 28)]
    assert deleted[0] == 0
    assert deleted[-1] is None, "all writes were taken"
    assert set(deleted) >= {0, 1, 2, 3}, "deaths between the deletions were among them"


class _Tenure(Held):
    """A lease that can be lost."""

    lost = False

    @property
    def held_until(self) -> Nanos:
        return Nanos(0) if self.lost else super().held_until


async def _deposed(at: int, story: Story) -> bool:
    """Another process leads from the `at`-th write on, while this one goes on."""
    async with memory() as cluster:
        _low_side(cluster)
        tenure = _Tenure(cluster.clock)
        cluster.start(tells=True, tenure=tenure, **story.context)
        await cluster.settle()

        def change() -> None:
            tenure.lost = True
            cluster.start(tells=True, **story.context)

        cluster.api.after = _counting(at, change)
        cluster.create(*story.preemptor)
        await cluster.pass_time(SECOND)
        changed = tenure.lost
        cluster.api.after = lambda verb, where: None
        await _finish(cluster, story)
        return changed


@pytest.mark.parametrize("name", ["gang", "gang in parts"])
async def test_another_leader_in_the_middle_finishes_what_the_first_began(name: str) -> None:
    changes = [await _deposed(at, STORIES[name]) for at in range(1, 16)]
    assert sum(changes) >= 12


async def test_parts_that_a_death_left_without_a_head_go_after_a_pause_and_no_others() -> None:
    story = STORIES["gang in parts"]
    async with memory() as cluster:
        _low_side(cluster)
        cluster.start(tells=True, **story.context)
        await cluster.settle()
        cluster.api.before = _dies_at_the_head(cluster)
        cluster.create(*story.preemptor)
        await cluster.pass_time(SECOND)
        orphans = cluster.parts().keys()
        assert cluster.dead and len(orphans) >= 4 and not cluster.intents()
        cluster.api.before = lambda verb, where: None
        cluster.start(tells=True, **story.context)
        await _finish(cluster, story)
        (intent,) = cluster.intents()
        named = {*intent["spec"]["parts"], *intent["spec"]["inputParts"]}
        assert cluster.parts().keys() == orphans | named and not orphans & named
        await cluster.pass_time(16 * MINUTE)
        assert cluster.parts().keys() == named
        status = {**intent["status"], "finishedAt": "2020-01-01T00:00:00Z"}
        cluster.api.put("preemptions.reprieve.dev", {**intent, "status": status})
        await cluster.pass_time(6 * MINUTE)
        assert not cluster.intents() and not cluster.parts()


def _dies_at_the_head(cluster: Memory) -> Callable[[str, Target], FakeAnswer | None]:
    def hook(verb: str, where: Target) -> FakeAnswer | None:
        if (verb, where.kind) == ("post", "preemptions.reprieve.dev"):
            cluster.kill()
        return None

    return hook


@pytest.mark.parametrize("number", range(2))
async def test_a_record_that_lost_a_part_is_carried_on_with_what_is_left_of_it(number: int) -> None:
    story = STORIES["gang in parts"]
    async with memory() as cluster:
        _low_side(cluster)
        cluster.start(tells=True, **story.context)
        await cluster.settle()
        deletions = 0

        def hook(verb: str, where: Target) -> FakeAnswer | None:
            nonlocal deletions
            deletions += (verb, where.kind) == ("delete", "pods")
            if deletions == 3:
                cluster.kill()
            return None

        cluster.api.before = hook
        cluster.create(*story.preemptor)
        await cluster.pass_time(SECOND)
        assert cluster.dead and len(cluster.victims()) == 2
        cluster.api.before = lambda verb, where: None
        (intent,) = cluster.intents()
        gone = intent["spec"]["parts"][number]
        cluster.api.remove("preemptionparts.reprieve.dev", "reprieve-system", gone)
        cluster.start(tells=True, **story.context)

        def placed() -> bool:
            """Let whoever is asked to go end, until all are placed."""
            if cluster.placed().keys() >= story.names:
                return True
            cluster.end_all()
            return False

        await cluster.until(placed)
        assert set(cluster.api.deleted.values()) == {1}, "somebody was deleted twice"
        # Those of whom it still tells are finished, as the preemptor needs their room.
        await cluster.until(
            lambda: {each["status"]["phase"] for each in cluster.intents()} == {"Completed"}
        )
