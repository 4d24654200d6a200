"""One governor for all planes: what one of them displaced, the others know and leave alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, cast

from kubeworld.units.clock import VirtualClock
from kubeworld.units.durations import MINUTE, SECOND
from kubeworld.units.instants import Nanos
from reprieve.engine.disruptions.displacement import Actor, Displacement
from reprieve.engine.disruptions.governor import Governor
from reprieve.engine.disruptions.lineage import Identity, Lineage, Participant, participant_of
from reprieve.engine.disruptions.questions import Enforcement, GovernorPolicy, Rule
from reprieve.engine.idle.evaluation import evaluate
from reprieve.engine.idle.model import PodRow, Policy
from reprieve.engine.idle.outcome import Reason
from reprieve.engine.quota.displacements import Displacements
from reprieve.engine.quota.model import Workload
from reprieve.planes.idle.evaluating.displacements import IdleDisplacements
from reprieve.planes.idle.evaluating.lineages import RootLineages
from reprieve.planes.idle.records import PodRecord
from reprieve.units.ids import Uid
from reprieve.units.references import Reference
from tests.engine.rows import NOW, demand, snapshot, workload
from tests.scheduling.memory import Memory, memory
from tests.scheduling.site import NAMESPACE, pod
from tests.scheduling.test_governor import owned

JOB = "v-uid"  # the root of `workload("v")`, too
ALL = GovernorPolicy(enforcement=Enforcement.ALL)


def _is_victim(cluster: Memory, name: str) -> bool:
    return cluster.victims() == {name}


def _is_placed(cluster: Memory, name: str) -> bool:
    return name in cluster.placed()


async def displaced_thrice_by_the_scheduling_plane(cluster: Memory) -> None:
    for number in range(3):
        low, high = f"low-{number}", f"high-{number}"
        cluster.running(owned(pod(low, 4, priority="low"), JOB), "node-0")
        cluster.create(owned(pod(high, 4, priority="high"), f"owner-{number}"))
        await cluster.until(partial(_is_victim, cluster, low))
        cluster.end_all()
        await cluster.until(partial(_is_placed, cluster, high))
        cluster.end(high)
        await cluster.pass_time(5 * SECOND)


def idle_plane(
    governor: Governor, clock: VirtualClock, priorities: Mapping[str, int] | None = None
) -> IdleDisplacements:
    """Return the idle plane of roots that have a pod of some priority each, if any."""

    def pods_of(root: Reference) -> list[PodRecord]:
        known = (priorities or {}).get(root.name)
        row = PodRow(Uid(root.uid), root.name, "Running")
        pods = [PodRecord(root.uid, "team", root.name, 1, row, (), None, priority=known or 0)]
        return [] if known is None else pods

    lineages = RootLineages(governor, pods_of)
    return IdleDisplacements(governor, cast("Any", {}), clock, lambda root: 0, lineages)


def test_the_idle_plane_asks_with_the_priorities_of_pods() -> None:
    clock, (one, other) = VirtualClock(), (workload("v"), demand())
    policy = GovernorPolicy(emergency_priority=1_000)
    for high, low, pauses in ((5, 5, 3_600), (6, 5, 10), (1_000, 5, 0)):
        governor = Governor(policy)
        plane = idle_plane(governor, clock, {one.root.name: low, other.root.name: high})
        victim, preemptor = plane.lineages.of(one.root), plane.lineages.of(other.root)
        at = clock.wall()
        for number in range(2):
            instant = Nanos(at - 1 + number)
            governor.record(Displacement(instant, Actor.IDLE, preemptor, victim, number=number))
        found = plane.holds([one, other])
        if pauses:
            assert found[other.key][one.root.uid].until - at <= pauses * SECOND
            assert found[other.key][one.root.uid].until - at >= (pauses - 1) * SECOND
        else:
            assert found == {}


async def test_work_displaced_by_the_scheduling_plane_is_protected_from_the_other_planes() -> None:
    async with memory() as cluster:
        cluster.nodes([4])
        governor = Governor(ALL)
        cluster.start(governor=governor)
        await displaced_thrice_by_the_scheduling_plane(cluster)
        now = cluster.clock.wall()

        quota = Displacements(governor=governor)
        job = Workload(
            NAMESPACE,
            "v",
            uid="workload",
            participant=participant_of(Identity("workload", NAMESPACE, NAMESPACE, owner=JOB)),
        )
        other = Workload(NAMESPACE, "other", uid="other")
        hold = quota.hold(other, job, now, above=100)
        assert hold is not None and hold.rule is Rule.REPEATED
        assert now < hold.until <= now + 2 * MINUTE
        assert quota.concerns(other) and quota.hold(job, other, now) is None

        rows = [replace_since(workload("v"), now), replace_since(demand(), now)]
        holds = idle_plane(governor, cluster.clock).holds(rows)
        found = evaluate(snapshot(*rows, holds=holds), Policy(), now)
        assert found.plans == ()
        assert [(e.subject.name, e.reason) for e in found.declined][-1] == ("v", Reason.HELD)
        assert found.next_due == hold.until


def replace_since(row: Any, now: int) -> Any:
    """Return a row whose samples and idle time are those of another hour."""
    tracked = tuple(
        replace(each, samples=tuple(replace(s, seen=now, updated=now) for s in each.samples))
        for each in row.status.tracked_pods
    )
    since = None if row.status.idle_since is None else now - 30 * MINUTE
    return replace(row, status=replace(row.status, tracked_pods=tracked, idle_since=since))


async def test_without_enforcement_nobody_is_protected_and_all_planes_count() -> None:
    async with memory() as cluster:
        cluster.nodes([4])
        governor = Governor()
        cluster.start(governor=governor)
        await displaced_thrice_by_the_scheduling_plane(cluster)
        now = cluster.clock.wall()
        job = Participant(Lineage(f"owner/{JOB}"), NAMESPACE)
        assert governor.displaced(job, now) == 3
        assert governor.repeated(now) == {Lineage(f"owner/{JOB}"): 3}
        assert idle_plane(governor, cluster.clock).holds([workload("v"), demand()]) == {}


async def test_a_plan_of_the_idle_plane_counts_until_nobody_was_evicted_by_it() -> None:
    clock = VirtualClock()
    governor = Governor()
    plane = idle_plane(governor, clock)
    (found,) = evaluate(snapshot(workload("v"), demand()), Policy(), NOW).plans
    issued = plane.issue(found)
    job = Participant(Lineage(f"owner/{JOB}"))
    assert governor.displaced(job, clock.wall()) == 1
    plane.reported.recorded("record", issued)
    plane.reported.ended("record", {JOB})
    assert governor.displaced(job, clock.wall()) == 1
    plane.reported.recorded("record", issued)
    plane.reported.ended("record", set())
    assert governor.displaced(job, clock.wall()) == 0
