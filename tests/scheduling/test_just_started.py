"""`maxMinRuntime` on a running plane: live, tried again in time, recorded, and told where cut."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kubeworld.units.durations import MINUTE, SECOND
from kubeworld.units.instants import Nanos, format_instant
from reprieve.answers.preemptions.recorded import differences
from reprieve.api.reprieve import PREEMPT_MIN_RUNTIME, Preemption
from reprieve.engine.scheduling.session import GROUP_POST_FILTERS
from reprieve.records.scheduling.replay import decide_scheduling_again
from reprieve.records.scheduling.story import pod_story
from reprieve.telemetry.log import DETAIL
from tests.scheduling.memory import PRIORITIES, Memory, memory
from tests.scheduling.site import NAMESPACE, Object, group, pod

SECTION = {"maxMinRuntime": "30m"}
CLASSES = "priorityclasses.scheduling.k8s.io"


def saying(obj: Object, runtime: str) -> Object:
    return {
        **obj,
        "metadata": {**obj["metadata"], "annotations": {PREEMPT_MIN_RUNTIME: runtime}},
    }


def priority_class(name: str) -> Object:
    return {"metadata": {"name": name}, "value": PRIORITIES[name]}


def seconds_since(cluster: Memory, start: int) -> float:
    return (cluster.clock.monotonic() - start) / SECOND


@pytest.mark.parametrize("grouped", [False, True], ids=["pod", "gang"])
async def test_whoever_waits_for_just_started_work_is_tried_once_its_time_is_over(
    grouped: bool,
) -> None:
    async with memory() as cluster:
        cluster.nodes([4, 4])
        for name, node in (("first", "node-0"), ("second", "node-1")):
            cluster.running(saying(pod(name, 4, priority="low"), "10m"), node)
        start = cluster.clock.monotonic()
        if grouped:
            cluster.create(group("train", min_count=2, priority="high"))
            cluster.create(*(pod(f"train-{n}", 4, group="train", priority="high") for n in "01"))
        else:
            cluster.create(pod("train", 4, priority="high"))
        cluster.start(section=SECTION)
        await cluster.until(lambda: cluster.events("FailedScheduling"))
        # Nothing happens that could be a hint.
        await cluster.until(cluster.victims, most=11 * MINUTE)
        assert 10 * 60 <= seconds_since(cluster, start) < 10 * 60 + 2
        assert cluster.victims() == ({"first", "second"} if grouped else {"first"})
        assert cluster.events("MinRuntimeIgnored") == cluster.events("MinRuntimeCut") == []


async def test_without_the_option_nobody_is_protected() -> None:
    async with memory() as cluster:
        cluster.nodes([4])
        cluster.running(saying(pod("first", 4, priority="low"), "10m"), "node-0")
        cluster.create(pod("train", 4, priority="high"))
        cluster.start()
        await cluster.until(lambda: cluster.victims() == {"first"})


@pytest.mark.parametrize("holder", ["pod", "group", "class", "namespace"])
async def test_what_somebody_says_anew_counts_at_once(holder: str) -> None:
    async with memory() as cluster:
        cluster.nodes([4])
        kind = {
            "pod": "pods",
            "group": "podgroups.scheduling.k8s.io",
            "class": CLASSES,
            "namespace": "namespaces",
        }[holder]
        name = {"class": "low", "namespace": NAMESPACE}.get(holder, "work")
        home = "" if holder in ("class", "namespace") else NAMESPACE
        cluster.api.put(CLASSES, priority_class("low"))
        cluster.create(group("work", min_count=1, priority="low"))
        grouped = {"group": "work"} if holder == "group" else {}
        cluster.running(pod("work", 4, priority="low", **grouped), "node-0")
        held = cluster.api.objects[kind][home, name]
        cluster.api.put(kind, saying(held, "10m"))
        cluster.create(pod("train", 4, priority="high"))
        cluster.start(section=SECTION)
        await cluster.until(lambda: cluster.events("FailedScheduling"))
        await cluster.pass_time(MINUTE)
        assert cluster.victims() == set()
        cluster.api.put(kind, saying(cluster.api.objects[kind][home, name], "90s"))
        await cluster.until(lambda: cluster.victims() == {"work"}, most=MINUTE)


async def test_a_class_that_is_gone_protects_nobody() -> None:
    async with memory() as cluster:
        cluster.nodes([4])
        cluster.api.put(CLASSES, saying(priority_class("low"), "30m"))
        cluster.running(pod("work", 4, priority="low"), "node-0")
        cluster.create(pod("train", 4, priority="high"))
        cluster.start(section=SECTION)
        await cluster.until(lambda: cluster.events("FailedScheduling"))
        cluster.api.remove(CLASSES, "", "low")
        await cluster.until(lambda: cluster.victims() == {"work"}, most=MINUTE)


async def test_the_record_names_who_was_within_its_time_and_gives_the_same_plan() -> None:
    async with memory() as cluster:
        cluster.nodes([4, 4, 4])
        cluster.api.put(CLASSES, saying(priority_class("low"), "20m"))
        cluster.api.put("namespaces", saying({"metadata": {"name": NAMESPACE}}, "0s"))
        cluster.api.put(CLASSES, priority_class("middle"))
        cluster.running(pod("of-class", 4, priority="low"), "node-0")
        cluster.running(saying(pod("of-pod", 4, priority="middle"), "5m"), "node-1")
        cluster.running(pod("unsaid", 4, priority="middle"), "node-2")
        start = cluster.clock.wall()
        cluster.create(pod("train", 4, priority="high"))
        cluster.start(section=SECTION)
        await cluster.until(lambda: cluster.victims() == {"unsaid"})
        (intent,) = cluster.intents()
        record = msgspec.convert(intent, Preemption)
        given: Any = record.spec.input
        again = decide_scheduling_again(given, GROUP_POST_FILTERS)
        assert differences(record.spec, again) == ""
        text = "\n".join(pod_story(record, again))
        for name, minutes in (("of-class", 20), ("of-pod", 5)):
            end = format_instant(Nanos(start + minutes * MINUTE))
            assert f"stays: it is within its minimum runtime until {end}" in next(
                line for line in text.splitlines() if f"/{name} " in line
            )


async def test_what_has_no_effect_or_less_than_it_says_is_told() -> None:
    async with memory() as cluster:
        cluster.nodes([16])
        cluster.api.put(CLASSES, saying(priority_class("low"), "48h"))
        cluster.api.put("namespaces", saying({"metadata": {"name": NAMESPACE}}, "soon"))
        cluster.running(saying(pod("good", 1, priority="low"), "30m"), "node-0")
        cluster.running(saying(pod("bad", 1, priority="low"), "-5m"), "node-0")
        cluster.create(saying(group("gang", min_count=1, priority="low"), "31m"))
        cluster.running(saying(pod("member", 1, group="gang", priority="low"), "5m"), "node-0")
        cluster.create(pod("train", 1, priority="high"))
        cluster.start(section=SECTION)

        def told(reason: str) -> dict[str, str]:
            return {
                each["regarding"]["name"]: each["note"].removeprefix(PREEMPT_MIN_RUNTIME)
                for each in cluster.events(reason)
            }

        await cluster.until(lambda: len(told("MinRuntimeIgnored")) == 3)
        await cluster.until(lambda: len(told("MinRuntimeCut")) == 2)
        accepted = " is ignored; accepted: durations from 0s on, such as 90s, 5m or 1h"
        assert told("MinRuntimeIgnored") == {
            "bad": accepted,
            NAMESPACE: accepted,
            "member": " is ignored: the pod is in group gang, whose own annotation counts",
        }
        cut = " is cut to 30m0s, the most that scheduling.maxMinRuntime allows"
        assert told("MinRuntimeCut") == {"low": cut, "gang": cut}
        # Nobody else is stopped.
        await cluster.until(lambda: cluster.pod("train")["spec"].get("nodeName"))


async def test_a_job_of_an_older_gang_waits_for_it_too(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(DETAIL, "reprieve.scheduling")
    async with memory() as cluster:
        cluster.nodes([4])
        cluster.running(saying(pod("first", 4, priority="low"), "10m"), "node-0")
        start, born = cluster.clock.monotonic(), cluster.clock.wall()
        for n in range(2):
            member = pod(f"train-{n}", 2, priority="high")
            said = {"gang.scheduling.koordinator.sh/name": "train"}
            said["gang.scheduling.koordinator.sh/min-available"] = "2"
            member["metadata"]["annotations"] = said
            cluster.create(member)
        cluster.start(section=SECTION)
        await cluster.until(lambda: cluster.events("FailedScheduling"))
        await cluster.until(cluster.victims, most=11 * MINUTE)
        assert 10 * 60 <= seconds_since(cluster, start) < 10 * 60 + 2
    (told, *_) = [each for each in caplog.messages if "minimum runtime" in each]
    text = "1 pod of lower priority within the minimum runtime, the first until "
    assert told.endswith(f": {text}{format_instant(Nanos(born + 10 * MINUTE))}")
