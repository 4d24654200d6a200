"""Loops and held pairs are named to everybody in them, by whatever planes they came about."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from typing import Any, cast

import pytest
from prometheus_client import Gauge
from prometheus_client.samples import Sample

from kubeworld.units.durations import MINUTE
from kubeworld.units.instants import Nanos
from reprieve.engine.disruptions.governor import Governor
from reprieve.engine.disruptions.ledger import Actor
from reprieve.engine.disruptions.lineage import Lineage
from reprieve.engine.disruptions.questions import Enforcement, GovernorPolicy
from reprieve.kube.errors import ServerError
from reprieve.planes.common.disruptions.loop_notices import LoopNotices
from reprieve.telemetry.metrics import Metrics
from reprieve.units.ids import Uid
from reprieve.units.references import Reference
from reprieve.wording.displacements import known_as
from reprieve.wording.disruptions import LOOP, PAIR_HELD
from reprieve.wording.kaiwo import with_loop
from tests.disruptions.builders import at, displaced
from tests.scheduling.memory import memory
from tests.scheduling.site import NAMESPACE, pod
from tests.scheduling.test_governor import owned


class Events:
    """Whom an event was about, its reason, what it said, and which other object it named."""

    def __init__(self) -> None:
        self.written: list[tuple[Reference, str, str, Reference | None]] = []

    def event(
        self,
        about: Reference,
        kind: str,
        reason: str,
        action: str,
        note: str,
        *,
        controller: str,
        related: Reference | None = None,
    ) -> None:
        assert (kind, action, controller) == ("Warning", reason, "reprieve")
        self.written.append((about, reason, note, related))


class Numbers:
    """What work of other namespaces is called; without a key nobody can say it."""

    def __init__(self, *, key: bool = True) -> None:
        self._key = key

    async def known_as(self, namespace: str, lineage: str) -> str:
        if not self._key:
            raise ServerError("away", code=500)
        return known_as(b"key", namespace, lineage)


DEFAULT = GovernorPolicy()
KINDS = {Actor.QUOTA: "Workload", Actor.SCHEDULING: "Pod", Actor.IDLE: "Deployment"}


def samples(gauge: Gauge) -> list[Sample]:
    """Return the samples of a gauge."""
    (family,) = gauge.collect()
    return family.samples


class Play:
    """Lineages that displace each other in a circle, each by another plane."""

    def __init__(
        self,
        spaces: dict[str, str],
        *,
        key: bool = True,
        named_series: int = 100,
        policy: GovernorPolicy = DEFAULT,
    ) -> None:
        self.governor, self.metrics, self.events = Governor(policy), Metrics(named_series), Events()
        self.notices = LoopNotices(
            self.governor, self.metrics, cast("Any", self.events), Numbers(key=key)
        )
        self.spaces = spaces
        for (name, space), kind in zip(
            spaces.items(), [*KINDS.values(), "Job", "Job"], strict=False
        ):
            reference = Reference("v1", kind, space, name, Uid(f"{name}-uid"))
            self.notices.remember(Lineage(name), reference)

    def turn(self, number: int) -> None:
        names = list(self.spaces)
        for step, (one, other) in enumerate(pairwise([*names, names[0]])):
            seconds = 60 * (number * len(names) + step)
            actor = list(KINDS)[step % 3]
            row = displaced(seconds, one, other, actor=actor, lost_device_seconds=3_600)
            self.governor.record(row)

    def about(self, reason: str) -> list[str]:
        return sorted(about.name for about, told, *_ in self.events.written if told == reason)


@pytest.mark.parametrize("members", [2, 3, 5])
async def test_a_loop_through_several_planes_is_named_within_two_turns_on_each_member(
    members: int,
) -> None:
    play = Play(dict.fromkeys("abcde"[:members], "red"))
    play.turn(0)
    await play.notices.show(at(60 * members))
    assert play.events.written == []
    play.turn(1)
    now = at(120 * members)
    for _ in range(3):
        await play.notices.show(now)
    assert play.about(LOOP) == list("abcde"[:members])
    kinds = {about.kind for about, reason, *_ in play.events.written if reason == LOOP}
    assert len(kinds) >= min(members, 3)
    turn = " -> ".join([*"abcde"[:members], "a"]).replace(" ", r" ")
    text = play.notices.reported_of(Lineage("a"))
    called = [each.removeprefix("red/") for each in text.partition(",")[0].split(" -> ")]
    # The same circle, wherever it begins.
    begin = called.index("a")
    assert [*called[begin:-1], *called[:begin], "a"] == turn.split(" -> ")
    minutes = 2 * members - 1
    assert f"{2 * members} displacements in {minutes}m0s, {2 * members}.0 device-hours" in text
    assert samples(play.metrics.loop_members)[0].value == members
    # When the hold is over nobody is named any more, and what said so is told.
    changed: list[Lineage] = []
    play.notices.changed.append(changed.append)
    await play.notices.show(at(2 * 3_600))
    assert sorted(changed) == list("abcde"[:members])
    assert play.notices.reported_of(Lineage("a")) == ""
    assert samples(play.metrics.loop_members)[0].value == 0
    assert samples(play.metrics.held_pairs) == []


@pytest.mark.parametrize("key", [True, False])
async def test_events_name_work_of_other_namespaces_by_a_number_alone(key: bool) -> None:
    play = Play({"x": "red", "y": "blue"}, key=key)
    for number in range(2):
        play.turn(number)
    await play.notices.show(at(300))
    assert play.about(LOOP) == ["x", "y"] and set(play.about(PAIR_HELD)) == {"x", "y"}
    for about, _, text, related in play.events.written:
        other = {"red": "blue/", "blue": "red/"}[about.namespace]
        assert f"{about.namespace}/" in text and other not in text and related is None
        pattern = r"another tenant's work " + (r"#[0-9a-f]{4}" if key else r"\(\d\)")
        assert len(set(re.findall(pattern, text))) == 1
    # Operators see the names where they ask for them.
    (family,) = play.metrics.held_pairs.collect()
    assert {frozenset(each.labels.values()) for each in family.samples} == {
        frozenset(("red/x", "blue/y"))
    }


async def test_a_metric_counts_pairs_and_names_nobody_unless_that_is_asked_for() -> None:
    play = Play({"x": "red", "y": "red"}, named_series=0)
    for number in range(2):
        play.turn(number)
    await play.notices.show(at(300))
    (family,) = play.metrics.held_pairs.collect()
    (sample,) = family.samples
    assert (sample.labels, sample.value) == ({"first": "other", "second": "other"}, 2.0)
    await play.notices.show(at(2 * 3_600))
    assert samples(play.metrics.held_pairs) == []


async def test_a_pair_that_comes_and_goes_is_told_once_for_each_hold(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As where a family takes in others and is called by another name."""
    play = Play({"x": "red", "y": "red"})
    for number in range(2):
        play.turn(number)
    for second in range(10):
        await play.notices.show(at(300 + second))
        with monkeypatch.context() as without:
            without.setattr(play.governor, "held", lambda now: {})
            await play.notices.show(at(300 + second))
    said = [each for each in caplog.messages if "does not preempt" in each]
    # Each of the two is held from the other.
    assert len(said) == len(set(said)) == 2, said
    assert sorted(play.about(PAIR_HELD)) == ["x", "x", "y", "y"]


async def test_within_a_namespace_both_are_named_and_related() -> None:
    play = Play({"x": "red", "y": "red"})
    for number in range(2):
        play.turn(number)
    await play.notices.show(at(300))
    pairs = [each for each in play.events.written if each[1] == PAIR_HELD]
    assert pairs
    for about, _, text, related in pairs:
        assert "red/x" in text and "red/y" in text
        assert related is not None and {about.name, related.name} == {"x", "y"}
    assert not any("another tenant" in text for _, _, text, _ in play.events.written)


async def test_a_pair_is_named_once_its_displacements_are_recorded() -> None:
    play = Play({"x": "red", "y": "red"})
    for number in range(2):
        play.turn(number)
    pair = Lineage("x"), Lineage("y")
    play.notices.issued(pair)
    await play.notices.show(at(300))
    assert play.about(PAIR_HELD) == []
    play.notices.written(pair)
    await play.notices.show(at(300))
    assert set(play.about(PAIR_HELD)) == {"x", "y"}


async def test_work_that_comes_back_is_named_by_its_new_object() -> None:
    play = Play({"x": "red", "y": "red"})
    new = Reference("v1", "Pod", "red", "x-2", Uid("x-2-uid"))
    play.notices.again(displaced(0, "y", "x").victim, new)
    play.notices.again(displaced(0, "y", "z").victim, new)  # takes part in nothing
    for number in range(2):
        play.turn(number)
    await play.notices.show(at(300))
    assert play.about(LOOP) == ["x-2", "y"]


async def test_what_is_displaced_in_vain_is_named_and_no_loop() -> None:
    policy = GovernorPolicy(enforcement=Enforcement.ALL)
    play = Play({"x": "red", "y": "red"}, policy=policy)
    for number in range(2):
        play.governor.record(displaced(60 * number, "x", "y", above=1))
    await play.notices.show(at(300))
    assert play.about(LOOP) == [] and set(play.about(PAIR_HELD)) == {"x", "y"}
    assert all("(without gain)" in text for *_, text, _ in play.events.written)
    # Only one of them preempts: nobody says that they preempted each other.
    said = "red/x preempted red/y 2 times within 1h0m0s and got nothing of it: "
    assert all(text.startswith(said) for *_, text, _ in play.events.written)


@pytest.mark.parametrize("members", ["xy", "xyz"])
async def test_only_two_that_both_preempted_are_said_to_have_preempted_each_other(
    members: str,
) -> None:
    """A strictly higher priority is never preempted by the lower one, and not said to be."""
    play = Play(dict.fromkeys(members, "red"))
    for number in range(2):
        play.turn(number)
    await play.notices.show(at(60 * 2 * len(members)))
    told = [text for _, reason, text, _ in play.events.written if reason == PAIR_HELD]
    mutual = [text for text in told if "preempted each other 2 and 2 times" in text]
    assert told and len(mutual) == (len(told) if members == "xy" else 0), told
    circle = [text for text in told if "2 times within 1h0m0s in a circle of several" in text]
    assert bool(circle) == (members == "xyz"), told


async def test_a_pod_of_a_loop_says_so_in_its_condition_for_as_long_as_it_is_in_one() -> None:
    async with memory() as cluster:
        cluster.nodes([4])
        governor, plane_of = Governor(), (Actor.QUOTA, Actor.SCHEDULING)
        now = cluster.clock.wall()
        for number in range(4):
            names = ("owner/a", "owner/b") if number % 2 else ("owner/b", "owner/a")
            row = displaced(0, *names, actor=plane_of[number % 2], lost_device_seconds=1_800)
            governor.record(replace(row, at=Nanos(now - (4 - number) * MINUTE)))
        cluster.running(pod("full", 4, priority="high"), "node-0")
        plane = cluster.start(governor=governor)
        gone = Reference("v1", "Pod", NAMESPACE, "a-1", Uid("a-1"))
        plane.loops.remember(Lineage("owner/a"), gone)
        plane.loops.remember(Lineage("owner/b"), replace(gone, namespace="blue", name="secret"))
        cluster.create(owned(pod("a-2", 4, priority="low"), "a"))
        cluster.create(owned(pod("other", 4, priority="low"), "c"))

        def said(name: str) -> str:
            return str(cluster.condition(cluster.pod(name), "PodScheduled"))

        await cluster.until(lambda: " -> " in said("a-2"))
        assert "4 displacements in 3m0s, 2.0 device-hours lost" in said("a-2")
        assert f"{NAMESPACE}/a-2" in said("a-2") and "secret" not in said("a-2")
        assert " -> " not in said("other")
        # Who comes back is told as well as who is there.
        (event,) = cluster.events(LOOP)[:1]
        assert event["regarding"]["name"] in ("a-2", "secret")
        assert {each["regarding"]["name"] for each in cluster.events(LOOP)} == {"a-2", "secret"}


def test_a_gpu_workload_says_its_loop_in_a_condition_and_when_it_is_over() -> None:
    first = with_loop([], "a -> b -> a", at(0))
    assert [(each.type, each.status, each.message) for each in first] == [
        (LOOP, "True", "a -> b -> a")
    ]
    assert with_loop(first, "a -> b -> a", at(1)) is first
    over = with_loop(first, "", at(2))
    assert [(each.type, each.status, each.message) for each in over] == [(LOOP, "False", "")]
    assert with_loop(over, "", at(3)) is over and with_loop([], "", at(0)) == []
