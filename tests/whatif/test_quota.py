"""What the quota plane would do, asked before anything is submitted, and what it then does."""

from __future__ import annotations

from pathlib import Path

from reprieve.cli.texts.plan_text import plan_text
from reprieve.kube.resource import HARM_BUDGETS
from reprieve.whatif.questions.answer import Borrowed, Verdict
from tests.quota_plane.site import (
    cluster_queue,
    flavor,
    job,
    local_queue,
    node,
    priority_class,
    site,
)
from tests.quota_plane.test_jobs import LOWER
from tests.whatif.asking import ask

BASE = (
    flavor(),
    cluster_queue("cq", 4, preemption=LOWER),
    local_queue("q", "cq"),
    priority_class("low", 100),
    priority_class("high", 10000),
)


async def test_a_job_that_fits_starts_and_nobody_makes_way(tmp_path: Path) -> None:
    async with site(tmp_path, *BASE, nodes=[node("node-0")]) as cluster:
        asked = await ask(cluster.embedded.kubeconfig, job("one", pods=2))
        assert asked.answer.verdict is Verdict.STARTS, asked.answer
        assert asked.answer.victims == ()
        assert asked.answer.rest
        assert await cluster.workloads() == {}


async def test_who_makes_way_is_who_then_makes_way(tmp_path: Path) -> None:
    async with site(tmp_path, *BASE, nodes=[node("node-0")]) as cluster:
        await cluster.create(job("first", priority="low", pods=2))
        await cluster.until_admitted("first")
        await cluster.create(job("second", priority="low", pods=2))
        await cluster.until_admitted("first", "second")
        wanted = job("wanted", priority="high", pods=2)
        asked = await ask(cluster.embedded.kubeconfig, wanted)
        assert asked.answer.verdict is Verdict.STARTS_WITH_VICTIMS, asked.answer
        before = await cluster.admitted()
        assert before == {"first", "second"}
        await cluster.create(wanted)

        async def starts() -> bool:
            return "wanted" in await cluster.running()

        await cluster.until("the wanted job runs", starts)
        gone = before - await cluster.admitted()
        assert {victim.name for victim in asked.answer.victims} == gone


async def test_a_plan_with_victims_says_how_many_pods_start_without(tmp_path: Path) -> None:
    async with site(tmp_path, *BASE, nodes=[node("node-0")]) as cluster:
        await cluster.create(job("first", priority="low", pods=3))
        await cluster.until_admitted("first")
        asked = await ask(cluster.embedded.kubeconfig, job("wanted", priority="high", pods=2))
        assert asked.answer.verdict is Verdict.STARTS_WITH_VICTIMS, asked.answer
        (outcome,) = asked.answer.outcomes
        assert (outcome.pods, outcome.pods_without_victims, outcome.pods_if_fewer) == (2, 0, 1)
        assert outcome.asks.scarce == ("cpu",)
        assert (outcome.asks.total["cpu"], outcome.short) == (2000, {"cpu": 1000})
        told = plan_text(asked.answer, ["quota"])
        assert (
            "  STARTS, others are preempted   needs 2 cpu, free in reach 1: 1 from others" in told
        )
        assert asked.answer.borrowed == ()


async def test_what_a_queue_borrows_afterwards_is_told(tmp_path: Path) -> None:
    reclaims = {"reclaimWithinCohort": "Any"}
    lender = cluster_queue("lender", 4, "all", preemption=reclaims)
    others = (
        cluster_queue("gives-only", 4, "all"),
        cluster_queue("elsewhere", 4, "others", preemption=reclaims),
        cluster_queue("has-nothing", 0, "all", preemption=reclaims),
    )
    objects = (flavor(), cluster_queue("cq", 2, "all"), lender, *others, local_queue("q", "cq"))
    async with site(tmp_path, *objects, nodes=[node("node-0")]) as cluster:
        asked = await ask(cluster.embedded.kubeconfig, job("wanted", pods=3))
        assert asked.answer.verdict is Verdict.STARTS, asked.answer
        assert asked.answer.borrowed == (Borrowed("cq", {"cpu": 1000}, ("lender",)),)
        assert asked.answer.outcomes[0].pods_without_victims is None
        told = plan_text(asked.answer, ["quota"])
        assert (
            "  afterwards cq borrows 1 cpu over nominal: the next to be reclaimed, by queue lender"
        ) in told


async def test_what_waits_says_why(tmp_path: Path) -> None:
    async with site(tmp_path, *BASE, nodes=[node("node-0")]) as cluster:
        await cluster.create(job("first", priority="low", pods=4))
        await cluster.until_admitted("first")
        wanted = job("wanted", priority="low", pods=2)
        asked = await ask(cluster.embedded.kubeconfig, wanted)
        assert asked.answer.verdict is Verdict.WAITS
        await cluster.create(wanted)

        async def told() -> bool:
            return "QuotaReserved" in await cluster.conditions("wanted")

        await cluster.until("the wanted job is told why it waits", told)
        said = (await cluster.conditions("wanted"))["QuotaReserved"]
        (outcome,) = asked.answer.outcomes
        assert outcome.condition == said[1:]
        assert asked.answer.reason == "HeldByOthers"
        assert outcome.diagnosis is not None
        assert [fix.after for fix in outcome.diagnosis.fixes] == ["high"]


async def test_what_is_more_than_the_queue_can_have_never_fits(tmp_path: Path) -> None:
    async with site(tmp_path, *BASE, nodes=[node("node-0")]) as cluster:
        await cluster.create(job("first", priority="high", pods=4))
        await cluster.until_admitted("first")
        asked = await ask(cluster.embedded.kubeconfig, job("wanted", priority="high", pods=5))
        assert (asked.answer.verdict, asked.answer.reason) == (Verdict.NEVER_FITS, "NeverFits")


async def test_a_plan_holds_what_a_harm_budget_holds_and_says_so(tmp_path: Path) -> None:
    budget = {
        "apiVersion": "reprieve.dev/v1alpha1",
        "kind": "HarmBudget",
        "metadata": {"name": "none"},
        "spec": {"limits": {"displacements": 0}, "window": "10m"},
    }
    async with site(tmp_path, *BASE, nodes=[node("node-0")]) as cluster:
        await cluster.create(job("first", priority="low", pods=4))
        await cluster.until_admitted("first")
        await cluster.client.create(HARM_BUDGETS, budget, dict)
        wanted = job("wanted", priority="high", pods=2)
        asked = await ask(cluster.embedded.kubeconfig, wanted)
        assert asked.answer.victims == ()
        said = "\n".join(plan_text(asked.answer, ["quota"]))
        assert "1 spared, since a harm budget is used up" in " ".join(said.split())
        await cluster.client.delete(HARM_BUDGETS, "", "none")
        asked = await ask(cluster.embedded.kubeconfig, wanted)
        assert asked.answer.verdict is Verdict.STARTS_WITH_VICTIMS


async def test_a_start_names_the_scheduler_that_decides_about_nodes(tmp_path: Path) -> None:
    """Also where the scheduling plane decides, about pods of another scheduler's name."""
    async with site(tmp_path, *BASE, nodes=[node("node-0")]) as cluster:
        wanted = job("one", pods=1)
        wanted["spec"]["template"]["spec"]["nodeSelector"] = {"zone": "none"}
        for controllers, names, how in (
            ("quota", (), "--controllers quota,scheduling"),
            ("quota,scheduling", (), "--scheduler-name default-scheduler"),
            ("quota,scheduling", ("default-scheduler",), ""),
        ):
            kubeconfig = cluster.embedded.kubeconfig
            asked = await ask(kubeconfig, wanted, controllers=controllers, names=names)
            notes = [each for each in asked.answer.warnings if "another scheduler" in each]
            assert [how in each for each in notes] == ([True] if how else [])
            starts = asked.answer.verdict is Verdict.STARTS
            assert starts == bool(how)
