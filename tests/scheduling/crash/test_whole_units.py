"""Units go as a whole or not at all, whatever call fails and at whatever write the process dies.

Each story has one unit of three pods on three nodes, of which the preemptor needs one node only: as
soon as one pod has gone it would fit without the others. Afterwards the unit is gone as a whole or
there as a whole, whoever went stands in a record and was deleted once, and the preemptor has its
room.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from kubeworld.units.durations import MINUTE, SECOND
from tests.kube.fakes import FakeAnswer, refusal
from tests.scheduling.crash.test_every_write import When, _counting, _Tenure
from tests.scheduling.memory import Memory, Target, memory
from tests.scheduling.site import NAMESPACE, Object, composite, group, pod

_UNIT = ("unit-0", "unit-1", "unit-2")
#: More than a calm run of any story takes; the tests hold it to that.
_MOST_WRITES = 26
_GANG = "gang.scheduling.koordinator.sh/"


@dataclass(frozen=True)
class Story:
    """The unit's groups and what its pods say; `section`: of the configuration."""

    groups: tuple[Object, ...] = ()
    member: dict[str, Any] = field(default_factory=dict)
    annotations: tuple[dict[str, str], ...] = ({}, {}, {})
    section: dict[str, Any] = field(default_factory=dict)
    scheduler: str = "default-scheduler"


def _noted(made: Object, **annotations: str) -> Object:
    found = {key.replace("_", "/"): value for key, value in annotations.items()}
    return {**made, "metadata": {**made["metadata"], "annotations": found}}


_IN_GANG = {f"{_GANG}name": "unit", f"{_GANG}min-available": "3"}
_FLOOR = {"annotations": {"reprieve.dev/disruption-floor": "3"}}
STORIES = {
    "group of mode all": Story((group("unit", mode="all", priority="low"),), {"group": "unit"}),
    "tree of mode all": Story(
        (
            composite("root", min_count=1, mode="all", priority="low"),
            group("unit", min_count=3, priority="low", parent="root"),
        ),
        {"group": "unit"},
        section={"featureGates": {"CompositePodGroup": True}},
    ),
    "group below its floor": Story(
        (
            {
                **(low := group("unit", min_count=1, priority="low")),
                "metadata": {**low["metadata"], **_FLOOR},
            },
        ),
        {"group": "unit"},
        section={"nonUniformGroups": True},
    ),
    "leader with its group": Story(
        (group("unit", min_count=1, priority="low"),),
        {"group": "unit"},
        ({"reprieve.dev/disruption": "with-group"},) * 3,
        {"nonUniformGroups": True},
    ),
    "gang of the older kind": Story(
        annotations=(_IN_GANG,) * 3,
        section={"gangs": {"victimGangs": "All"}},
        scheduler="koord-scheduler",
    ),
}


def _begin(cluster: Memory, story: Story) -> None:
    """Three nodes that the unit fills."""
    cluster.nodes([4, 4, 4])
    cluster.create(*story.groups)
    for number, (name, said) in enumerate(zip(_UNIT, story.annotations, strict=True)):
        made = pod(name, 4, priority="low", scheduler=story.scheduler, **story.member)
        made["metadata"]["annotations"] = said
        cluster.running(made, f"node-{number}")


def _start(cluster: Memory, story: Story) -> None:
    cluster.start(story.scheduler, section=story.section)


def _preemptor(story: Story) -> Object:
    return pod("high", 4, priority="high", scheduler=story.scheduler)


def _left(cluster: Memory) -> set[str]:
    """Return the pods of the unit that are there and do not end."""
    return set(_UNIT) & (cluster.pods.keys() - cluster.victims())


def _nobody_is_torn(cluster: Memory) -> None:
    left = _left(cluster)
    assert left in (set(), set(_UNIT)), f"{left} of the unit are left\n{cluster.told()}"
    assert set(cluster.api.deleted.values()) <= {1}, "somebody was deleted twice"
    assert cluster.api.deleted.keys() <= cluster.planned(), "somebody went without a record"
    assert {each["status"]["phase"] for each in cluster.intents()} <= {"Completed", "Abandoned"}


def _unmarked(cluster: Memory) -> None:
    for name in _left(cluster):
        assert cluster.condition(cluster.pod(name), "DisruptionTarget")[0] != "True"


async def _die(cluster: Memory, at: int, when: When, story: Story) -> bool:
    """Let the process die at the `at`-th write; return whether there were so many."""
    _begin(cluster, story)
    _start(cluster, story)
    await cluster.settle()
    hook = _counting(at, cluster.kill)
    if when is When.BEFORE:
        cluster.api.before = hook
    else:
        cluster.api.after = hook
    cluster.create(_preemptor(story))
    await cluster.pass_time(2 * SECOND)
    cluster.api.before = cluster.api.after = lambda verb, where: None
    return cluster.dead


async def _settle(cluster: Memory) -> None:
    def over() -> bool:
        cluster.end_all()
        return "high" in cluster.placed()

    await cluster.until(over, 3 * MINUTE)
    for _ in range(2):
        await cluster.pass_time(5 * SECOND)
        cluster.end_all()


async def _killed(at: int, when: When, story: Story) -> tuple[bool, int]:
    """Return whether the process died, and how many of the unit had gone by then."""
    async with memory() as cluster:
        dead = await _die(cluster, at, when, story)
        gone = len(_UNIT) - len(_left(cluster))
        if dead:
            cluster.end_all()
            _start(cluster, story)
        await _settle(cluster)
        _nobody_is_torn(cluster)
        assert not _left(cluster), "the preemptor has its room from nobody else"
        return dead, gone


@pytest.mark.parametrize("when", When)
@pytest.mark.parametrize("name", STORIES)
async def test_a_unit_of_which_a_part_went_goes_as_a_whole_after_a_death(
    name: str, when: When
) -> None:
    ends = [await _killed(at, when, STORIES[name]) for at in range(1, _MOST_WRITES)]
    deaths = sum(dead for dead, _ in ends)
    assert 8 <= deaths < len(ends), "all writes of the story were taken"
    assert {0, 1, 2, 3} <= {gone for _, gone in ends}, "deaths between the deletions were taken"


async def _let_go(at: int, when: When, story: Story) -> int:
    """Die, and let the preemptor go before the next process comes; return how many had gone."""
    async with memory() as cluster:
        await _die(cluster, at, when, story)
        gone = len(_UNIT) - len(_left(cluster))
        if not cluster.dead:
            return gone
        cluster.end("high")
        _start(cluster, story)
        await cluster.pass_time(MINUTE)
        cluster.end_all()
        await cluster.pass_time(15 * MINUTE)
        _nobody_is_torn(cluster)
        _unmarked(cluster)
        if not gone:
            assert _left(cluster) == set(_UNIT), "somebody went for a preemptor that had let go"
        return gone


@pytest.mark.parametrize("when", When)
@pytest.mark.parametrize("name", STORIES)
async def test_a_unit_is_spared_whole_or_finished_whole_where_the_preemptor_let_go(
    name: str, when: When
) -> None:
    gone = [await _let_go(at, when, STORIES[name]) for at in range(1, 14)]
    assert {0, 1, 2} <= set(gone)


def _fails(verb: str, name: str, code: int, until: Callable[[], bool]) -> Any:
    def fault(called: str, where: Target) -> FakeAnswer | None:
        if (called, where.kind, where.name) != (verb, "pods", name) or until():
            return None
        return refusal(code, {403: "Forbidden", 500: "InternalError"}[code], f"no {verb}")

    return fault


@pytest.mark.parametrize("code", [403, 500])
@pytest.mark.parametrize("victim", _UNIT)
async def test_what_is_left_of_a_unit_is_deleted_once_that_is_possible(
    victim: str, code: int
) -> None:
    story = STORIES["group of mode all"]
    async with memory() as cluster:
        _begin(cluster, story)
        _start(cluster, story)
        end = cluster.clock.monotonic() + 4 * MINUTE
        after = lambda: cluster.clock.monotonic() >= end  # noqa: E731
        cluster.api.before = _fails("delete", victim, code, after)
        cluster.create(_preemptor(story))
        await cluster.until(lambda: _left(cluster) == {victim}, MINUTE)
        tries = len(cluster.api.writes)
        await _settle(cluster)
        await cluster.pass_time(3 * MINUTE)
        calls = sum(verb == "delete" for verb, _ in cluster.api.writes[tries:])
        assert calls < 60, "it is tried again with a growing pause"
        await cluster.until(lambda: not _left(cluster), 3 * MINUTE)
        cluster.end_all()
        await cluster.pass_time(MINUTE)
        _nobody_is_torn(cluster)


async def test_what_nobody_may_delete_is_given_up_after_a_while_and_the_record_says_so() -> None:
    story = STORIES["group of mode all"]
    async with memory() as cluster:
        _begin(cluster, story)
        _start(cluster, story)
        cluster.api.before = _fails("delete", "unit-1", 403, lambda: False)
        cluster.create(_preemptor(story))
        await _settle(cluster)
        await cluster.pass_time(25 * MINUTE)
        assert _left(cluster) == {"unit-1"}
        (intent,) = cluster.intents()
        assert intent["status"]["phase"] == "Abandoned"
        states = [each["state"] for each in intent["status"]["victims"]]
        assert states == ["Evicted", "Failed", "Evicted"]


@pytest.mark.parametrize("victim", _UNIT)
async def test_nobody_of_a_unit_goes_when_one_of_it_cannot_be_marked(victim: str) -> None:
    story = STORIES["group of mode all"]
    async with memory() as cluster:
        _begin(cluster, story)
        _start(cluster, story)
        cluster.api.before = _fails("patch", victim, 403, lambda: False)
        cluster.create(_preemptor(story))
        await cluster.pass_time(5 * MINUTE)
        assert _left(cluster) == set(_UNIT)
        _unmarked(cluster)
        (record,) = cluster.intents()
        assert 2 <= record["spec"]["attempt"] <= 5, "it is tried again, with growing pauses"
        cluster.api.before = lambda verb, where: None
        await _settle(cluster)
        _nobody_is_torn(cluster)
        assert not _left(cluster)


async def test_a_unit_that_lost_a_pod_by_itself_is_spared_after_a_death() -> None:
    story = STORIES["group of mode all"]
    async with memory() as cluster:
        assert await _die(cluster, 2, When.STORED, story)  # the intent is there, nobody is marked
        assert _left(cluster) == set(_UNIT)
        cluster.api.remove("pods", NAMESPACE, "unit-0")
        cluster.end("high")
        _start(cluster, story)
        await cluster.pass_time(MINUTE)
        assert not cluster.api.deleted
        _unmarked(cluster)


async def _deposed(at: int, story: Story) -> bool:
    """Another process leads from the `at`-th write on, while this one goes on."""
    async with memory() as cluster:
        _begin(cluster, story)
        tenure = _Tenure(cluster.clock)
        cluster.start(story.scheduler, section=story.section, tenure=tenure)
        await cluster.settle()

        def change() -> None:
            tenure.lost = True
            _start(cluster, story)

        cluster.api.after = _counting(at, change)
        cluster.create(_preemptor(story))
        await cluster.pass_time(SECOND)
        changed = tenure.lost
        cluster.api.after = lambda verb, where: None
        await _settle(cluster)
        _nobody_is_torn(cluster)
        assert not _left(cluster)
        return changed


@pytest.mark.parametrize("name", STORIES)
async def test_another_leader_in_the_middle_of_a_unit_finishes_it(name: str) -> None:
    assert sum([await _deposed(at, STORIES[name]) for at in range(1, 14)]) >= 8


def _several(random: Random) -> tuple[list[tuple[str, ...]], list[tuple[Object, str]], int]:
    """Return units, all pods with their nodes, and how many whole nodes the preemptor needs."""
    nodes = random.randrange(3, 6)
    places = [f"node-{number % nodes}" for number in range(2 * nodes)]
    random.shuffle(places)
    units: list[tuple[str, ...]] = []
    pods: list[tuple[Object, str]] = []
    while places:
        size = min(random.choice((1, 2, 3, 3)), len(places))
        key = f"u{len(units)}"
        names = tuple(f"{key}-{member}" for member in range(size))
        for name in names:
            pods.append((pod(name, 2, group=key, priority="low"), places.pop()))
        units.append(names)
    return units, pods, random.randrange(1, 3)


async def _random_story(seed: int, at: int, when: When) -> tuple[bool, bool]:
    """Return whether the process died, and whether a unit of several was begun by then."""
    random = Random(seed)
    units, pods, needed = _several(random)
    gang = [pod(f"high-{n}", 4, group="high", priority="high") for n in range(needed)]
    lets_go = random.random() < 0.3
    async with memory() as cluster:
        cluster.nodes([4] * len({node for _, node in pods}))
        for number in range(len(units)):
            cluster.create(group(f"u{number}", mode="all", priority="low"))
        for made, node in pods:
            cluster.running(made, node)
        cluster.start()
        await cluster.settle()
        hook = _counting(at, cluster.kill)
        if when is When.BEFORE:
            cluster.api.before = hook
        else:
            cluster.api.after = hook
        cluster.create(group("high", min_count=needed, priority="high"), *gang)
        await cluster.pass_time(2 * SECOND)
        cluster.api.before = cluster.api.after = lambda verb, where: None
        dead = cluster.dead
        gone = {name for unit in units for name in unit} & set(cluster.api.deleted)
        begun = any(0 < len(gone & set(unit)) < len(unit) for unit in units)
        if dead:
            cluster.end_all()
            if lets_go:
                cluster.end(*(made["metadata"]["name"] for made in gang))
                cluster.api.remove("podgroups.scheduling.k8s.io", NAMESPACE, "high")
            cluster.start()
        for _ in range(40):
            await cluster.pass_time(15 * SECOND)
            cluster.end_all()
        there = cluster.pods.keys()
        for unit in units:
            assert set(unit) <= there or not set(unit) & there, f"{unit} is torn: {there}"
        assert set(cluster.api.deleted.values()) <= {1}
        assert cluster.api.deleted.keys() <= cluster.planned(), "somebody went without a record"
        if not (dead and lets_go):
            assert {made["metadata"]["name"] for made in gang} <= cluster.placed().keys()
        phases = {each["status"]["phase"] for each in cluster.intents()}
        assert phases <= {"Completed", "Abandoned"}
        return dead, begun


async def test_of_many_units_none_is_torn_wherever_a_process_dies() -> None:
    random = Random(11)
    deaths = begun = 0
    for seed in range(80):
        when = random.choice(tuple(When))
        died, half = await _random_story(seed, random.randrange(5, 13), when)
        deaths += died
        begun += half and died
    assert deaths >= 60 and begun >= 10, (deaths, begun)
