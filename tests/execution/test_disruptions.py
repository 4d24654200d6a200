"""Tenants are told once of each displaced unit, whatever dies or fails, and of nobody else."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from kubeworld.units.durations import HOUR, MINUTE, SECOND
from kubeworld.units.instants import Nanos, format_instant
from reprieve.api.disruption import KEY_FIELD, KEY_SECRET
from reprieve.api.reprieve import Preemption
from reprieve.engine import plan as engine
from reprieve.execution.accounts.crowding import MOST_IN_NAMESPACE
from reprieve.execution.accounts.disruptions import Disruptions
from reprieve.execution.accounts.old_disruptions import TIME_TO_LIVE
from reprieve.execution.executor import Executor
from reprieve.execution.records.book import Book
from reprieve.kube.client import Client
from reprieve.kube.transport import Transport
from reprieve.records.plans.at_stake import AtStake, Stake
from reprieve.telemetry.metrics import Metrics
from reprieve.units.ids import PlanId, Uid
from reprieve.units.references import Reference
from tests.execution.test_executor import PLANES, Death, Fakes, Plane, When, World, _dying, _quiet
from tests.execution.test_recovery import Records, with_time
from tests.kube.fakes import FakeAnswer, refusal
from tests.scheduling.memory import Target, Wire
from tests.scheduling.site import Object

_KIND = "disruptions.reprieve.dev"
_MOST_WRITES = 24
_OPERATOR = "ns"


class Story(Records):
    """Three victims of a plane, in the namespace `team`, for a preemptor of `space`."""

    def __init__(self, plane: Plane, space: str = "rivals", victims: int = 3) -> None:
        super().__init__()
        for name in (_OPERATOR, "team", "rivals", "other"):
            self.api.put("namespaces", {"metadata": {"name": name}})
        self.plane = plane
        self.space = space
        self.world = World()
        self.names = [f"train-{number}" for number in range(victims)]
        self.tasks: list[asyncio.Task[Any]] = []
        self.notified: Counter[str] = Counter()
        self.start()

    def start(self) -> None:
        """A process begins; the former one is not there any more."""
        for task in self.tasks:
            task.cancel()
        self.metrics = Metrics()
        self.client = Client(Transport(Wire(self.api), self.clock, jitter=Random(7)))
        self.victims = Fakes(self.world, self.plane)
        self.book = Book(
            engine.Plane.QUOTA, self.client, _OPERATOR, self.fence, self.clock, self.metrics
        )
        self.events: list[tuple[Any, str]] = []
        recorder: Any = SimpleNamespace(
            event=lambda about, kind, reason, *rest, **named: self.events.append((about, reason))
        )
        self.told = Disruptions(
            self.client,
            _OPERATOR,
            self.fence,
            self.clock,
            self.metrics,
            recorder,
            notify=lambda told: self.notified.update([told.metadata.name]),
        )
        self.executor = Executor[str](
            self.book, self.victims, self.clock, self._spawn, disruptions=self.told
        )
        self.tasks = [asyncio.ensure_future(self.told.run())]

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.ensure_future(work))

    def plan(self, name: str = "plan", space: str = "team") -> engine.Plan:
        victims = tuple(
            engine.Victim(
                self.ref(each, space),
                self.ref(each, space),
                {"cpu": 1},
                "InClusterQueue",
                unit=f"{space}/trainers" if self.plane.unit else "",
            )
            for each in self.names
        )
        preemptor = self.ref("secret-project", self.space)
        proof = engine.Proof(engine.ProofLevel.QUOTA)
        return engine.Plan(PlanId(name), engine.Plane.QUOTA, 1, proof, preemptor, victims)

    def ref(self, name: str, space: str) -> Reference:
        return Reference("v1", "Pod", space, name, Uid(f"{name}-uid"))

    async def carry(self, name: str = "plan", space: str = "team") -> None:
        plan = self.plan(name, space)
        stakes = [Stake(f"owner/{each}", 60) for each in self.names]

        async def work() -> None:
            cost = AtStake("owner/secret-lineage", stakes)
            await self.executor.carry(await self.book.write(plan, at_stake=cost))

        await with_time(self, work)

    async def recover(self) -> None:
        async def work() -> None:
            await self.executor.recover()

        await with_time(self, work)

    async def until_closed(self, rounds: int = 20) -> None:
        for _ in range(rounds):
            await with_time(self, self.executor.reconcile)
            await self.clock.advance(2 * SECOND)
            if not self.executor.open:
                return

    async def pass_time(self, nanoseconds: int) -> None:
        for _ in range(nanoseconds // MINUTE):
            await self.clock.advance(MINUTE)

    def stories(self, space: str = "team") -> list[Object]:
        """Return what people of a namespace read, in the order of names."""
        found = self.api.objects[_KIND].items()
        return [each for (where, _), each in sorted(found) if where == space]

    def specs(self) -> list[Any]:
        return [each["spec"] for each in self.stories()]

    def disruptions_pending(self) -> list[bool]:
        records = self.api.objects["preemptions.reprieve.dev"].values()
        return [bool((each.get("status") or {}).get("disruptionsPending")) for each in records]


@pytest.fixture(autouse=True)
async def processes_end() -> AsyncIterator[None]:
    """End what a test has started."""
    yield
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("name", PLANES)
async def test_every_plane_tells_once_of_each_unit_all_that_its_tenant_may_know(name: str) -> None:
    story = Story(PLANES[name], space="team")
    begun = format_instant(story.clock.wall())
    await story.carry()
    await story.until_closed()
    unit = bool(PLANES[name].unit)
    specs = story.specs()
    subjects = [each["subject"]["name"] for each in specs]
    assert subjects == (["trainers"] if unit else story.names)
    for number, each in enumerate(specs):
        assert each["lineage"] == f"owner/train-{number}"
        assert each["preemptor"] == "Pod/secret-project"
        assert each["rule"] == "lower priority, or later, in the same ClusterQueue"
        assert each["lostDeviceSeconds"] == (180 if unit else 60)
        assert (each["objects"], each["times"], each["window"]) == (3 if unit else 1, 1, "1h0m0s")
        assert begun <= each["noticedAt"] <= each["evictingAt"] <= each["endedAt"]
        assert each["sparedBy"] and each["planId"] == "plan" and each["plane"] == "quota"
    assert story.notified == Counter(each["metadata"]["name"] for each in story.stories())
    counted = story.metrics.disruptions.labels("quota", "InClusterQueue")._value.get()
    assert counted == len(specs) and story.disruptions_pending() == [False]


@pytest.mark.parametrize("when", When)
@pytest.mark.parametrize("name", PLANES)
async def test_a_death_at_any_write_leaves_one_disruption_for_each_unit(
    name: str, when: When
) -> None:
    deaths, told = 0, Counter[int]()
    for at in range(1, _MOST_WRITES + 1):
        story = Story(PLANES[name])
        _dying(story, at, when)  # type: ignore[arg-type]
        died = False
        try:
            await story.carry()
            await story.until_closed()
        except (Death, BaseExceptionGroup):
            deaths, died = deaths + 1, True
        _quiet(story)  # type: ignore[arg-type]
        if died:
            story.start()
            await story.recover()
            await story.until_closed()
            await story.pass_time(2 * MINUTE)
        gone = len(story.world.left)
        assert len(story.stories()) == (min(gone, 1) if PLANES[name].unit else gone)
        told[len(story.stories())] += died
        assert not any(story.disruptions_pending())
        written = {each["metadata"]["name"] for each in story.stories()}
        assert set(story.notified) <= written and max(story.notified.values(), default=0) <= 1
        if not died:
            break
    else:
        raise AssertionError("a story took more writes than were tried")
    assert deaths >= 7 and told[0] and told[1 if PLANES[name].unit else 3], told


async def test_nothing_of_another_namespace_stands_in_what_a_tenant_reads() -> None:
    story = Story(PLANES["scheduling"])
    await story.carry()
    await story.until_closed()
    text = json.dumps(story.stories())
    assert len(story.stories()) == 3
    for hidden in ("secret", "rivals", "node"):
        assert hidden not in text
    (known,) = {each["preemptor"] for each in story.specs()}
    assert re.fullmatch(r"another tenant's work #[0-9a-f]{4}", known)
    # The same work has the same number for him, after a restart too, and another one for others.
    story.world.left.clear()
    story.world.marks.clear()
    story.start()
    await story.recover()
    await story.carry("again")
    await story.until_closed()
    assert {each["preemptor"] for each in story.specs()} == {known} and len(story.specs()) == 6
    assert {each["times"] for each in story.specs()} == {1, 2}
    story.world.left.clear()
    story.world.marks.clear()
    await story.carry("elsewhere", "other")
    await story.until_closed()
    (elsewhere,) = {each["spec"]["preemptor"] for each in story.stories("other")}
    assert re.fullmatch(r"another tenant's work #[0-9a-f]{4}", elsewhere) and elsewhere != known
    (secret,) = story.api.objects["secrets"].values()
    assert secret["metadata"]["name"] == KEY_SECRET
    assert secret["metadata"]["namespace"] == _OPERATOR


async def test_the_key_is_put_into_the_empty_secret_that_the_chart_makes() -> None:
    story = Story(PLANES["scheduling"])
    place = {"name": KEY_SECRET, "namespace": _OPERATOR}
    story.api.put("secrets", {"apiVersion": "v1", "kind": "Secret", "metadata": place})
    await story.carry("elsewhere", "other")
    await story.until_closed()
    (known,) = {each["spec"]["preemptor"] for each in story.stories("other")}
    assert re.fullmatch(r"another tenant's work #[0-9a-f]{4}", known)
    (secret,) = story.api.objects["secrets"].values()
    assert len(base64.b64decode(secret["data"][KEY_FIELD])) == 32


async def test_work_that_is_displaced_three_times_in_an_hour_is_told_so() -> None:
    story = Story(PLANES["scheduling"], victims=1)
    for turn in range(4):
        story.world.left.clear()
        story.world.marks.clear()
        if turn == 3:
            await story.pass_time(2 * HOUR)
        await story.carry(f"plan-{turn}")
        await story.until_closed()
    found = sorted(story.stories(), key=lambda each: each["spec"]["planId"])
    assert [each["spec"]["times"] for each in found] == [1, 2, 3, 1]
    said = [each.get("status") or {} for each in found]
    text = "this lineage was displaced 3 times within 1h0m0s: that is reported, and does not "
    assert said == [{}, {}, {"repeated": True, "message": f"{text}protect it"}, {}]
    assert [(about.name, reason) for about, reason in story.events] == [
        ("train-0", "DisplacedRepeatedly")
    ]


async def test_the_metric_counts_lines_of_work_that_are_displaced_again_and_again() -> None:
    story = Story(PLANES["scheduling"], victims=2)
    for turn in range(3):
        story.world.left.clear()
        story.world.marks.clear()
        await story.carry(f"plan-{turn}")
        await story.until_closed()
    await story.pass_time(2 * MINUTE)
    assert story.metrics.repeatedly_displaced._value.get() == 2
    await story.pass_time(2 * HOUR)
    assert story.metrics.repeatedly_displaced._value.get() == 0


def _refusing(kind: str, code: int, reason: str) -> Callable[[str, Target], FakeAnswer | None]:
    def hook(verb: str, where: Target) -> FakeAnswer | None:
        if (verb, where.kind) == ("post", kind):
            return refusal(code, reason, "not now")
        return None

    return hook


@pytest.mark.parametrize(
    ("code", "reason"), [(500, "InternalError"), (403, "Forbidden"), (404, "NotFound")]
)
async def test_what_cannot_be_written_holds_nothing_up_and_is_written_later(
    code: int, reason: str
) -> None:
    story = Story(PLANES["scheduling"])
    story.api.before = _refusing(_KIND, code, reason)
    await story.carry()
    await story.until_closed()
    assert len(story.world.left) == 3 and not story.executor.open
    assert story.disruptions_pending() == [True] and not story.stories()
    failures = story.metrics.registry.get_sample_value
    name = {500: "ServerError", 403: "Forbidden", 404: "NotFound"}[code]
    assert failures("reprieve_disruption_write_failures_total", {"reason": name})
    story.api.before = lambda verb, where: None
    await story.pass_time(6 * MINUTE)
    assert len(story.stories()) == 3 and story.disruptions_pending() == [False]


async def test_what_one_process_could_not_write_the_next_one_does() -> None:
    story = Story(PLANES["quota"])
    story.api.before = _refusing(_KIND, 500, "InternalError")
    await story.carry()
    await story.until_closed()
    assert story.disruptions_pending() == [True]
    story.api.before = lambda verb, where: None
    story.start()
    await story.recover()
    await story.pass_time(2 * MINUTE)
    assert len(story.stories()) == 3 and story.disruptions_pending() == [False]


async def test_the_former_name_of_pending_disruptions_is_read() -> None:
    story = Story(PLANES["quota"])
    story.api.before = _refusing(_KIND, 500, "InternalError")
    await story.carry()
    await story.until_closed()
    for record in story.api.objects["preemptions.reprieve.dev"].values():
        record["status"]["untold"] = record["status"].pop("disruptionsPending")
    story.api.before = lambda verb, where: None
    story.start()
    await story.recover()
    await story.pass_time(2 * MINUTE)
    assert len(story.stories()) == 3
    (record,) = story.api.objects["preemptions.reprieve.dev"].values()
    assert "untold" not in record["status"]


async def test_a_large_plan_is_closed_before_everybody_is_told_and_nobody_is_left_out() -> None:
    story = Story(PLANES["quota"], victims=150)
    await story.carry()
    await story.until_closed()
    await story.pass_time(MINUTE)
    assert [each["subject"]["name"] for each in story.specs()] == sorted(story.names)
    assert story.disruptions_pending() == [False]


async def test_nobody_is_told_where_the_namespace_is_gone() -> None:
    story = Story(PLANES["quota"])
    story.api.remove("namespaces", "", "team")
    story.api.before = _refusing(_KIND, 404, "NotFound")
    await story.carry()
    await story.until_closed()
    assert not story.executor.open and story.disruptions_pending() == [False]


async def test_without_a_key_work_of_others_has_no_number() -> None:
    story = Story(PLANES["quota"])
    story.api.before = _refusing("secrets", 403, "Forbidden")
    await story.carry()
    await story.until_closed()
    assert {each["preemptor"] for each in story.specs()} == {"another tenant's work"}


async def test_who_was_spared_and_who_went_by_another_plan_is_no_disruption() -> None:
    story = Story(PLANES["scheduling"])
    story.world.left["train-1-uid"] = "somebody else"
    await story.carry()
    await story.until_closed()
    assert [each["subject"]["name"] for each in story.specs()] == ["train-0", "train-2"]


async def test_a_dry_run_tells_nobody() -> None:
    story = Story(PLANES["quota"])
    plan = story.plan()
    await with_time(story, lambda: story.book.record_dry_run(plan))
    story.start()
    await story.recover()
    await story.pass_time(2 * MINUTE)
    (record,) = story.api.objects["preemptions.reprieve.dev"].values()
    assert record["spec"]["dryRun"] and not story.stories()


async def test_they_stay_for_a_week_and_two_hundred_in_a_namespace_the_oldest_go_first() -> None:
    story = Story(PLANES["quota"], victims=1)
    now = story.clock.wall()
    for number in range(MOST_IN_NAMESPACE + 5):
        for space, age in (("team", number * MINUTE), ("other", TIME_TO_LIVE - HOUR)):
            at = format_instant(Nanos(now - age))
            metadata = {"name": f"d-{number:03}", "namespace": space, "creationTimestamp": at}
            if space == "team" or number == 0:
                story.api.put(_KIND, {"metadata": metadata, "spec": {}})
    await story.pass_time(3 * MINUTE)
    kept = [each["metadata"]["name"] for each in story.stories()]
    assert kept == [f"d-{number:03}" for number in range(MOST_IN_NAMESPACE)]
    assert len(story.stories("other")) == 1
    await story.carry()
    await story.until_closed()
    await story.pass_time(2 * MINUTE)
    names = {each["metadata"]["name"] for each in story.stories()}
    assert len(names) == MOST_IN_NAMESPACE and f"d-{MOST_IN_NAMESPACE - 1:03}" not in names
    await story.pass_time(2 * HOUR)
    assert not story.stories("other")


def test_a_record_of_an_earlier_version_is_told_with_what_it_says() -> None:
    from reprieve.api.reprieve import (
        Metadata,
        ObjectRef,
        PreemptionSpec,
        Proof,
        Victim,
        VictimState,
        VictimStatus,
    )
    from reprieve.execution.accounts.displaced_units import displaced_units

    ref = ObjectRef("v1", "Pod", "train", "uid-1", "team")
    spec = PreemptionSpec(
        "idle", "p", 1, Proof("Sum"), [Victim(ref, ref, {}, "rule")], "2026-03-04T10:00:00Z"
    )
    record = Preemption(Metadata("idle-always-1", "ns"), spec)
    state = VictimStatus("uid-1", VictimState.EVICTED, "2026-03-04T10:00:05Z")
    (unit,) = displaced_units(record, {"uid-1": state}, {})
    assert (unit.lineage, unit.lost_device_seconds) == ("object/uid-1", 0)
    assert unit.ended == "2026-03-04T10:00:05Z"
