"""The five steps, in the manner of each plane: a death or a refusal at any write leaves one record.

The victims are numbers in a dictionary; the records stand on the API server that is a dictionary.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import pytest

from kubeworld.units.durations import MINUTE, SECOND
from reprieve.api.reprieve import Preemption, Victim, VictimState, VictimStatus
from reprieve.engine import plan as engine
from reprieve.execution.executor import Executor
from reprieve.execution.fence import Deposed
from reprieve.execution.records.book import Book
from reprieve.execution.victims import Manner, Marked, Reading, Standing, VictimResult
from reprieve.kube.errors import ApiError, Forbidden, ServerError
from reprieve.telemetry.metrics import Metrics
from reprieve.units.ids import PlanId, Uid
from reprieve.units.references import Reference
from tests.execution.test_recovery import Records, with_time
from tests.kube.fakes import FakeAnswer
from tests.scheduling.memory import Target

_KIND = "preemptions.reprieve.dev"
_NUMBER = 3
#: More writes than any story takes; the tests hold it to that.
_MOST_WRITES = 20


class Death(BaseException):
    """The process dies."""


class When(StrEnum):
    BEFORE = "before"
    STORED = "stored"


@dataclass
class World:
    """Who carries the mark of which record, who left by whom, and how often each was evicted.

    `hook` sees each write to a victim, by verb and uid.
    """

    marks: dict[str, str] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)
    evictions: Counter[str] = field(default_factory=Counter)
    touched: Counter[str] = field(default_factory=Counter)
    hook: Callable[[When, str, str], None] = lambda when, verb, uid: None
    ends: bool = True
    needed: bool = True

    def write(self, verb: str, uid: str, act: Callable[[], None]) -> None:
        self.hook(When.BEFORE, verb, uid)
        act()
        self.hook(When.STORED, verb, uid)


@dataclass(frozen=True)
class Plane:
    """The manner of a plane, and whether victims are told first and leave because of their mark."""

    manner: Manner
    told_first: bool = True
    by_mark: bool = False
    unit: str = ""


PLANES = {
    "idle": Plane(Manner(marked_at_once=1, rest_is_marked=True)),
    "quota": Plane(Manner(all_or_nobody=False), by_mark=True),
    "scheduling": Plane(Manner(last_alone=True, whole=True), told_first=False),
    "units": Plane(Manner(last_alone=True, whole=True, given_up_after=10 * MINUTE), unit="u"),
}


class Fakes:
    """Victims of a world in the manner of a plane."""

    def __init__(self, world: World, plane: Plane) -> None:
        self.world = world
        self.plane = plane
        self.manner = plane.manner
        self.held: list[int] = []

    def gets_notice(self, victim: Victim) -> bool:
        return self.plane.told_first

    async def stale(self, intent: Preemption, victims: Sequence[Victim]) -> str:
        return ""

    async def mark(self, intent: Preemption, victim: Victim) -> Marked[str] | VictimResult:
        uid, name = victim.root.uid, intent.metadata.name
        if uid in self.world.left:
            return VictimResult(VictimState.GONE)
        self.world.write("mark", uid, lambda: self.world.marks.update({uid: name}))
        return Marked(name)

    async def spare(self, intent: Preemption, victim: Victim, mark: str | None, why: str) -> None:
        self.world.touched[victim.root.uid] += 1
        if mark is not None:
            self.world.write("spare", victim.root.uid, lambda: self._unmark(victim.root.uid))

    async def evict(
        self, intent: Preemption, victim: Victim, mark: str | None, *, again: bool
    ) -> VictimResult | None:
        uid, name = victim.root.uid, intent.metadata.name
        if self.plane.by_mark:
            return None
        if uid in self.world.left:
            ours = self.world.left[uid] == name
            return VictimResult(VictimState.EVICTED if ours else VictimState.GONE)
        if uid not in self.world.marks:
            await self.mark(intent, victim)

        def leave() -> None:
            self.world.left[uid] = name
            self.world.evictions[uid] += 1

        try:
            self.world.write("evict", uid, leave)
        except Forbidden as refusal:
            return VictimResult(VictimState.FAILED, str(refusal))
        return VictimResult(VictimState.EVICTED)

    async def read(self, intent: Preemption, victim: Victim, *, elsewhere: bool) -> Reading[str]:
        uid, name = victim.root.uid, intent.metadata.name
        if uid in self.world.left:
            ours = self.world.left[uid] == name and not elsewhere
            return Reading(Standing.EVICTED if ours else Standing.GONE)
        if self.world.marks.get(uid) == name:
            return Reading(Standing.MARKED, mark=name)
        return Reading(Standing.UNTOUCHED)

    def needed(self, intent: Preemption) -> bool:
        return self.world.needed

    def observe(
        self, intent: Preemption, victim: Victim, state: VictimStatus | None
    ) -> VictimResult | None:
        uid = victim.root.uid
        if state is not None:
            return VictimResult(state.state, state.message) if self.world.ends else None
        if self.world.ends and uid not in self.world.left:
            self.world.left[uid] = intent.metadata.name
            self.world.evictions[uid] += 1
        return VictimResult(VictimState.EVICTED) if self.world.ends else None

    def served(self, intent: Preemption) -> bool:
        return True

    def held_up(self, intent: Preemption, left: Sequence[tuple[Victim, str]], since: int) -> None:
        self.held.append(since)

    def _unmark(self, uid: str) -> None:
        self.world.marks.pop(uid, None)


class Site(Records):
    """A world, an API server with records, and processes that carry plans out in it."""

    def __init__(self, plane: Plane) -> None:
        super().__init__()
        self.plane = plane
        self.world = World()
        self.tasks: list[asyncio.Task[Any]] = []
        self.start()

    def start(self) -> None:
        """A process begins; the former one is not there any more."""
        self.victims = Fakes(self.world, self.plane)
        self.book = Book(engine.Plane.QUOTA, self.client, "ns", self.fence, self.clock, Metrics())
        self.executor = Executor[str](self.book, self.victims, self.clock, self._spawn)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.ensure_future(work))

    def plan(self, name: str = "plan", preemptor: str = "high") -> engine.Plan:
        def ref(each: str) -> Reference:
            return Reference("v1", "Pod", "ns", each, Uid(each))

        victims = tuple(
            engine.Victim(ref(each), ref(each), {"cpu": 1}, "rule", unit=self.plane.unit)
            for each in map(str, range(_NUMBER))
        )
        proof = engine.Proof(engine.ProofLevel.QUOTA)
        return engine.Plan(PlanId(name), engine.Plane.QUOTA, 1, proof, ref(preemptor), victims)

    async def carry(self, name: str = "plan", preemptor: str = "high") -> None:
        plan = self.plan(name, preemptor)
        await with_time(self, lambda: self._carry(plan))

    async def _carry(self, plan: engine.Plan) -> None:
        await self.executor.carry(await self.book.write(plan))

    async def recover(self) -> None:
        async def work() -> None:
            await self.executor.recover()

        await with_time(self, work)

    async def until_closed(self, rounds: int = 20) -> None:
        for _ in range(rounds):
            await with_time(self, self.executor.reconcile)
            await asyncio.gather(*self.tasks)
            await self.clock.advance(2 * SECOND)
            if not self.executor.open:
                return

    def records(self) -> dict[str, tuple[str, dict[str, str]]]:
        """Return phase and states of all records, by name."""
        return {
            name: (
                (record.get("status") or {}).get("phase", "Planned"),
                {
                    each["uid"]: each["state"]
                    for each in (record.get("status") or {}).get("victims", ())
                },
            )
            for (_, name), record in self.api.objects[_KIND].items()
        }


def _dying(site: Site, at: int, when: When) -> list[str]:
    """Let the process die at its so many-th write; return the writes, as they come."""
    seen: list[str] = []

    def count(what: str) -> None:
        seen.append(what)
        if len(seen) == at:
            raise Death

    def record(verb: str, where: Target) -> FakeAnswer | None:
        count(f"{verb} {where.kind}")
        return None

    def victim(stage: When, verb: str, uid: str) -> None:
        if stage is when:
            count(f"{verb} {uid}")

    site.world.hook = victim
    if when is When.BEFORE:
        site.api.before = record
    else:
        site.api.after = record
    return seen


def _quiet(site: Site) -> None:
    site.world.hook = lambda when, verb, uid: None
    site.api.before = site.api.after = lambda verb, where: None


def _holds(site: Site) -> None:
    """Assert what must hold once no plan is open."""
    assert not site.executor.open and not site.book.open
    records = site.records()
    assert {phase for phase, _ in records.values()} <= {"Completed", "Abandoned"}
    assert set(site.world.evictions.values()) <= {1}, "somebody was evicted twice"
    evicted = Counter(
        uid for _, states in records.values() for uid, state in states.items() if state == "Evicted"
    )
    assert evicted == site.world.evictions, "who was evicted stands in one record"
    if site.plane.unit:
        assert len(site.world.left) in (0, _NUMBER), "a unit goes as a whole or not at all"
    for uid in site.world.marks:
        assert uid in site.world.left, "who stays carries no mark"


@pytest.mark.parametrize("needed", [True, False], ids=["needed", "let go"])
@pytest.mark.parametrize("when", When)
@pytest.mark.parametrize("name", PLANES)
async def test_a_death_at_any_write_leaves_one_record_and_nobody_is_evicted_twice(
    name: str, when: When, needed: bool
) -> None:
    plane, deaths, evicted = PLANES[name], 0, Counter[int]()
    for at in range(1, _MOST_WRITES + 1):
        site = Site(plane)
        _dying(site, at, when)
        try:
            await site.carry()
            await site.until_closed()
        except Death:
            deaths += 1
        else:
            _holds(site)
            break
        _quiet(site)
        site.world.needed = needed
        before = set(site.world.left)
        site.start()
        await site.recover()
        await site.until_closed()
        _holds(site)
        if not needed and not (plane.unit and before):
            assert site.world.left.keys() == before, "nobody goes for who has let go"
        evicted[len(site.world.left)] += 1
        assert len(site.records()) <= 1
        await site.carry("again", "other")
        await site.until_closed()
        _holds(site)
        assert len(site.world.left) == _NUMBER
    else:
        raise AssertionError("a story took more writes than were tried")
    assert deaths >= 6 and evicted[0] and evicted[_NUMBER], evicted


@pytest.mark.parametrize("at", range(_NUMBER))
@pytest.mark.parametrize("name", PLANES)
async def test_one_that_cannot_be_marked_spares_all_others_where_it_is_all_or_nobody(
    name: str, at: int
) -> None:
    plane = PLANES[name]
    site = Site(plane)

    def refuse(when: When, verb: str, uid: str) -> None:
        if (when, verb, uid) == (When.BEFORE, "mark", str(at)):
            raise Forbidden("a policy says so", code=403)

    site.world.hook = refuse
    await site.carry()
    await site.until_closed(4)
    if plane.told_first and plane.manner.all_or_nobody:
        assert not site.world.left and not site.world.marks
        ((phase, states),) = site.records().values()
        assert phase == "Abandoned"
        others = {str(each) for each in range(_NUMBER)} - {str(at)}
        assert states == {str(at): "Failed"} | dict.fromkeys(others, "Spared")
        _holds(site)
    elif plane.by_mark:
        ((phase, states),) = site.records().values()
        assert phase == "Completed" and states[str(at)] == "Failed"
        assert len(site.world.left) == _NUMBER - 1


async def test_the_last_victim_stays_where_another_could_not_be_evicted() -> None:
    site = Site(PLANES["scheduling"])
    site.world.hook = _refusing("evict", "1")
    await site.carry()
    await site.until_closed()
    ((phase, states),) = site.records().values()
    assert phase == "Abandoned" and states == {"0": "Evicted", "1": "Failed", "2": "Spared"}
    assert site.world.left.keys() == {"0"}


async def test_what_is_left_of_a_unit_that_has_begun_to_go_is_tried_again_and_given_up() -> None:
    site = Site(PLANES["units"])
    site.world.hook = _refusing("evict", "1")
    await site.carry()
    await site.until_closed(30)
    assert list(site.executor.open) == ["quota-high-1"] and site.world.left.keys() == {"0", "2"}
    site.world.hook = lambda when, verb, uid: None
    await site.until_closed(60)
    ((phase, states),) = site.records().values()
    assert phase == "Completed" and set(states.values()) == {"Evicted"}
    assert site.victims.held == sorted(site.victims.held) and site.victims.held[-1] >= 30 * SECOND

    site = Site(PLANES["units"])
    site.world.hook = _refusing("evict", "1")
    await site.carry()
    await site.until_closed(400)
    ((phase, states),) = site.records().values()
    assert phase == "Abandoned" and states == {"0": "Evicted", "1": "Failed", "2": "Evicted"}


@pytest.mark.parametrize("name", PLANES)
async def test_a_failure_on_the_way_is_gone_on_from_without_a_new_process(name: str) -> None:
    """A victim cannot be read to be spared, or the like: the plan is resumed by the next look."""
    site = Site(PLANES[name])
    stale, failures = site.victims.stale, [1, 2]

    async def failing(intent: Preemption, victims: Sequence[Victim]) -> str:
        if failures:
            failures.pop()
            raise ApiError("the API server is away")
        return await stale(intent, victims)

    site.victims.stale = failing  # type: ignore[method-assign]
    await site.carry()
    assert [each.stalled for each in site.executor.open.values()] == [True]
    await site.until_closed()
    _holds(site)
    ((phase, _),) = site.records().values()
    assert phase == "Abandoned" and not site.world.left, "nobody was marked"


async def test_nobody_goes_where_another_cannot_be_marked_after_a_fault_in_taking_marks_back() -> (
    None
):
    """The first is marked, the second not, and the mark of the first cannot be taken back."""
    site = Site(PLANES["idle"])
    failures = [1]

    def failing(when: When, verb: str, uid: str) -> None:
        if when is When.BEFORE and (verb, uid) == ("mark", "1"):
            raise Forbidden("never")
        if when is When.BEFORE and verb == "spare" and failures:
            failures.pop()
            raise ServerError("not now", code=503)

    site.world.hook = failing
    await site.carry()
    assert [each.stalled for each in site.executor.open.values()] == [True]
    await site.until_closed()
    ((phase, states),) = site.records().values()
    assert phase == "Abandoned" and not site.world.left and not site.world.marks
    assert "Evicted" not in states.values()


async def test_a_plan_goes_on_once_the_fence_is_open_again_in_the_same_process() -> None:
    """The lease was not renewed for a while, and nobody else has taken it."""
    site = Site(PLANES["idle"])
    closed = [True]

    def deposed(when: When, verb: str, uid: str) -> None:
        if when is When.BEFORE and (verb, uid) == ("evict", "1") and closed:
            raise Deposed("not held for long enough")

    site.world.hook = deposed
    with pytest.raises(Deposed):
        await site.carry()
    assert set(site.world.left) < {"0", "1", "2"}
    closed.clear()
    await site.until_closed()
    ((phase, _),) = site.records().values()
    assert phase == "Completed" and set(site.world.left) == {"0", "1", "2"}
    assert set(site.world.evictions.values()) == {1}


async def test_a_plan_stays_open_until_its_victims_are_gone() -> None:
    site = Site(PLANES["idle"])
    site.world.ends = False
    await site.carry()
    await site.until_closed(5)
    assert list(site.book.open) == list(site.executor.open) == ["quota-high-1"]
    (each,) = site.executor.open.values()
    before = each.outcome()
    site.world.ends = True
    await site.until_closed()
    _holds(site)
    assert each.outcome() == before, "the record says when they were evicted, not when they ended"


def _refusing(verb: str, victim: str) -> Callable[[When, str, str], None]:
    def hook(when: When, done: str, uid: str) -> None:
        if (when, done, uid) == (When.BEFORE, verb, victim):
            raise Forbidden("nobody may do that", code=403)

    return hook


async def test_who_went_by_another_plan_is_gone_to_one_that_is_taken_over() -> None:
    site = Site(PLANES["scheduling"])
    await site.carry("first", "other")
    await site.until_closed()
    await site.book.write(site.plan())
    site.start()
    await site.recover()
    await site.until_closed()
    _holds(site)
    assert site.records()["quota-high-1"] == (
        "Completed",
        dict.fromkeys(map(str, range(_NUMBER)), "Gone"),
    )


async def test_a_plan_that_could_not_be_taken_over_is_gone_on_with() -> None:
    site = Site(PLANES["idle"])
    await site.carry()
    intent = site.executor.open["quota-high-1"].intent
    site.start()
    site.book.adopt(intent)
    read = site.victims.read

    async def failing(*_: object, **__: object) -> Reading[str]:
        raise ApiError("the API server is away")

    site.victims.read = failing  # type: ignore[method-assign]
    with pytest.raises(ApiError):
        await site.executor.resume(intent)
    site.victims.read = read  # type: ignore[method-assign]
    await site.until_closed()
    _holds(site)
    assert len(site.world.left) == _NUMBER
