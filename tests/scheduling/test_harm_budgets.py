"""Harm budgets in the scheduling plane: who is spared, and what the preemptor is told."""

from __future__ import annotations

from typing import Any

from kubeworld.units.durations import HOUR, MINUTE, SECOND
from kubeworld.units.instants import Nanos, format_instant, parse_instant
from reprieve.planes.scheduling.plane import SchedulingPlane
from reprieve.records.harm_sums import part_rows
from reprieve.records.harm_table import harm_rows
from tests.kube.fakes import FakeAnswer
from tests.scheduling.memory import Memory, Target, memory
from tests.scheduling.site import NAMESPACE, Object, group, pod
from tests.scheduling.test_notice import ALLOWED, asking, report_saved

GPU = "nvidia.com/gpu"


def budget(name: str = "batch-day", **spec: Any) -> Object:
    """Return a HarmBudget of two displacements within 20 minutes for each tenant."""
    found = {"limits": {"displacements": 2}, "window": "20m", **spec}
    return {"metadata": {"name": name}, "spec": found}


def put(cluster: Memory, obj: Object) -> None:
    """Store a budget."""
    cluster.api.put("harmbudgets.reprieve.dev", obj)


async def started(cluster: Memory) -> SchedulingPlane:
    """Start a plane that follows budgets."""
    plane = cluster.start(budgets=True)
    await cluster.until(lambda: plane.context.governor.harm)
    return plane


async def displaced(cluster: Memory, number: int) -> None:
    """Let one pod run and another one displace it, which then ends."""
    cluster.running(pod(f"victim-{number}", 4, priority="low"), "node-0")
    cluster.create(pod(f"urgent-{number}", 4, priority="high"))
    await cluster.until(lambda: cluster.victims() == {f"victim-{number}"})
    cluster.end_all()
    await cluster.until(lambda: f"urgent-{number}" in cluster.placed())
    cluster.end(f"urgent-{number}")
    await cluster.pass_time(MINUTE)


def told(cluster: Memory, name: str) -> str:
    """Return the condition of a pod that waits."""
    return str(cluster.condition(cluster.pod(name), "PodScheduled"))


async def test_a_third_displacement_is_held_and_passes_when_the_window_has_passed() -> None:
    async with memory() as cluster:
        cluster.nodes([4])
        put(cluster, budget())
        plane = await started(cluster)
        await displaced(cluster, 0)
        first = cluster.clock.wall()
        await displaced(cluster, 1)
        cluster.running(pod("spared", 4, priority="low"), "node-0")
        cluster.create(pod("waits", 4, priority="high"))
        await cluster.until(lambda: "harm budget batch-day is used up" in told(cluster, "waits"))
        assert not cluster.victims()
        free = told(cluster, "waits").split(" before ")[1].split(": ")[0]
        assert first + 15 * MINUTE <= parse_instant(free) <= first + 25 * MINUTE
        found = plane.diagnosis("Pod", NAMESPACE, "waits")
        assert found is not None
        assert found.refused == {"harm budget batch-day": 1}
        assert found.earliest == parse_instant(free)
        await cluster.pass_time(MINUTE)
        assert cluster.metric("reprieve_harm_budget_exhausted", budget="batch-day") == 1
        await cluster.pass_time(parse_instant(free) - cluster.clock.wall() - MINUTE)
        assert not cluster.victims()
        await cluster.until(lambda: cluster.victims() == {"spared"}, most=3 * MINUTE)
        assert cluster.clock.wall() >= parse_instant(free)


async def test_a_schedule_holds_within_its_windows_alone() -> None:
    async with memory() as cluster:
        cluster.nodes([4])
        spec: Any = {"schedule": "0,30 * * * *", "duration": "10m", "window": None}
        put(cluster, budget(**spec, limits={"displacements": 0}))
        await started(cluster)
        began = cluster.clock.wall() // (30 * MINUTE) * 30 * MINUTE + 30 * MINUTE
        await cluster.pass_time(12 * MINUTE)
        await displaced(cluster, 0)
        await cluster.pass_time(began + SECOND - cluster.clock.wall())
        cluster.running(pod("spared", 4, priority="low"), "node-0")
        cluster.create(pod("waits", 4, priority="high"))
        await cluster.until(lambda: "harm budget batch-day is used up" in told(cluster, "waits"))
        assert f"before {format_instant(Nanos(began + 10 * MINUTE))}" in told(cluster, "waits")
        await cluster.pass_time(began + 10 * MINUTE - SECOND - cluster.clock.wall())
        assert not cluster.victims()
        await cluster.until(lambda: cluster.victims() == {"spared"}, most=3 * MINUTE)


def status(cluster: Memory, name: str = "batch-day") -> Object:
    """Return the status of a budget."""
    found: Object = cluster.api.objects["harmbudgets.reprieve.dev"]["", name].get("status") or {}
    return found


def status_writes(cluster: Memory) -> int:
    """Return how often statuses of budgets were written."""
    return sum(where.kind == "harmbudgets.reprieve.dev" for _, where in cluster.api.writes)


async def test_the_status_says_what_is_used_and_is_written_once_for_each_change() -> None:
    async with memory() as cluster:
        cluster.nodes([4])
        put(cluster, budget())
        plane = await started(cluster)
        await cluster.pass_time(30 * SECOND)
        assert status(cluster) == {
            "window": "20m",
            "accounts": 0,
            "exhausted": 0,
            "used": [],
            "conditions": status(cluster)["conditions"],
        }
        accepted, exhausted = status(cluster)["conditions"]
        assert (accepted["type"], accepted["status"]) == ("Accepted", "True")
        assert (exhausted["type"], exhausted["status"]) == ("Exhausted", "False")
        assert accepted["observedGeneration"] == 1
        await displaced(cluster, 0)
        (use,) = status(cluster)["used"]
        assert (use["of"], use["displacements"], use.get("freeAt")) == (NAMESPACE, 1, None)
        await displaced(cluster, 1)
        (use,) = status(cluster)["used"]
        (known,) = plane.context.governor.harm.used("batch-day", cluster.clock.wall())
        assert known.free_at is not None
        assert (use["displacements"], use["freeAt"]) == (2, format_instant(known.free_at))
        assert status(cluster)["exhausted"] == 1
        accepted, exhausted = status(cluster)["conditions"]
        assert (exhausted["status"], exhausted["reason"]) == ("True", "LimitReached")
        assert exhausted["message"] == f"no further displacement fits: {NAMESPACE}"
        written = status_writes(cluster)
        assert written == 3
        await cluster.pass_time(known.free_at - cluster.clock.wall() - 2 * SECOND)
        assert status_writes(cluster) == written
        await cluster.pass_time(30 * SECOND)
        assert status(cluster)["exhausted"] == 0
        assert status_writes(cluster) == written + 1
        # Another process reads the same, and has nothing to write.
        await cluster.stop()
        await started(cluster)
        await cluster.pass_time(30 * SECOND)
        assert status_writes(cluster) == written + 1


async def test_the_status_says_what_is_not_accepted_of_a_budget() -> None:
    async with memory() as cluster:
        cluster.nodes([4])
        put(cluster, budget("odd", schedule="0 25 * * *", duration="1h", window=None))
        put(cluster, budget())
        await started(cluster)
        await cluster.pass_time(30 * SECOND)
        accepted, _ = status(cluster, "odd")["conditions"]
        assert (accepted["status"], accepted["reason"]) == ("False", "Invalid")
        assert accepted["message"] == (
            "spec.schedule: hour '25'; accepted: 0 to 23, with *, lists, ranges and steps"
        )
        assert status_writes(cluster) == 2
        put(cluster, budget("odd", schedule="0 23 * * *", duration="1h", window=None))
        await cluster.pass_time(30 * SECOND)
        accepted, _ = status(cluster, "odd")["conditions"]
        assert (accepted["status"], accepted["reason"]) == ("True", "Accepted")
        assert status(cluster, "odd")["window"] == "0 23 * * * UTC for 1h"


async def test_another_victim_is_looked_for() -> None:
    async with memory() as cluster:
        cluster.nodes([4, 4])
        metadata = {"name": NAMESPACE, "labels": {"tier": "batch"}}
        cluster.api.put("namespaces", {"metadata": metadata})
        put(
            cluster,
            budget(
                limits={"displacements": 0},
                selector={"namespaces": {"matchLabels": {"tier": "batch"}}, "priorityBelow": 5000},
            ),
        )
        await started(cluster)
        cluster.running(pod("spared", 4, priority="low"), "node-0")
        cluster.running(pod("other", 4, priority="middle"), "node-1")
        cluster.create(pod("urgent", 4, priority="high"))
        await cluster.until(cluster.victims)
        assert cluster.victims() == {"other"}


async def test_a_plan_of_several_victims_takes_from_a_budget_as_a_whole_or_not_at_all() -> None:
    async with memory() as cluster:
        cluster.nodes([4])
        put(cluster, budget(limits={"displacements": 1}))
        await started(cluster)
        for number in range(2):
            cluster.running(pod(f"small-{number}", 2, priority="low"), "node-0")
        cluster.create(pod("urgent", 4, priority="high"))
        await cluster.until(lambda: "harm budget" in told(cluster, "urgent"))
        assert not cluster.victims()
        # Half of the room is one displacement.
        cluster.create(pod("half", 2, priority="high"))
        await cluster.until(cluster.victims)
        assert len(cluster.victims()) == 1


async def test_an_exempt_priority_passes_and_counts() -> None:
    async with memory() as cluster:
        cluster.nodes([4])
        put(cluster, budget(limits={"displacements": 0}, exempt={"priorityFrom": 100_000}))
        plane = await started(cluster)
        await displaced(cluster, 0)
        (use,) = plane.context.governor.harm.used("batch-day", cluster.clock.wall())
        assert (use.account, use.displacements) == (NAMESPACE, 1)
        cluster.running(pod("spared", 4, priority="low"), "node-0")
        cluster.create(pod("waits", 4, priority="middle"))
        await cluster.until(lambda: "harm budget" in told(cluster, "waits"))
        assert not cluster.victims()


async def test_a_restart_knows_what_records_say() -> None:
    async with memory() as cluster:
        cluster.nodes([4])
        put(cluster, budget())
        await started(cluster)
        await displaced(cluster, 0)
        await displaced(cluster, 1)
        await cluster.stop()
        plane = await started(cluster)
        cluster.running(pod("spared", 4, priority="low"), "node-0")
        cluster.create(pod("waits", 4, priority="high"))
        await cluster.until(lambda: "harm budget" in told(cluster, "waits"))
        assert not cluster.victims()
        (use,) = plane.context.governor.harm.used("batch-day", cluster.clock.wall())
        assert use.displacements == 2


async def test_a_group_that_goes_as_a_whole_counts_once() -> None:
    async with memory() as cluster:
        cluster.nodes([4])
        put(cluster, budget(limits={"displacements": 1}))
        plane = await started(cluster)
        cluster.create(group("gang", min_count=2, priority="low", mode="all"))
        for number in range(2):
            member = pod(f"member-{number}", 2, priority="low", group="gang")
            cluster.running(member, "node-0")
        cluster.create(pod("urgent", 4, priority="high"))
        await cluster.until(lambda: len(cluster.victims()) == 2)
        (use,) = plane.context.governor.harm.used("batch-day", cluster.clock.wall())
        assert use.displacements == 1


PARTS = "configmaps"


def parts(cluster: Memory) -> dict[str, Object]:
    """Return the parts of the ledger by name."""
    return {name: obj for (_, name), obj in cluster.api.objects[PARTS].items()}


async def test_sums_outlive_the_records_and_the_process() -> None:
    async with memory() as cluster:
        cluster.nodes([4])
        put(cluster, budget(window="1h"))
        plane = await started(cluster)
        await displaced(cluster, 0)
        await displaced(cluster, 1)
        before = dict(plane.context.governor.harm.sums)
        await cluster.stop()
        cluster.api.objects["preemptions.reprieve.dev"].clear()
        plane = await started(cluster)
        await cluster.until(lambda: plane.ready)
        (use,) = plane.context.governor.harm.used("batch-day", cluster.clock.wall())
        assert (use.account, use.displacements) == (NAMESPACE, 2)
        assert set(dict(plane.context.governor.harm.sums)) == set(before)
        (part,) = parts(cluster).values()
        assert len(part_rows(part)[0]) == 2


def on_gpus(obj: Object) -> Object:
    """Return a pod of the ReplicaSet `train` that takes all of a node's GPUs."""
    (container,) = obj["spec"]["containers"]
    container["resources"] = {"limits": {GPU: "4"}, "requests": {GPU: "4", "cpu": "4"}}
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "train", "uid": "train"}
    obj["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    return obj


async def test_the_ledger_has_what_a_notice_saved_and_for_how_long_work_was_away() -> None:
    async with memory() as cluster:
        amounts = {"cpu": "4", "memory": "256Gi", "pods": "110", GPU: "4"}
        status = {"allocatable": amounts, "capacity": amounts}
        cluster.api.put("nodes", {"metadata": {"name": "node-0"}, "spec": {}, "status": status})
        plane = cluster.start(budgets=True, tells=True, section=ALLOWED)
        cluster.running(on_gpus(asking("old", notice="10m")), "node-0")
        await cluster.pass_time(HOUR)
        cluster.create(pod("new", 4, priority="high"))
        await cluster.until(cluster.intents)
        chosen = cluster.clock.wall()
        await cluster.pass_time(SECOND)
        report_saved(cluster, "old")
        await cluster.until(lambda: cluster.victims() == {"old"})
        cluster.end_all()
        await cluster.until(lambda: "new" in cluster.placed())
        cluster.end("new")
        await cluster.pass_time(30 * MINUTE - (cluster.clock.wall() - chosen))
        cluster.running(on_gpus(pod("again", 4, priority="low")), "node-0")
        await cluster.pass_time(MINUTE)
        (row,) = harm_rows(plane.context.governor.harm.sums, Nanos(0), "month")
        assert (row.displacements, row.lost_gpu_hours) == (1, "0.00")
        assert (row.saved_gpu_hours, row.wait_saved_hours) == ("4.00", "0.50")
        (part,) = parts(cluster).values()
        assert harm_rows(part_rows(part)[0].items(), Nanos(0), "month") == [row]


async def story(cluster: Memory, kill_at: int | None) -> tuple[dict[str, int], int]:
    """Displace two pods, and have the process die at a write; return what the next one knows."""
    cluster.nodes([4])
    put(cluster, budget(window="1h"))
    writes = 0

    def count(verb: str, where: Target) -> None:
        nonlocal writes
        if where.kind not in ("events.events.k8s.io", "events"):
            writes += 1
            if kill_at is not None and writes - 1 == kill_at // 2:
                cluster.kill()

    def before(verb: str, where: Target) -> FakeAnswer | None:
        if kill_at is not None and kill_at % 2 == 0:
            count(verb, where)
        return None

    def after(verb: str, where: Target) -> None:
        if kill_at is None or kill_at % 2:
            count(verb, where)

    cluster.api.before, cluster.api.after = before, after
    await started(cluster)
    for number in range(2):
        cluster.running(pod(f"victim-{number}", 4, priority="low"), "node-0")
        cluster.create(pod(f"urgent-{number}", 4, priority="high"))
        for _ in range(40):
            await cluster.pass_time(SECOND)
            if cluster.dead:
                cluster.dead = False
                cluster.start(budgets=True)
            cluster.end_all()
            if f"urgent-{number}" in cluster.placed():
                break
        cluster.end(f"urgent-{number}", f"victim-{number}")
        await cluster.pass_time(30 * SECOND)
    await cluster.stop()
    plane = await started(cluster)
    await cluster.until(lambda: plane.ready)
    await cluster.pass_time(10 * SECOND)
    now, harm = cluster.clock.wall(), plane.context.governor.harm
    stored = sum(
        amount.displacements
        for part in parts(cluster).values()
        for amount in part_rows(part)[0].values()
    )
    assert stored == sum(use.displacements for use in harm.used("batch-day", now))
    return {use.account: use.displacements for use in harm.used("batch-day", now)}, writes


async def test_each_displacement_counts_once_whichever_write_the_process_dies_at() -> None:
    async with memory() as cluster:
        expected, writes = await story(cluster, None)
    assert expected == {NAMESPACE: 2}
    assert writes > 8
    for kill_at in range(2 * writes):
        async with memory() as cluster:
            found, _ = await story(cluster, kill_at)
        deleted = sum(cluster.api.deleted[f"victim-{number}"] > 0 for number in range(2))
        assert (kill_at, found.get(NAMESPACE, 0)) == (kill_at, deleted)
