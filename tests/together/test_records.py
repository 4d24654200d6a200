"""What the records of one demand say where three planes decide, and that each is decided again."""

from __future__ import annotations

from pathlib import Path

import pytest

from reprieve.answers.preemptions.recorded import judged
from reprieve.api.disruption import Disruption, DisruptionDemand
from reprieve.api.reprieve import Frees, Preemption, Rejected, Stage
from reprieve.cli.texts.shadow_text import shadow_text
from reprieve.kube.resource import DISRUPTIONS, PREEMPTIONS
from reprieve.shadow.candidate import Candidate
from reprieve.shadow.comparison import Verdict, compared
from reprieve.shadow.document import document
from tests.shadow.records import own_plugins
from tests.together.site import GPU, PODS, Site, deployment, job, node, queued_pods, site

RECORDED = Candidate("as recorded")


async def records(cluster: Site) -> list[Preemption]:
    """Return all records, each decided again from its stored input."""
    found = (await cluster.client.list(PREEMPTIONS, Preemption)).items
    for each in found:
        _, said, upheld = judged(each)
        assert upheld, f"{each.metadata.name}: {said}"
        again = compared(each, RECORDED, own_plugins)
        assert (again.verdict, again.reproduced) == (Verdict.SAME, True), again.why
    return sorted(found, key=lambda record: (record.spec.decided_at, record.spec.depth))


async def test_idle_work_for_a_pending_job_is_one_record_of_two_stages(tmp_path: Path) -> None:
    idle, busy = deployment("ann", "b", priority="high"), deployment("bob", "b")
    async with site(tmp_path, [node("n0")], {"a": 8, "b": 0}) as cluster:
        await cluster.runs(idle, busy)
        await cluster.idle(idle)
        assert await cluster.demand(job("wanted", "a", priority="high")) == {"ann": 4}
        (record,) = await records(cluster)
    spec = record.spec
    assert (spec.plane, spec.depth, spec.debt_of) == ("idle", 1, "")
    assert spec.stages == [Stage("idle"), Stage("scheduling")]
    assert spec.rejected == [
        Rejected("quota", "OwnedByAnother"),
        Rejected("scheduling", "IdleFirst"),
    ]
    assert (spec.proof.level, spec.proof.quota, spec.proof.placement) == (
        *("Placement", "Settled", "Proven"),
    )
    assert [(each.plane, each.frees) for each in spec.victims] == [("idle", Frees(room=True))]


@pytest.mark.thorough
async def test_a_plan_made_after_another_was_refused_is_decided_again(tmp_path: Path) -> None:
    """The first demand would not get what the victim leaves: its plan is part of the input."""
    idle = deployment("ann", "b", priority="high")
    async with site(tmp_path, [node("n0", 4)], {"a": 8, "b": 0}) as cluster:
        await cluster.runs(idle)
        await cluster.runs(job("above", "a", gpus=2, priority="high", opted=False))
        await cluster.runs(job("first", "a", gpus=4, priority="low"))
        await cluster.runs(job("second", "a", gpus=2, priority="low"))
        await cluster.idle(idle)
        await cluster.rest()
        placed = {name: cluster.placed(name) for name in ("above", "first", "second")}
        assert placed == {"above": 1, "first": 0, "second": 1}
        (record,) = await records(cluster)
    assert [each.root.name for each in record.spec.victims] == ["ann"]


async def test_a_preemption_by_priority_says_what_the_idle_plane_answered(tmp_path: Path) -> None:
    idle, busy = deployment("ann", "b", priority="high"), deployment("bob", "b")
    async with site(tmp_path, [node("n0")], {"a": 8, "b": 0}) as cluster:
        await cluster.runs(idle, busy)
        await cluster.idle(idle)
        await cluster.demand(job("wanted", "a", priority="high", opted=False))
        back, record = sorted(await records(cluster), key=lambda each: each.spec.plane)
    assert (back.spec.plane, back.spec.depth) == ("idle", 2), "the return of who was displaced"
    assert back.spec.debt_of == record.spec.preemptor_lineage != ""
    spec = record.spec
    assert (spec.plane, spec.stages) == ("scheduling", [Stage("scheduling")])
    assert spec.rejected == [Rejected("idle", "NotAsked"), Rejected("quota", "OwnedByAnother")]
    assert [(each.plane, each.frees) for each in spec.victims] == [("scheduling", Frees(room=True))]


async def test_a_queued_job_has_its_quota_by_one_record_that_hands_over(tmp_path: Path) -> None:
    borrower = job("sweep", "b", queued=True)
    async with site(tmp_path, [node("n0")], {"a": 4, "b": 0}) as cluster:
        await cluster.runs(borrower)
        evicted = await cluster.demand(job("wanted", "a", priority="high", queued=True))
        assert (evicted, cluster.placed("wanted")) == ({"sweep": 4}, 1)
        (record,) = await records(cluster)
    spec = record.spec
    assert (spec.plane, spec.proof.quota) == ("quota", "Proven")
    assert spec.stages == [Stage("quota"), Stage("scheduling")]
    assert [(each.plane, each.frees) for each in spec.victims] == [
        ("quota", Frees(quota=True, room=True))
    ]


async def test_idle_work_and_work_of_lower_priority_are_two_records_of_one_line(
    tmp_path: Path,
) -> None:
    idle, busy = deployment("ann", "b", priority="high"), deployment("bob", "b")
    async with site(tmp_path, [node("n0")], {"a": 8, "b": 0}) as cluster:
        await cluster.runs(idle, busy)
        await cluster.idle(idle)
        evicted = await cluster.demand(job("wanted", "a", gpus=8, priority="high"))
        assert evicted == {"ann": 4, "bob": 4}
        found = sorted(await records(cluster), key=lambda r: r.spec.plane)
        told = (await cluster.client.list(DISRUPTIONS, Disruption)).items
    first, second = (each.spec for each in found)
    assert [each.rule for each in first.victims] == ["BesidePriority"]
    assert [each.rule for each in second.victims] == ["lower priority"]
    assert first.stages == [Stage("idle"), Stage("scheduling")]
    assert [(each.plane, bool(each.preemption)) for each in second.stages] == [
        ("idle", True),
        ("scheduling", False),
    ]
    others = [Rejected("quota", "OwnedByAnother")]
    assert (first.rejected, second.rejected) == (others, others)
    assert (first.proof.placement, first.proof.free) == ("Proven", {GPU: 4})
    demands = {each.spec.plane: each.spec.demand for each in told}
    room, halves = Frees(room=True), ("Settled", "Proven")
    both = DisruptionDemand(["idle", "scheduling"], room, *halves, others)
    assert demands == {"idle": both, "scheduling": both}, "both tenants read the same demand"
    shadow = document(RECORDED, [compared(each, RECORDED, own_plugins) for each in found])
    assert (shadow.total.decisions, shadow.total.demands, shadow.total.same) == (2, 1, 2)
    lines = list(shadow_text(shadow, 200))
    assert any("on 2 decisions for 1 demand (idle 1, scheduling 1)" in line for line in lines)


async def test_the_record_of_work_that_came_back_says_by_whom_it_was_displaced(
    tmp_path: Path,
) -> None:
    labels = {"kubernetes.io/hostname": "n0"}
    nodes = [node("n0", 4, labels), node("n1", 4)]
    middle, low = deployment("middle", "b", priority="high"), deployment("lowest", "b")
    for each in (middle, low):
        each[0]["metadata"]["annotations"] = {}
    made = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    async with site(tmp_path, nodes, {"a": 8, "b": 0}) as cluster:
        await cluster.create({**made, "metadata": {"name": "top"}, "value": 2000})
        await cluster.runs(middle, low)
        wanted = job("wanted", "a", priority="top", opted=False, nodeSelector=labels)
        assert await cluster.demand(wanted) == {"middle": 4, "lowest": 4}
        first, second = await records(cluster)
        listed = (await cluster.client.list(DISRUPTIONS, Disruption)).items
    told = {each.spec.plan_id: each.spec.demand for each in listed}
    demand, after = told[first.spec.plan_id], told[second.spec.plan_id]
    assert demand is not None and (demand.depth, demand.debt_of) == (1, "")
    assert after is not None and after.depth == 2
    assert after.debt_of.startswith("another tenant's work #"), "work of others has a number"
    assert (first.spec.depth, first.spec.debt_of) == (1, "")
    assert (second.spec.depth, second.spec.debt_of) == (2, first.spec.preemptor_lineage)


@pytest.mark.thorough
@pytest.mark.parametrize("pods", [1, 2], ids=["pod", "group"])
async def test_records_for_queued_pods_without_an_owner_name_each_other(
    tmp_path: Path, pods: int
) -> None:
    """Quota is taken back for their Workload, and room is made for each of them by priority."""
    sweep, lower = job("sweep", "b", queued=True), job("lower", "b")
    wanted = queued_pods("wanted", "a", pods=pods, gpus=8 // pods, priority="high")
    async with site(tmp_path, [node("n0")], {"a": 8, "b": 0}, config=PODS) as cluster:
        await cluster.runs(sweep, lower)
        assert await cluster.demand(wanted) == {"sweep": 4, "lower": 4}
        first, second = await records(cluster)
    assert [first.spec.plane, second.spec.plane] == ["quota", "scheduling"]
    assert [(each.plane, each.preemption) for each in second.spec.stages] == [
        ("quota", first.metadata.name),
        ("scheduling", ""),
    ]
