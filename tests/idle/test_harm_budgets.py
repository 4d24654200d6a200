"""Harm budgets in the idle plane, and with the whole operator on the embedded cluster."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kubeworld.units.clock import VirtualClock
from kubeworld.units.durations import MINUTE
from kubeworld.units.instants import Nanos, format_instant
from reprieve.engine.disruptions.governor import Governor
from reprieve.engine.disruptions.questions import BudgetHold, Rule
from reprieve.engine.harm_budgets.budget import Harm, HarmBudget, HarmSide, Scope
from reprieve.engine.idle.evaluation import evaluate
from reprieve.engine.idle.model import Policy, PreemptionPolicy
from reprieve.engine.idle.outcome import Reason
from reprieve.records.harm_sums import part_rows
from reprieve.records.harm_table import harm_rows
from reprieve.records.idle.record import encode
from reprieve.records.idle.replay import decode
from reprieve.scenarios.model import NodeSpec
from reprieve.units.ids import Uid
from reprieve.wording.kaiwo import declined_text
from tests.disruptions.test_planes import idle_plane, replace_since
from tests.engine.rows import DEFAULTS, demand, snapshot, workload
from tests.idle.site import Object, container, job, open_site


def test_an_exhausted_budget_spares_idle_work_until_it_is_free() -> None:
    clock, governor = VirtualClock(), Governor()
    governor.harm.adopt({"day": HarmBudget("day", window=30 * MINUTE, displacements=1)})
    now = clock.wall()
    rows = [replace_since(workload("v"), now), replace_since(demand(), now)]
    plane = idle_plane(governor, clock, {each.root.name: 5 for each in rows})
    assert plane.holds(rows) == {}
    victim = HarmSide(rows[0].root.namespace, "", 5, "another")
    governor.harm.record(Harm(Nanos(now - MINUTE), "quota", victim, HarmSide("other")))
    holds = plane.holds(rows)
    until = Nanos(now + 29 * MINUTE)
    hold = BudgetHold(until, Rule.HARM_BUDGET, "day")
    assert holds == {rows[1].key: {rows[0].root.uid: hold}}
    found = evaluate(snapshot(*rows, holds=holds), Policy(), now)
    assert found.plans == ()
    spared = found.declined[-1]
    assert (spared.reason, spared.until, spared.budget) == (Reason.HELD, until, "day")
    assert declined_text(spared).startswith(
        "harm budget day protects it from being displaced before"
    )
    assert found.next_due == until
    written = encode(snapshot(*rows, holds=holds), Policy(), now)
    assert decode(written).snapshot.holds == holds


def test_idle_work_that_goes_for_nobody_and_is_spared_is_named_in_the_log_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "reprieve.idle")
    clock, governor = VirtualClock(), Governor()
    budget = HarmBudget("day", window=30 * MINUTE, displacements=0)
    governor.harm.adopt({"day": budget})
    always = replace(DEFAULTS, policy=PreemptionPolicy.ALWAYS)
    rows = [replace_since(workload("v", settings=always), clock.wall())]
    plane = idle_plane(governor, clock, {"v": 5})
    for _ in range(3):
        assert set(plane.holds(rows)[""]) == {rows[0].root.uid}
    until = format_instant(Nanos(clock.wall() + 30 * MINUTE))
    said = f"idle Job ml-team/v is not evicted before {until}: harm budget day is used up"
    assert [each.getMessage() for each in caplog.records] == [said]
    # Again, once it was free meanwhile.
    governor.harm.adopt({"day": replace(budget, displacements=1)})
    assert plane.holds(rows) == {}
    governor.harm.adopt({"day": budget})
    assert plane.holds(rows)
    assert len(caplog.records) == 2


def test_no_tenant_takes_more_idle_work_by_other_names_labels_or_owners() -> None:
    clock, governor, random = VirtualClock(), Governor(), Random(5)
    budget = HarmBudget("caused", Scope.CAUSED, window=30 * MINUTE, displacements=1)
    governor.harm.adopt({"caused": budget})
    now = clock.wall()
    idle = replace_since(workload("v"), now)
    counted = HarmSide("ml-team", "", 5, "owner/first")
    governor.harm.record(Harm(Nanos(now - MINUTE), "idle", HarmSide("team-b"), counted))
    for number in range(30):
        name = f"{random.choice('abc')}-{number}"
        mine = replace_since(demand(name), now)
        root = replace(
            mine.root,
            kind=random.choice(("Job", "Pod", "RayCluster")),
            uid=Uid(random.choice((f"uid-{number}", "first", "theirs"))),
        )
        mine, theirs = replace(mine, root=root), replace_since(demand("d", namespace="b"), now)
        plane = idle_plane(governor, clock, {name: random.randrange(1, 9), "v": 0})
        assert set(plane.holds([idle, mine, theirs])) == {mine.key}


def harm_budget(**spec: Any) -> Object:
    """Return a HarmBudget that allows nothing."""
    return {
        "apiVersion": "reprieve.dev/v1alpha1",
        "kind": "HarmBudget",
        "metadata": {"name": "none"},
        "spec": {"limits": {"displacements": 0}, **spec},
    }


async def test_the_operator_reads_budgets_and_lets_go_when_one_is_deleted(tmp_path: Path) -> None:
    async with open_site(tmp_path, [NodeSpec("gpu-0", {"amd.com/gpu": "4"})]) as site:
        await site.create(harm_budget(planes=["idle"]))
        await site.create(job("victim", container(gpu=4), enabled="true"))
        site.busy("Job/demand", 90)
        await site.run()
        await site.until_phase("Job/victim", "Idle")
        await site.create(job("demand", container(gpu=4), enabled="true"))
        await site.until_phase("Job/demand", "PendingGpu")

        async def told() -> bool:
            events = await site.events("GpuWorkload/job-demand", "Waiting")
            return any(
                "left alone until 2" in each and "used up: harm budget none" in each
                for each in events
            )

        await site.until(told)
        assert await site.records() == []
        await site.delete("harmbudgets.reprieve.dev", "none", namespace="")
        await site.until_phase("Job/victim", "Preempted")


async def test_the_ledger_says_who_paid_for_whom(tmp_path: Path) -> None:
    async with open_site(tmp_path, [NodeSpec("gpu-0", {"amd.com/gpu": "4"})]) as site:
        await site.create(job("victim", container(gpu=4), enabled="true"))
        site.busy("Job/demand", 90)
        await site.run()
        await site.until_phase("Job/victim", "Idle")
        await site.create(job("demand", container(gpu=4), enabled="true"))
        await site.until_phase("Job/demand", "Active")

        async def stored() -> list[Object]:
            found = await site.all("configmaps")
            return [each for each in found if each["metadata"]["name"].startswith("reprieve-harm-")]

        (part,) = await site.until(stored)
        rows = harm_rows(part_rows(part)[0].items(), Nanos(0), "month")
        assert [(row.payer, row.beneficiary, row.plane, row.displacements) for row in rows] == [
            ("team", "team", "idle", 1)
        ]
