"""Victims that ask for notice: told, heard, released, pardoned, over a clock turned by hand.

One node is filled by `old`, which is in the way of `new`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from kubeworld.units.durations import MINUTE, SECOND
from kubeworld.units.instants import parse_instant
from reprieve.engine.cluster.rows import Kind
from reprieve.engine.disruptions.questions import GovernorPolicy
from reprieve.engine.notice.credit import UNKNOWN
from reprieve.engine.notice.granting import NoticePolicy
from reprieve.execution.notices import Notices, Notified
from tests.kube.fakes import FakeAnswer, refusal
from tests.scheduling.memory import Memory, Target, memory
from tests.scheduling.queues import in_queue, queued
from tests.scheduling.site import Object, composite, group, pod

ALLOWED = {"notice": {"max": "10m"}}


def asking(name: str, cpu: int = 4, notice: str = "1m", **facts: Any) -> Object:
    found = pod(name, cpu, priority="low", **facts)
    found["metadata"]["annotations"] = {"reprieve.dev/notice": notice}
    return found


def notices(cluster: Memory, plane: int = -1) -> Notices:
    return cluster.planes[plane].preemptions.notices


def told(cluster: Memory, name: str) -> Notified | None:
    return notices(cluster).of_pod(cluster.pod(name)["metadata"]["uid"])


def report_saved(cluster: Memory, *names: str) -> None:
    for name in names:
        notice = told(cluster, name)
        assert notice is not None
        notices(cluster).saved(notice, cluster.pod(name)["metadata"]["uid"])


async def filled(cluster: Memory, *olds: Object, section: Any = ALLOWED) -> None:
    cluster.nodes([4] * len(olds))
    for number, old in enumerate(olds):
        cluster.running(old, f"node-{number}")
    cluster.start(section=section)
    await cluster.pass_time(SECOND)


async def asked_for_room(cluster: Memory) -> None:
    cluster.create(pod("new", 4, priority="high"))
    await cluster.until(cluster.intents)
    await cluster.pass_time(SECOND)


def withheld(cluster: Memory) -> str | None:
    """Return why the only victim of the first record got no notice."""
    (victim,) = cluster.intents()[0]["spec"]["victims"]
    reason: str | None = victim.get("noticeWithheld")
    return reason


def counted(cluster: Memory, end: str) -> float:
    labels = {"plane": "scheduling", "end": end}
    registry = cluster.planes[0].context.metrics.registry
    return registry.get_sample_value("reprieve_notices_total", labels) or 0.0


async def until_new_runs(cluster: Memory) -> None:
    await cluster.until(lambda: "new" in cluster.placed())


def phases(cluster: Memory) -> list[str]:
    return [intent["status"]["phase"] for intent in cluster.intents()]


async def test_a_victim_that_stays_silent_goes_at_its_deadline_and_not_before() -> None:
    async with memory() as cluster:
        await filled(cluster, asking("old"))
        start = cluster.clock.wall()

        await asked_for_room(cluster)
        (intent,) = cluster.intents()
        deadline = parse_instant(intent["spec"]["victims"][0]["notice"]["deadline"])
        assert MINUTE <= deadline - start <= MINUTE + 2 * SECOND
        assert phases(cluster) == ["Noticed"]
        await cluster.pass_time(deadline - cluster.clock.wall() - 1)
        assert not cluster.victims()
        assert phases(cluster) == ["Noticed"]
        await cluster.pass_time(2)

        assert cluster.victims() == {"old"}
        assert phases(cluster) == ["Evicting"]
        cluster.end_all()
        await cluster.until(lambda: "new" in cluster.placed())
        await cluster.until(lambda: phases(cluster) == ["Completed"])
        assert counted(cluster, "unheard") == 1


async def test_a_victim_that_has_saved_goes_at_once() -> None:
    async with memory() as cluster:
        await filled(cluster, asking("old", notice="10m"))
        await asked_for_room(cluster)

        report_saved(cluster, "old")
        await cluster.settle()

        assert cluster.victims() == {"old"}
        cluster.end_all()
        await cluster.until(lambda: "new" in cluster.placed())


async def test_a_unit_waits_for_its_last_speaker() -> None:
    async with memory() as cluster:
        cluster.create(group("old", min_count=2, mode="all", priority="low"))
        await filled(cluster, *(asking(f"old-{i}", group="old") for i in range(2)))
        await asked_for_room(cluster)

        report_saved(cluster, "old-0")
        await cluster.pass_time(MINUTE // 2)
        assert not cluster.victims()
        report_saved(cluster, "old-1")
        await cluster.settle()

        assert cluster.victims() == {"old-0", "old-1"}


async def test_where_a_pod_speaks_for_its_unit_the_others_are_not_waited_for() -> None:
    async with memory() as cluster:
        cluster.create(group("old", min_count=2, mode="all", priority="low"))
        olds = [asking(f"old-{i}", group="old") for i in range(2)]
        olds[1]["metadata"]["annotations"]["reprieve.dev/notice-speaker"] = "true"
        await filled(cluster, *olds)
        await asked_for_room(cluster)

        report_saved(cluster, "old-0")
        await cluster.pass_time(SECOND)
        assert not cluster.victims()
        report_saved(cluster, "old-1")
        await cluster.settle()

        assert cluster.victims() == {"old-0", "old-1"}


async def test_a_victim_is_pardoned_when_its_preemptor_goes_away() -> None:
    async with memory() as cluster:
        await filled(cluster, asking("old"))
        await asked_for_room(cluster)

        cluster.end("new")
        await cluster.until(lambda: phases(cluster) == ["Abandoned"])

        assert told(cluster, "old") is None
        await cluster.pass_time(2 * MINUTE)
        assert not cluster.victims()
        assert counted(cluster, "pardoned") == 1


async def test_a_victim_is_pardoned_when_its_preemptor_fits_elsewhere() -> None:
    async with memory() as cluster:
        await filled(cluster, asking("old"), pod("other", 4, priority="high"))
        await asked_for_room(cluster)

        cluster.end("other")
        await cluster.until(lambda: "new" in cluster.placed(), 30 * SECOND)

        assert phases(cluster) == ["Abandoned"]
        assert cluster.placed() == {"old": "node-0", "new": "node-1"}
        await cluster.pass_time(2 * MINUTE)
        assert not cluster.victims()


async def test_room_that_is_claimed_is_nobody_elses() -> None:
    async with memory() as cluster:
        await filled(cluster, asking("old", notice="2m"))
        await asked_for_room(cluster)
        await cluster.pass_time(90 * SECOND)

        cluster.create(pod("late", 4, priority="low"))
        await cluster.pass_time(SECOND)
        cluster.end("old")
        await cluster.until(lambda: "new" in cluster.placed())

        assert "late" not in cluster.placed()


async def test_another_preemptor_looks_for_other_victims_while_these_save() -> None:
    async with memory() as cluster:
        await filled(cluster, *(asking(f"old-{i}") for i in range(2)))
        await asked_for_room(cluster)
        await cluster.pass_time(20 * SECOND)

        cluster.create(pod("second", 4, priority="high"))
        await cluster.until(lambda: len(cluster.intents()) == 2)
        await cluster.until(lambda: len(cluster.victims()) == 2)

        cluster.end_all()
        await cluster.until(lambda: {"new", "second"} <= cluster.placed().keys())
        assert len(cluster.planned()) == 2


@pytest.mark.parametrize(
    ("allowed", "urgent", "earlier"),
    [(20 * SECOND, False, False), (0, False, False), (20 * SECOND, True, True)],
)
async def test_a_second_plan_for_a_victim_does_not_come_before_the_deadline_it_was_told(
    allowed: int, urgent: bool, earlier: bool
) -> None:
    async with memory() as cluster:
        await filled(cluster, asking("old", notice="2m"))
        cluster.create(pod("new", 4, priority="middle"))
        await cluster.until(cluster.intents)
        deadline = parse_instant(cluster.intents()[0]["spec"]["victims"][0]["notice"]["deadline"])
        plane = cluster.planes[0]
        vars(plane.context.governor)["policy"] = GovernorPolicy(
            emergency_priority=100_000 if urgent else None
        )
        # Less is allowed from now on.
        settings = replace(plane.context.settings, notice=NoticePolicy(allowed))
        object.__setattr__(plane.context, "settings", settings)

        cluster.create(pod("urgent", 4, priority="high"))
        await cluster.until(cluster.victims, 3 * MINUTE)

        assert (cluster.clock.wall() < deadline) is earlier
        cluster.end_all()
        await cluster.until(lambda: "urgent" in cluster.placed())


async def test_a_new_leader_takes_the_deadline_over_and_grants_none() -> None:
    async with memory() as cluster:
        await filled(cluster, asking("old"))
        await asked_for_room(cluster)
        (before,) = cluster.intents()
        deadline = parse_instant(before["spec"]["victims"][0]["notice"]["deadline"])
        await cluster.pass_time(MINUTE // 2)
        await cluster.stop()

        cluster.start(section=ALLOWED)
        await cluster.pass_time(deadline - cluster.clock.wall() - 1)
        assert not cluster.victims()
        assert [intent["spec"] for intent in cluster.intents()] == [before["spec"]]
        await cluster.pass_time(2 * SECOND)

        assert cluster.victims() == {"old"}
        cluster.end_all()
        await cluster.until(lambda: "new" in cluster.placed())
        assert len(cluster.intents()) == 1


async def test_a_leader_that_comes_after_the_deadline_evicts_at_once() -> None:
    async with memory() as cluster:
        await filled(cluster, asking("old"))
        await asked_for_room(cluster)
        await cluster.stop()
        await cluster.pass_time(2 * MINUTE)

        cluster.start(section=ALLOWED)
        await cluster.until(cluster.victims, 10 * SECOND)

        assert cluster.victims() == {"old"}


async def test_nobody_is_told_where_no_notice_is_allowed() -> None:
    async with memory() as cluster:
        await filled(cluster, asking("old"), section={})
        await asked_for_room(cluster)

        assert cluster.victims() == {"old"}
        assert not {"notice", "noticeWithheld"} & {*cluster.intents()[0]["spec"]["victims"][0]}


async def test_a_preemptor_of_emergency_priority_does_not_wait() -> None:
    async with memory() as cluster:
        cluster.nodes([4])
        cluster.running(asking("old"), "node-0")
        plane = cluster.start(section=ALLOWED)
        governor = plane.context.governor
        vars(governor)["policy"] = governor.policy.__class__(emergency_priority=1)
        await asked_for_room(cluster)

        assert cluster.victims() == {"old"} and withheld(cluster) == "Emergency"


def with_devices(made: Object) -> Object:
    """Return a pod that requests four GPUs, too."""
    made["spec"]["containers"][0]["resources"]["requests"]["nvidia.com/gpu"] = "4"
    return made


@pytest.mark.parametrize("minutes", [0, 30])
async def test_with_harm_order_the_record_states_that_a_victim_has_too_little_to_save(
    minutes: int,
) -> None:
    async with memory() as cluster:
        cluster.nodes([4])
        (node,) = cluster.api.objects["nodes"].values()
        for amounts in node["status"].values():
            amounts["nvidia.com/gpu"] = "4"
        cluster.api.put("nodes", node)
        cluster.running(with_devices(asking("old")), "node-0")
        cluster.start(section={**ALLOWED, "harmOrder": True})
        await cluster.pass_time((minutes * 60 + 1) * SECOND)
        cluster.create(with_devices(pod("new", 4, priority="high")))
        await cluster.until(cluster.intents)

        (victim,) = cluster.intents()[0]["spec"]["victims"]
        assert ("notice" in victim) == bool(minutes)
        assert withheld(cluster) == (None if minutes else "NotWorthIt")


async def test_without_the_annotation_the_record_is_as_it_always_was() -> None:
    async with memory() as cluster:
        await filled(cluster, pod("old", 4, priority="low"))
        await asked_for_room(cluster)

        assert cluster.victims() == {"old"}
        assert not {"notice", "noticeWithheld"} & {*cluster.intents()[0]["spec"]["victims"][0]}
        kinds = [verb for verb, where in cluster.api.writes if where.kind.startswith("preempt")]
        assert kinds == ["post", "patch"]


async def test_a_record_that_cannot_be_written_tells_nobody() -> None:
    async with memory() as cluster:
        await filled(cluster, asking("old"))

        def refused(verb: str, where: Target) -> FakeAnswer | None:
            if verb == "post" and where.kind == "preemptions.reprieve.dev":
                return refusal(403, "Forbidden")
            return None

        cluster.api.before = refused
        cluster.create(pod("new", 4, priority="high"))
        await cluster.pass_time(MINUTE)

        assert told(cluster, "old") is None
        assert not cluster.intents()
        assert not cluster.victims()


async def test_a_process_that_dies_at_any_write_evicts_nobody_before_the_deadline() -> None:
    for number in range(1, 4):
        async with memory() as cluster:
            await filled(cluster, asking("old"))
            start, left = cluster.clock.wall(), number

            def killed(verb: str, where: Target, cluster: Memory = cluster) -> FakeAnswer | None:
                nonlocal left
                if where.kind == "preemptions.reprieve.dev" and not cluster.dead:
                    left -= 1
                    if not left:
                        cluster.kill(0)
                return None

            cluster.api.after = killed
            cluster.create(pod("new", 4, priority="high"))
            await cluster.pass_time(50 * SECOND)
            assert not cluster.victims(), f"dead at write {number}"
            if not cluster.dead:
                await cluster.until(partial(getattr, cluster, "dead"), 20 * SECOND)
            cluster.start(section=ALLOWED)
            await cluster.until(cluster.victims)

            assert MINUTE <= cluster.clock.wall() - start <= 2 * MINUTE
            assert len(cluster.intents()) == 1
            cluster.end_all()
            await until_new_runs(cluster)


TREES = {**ALLOWED, "featureGates": {"CompositePodGroup": True}}


def tree() -> list[Object]:
    """Two groups of a pod each, which are placed together or not at all."""
    return [
        composite("tree", min_count=2, priority="high"),
        group("tree-a", min_count=1, priority="high", parent="tree"),
        group("tree-b", min_count=1, priority="high", parent="tree"),
        pod("tree-a-0", 4, group="tree-a", priority="high"),
        pod("tree-b-0", 4, group="tree-b", priority="high"),
    ]


@pytest.mark.parametrize("again", [False, True])
async def test_a_tree_of_groups_waits_for_its_victims_and_gets_its_room(again: bool) -> None:
    async with memory() as cluster:
        olds = [asking(f"old-{i}") for i in range(2)]
        await filled(cluster, *olds, pod("other", 4, priority="high"), section=TREES)
        cluster.create(*tree())
        await cluster.until(cluster.intents)
        if again:
            await cluster.stop()
            cluster.start(section=TREES)
        await cluster.pass_time(15 * SECOND)
        cluster.end("other")  # room for one of both groups
        await cluster.pass_time(15 * SECOND)
        assert phases(cluster) == ["Noticed"]

        report_saved(cluster, "old-0", "old-1")
        await cluster.settle()

        assert cluster.victims() == {"old-0", "old-1"}
        cluster.end_all()
        await cluster.until(lambda: {"tree-a-0", "tree-b-0"} <= cluster.placed().keys())


async def test_a_tree_of_groups_that_fits_by_now_needs_nobody() -> None:
    async with memory() as cluster:
        olds = [asking(f"old-{i}") for i in range(2)]
        others = [pod(f"other-{i}", 4, priority="high") for i in range(2)]
        await filled(cluster, *olds, *others, section=TREES)
        cluster.create(*tree())
        await cluster.until(cluster.intents)
        await cluster.pass_time(SECOND)

        cluster.end("other-0", "other-1")
        await cluster.until(lambda: {"tree-a-0", "tree-b-0"} <= cluster.placed().keys())

        assert phases(cluster) == ["Abandoned"]
        assert not cluster.victims()


KOORDINATOR = "koord-scheduler"


def member(name: str, **said: str) -> Object:
    """A pod of a Koordinator gang of two, whose job preempts."""
    made = pod(name, 4, priority="high", scheduler=KOORDINATOR)
    prefix = "gang.scheduling.koordinator.sh/"
    notes = {"name": "g", "min-available": "2", **said}
    made["metadata"]["annotations"] = {f"{prefix}{key}": text for key, text in notes.items()}
    return made


@pytest.mark.parametrize("again", [False, True])
async def test_a_job_of_an_older_gang_waits_for_its_victims_and_gets_its_room(again: bool) -> None:
    args = {"kind": "CoschedulingArgs", "enablePreemption": True}
    profile = {
        "schedulerName": KOORDINATOR,
        "pluginConfig": [{"name": "Coscheduling", "args": args}],
    }
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [profile],
    }
    section = {**ALLOWED, "configuration": configuration}
    async with memory() as cluster:
        cluster.nodes([4, 4, 4])
        cluster.running(pod("other", 4, priority="high", scheduler=KOORDINATOR), "node-2")
        for number in range(2):
            old = asking(f"old-{number}")
            old["spec"]["schedulerName"] = KOORDINATOR
            cluster.running(old, f"node-{number}")
        cluster.start(section=section)
        cluster.create(member("g-0"), member("g-1"))
        await cluster.until(cluster.intents)
        if again:
            await cluster.stop()
            cluster.start(section=section)
        await cluster.pass_time(15 * SECOND)
        cluster.end("other")  # room for one of both
        await cluster.pass_time(15 * SECOND)
        assert phases(cluster) == ["Noticed"]

        report_saved(cluster, "old-0", "old-1")
        await cluster.settle()

        assert cluster.victims() == {"old-0", "old-1"}
        cluster.end_all()
        await cluster.until(lambda: {"g-0", "g-1"} <= cluster.placed().keys())


def deadlines(cluster: Memory) -> list[str]:
    intents = cluster.intents()
    return [v["notice"]["deadline"] for intent in intents for v in intent["spec"]["victims"]]


@pytest.mark.parametrize("after", [False, True])
async def test_wherever_a_process_dies_a_unit_goes_once_it_has_saved_or_at_its_deadline(
    after: bool,
) -> None:
    for away in (0, 90 * SECOND):
        number, died = 0, True
        while died:
            number += 1
            died = await _dies_at(number, after=after, away=away)
        assert number > 6


async def _dies_at(number: int, *, after: bool, away: int) -> bool:
    """Play a gang that saves after 20 s, with a death at a write; return whether one came.

    The next process comes `away` later, which may be after the deadline.
    """
    async with memory() as cluster:
        cluster.create(group("old", min_count=2, mode="all", priority="low"))
        await filled(cluster, *(asking(f"old-{i}", group="old") for i in range(2)))
        left = number

        def killed(verb: str, where: Target) -> FakeAnswer | None:
            nonlocal left
            if where.kind in ("preemptions.reprieve.dev", "pods") and not cluster.dead:
                left -= 1
                if not left:
                    cluster.kill(0)
            return None

        if after:
            cluster.api.after = killed
        else:
            cluster.api.before = killed
        cluster.create(pod("new", 4, priority="high"))
        await cluster.pass_time(20 * SECOND)
        assert not cluster.victims(), f"write {number}"
        before = deadlines(cluster)
        if not cluster.dead:
            report_saved(cluster, "old-0", "old-1")
        saved, start = cluster.clock.wall(), cluster.clock.wall()
        await cluster.pass_time(5 * SECOND)
        if cluster.dead:
            await cluster.pass_time(away)
            cluster.start(section=ALLOWED)
            start = cluster.clock.wall()
        await cluster.until(lambda: len(cluster.victims()) == 2)
        told = deadlines(cluster)
        deadline = parse_instant(told[0])

        assert cluster.clock.wall() >= saved
        assert cluster.clock.wall() <= max(start, deadline) + 5 * SECOND, f"write {number}"
        assert set(told) == set(told[:1])
        assert not before or told == before, f"write {number}: it was told anew"
        assert len(cluster.intents()) == 1
        assert cluster.api.deleted == {"old-0": 1, "old-1": 1}
        cluster.end_all()
        await cluster.pass_time(2 * SECOND)
        if cluster.dead and len(cluster.planes) == 1:  # it died as it placed the preemptor
            cluster.start(section=ALLOWED)
        await until_new_runs(cluster)
        return cluster.dead


async def test_a_group_asks_where_its_pods_do_not() -> None:
    async with memory() as cluster:
        found = group("old", min_count=1, mode="all", priority="low")
        found["metadata"]["annotations"] = {"reprieve.dev/notice": "2m"}
        cluster.create(found)
        start = cluster.clock.wall()
        await filled(cluster, pod("old", 4, priority="low", group="old"))
        await asked_for_room(cluster)

        (intent,) = cluster.intents()
        deadline = parse_instant(intent["spec"]["victims"][0]["notice"]["deadline"])
        assert 2 * MINUTE <= deadline - start <= 2 * MINUTE + 5 * SECOND


async def test_a_wish_that_cannot_be_read_is_told_to_its_owner() -> None:
    async with memory() as cluster:
        await filled(cluster, asking("old", notice="soon"), asking("fine", notice="1m"))
        await cluster.until(lambda: cluster.events("NoticeIgnored"))
        (told_of,) = cluster.events("NoticeIgnored")
        assert told_of["regarding"]["name"] == "old"
        assert "accepted: durations from 10s to 1h" in told_of["note"]


@pytest.mark.parametrize(("said", "granted"), [("30s", 30), ("0s", 0), ("soon", 0)])
async def test_a_priority_class_allows_less(said: str, granted: int) -> None:
    async with memory() as cluster:
        notes = {"reprieve.dev/notice-max": said}
        low = {"metadata": {"name": "low", "annotations": notes}, "value": 1_000}
        cluster.api.put("priorityclasses.scheduling.k8s.io", low)
        start = cluster.clock.wall()
        await filled(cluster, asking("old"))
        await asked_for_room(cluster)

        (victim,) = cluster.intents()[0]["spec"]["victims"]
        assert ("notice" in victim) == bool(granted)
        assert withheld(cluster) == (None if granted else "NotAllowed")
        if granted:
            left = parse_instant(victim["notice"]["deadline"]) - start
            assert granted * SECOND <= left <= (granted + 5) * SECOND


@pytest.mark.parametrize(
    ("local", "cluster_queue", "granted"), [("30s", "40s", 30), ("1m", "20s", 20), ("0s", "40s", 0)]
)
async def test_the_queues_of_a_victim_allow_less(
    local: str, cluster_queue: str, granted: int
) -> None:
    key = "reprieve.dev/notice-max"
    async with memory() as cluster:
        queued(cluster, local={key: local}, cluster_queue={key: cluster_queue})
        start = cluster.clock.wall()
        await filled(cluster, in_queue(asking("old")))
        await asked_for_room(cluster)

        (victim,) = cluster.intents()[0]["spec"]["victims"]
        assert ("notice" in victim) == bool(granted)
        if granted:
            left = parse_instant(victim["notice"]["deadline"]) - start
            assert granted * SECOND <= left <= (granted + 5) * SECOND


@pytest.mark.parametrize(("saves", "credit"), [(True, 1_000), (False, 0)])
async def test_a_new_leader_knows_how_notices_of_a_lineage_ended(saves: bool, credit: int) -> None:
    weighs = {"notice": {"max": "10m"}, "harmOrder": True}

    def of_job(name: str, **facts: Any) -> Object:
        found = asking(name, **facts)
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "work", "uid": "job-1"}
        found["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
        return found

    async with memory() as cluster:
        await filled(cluster, of_job("old"))
        await asked_for_room(cluster)
        (intent,) = cluster.intents()
        lineage = intent["spec"]["victims"][0]["lineage"]
        assert notices(cluster).credit(lineage) == UNKNOWN
        if saves:
            report_saved(cluster, "old")
        await cluster.until(lambda: cluster.victims() == {"old"})
        cluster.end_all()
        await until_new_runs(cluster)
        await cluster.until(lambda: phases(cluster) == ["Completed"])
        cluster.end("new")
        cluster.running(of_job("again"), "node-0")
        await cluster.pass_time(SECOND)

        await cluster.stop()
        cluster.start(section=weighs)
        await cluster.until(lambda: notices(cluster).ready)

        assert notices(cluster).credit(lineage) == credit
        tables = cluster.planes[-1].state.cluster.snapshot().tables
        rows = tables[Kind.NOTICE].values()
        assert [(row.name, row.credit) for row in rows] == [("again", credit)]
