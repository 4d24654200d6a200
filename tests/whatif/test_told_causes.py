"""What a plan blames is what keeps the work waiting: changed so, it starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reprieve.engine.diagnosis.causes import Cause
from reprieve.engine.diagnosis.model import Diagnosis
from reprieve.scenarios.model import NodeSpec
from reprieve.whatif.answer import Answer, Verdict
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

GPU = "nvidia.com/gpu"
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
            "Its queue has no quota for a resource that its pods ask for: ClusterQueue cq has "
            "none for memory; they ask for it by LimitRange defaults, which gives 1Gi memory"
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
        assert general_step(found).startswith("Ask for no more than 4 cpu, or have `borrowWithin")
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
