"""Trees of pod groups in the plane: placed, preempting and preempted as one, and told."""

from __future__ import annotations

from typing import Any

import msgspec

from kubeworld.units.durations import SECOND
from reprieve.answers.preemptions.recorded import differences
from reprieve.api.reprieve import Preemption
from reprieve.engine.scheduling.session import GROUP_POST_FILTERS
from reprieve.planes.scheduling.plane import SchedulingPlane
from reprieve.records.scheduling.replay import decide_scheduling_again
from tests.scheduling.memory import Memory, memory
from tests.scheduling.site import NAMESPACE, Object, composite, group, pod

POD_GROUP = "PodGroupInitiallyScheduled"
COMPOSITE = "CompositePodGroupInitiallyScheduled"
_GATE = {"featureGates": {"CompositePodGroup": True}}


def start(cluster: Memory, **options: Any) -> SchedulingPlane:
    """Start a plane that schedules trees."""
    return cluster.start(section={**_GATE, **options})


def tree(priority: str, cpu: int, mode: str = "single", name: str = "tree") -> list[Object]:
    """A root over a gang of two and a composite group over one of one, each pod with so many."""
    return [
        composite(name, min_count=2, priority=priority, mode=mode),
        composite(f"{name}-middle", min_count=1, priority=priority, parent=name),
        group(f"{name}-a", min_count=2, priority=priority, parent=name),
        group(f"{name}-b", min_count=1, priority=priority, parent=f"{name}-middle"),
        *(pod(f"{name}-a-{n}", cpu, group=f"{name}-a", priority=priority) for n in range(2)),
        pod(f"{name}-b-0", cpu, group=f"{name}-b", priority=priority),
    ]


def told(cluster: Memory, name: str = "tree") -> list[tuple[str, str, str]]:
    """Return the conditions of the groups of a tree, from the root down."""
    return [
        cluster.condition(cluster.composite(name), COMPOSITE),
        cluster.condition(cluster.composite(f"{name}-middle"), COMPOSITE),
        cluster.condition(cluster.group(f"{name}-a"), POD_GROUP),
        cluster.condition(cluster.group(f"{name}-b"), POD_GROUP),
    ]


def run(cluster: Memory, objects: list[Object], node: str) -> None:
    """Create objects, the pods of which run on a node."""
    for each in objects:
        if each["kind"] == "Pod":
            cluster.running(each, node)
        else:
            cluster.create(each)


async def test_a_tree_preempts_a_tree_that_goes_as_a_whole_and_every_group_is_told() -> None:
    async with memory() as cluster:
        cluster.nodes([4])
        run(cluster, tree("low", 1, mode="all", name="low"), "node-0")
        cluster.create(*tree("high", 1))
        start(cluster)
        await cluster.until(lambda: len(cluster.victims()) == 3)
        assert cluster.planned() == {"low-a-0", "low-a-1", "low-b-0"}
        (intent,) = cluster.intents()
        preemptor = intent["spec"]["preemptor"]
        assert (preemptor["kind"], preemptor["name"]) == ("CompositePodGroup", "tree")
        uid = cluster.composite("tree")["metadata"]["uid"]
        assert {event["note"] for event in cluster.events("Preempted")} == {
            f"Preempted by compositepodgroup {uid} on node cluster"
        }
        states = told(cluster)
        assert {(status, reason) for status, reason, _ in states} == {("False", "Unschedulable")}
        assert cluster.nominated() == dict.fromkeys(("tree-a-0", "tree-a-1", "tree-b-0"), "node-0")
        cluster.end_all()
        await cluster.until(lambda: len(cluster.placed()) == 3)
        await cluster.until(lambda: told(cluster)[0][0] == "True")
        assert told(cluster) == [("True", "Scheduled", "")] * 4


async def test_the_record_of_a_trees_plan_gives_the_plan_again() -> None:
    async with memory() as cluster:
        cluster.nodes([3, 3])
        run(cluster, tree("low", 1, mode="all", name="low"), "node-0")
        run(cluster, [pod("single", 1, priority="low")], "node-1")
        cluster.create(*tree("high", 2))
        start(cluster, compositePriority="Nearest")
        await cluster.until(lambda: cluster.condition(cluster.composite("tree"), COMPOSITE)[0])
        cluster.create(composite("other", priority="high"))
        cluster.create(group("other-a", min_count=3, priority="high", parent="other"))
        cluster.create(
            *(pod(f"other-{n}", 1, group="other-a", priority="high") for n in range(5)),
        )
        await cluster.until(cluster.intents)
        for intent in cluster.intents():
            record = msgspec.convert(intent, Preemption)
            replay = decide_scheduling_again(record.spec.input or {}, GROUP_POST_FILTERS)
            assert replay.plan is not None
            assert replay.plan.id == record.spec.plan_id
            assert differences(record.spec, replay) == ""


async def test_a_tree_waits_for_its_groups_and_its_minimum() -> None:
    async with memory() as cluster:
        cluster.nodes([8])
        root, middle, first, second, *pods = tree("high", 1)
        cluster.create(first, second, *pods)
        start(cluster)
        for above in (root, middle):
            await cluster.pass_time(5 * SECOND)
            assert cluster.placed() == {}, f"{above['metadata']['name']} is not there"
            cluster.create(above)
        await cluster.until(lambda: len(cluster.placed()) == 3)
        assert told(cluster) == [("True", "Scheduled", "")] * 4


async def test_a_child_left_out_is_told_why_and_comes_when_there_is_room() -> None:
    async with memory() as cluster:
        cluster.nodes([3])
        cluster.running(pod("beside", 1, priority="high"), "node-0")
        cluster.create(
            composite("tree", min_count=1, priority="high"),
            group("a", min_count=2, priority="high", parent="tree"),
            group("b", min_count=1, priority="high", parent="tree"),
            *(pod(f"a-{n}", 1, group="a", priority="high") for n in range(2)),
            pod("b-0", 1, group="b", priority="high"),
        )
        start(cluster)
        await cluster.until(lambda: len(cluster.placed()) == 3)
        await cluster.until(lambda: cluster.condition(cluster.composite("tree"), COMPOSITE)[0])
        assert cluster.condition(cluster.composite("tree"), COMPOSITE)[0] == "True"
        assert cluster.condition(cluster.group("b"), POD_GROUP)[:2] == ("False", "Unschedulable")
        cluster.end("beside")
        await cluster.until(lambda: "b-0" in cluster.placed())
        await cluster.until(lambda: cluster.condition(cluster.group("b"), POD_GROUP)[0] == "True")


async def test_the_next_plane_goes_on_after_a_crash_between_two_deletions() -> None:
    async with memory() as cluster:
        cluster.nodes([3])
        run(cluster, tree("low", 1, mode="all", name="low"), "node-0")
        cluster.create(*tree("high", 1))
        start(cluster)
        seen: list[str] = []

        def die(verb: str, where: Any) -> None:
            if verb == "delete" and where.kind == "pods":
                seen.append(where.name)
                if len(seen) == 2:
                    cluster.kill()

        cluster.api.after = die
        await cluster.until(lambda: cluster.dead)
        cluster.api.after = lambda verb, where: None
        start(cluster)

        def over() -> bool:
            cluster.end_all()
            return len(cluster.placed()) == 3 and "tree-a-0" in cluster.placed()

        await cluster.until(over)
        assert cluster.api.deleted == dict.fromkeys(("low-a-0", "low-a-1", "low-b-0"), 1)
        assert told(cluster) == [("True", "Scheduled", "")] * 4


async def test_nobody_goes_for_a_tree_whose_root_went_while_nobody_led() -> None:
    async with memory() as cluster:
        cluster.nodes([3])
        run(cluster, tree("low", 1, mode="all", name="low"), "node-0")
        cluster.create(*tree("high", 1))
        start(cluster)

        def die(verb: str, where: Any) -> None:
            if verb == "patch" and where.kind == "pods" and where.name.startswith("low"):
                cluster.kill()

        cluster.api.after = die
        await cluster.until(lambda: cluster.dead)
        assert cluster.condition(cluster.pod("low-a-0"), "DisruptionTarget")[0] == "True"
        cluster.api.after = lambda verb, where: None
        cluster.api.remove("compositepodgroups.scheduling.k8s.io", NAMESPACE, "tree")
        start(cluster)
        await cluster.pass_time(60 * SECOND)
        assert cluster.victims() == set()
        for name in ("low-a-0", "low-a-1", "low-b-0"):
            assert cluster.condition(cluster.pod(name), "DisruptionTarget")[0] != "True"


async def test_with_the_gate_off_groups_are_scheduled_alone() -> None:
    async with memory() as cluster:
        cluster.nodes([8])
        _, _, first, _, *pods = tree("high", 1)
        cluster.create(first, *pods[:2])
        cluster.start()
        await cluster.until(lambda: len(cluster.placed()) == 2)
        assert cluster.condition(cluster.group("tree-a"), POD_GROUP)[0] == "True"
