"""What a plan blames is what keeps the work waiting: changed so, it starts."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from reprieve.cli.sessions import planning
from reprieve.cli.texts.plan_text import plan_text
from reprieve.engine.diagnosis.causes import Cause
from reprieve.engine.diagnosis.model import Diagnosis
from reprieve.engine.diagnosis.reasons import Reason
from reprieve.scenarios.model import NodeSpec
from reprieve.whatif.questions.answer import Answer, Verdict
from reprieve.whatif.questions.document import plan_document
from reprieve.wording.diagnosis import general_step, sentence
from tests.quota_plane.site import (
    NAMESPACE,
    Site,
    cluster_queue,
    flavor,
    job,
    local_queue,
    node,
    priority_class,
    site,
)
from tests.quota_plane.test_jobs import LOWER
from tests.quota_plane.test_pod_facts import LIMIT_RANGES
from tests.whatif.asking import ask
from tests.whatif.plan_stories import answered

GPU = "nvidia.com/gpu"
CONFIGURATION = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
plan_command = import_module("reprieve.cli.plan")
Object = dict[str, Any]


def of(answer: Answer) -> Diagnosis:
    (outcome,) = answer.outcomes
    assert outcome.diagnosis is not None, answer
    return outcome.diagnosis


async def verdict(cluster: Site, wanted: Object) -> Verdict | None:
    return (await ask(cluster.embedded.kubeconfig, wanted)).answer.verdict


def limits(memory: str) -> Object:
    item = {"type": "Container", "defaultRequest": {"memory": memory}}
    return {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "defaults", "namespace": NAMESPACE},
        "spec": {"limits": [item]},
    }


def group(covered: list[str], *flavors: tuple[str, list[int]]) -> Object:
    return {
        "coveredResources": covered,
        "flavors": [
            {
                "name": name,
                "resources": [
                    {"name": resource, "nominalQuota": str(amount)}
                    for resource, amount in zip(covered, amounts, strict=True)
                ],
            }
            for name, amounts in flavors
        ],
    }


async def test_what_a_limit_range_asks_for_without_quota_is_named_with_it(tmp_path: Path) -> None:
    base = (flavor(), cluster_queue("cq", 4), local_queue("q", "cq"))
    async with site(tmp_path, *base, nodes=[node("node-0")]) as cluster:
        wanted = job("wanted", pods=1)
        await cluster.client.create(LIMIT_RANGES, limits("1Gi"), dict)
        asked = await ask(cluster.embedded.kubeconfig, wanted)
        assert asked.answer.verdict is Verdict.NEVER_FITS
        found = of(asked.answer)
        assert found.cause is Cause.NOT_COVERED
        assert sentence(found) == (
            "Its queue has no quota for a resource that its pods request: ClusterQueue cq has "
            "none for memory; they request it by LimitRange defaults, which gives 1Gi memory"
        )
        assert general_step(found).startswith("Have memory added to `coveredResources` of Cl")
        covering = group(["cpu", "memory"], ("default-flavor", [4, 2**32]))
        other = (cluster_queue("more", 0, resourceGroups=[covering]), local_queue("m", "more"))
        for each in other:
            await cluster.create(each)
        assert await verdict(cluster, job("wanted", "m", pods=1)) is Verdict.STARTS


async def test_work_that_would_borrow_is_not_told_to_use_a_higher_priority(tmp_path: Path) -> None:
    covered = ["cpu", GPU]
    lender = group(covered, ("default-flavor", [4, 8]))
    borrower = group(covered, ("default-flavor", [40, 0]))
    base = (
        flavor(),
        cluster_queue(
            "lender",
            0,
            "all",
            resourceGroups=[lender],
            preemption={"reclaimWithinCohort": "Any"},
        ),
        cluster_queue("borrower", 0, "all", resourceGroups=[borrower]),
        local_queue("l", "lender"),
        local_queue("b", "borrower"),
    )

    def gpus(name: str, queue: str, cpu: str) -> Object:
        made = job(name, queue, pods=1, cpu=cpu)
        (container,) = made["spec"]["template"]["spec"]["containers"]
        container["resources"]["limits"] = {GPU: "8"}
        container["resources"]["requests"][GPU] = "8"
        return made

    gpu_node = NodeSpec("node-0", {"cpu": "64", "memory": "32Gi", "pods": "110", GPU: "8"})
    async with site(tmp_path, *base, nodes=[gpu_node]) as cluster:
        await cluster.create(gpus("holder", "b", "1"))
        await cluster.until_admitted("holder")
        found = of((await ask(cluster.embedded.kubeconfig, gpus("train", "l", "6"))).answer)
        assert found.cause is Cause.BORROWING
        assert "too small" not in sentence(found)
        assert "it would borrow 2 cpu" in sentence(found)
        assert general_step(found).startswith("Request no more than 4 cpu, or have `borrowWithin")
        smaller = (await ask(cluster.embedded.kubeconfig, gpus("train", "l", "4"))).answer
        assert {each.name for each in smaller.victims} == {"holder"}


async def test_of_a_job_that_is_admitted_in_part_the_pods_without_victims_are_counted(
    tmp_path: Path,
) -> None:
    base = (
        flavor(),
        cluster_queue("cq", 4, preemption=LOWER),
        local_queue("q", "cq"),
        priority_class("low", 10),
        priority_class("mid", 100),
        priority_class("high", 1000),
    )
    async with site(tmp_path, *base, nodes=[node("node-0")]) as cluster:
        await cluster.create(job("low", priority="low", pods=1, cpu="2"))
        await cluster.create(job("high", priority="high", pods=1, cpu="1"))
        await cluster.until_admitted("low", "high")
        smallest = {"kueue.x-k8s.io/job-min-parallelism": "1"}
        wanted = job("wanted", priority="mid", pods=4, annotations=smallest)
        (outcome,) = (await ask(cluster.embedded.kubeconfig, wanted)).answer.outcomes
        assert outcome.verdict is Verdict.STARTS_WITH_VICTIMS
        assert (outcome.pods, outcome.pods_without_victims) == (3, 1)
        told = (await ask(cluster.embedded.kubeconfig, wanted)).answer
        assert "3 of 4 pods, 0 placed" in "\n".join(
            plan_text(told, ["quota"], now=told.snapshot.at)
        )


async def test_a_plan_that_would_evict_for_nothing_says_so(tmp_path: Path) -> None:
    base = (
        flavor(),
        cluster_queue("cq", 4, preemption=LOWER),
        local_queue("q", "cq"),
        priority_class("low", 10),
        priority_class("high", 1000),
    )
    nodes = [node("node-0", 2), node("node-1", 2)]
    async with site(tmp_path, *base, nodes=nodes) as cluster:
        await cluster.create(job("low", priority="low", pods=4))
        await cluster.until_admitted("low")

        async def plan_of(cpu: str, claim: str = "") -> Answer:
            wanted = job("wanted", priority="high", pods=1, cpu=cpu)
            if claim:
                # The proof on nodes leaves volumes to the scheduler.
                source = {"persistentVolumeClaim": {"claimName": claim}}
                wanted["spec"]["template"]["spec"]["volumes"] = [{"name": "data", **source}]
            asked = await ask(
                cluster.embedded.kubeconfig,
                wanted,
                controllers="scheduling,quota",
                names=["default-scheduler"],
            )
            return asked.answer

        proven, wide, narrow = await plan_of("4"), await plan_of("2", "gone"), await plan_of("2")
    assert (proven.verdict, proven.victims) == (Verdict.NEVER_FITS, ())
    assert wide.verdict is Verdict.NEVER_FITS
    assert [each.name for each in wide.victims] == ["low"]
    warning = "  submitting it evicts others for nothing: none of it would start"
    told = plan_text(wide, ["scheduling", "quota"])
    assert told[told.index(warning) + 1].startswith("  preempted (1 in all")
    assert plan_document(wide, ["quota"]).in_vain
    assert narrow.verdict is Verdict.STARTS_WITH_VICTIMS
    assert "for nothing" not in " ".join(plan_text(narrow, ["quota"]))


def test_the_check_ends_with_1_where_others_would_be_evicted_for_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    useful = answered("pod-for-which-somebody-makes-way")
    outcomes = (replace(each, verdict=Verdict.NEVER_FITS, placed=0) for each in useful.outcomes)
    vain = useful.judged_again(tuple(outcomes))
    codes = [
        exit_code(answer, monkeypatch, *flags)
        for answer in (vain, useful)
        for flags in ((), ("--check",), ("--check", "--detailed-exitcode"))
    ]
    assert codes == [0, 1, 1, 0, 0, 10]


def exit_code(answer: Answer, monkeypatch: pytest.MonkeyPatch, *flags: str) -> int:
    """Return how the command ends with this answer."""

    async def asked(*_: Any, **__: Any) -> tuple[Answer, tuple[str, ...]]:
        return answer, ("quota",)

    monkeypatch.setattr(planning, "answered", asked)
    manifest = "{apiVersion: batch/v1, kind: Job, metadata: {name: wanted}}"
    return CliRunner().invoke(plan_command.plan, ["-f", "-", *flags], input=manifest).exit_code


@pytest.mark.parametrize(
    ("controllers", "said"),
    [
        (
            "quota",
            (
                ": jobset.x-k8s.io/jobset is not in the integrations.frameworks that are assumed "
                "(batch/job); name the operator's configuration with --quota-config"
            ),
        ),
        ("scheduling", ": the quota plane was not queried (--controllers)"),
    ],
)
async def test_a_kind_that_is_not_assumed_to_be_queued_is_told_with_the_option(
    tmp_path: Path, controllers: str, said: str
) -> None:
    base = (flavor(), cluster_queue("cq", 4), local_queue("q", "cq"))
    template = job("any", pods=1)["spec"]["template"]
    replicated = {"name": "main", "replicas": 1, "template": {"spec": {"template": template}}}
    wanted = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {
            "name": "wanted",
            "namespace": NAMESPACE,
            "labels": {"kueue.x-k8s.io/queue-name": "q"},
        },
        "spec": {"suspend": True, "replicatedJobs": [replicated]},
    }
    path = tmp_path / "configuration.yaml"
    path.write_text(CONFIGURATION + "integrations: {frameworks: [jobset.x-k8s.io/jobset]}\n")
    async with site(tmp_path, *base, nodes=[node("node-0")]) as cluster:
        kubeconfig = cluster.embedded.kubeconfig
        asked = await ask(kubeconfig, wanted, controllers=controllers)
        (outcome,) = asked.answer.outcomes
        assert outcome.verdict is None
        assert outcome.message.endswith(said), outcome.message
        asked = await ask(kubeconfig, wanted, quota_config=path)
        assert asked.answer.verdict is Verdict.STARTS, asked.answer


async def test_a_workload_that_the_rehearsal_deactivates_is_told_what_its_pods_lacked(
    tmp_path: Path,
) -> None:
    base = (flavor(), cluster_queue("cq", 40), local_queue("q", "cq"))
    path = tmp_path / "configuration.yaml"
    retries = "{timestamp: Eviction, backoffBaseSeconds: 1, backoffLimitCount: 3}"
    waiting = f"{{timeout: 8s, requeuingStrategy: {retries}}}"
    path.write_text(f"{CONFIGURATION}waitForPodsReady: {waiting}\n")
    async with site(tmp_path, *base, nodes=[node("node-0", 2)]) as cluster:
        asked = await ask(
            cluster.embedded.kubeconfig,
            job("wanted", pods=1, cpu="4"),
            controllers="scheduling,quota",
            names=["default-scheduler"],
            quota_config=path,
        )
        found = of(asked.answer)
        assert (found.reason, found.cause) == (Reason.STOPPED, Cause.DEACTIVATED_BY_OPERATOR)
        said = sentence(found)
        assert "the reason is RequeuingLimitExceeded" in said
        assert "its pods were refused: 0/1 nodes are available: 1 Insufficient cpu." in said
