"""Each plan is recorded with what it was decided on; that never keeps it from being carried out."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from kubeworld.units.durations import MINUTE, SECOND
from kubeworld.units.instants import format_instant
from reprieve.answers.preemptions.recorded import differences
from reprieve.api.reprieve import (
    IntentPhase,
    Metadata,
    ObjectRef,
    Preemption,
    PreemptionPart,
    PreemptionSpec,
    PreemptionStatus,
    Proof,
    Victim,
    VictimState,
    VictimStatus,
)
from reprieve.engine.scheduling.session import GROUP_POST_FILTERS
from reprieve.execution.records.book import Retention
from reprieve.execution.records.intents import IntentLog
from reprieve.kube.transport import Request
from reprieve.planes.scheduling.cycle import preemptions, slices
from reprieve.records.idle.replay import InputOmitted
from reprieve.records.plans.parts import Sizes, split, whole
from reprieve.records.scheduling.replay import decide_scheduling_again
from reprieve.records.victim_states import numbers_by_state
from tests.kube.fakes import FakeAnswer, refusal
from tests.scheduling.memory import Memory, Target, memory
from tests.scheduling.site import NAMESPACE, group, pod

NOT_RECORDED = "PreemptionNotRecorded"


def _full(cluster: Memory) -> None:
    cluster.nodes([4] * 6)
    for index in range(12):
        cluster.running(pod(f"low-{index}", 2, priority="low"), f"node-{index // 2}")


async def test_every_plan_is_recorded_with_what_gives_it_again() -> None:
    """Two gangs and a pod preempt within one slice: the later ones respect the earlier ones."""
    async with memory() as cluster:
        _full(cluster)
        for name in ("a", "b"):
            members = [pod(f"{name}-{n}", 4, group=name, priority="high") for n in range(2)]
            cluster.create(group(name, min_count=2, priority="high"), *members)
        cluster.create(pod("alone", 3, priority="high"))
        cluster.start()
        await cluster.until(lambda: len(cluster.victims()) == 10)
        records = [msgspec.convert(intent, Preemption) for intent in cluster.intents()]
        assert sorted(len(record.spec.victims) for record in records) == [2, 4, 4]
        for record in records:
            recorded: Any = record.spec.input
            replay = decide_scheduling_again(recorded, GROUP_POST_FILTERS)
            assert replay.plan is not None
            assert replay.plan.id == record.spec.plan_id
            assert differences(record.spec, replay) == ""
        held = [decide_scheduling_again(r.spec.input or {}, GROUP_POST_FILTERS) for r in records]
        assert max(len(replay.decided_on.nominations) for replay in held) >= 2


async def test_a_plan_whose_input_cannot_be_recorded_is_carried_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> dict[str, Any]:
        raise ValueError("the test says no")

    monkeypatch.setattr(slices, "encode_scheduling", broken)
    async with memory() as cluster:
        _full(cluster)
        cluster.create(pod("alone", 3, priority="high"))
        cluster.start()
        await cluster.until(lambda: len(cluster.victims()) == 2)
        (intent,) = cluster.intents()
        assert "input" not in intent["spec"]
        assert "the input of plan" in caplog.text
        cluster.end_all()
        await cluster.until(lambda: "alone" in cluster.placed())


def _too_large(verb: str, where: Target) -> FakeAnswer | None:
    if (verb, where.kind) == ("post", "preemptions.reprieve.dev"):
        return refusal(500, "InternalError", "etcdserver: request is too large")
    return None


@pytest.mark.parametrize("gate", [True, False], ids=["beside", "within the attempt"])
async def test_whoever_cannot_have_a_plan_recorded_is_told_and_tried_less_and_less_often(
    gate: bool,
) -> None:
    async with memory() as cluster:
        _full(cluster)
        cluster.api.before = _too_large
        members = [pod(f"high-{n}", 4, group="high", priority="high") for n in range(2)]
        cluster.create(group("high", min_count=2, priority="high"), *members)
        cluster.start(section={"featureGates": {"SchedulerAsyncPreemption": gate}})
        tries = []
        for _ in range(5):
            before = len(cluster.api.writes)
            await cluster.pass_time(3 * MINUTE)
            written = [where.kind for _, where in cluster.api.writes[before:]]
            tries.append(written.count("preemptions.reprieve.dev"))
        assert tries[0] >= 6 and sum(tries) <= 24, tries  # three quick ones each time
        assert max(tries[3:]) <= 3, tries
        status, reason, message = cluster.condition(
            cluster.group("high"), "PodGroupInitiallyScheduled"
        )
        assert (status, reason) == ("False", "SchedulerError")
        assert "cannot be recorded" in message and "request is too large" in message
        status, reason, message = cluster.condition(cluster.pod("high-0"), "PodScheduled")
        assert reason == "SchedulerError" and "cannot be recorded" in message
        (told,) = {(e["type"], e["regarding"]["kind"]) for e in cluster.events(NOT_RECORDED)}
        assert told == ("Warning", "PodGroup")
        registry = cluster.planes[0].context.metrics.registry
        counted = registry.get_sample_value(
            "reprieve_plans_unrecorded_total", {"plane": "scheduling"}
        )
        assert counted is not None and counted >= 5
        assert not cluster.victims() and not cluster.intents()
        cluster.api.before = lambda verb, where: None
        await cluster.until(lambda: len(cluster.victims()) == 4, 11 * MINUTE)
        cluster.end_all()
        await cluster.until(lambda: {"high-0", "high-1"} <= cluster.placed().keys())


async def test_the_log_says_why_a_victim_stays_though_another_one_was_gone_already(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One victim is deleted by somebody else before its mark, the other one nobody may delete."""

    def refused(verb: str, where: Target) -> FakeAnswer | None:
        if (verb, where.part, where.name) == ("patch", "status", "low-0"):
            cluster.end("low-0")
        if (verb, where.kind, where.name) == ("delete", "pods", "low-1"):
            return refusal(403, "Forbidden", "nobody may delete it")
        return None

    async with memory() as cluster:
        cluster.nodes([4])
        for index in range(2):
            cluster.running(pod(f"low-{index}", 2, priority="low"), "node-0")
        cluster.api.before = refused
        cluster.create(pod("high", 4, priority="high"))
        cluster.start()
        await cluster.until(lambda: "preemption for team/high" in caplog.text)
        (line,) = [r for r in caplog.messages if r.startswith("preemption for team/high")][:1]
        assert "nobody may delete it" in line


async def test_the_removal_of_old_records_goes_several_at_a_time_and_holds_nothing_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = set()

    async def never(log: IntentLog, intent: Preemption) -> None:
        asked.add(intent.metadata.name)
        await asyncio.Event().wait()

    monkeypatch.setattr(IntentLog, "remove", never)
    monkeypatch.setattr(preemptions, "_RETENTION", Retention(cap=0))

    def over() -> int:
        return sum(each["status"]["phase"] == "Completed" for each in cluster.intents())

    async with memory() as cluster:
        _full(cluster)
        cluster.start()
        for number in range(3):
            cluster.create(pod(f"high-{number}", 4, priority="high"))
            await cluster.until(lambda: len(cluster.victims()) == 2)
            cluster.end_all()
        await cluster.until(lambda: over() == 3)
        await cluster.until(lambda: len(asked) == 3, 6 * MINUTE)
        cluster.create(pod("last", 4, priority="high"))
        await cluster.until(lambda: len(cluster.victims()) == 2)
        cluster.end_all()
        await cluster.until(lambda: over() == 4)


async def test_a_plan_is_recorded_without_its_input_where_that_cannot_be_written() -> None:
    def refused(verb: str, where: Target) -> FakeAnswer | None:
        if (verb, where.kind) == ("post", "preemptionparts.reprieve.dev"):
            return refusal(403, "Forbidden", "no room for parts")
        return None

    async with memory() as cluster:
        _full(cluster)
        cluster.api.before = refused
        cluster.create(pod("alone", 3, priority="high"))
        cluster.start(record_sizes=Sizes(head=2_400))
        await cluster.until(lambda: len(cluster.victims()) == 2)
        (intent,) = cluster.intents()
        assert len(intent["spec"]["victims"]) == 2
        with pytest.raises(InputOmitted, match=r"could not be stored: .*no room for parts"):
            decide_scheduling_again(intent["spec"]["input"], GROUP_POST_FILTERS)


async def test_a_plan_in_parts_is_told_as_a_whole_one() -> None:
    async with memory() as cluster:
        _full(cluster)
        cluster.create(pod("alone", 3, priority="high"))
        cluster.start(record_sizes=Sizes(head=10, part=600))
        await cluster.until(lambda: len(cluster.victims()) == 2)
        (intent,) = cluster.intents()
        stored = msgspec.convert(intent, Preemption)
        assert stored.spec.parts and len(stored.spec.input_parts) > 1 and not stored.spec.victims
        named = (*stored.spec.parts, *stored.spec.input_parts)
        parts = [msgspec.convert(cluster.parts()[name], PreemptionPart).spec for name in named]
        spec = whole(stored.spec, parts)
        replay = decide_scheduling_again(spec.input or {}, GROUP_POST_FILTERS)
        assert differences(spec, replay) == ""
        cluster.end_all()
        await cluster.until(lambda: "alone" in cluster.placed())
        await cluster.pass_time(5 * SECOND)
        (intent,) = cluster.intents()
        assert intent["status"]["phase"] == "Completed"
        assert intent["status"]["victimsByState"] == {"Evicted": 2}
        assert intent["status"]["victimCount"] == 2 and "victims" not in intent["status"]


async def test_a_victim_that_a_watch_has_shown_costs_a_mark_and_a_deletion_and_no_read() -> None:
    async with memory() as cluster:
        _full(cluster)
        reads, changed = list[str](), list[Any]()

        def stale(verb: str, where: Target) -> FakeAnswer | None:
            # One victim changes right before its mark arrives.
            if (verb, where.part) == ("patch", "status") and where.name == "low-3" and not changed:
                changed.append(cluster.api.put("pods", cluster.pod("low-3")))
            return None

        answer = cluster.api.answer

        def reading(request: Request) -> FakeAnswer:
            if request.method == "GET" and "/pods/" in request.path:
                reads.append(request.path.rpartition("/")[2])
            return answer(request)

        cluster.api.answer = reading  # type: ignore[method-assign]
        cluster.api.before = stale
        members = [pod(f"high-{n}", 4, group="high", priority="high") for n in range(6)]
        cluster.create(group("high", min_count=6, priority="high"), *members)
        cluster.start()
        await cluster.until(lambda: len(cluster.victims()) == 12)
        assert changed and reads == ["low-3"]
        sent = [(verb, where.part) for verb, where in cluster.api.writes if "low-" in where.name]
        assert sent.count(("patch", "status")) == 13  # that of low-3 twice
        assert sent.count(("delete", "")) == 12
        for name in cluster.victims():
            condition = cluster.pod(name)["status"]["conditions"][0]
            assert condition["type"] == "DisruptionTarget" and condition["observedGeneration"] == 1


async def test_more_than_two_hundred_that_were_not_evicted_by_one_plan_are_those_of_the_next() -> (
    None
):
    number = 250
    refs = [ObjectRef("v1", "Pod", f"low-{i}", f"uid-{i}", NAMESPACE) for i in range(number)]
    victims = [Victim(ref, ref, {"cpu": 1000}, "lower priority") for ref in refs]

    async with memory() as cluster:
        _full(cluster)

        def recorded(name: str, phase: IntentPhase, **status: Any) -> None:
            at = format_instant(cluster.clock.wall())
            preemptor = ObjectRef("v1", "Pod", name, f"uid-{name}", NAMESPACE)
            spec = PreemptionSpec(
                "scheduling", name, 1, Proof("Placement"), victims, at, preemptor=preemptor
            )
            apart = split(name, "reprieve-system", spec)
            assert apart.parts
            for part in apart.parts:
                cluster.api.put("preemptionparts.reprieve.dev", msgspec.to_builtins(part))
            head = Preemption(
                Metadata(name, "reprieve-system"), apart.head, PreemptionStatus(phase, **status)
            )
            cluster.api.put("preemptions.reprieve.dev", msgspec.to_builtins(head))

        states = [VictimStatus(ref.uid, VictimState.GONE) for ref in refs]
        recorded(
            "first",
            IntentPhase.COMPLETED,
            victims=states[:200],
            numbers_by_state=numbers_by_state(victims, states),
        )
        recorded("second", IntentPhase.EVICTING)
        cluster.start()
        await cluster.pass_time(MINUTE)
        (second,) = (i for i in cluster.intents() if i["metadata"]["name"] == "second")
        assert second["status"]["phase"] == "Completed"
        assert second["status"]["victimsByState"] == {"Evicted": number}
        assert second["status"]["numbersByState"] == {"Evicted": f"0-{number - 1}"}
