"""The demo: what it is made of, in which order its stories come, and that it is never silent."""

from __future__ import annotations

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import Any, ClassVar, cast

from kubelocal.machines.objects import Unanswered
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import parse_instant
from reprieve.cli.texts.narrator import Narrator
from reprieve.scenarios.demo.cast import GPU, Pace, demo_scenario, furniture, gang, queued_job
from reprieve.scenarios.demo.director import Director
from reprieve.scenarios.demo.expiry import remove_beyond, remove_old
from reprieve.scenarios.demo.stories import STORIES
from reprieve.scenarios.observer import Observer
from tests.virtual_time import LoopClock


def director(seed: int) -> Director:
    return Director(cast("Any", None), Pace(), seed, lambda line: None)


def test_there_are_twelve_nodes_of_eight_gpus_and_four_teams() -> None:
    scenario = demo_scenario(Pace())
    assert [each.allocatable[GPU] for each in scenario.nodes] == ["8"] * 12
    spaces = [each["metadata"]["name"] for each in furniture(Pace()) if each["kind"] == "Namespace"]
    assert spaces == ["research", "vision", "speech", "platform"]


def test_a_seed_decides_the_order_and_each_round_has_every_story_once() -> None:
    one, same = director(7), director(7)
    for _ in range(5):
        order = list(one.shuffled(STORIES))
        assert order == list(same.shuffled(STORIES))
        assert sorted(map(repr, order)) == sorted(map(repr, STORIES))
    rounds = {tuple(map(repr, director(seed).shuffled(STORIES))) for seed in range(20)}
    assert len(rounds) > 1


def test_names_are_new_each_time() -> None:
    found = director(1)
    assert [found.numbered("train"), found.numbered("train")] == ["train-1", "train-2"]


def test_a_faster_pace_has_work_that_is_over_sooner() -> None:
    assert (Pace(1).text(60), Pace(10).text(60), Pace(10).text(1)) == ("60000ms", "6000ms", "500ms")
    job = queued_job("vision", "a", 2, 4, "batch", Pace(10).text(60), line="a")
    template = job["spec"]["template"]
    assert template["metadata"]["annotations"]["sim.reprieve.dev/run-time"] == "6000ms"
    assert job["metadata"]["labels"]["reprieve.dev/lineage"] == "a"
    group, *pods = gang("eval", 2, 8, "5s")
    assert group["spec"]["schedulingPolicy"] == {"gang": {"minCount": len(pods)}}
    # A container that is restarted never ends its pod.
    specs = [template["spec"], *(each["spec"] for each in pods)]
    assert [each["restartPolicy"] for each in specs] == ["Never"] * 3


async def test_events_that_were_not_seen_for_long_are_deleted() -> None:
    began = parse_instant("2026-11-23T12:00:00Z")

    def event(name: str, **when: Any) -> dict[str, Any]:
        metadata = {"namespace": "a", "name": name, "creationTimestamp": "2026-11-23T11:00:00Z"}
        return {"metadata": metadata, **when}

    class Objects:
        deleted: ClassVar[list[tuple[str, str, str]]] = []

        async def delete(self, resource: str, namespace: str, name: str) -> None:
            self.deleted.append((resource, namespace, name))

    observer = Observer(LoopClock())
    for each in (
        event("old", lastTimestamp="2026-11-23T11:59:59Z"),
        event("seen again", lastTimestamp="2026-11-23T12:00:01Z"),
        event("series", eventTime="2026-11-23T11:00:00.000000Z",
              series={"lastObservedTime": "2026-11-23T12:00:01.000000Z"}),
        event("undated"),
    ):  # fmt: skip
        observer.apply("events", each)
    stage = SimpleNamespace(observer=observer, objects=Objects())

    assert await remove_old(cast("Any", stage), began) == 2
    assert sorted(Objects.deleted) == [("events", "a", "old"), ("events", "a", "undated")]


async def test_of_what_is_over_the_newest_stay_and_all_that_is_not_over() -> None:
    class Objects:
        deleted: ClassVar[list[str]] = []

        async def delete(self, resource: str, namespace: str, name: str) -> None:
            self.deleted.append(name)
            observer.drop(resource, {"metadata": {"namespace": namespace, "name": name}})

    observer = Observer(LoopClock())
    for number, phase in enumerate(("Planned", "Completed", "Abandoned", "Completed", "Evicting")):
        made = f"2026-11-23T12:00:0{9 - number}Z"
        metadata = {"namespace": "a", "name": f"p{number}", "creationTimestamp": made}
        observer.apply("preemptions", {"metadata": metadata, "status": {"phase": phase}})
    stage = cast("Any", SimpleNamespace(observer=observer, objects=Objects()))

    over = ("Completed", "Abandoned")
    assert await remove_beyond(stage, "preemptions", 3, over) == 0
    assert await remove_beyond(stage, "preemptions", 1, over) == 2
    assert Objects.deleted == ["p3", "p2"]
    assert await remove_beyond(stage, "preemptions", 1, over) == 0


async def test_a_silence_of_five_seconds_is_broken() -> None:
    clock, lines = LoopClock(), list[str]()
    narrator = Narrator(clock, lines.append)
    narrator.report("begins")
    company = asyncio.create_task(narrator.keep_company(lambda: "3 of 8 GPUs in use"))
    began = clock.monotonic()
    while len(lines) < 3:
        await clock.sleep(SECOND // 10)
    company.cancel()
    assert [line.partition("  ")[2].strip() for line in lines] == [
        "begins",
        *["3 of 8 GPUs in use"] * 2,
    ]
    assert clock.monotonic() - began <= 10 * SECOND


async def test_what_is_pending_beyond_the_bound_is_withdrawn_the_oldest_first() -> None:
    class Objects:
        deleted: ClassVar[list[tuple[str, str]]] = []

        def resource_of(self, _: str, kind: str) -> str:
            return kind

        async def delete(self, resource: str, namespace: str, name: str) -> None:
            self.deleted.append((namespace, name))

    clock, said = LoopClock(), list[str]()
    observer = Observer(clock)
    stage = SimpleNamespace(observer=observer, objects=Objects(), clock=clock)
    found = Director(cast("Any", stage), Pace(), 1, said.append)
    jobs = [queued_job("vision", f"job-{number}", 1, 4, "batch", "9s") for number in range(5)]
    found._jobs = {(each["metadata"]["namespace"], each["metadata"]["name"]): None for each in jobs}
    for name, phase in (("job-1-a", "Running"), ("job-2-a", "Pending")):
        metadata = {"namespace": "vision", "name": name}
        observer.apply("pods", {"metadata": metadata, "status": {"phase": phase}})

    await found.settle(4, 25)
    assert Objects.deleted == [] and said == []
    await found.settle(2, 25)
    assert Objects.deleted == [("vision", "job-0"), ("vision", "job-2")]
    assert said == ["pending for too long, withdrawn by their teams: vision/job-0, vision/job-2"]


async def test_a_request_without_an_answer_is_repeated_and_does_not_end_the_demo() -> None:
    class Objects:
        """Every request fails twice; the first creation happens all the same."""

        def __init__(self) -> None:
            self.failures = Counter[str]()
            self.held: dict[str, dict[str, Any]] = {}

        def resource_of(self, _: str, kind: str) -> str:
            return kind

        def fail(self, what: str) -> None:
            self.failures[what] += 1
            if self.failures[what] <= 2:
                raise Unanswered(f"{what}: no answer in time")

        async def create(self, _: str, obj: dict[str, Any]) -> dict[str, Any]:
            assert obj["metadata"]["name"] not in self.held, "it was created a second time"
            self.held[obj["metadata"]["name"]] = obj
            self.fail("create")
            return obj

        async def get(self, _: str, __: str, name: str) -> dict[str, Any] | None:
            self.fail("get")
            return self.held.get(name)

        async def delete(self, _: str, __: str, name: str) -> None:
            self.fail("delete")
            del self.held[name]

    objects = Objects()
    stage = SimpleNamespace(observer=Observer(LoopClock()), objects=objects, clock=LoopClock())
    found = Director(cast("Any", stage), Pace(), 1, lambda line: None)

    await found.submit(queued_job("vision", "a", 1, 4, "batch", "9s"))
    assert list(objects.held) == ["a"] and await found.exists("vision", "a")
    await found.end("Job", "vision", "a")
    assert objects.held == {}
    assert objects.failures == {"create": 1, "get": 4, "delete": 3}


async def test_what_has_ended_is_deleted_and_what_is_being_created_is_kept() -> None:
    deleted, held = list[tuple[str, str]](), dict[tuple[str, str], dict[str, Any]]()
    clearing: list[Director] = []

    class Objects:
        def resource_of(self, version: str, kind: str) -> str:
            return kind if kind != "PodGroup" else f"{kind} of {version}"

        async def create(self, kind: str, obj: dict[str, Any]) -> None:
            await clearing[0].clear()  # as the other half of the demo may at any time
            held[kind, obj["metadata"]["name"]] = obj
            if kind == "Pod":
                observer.apply("pods", obj)

        async def get(self, kind: str, _: str, name: str) -> dict[str, Any] | None:
            return held.get(("Job" if kind == "jobs.batch" else kind, name))

        async def delete(self, kind: str, _: str, name: str) -> None:
            del held[kind, name]
            deleted.append((kind, name))

    observer = Observer(LoopClock())
    stage = SimpleNamespace(observer=observer, objects=Objects(), clock=LoopClock())
    found = Director(cast("Any", stage), Pace(), 1, lambda line: None)
    clearing.append(found)
    group, *members = gang("eval", 2, 8, "5s")
    await found.submit(queued_job("vision", "a", 1, 4, "batch", "9s"), group, *members)
    for _ in range(3):
        await found.clear()
    assert deleted == []

    held["Job", "a"]["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}
    for each in members:
        observer.drop("pods", each)
        del held["Pod", each["metadata"]["name"]]
    await found.clear()
    assert deleted == [("Job", "a")]
    await found.clear()
    groups = "PodGroup of scheduling.k8s.io/v1beta1"  # other APIs have groups of that kind, too
    assert deleted == [("Job", "a"), (groups, "eval")] and held == {}
