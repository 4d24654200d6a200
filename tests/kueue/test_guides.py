"""The guides' manifests as they stand: a real kubectl, our definitions, our webhooks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from reprieve.api import kueue
from reprieve.api.crds import KUEUE_NAMES, load, text
from reprieve.api.kueue import RESOURCE_IN_USE
from reprieve.engine.quota.model import BorrowWithinCohort, Policy, Preemption
from reprieve.intake.quota import cluster_queue_row
from tests.kueue.objects import Json, cluster_queue, kueue_object, local_queue, workload
from tests.kueue.webhooks import Site, site, webhooks

GUIDES = Path(__file__).resolve().parents[2].parent / "shared" / "guides" / "manifests"
MANIFEST = GUIDES / "quota-clusterqueues.yaml"

guide = pytest.mark.skipif(not MANIFEST.is_file(), reason="no guides in ../shared/guides")


class Kubectl:
    """A kubectl for one cluster, with a home of its own."""

    def __init__(self, binary: Path, found: Site, home: Path) -> None:
        self.binary, self.site, self.home = binary, found, home

    async def __call__(self, *arguments: str, text: str = "") -> tuple[int, str, str]:
        process = await asyncio.create_subprocess_exec(
            self.binary,
            *arguments,
            env={"KUBECONFIG": str(self.site.kubeconfig), "HOME": str(self.home)},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await asyncio.wait_for(process.communicate(text.encode()), 60)
        assert process.returncode is not None
        return process.returncode, out.decode(), err.decode()

    async def apply(self, *objects: Json) -> tuple[int, str, str]:
        return await self("apply", "-f", "-", text=yaml.safe_dump_all(objects))

    async def get(self, *arguments: str) -> Any:
        code, out, err = await self("get", *arguments, "-o", "json")
        assert code == 0, err
        return json.loads(out)


@pytest.fixture
async def kubectl_here(kubectl: Path, tmp_path: Path) -> AsyncIterator[Kubectl]:
    async with site(tmp_path) as found, webhooks(found.client):
        yield Kubectl(kubectl, found, tmp_path)


def preemption_of(queue: Json) -> Preemption:
    return cluster_queue_row(msgspec.convert(queue, kueue.ClusterQueue)).preemption


@guide
async def test_both_cluster_queues_of_the_guide_are_applied_as_they_stand(
    kubectl_here: Kubectl,
) -> None:
    first = await kubectl_here("apply", "-f", str(MANIFEST))
    again = await kubectl_here("apply", "-f", str(MANIFEST))
    names = ("team-a-queue", "non-preemptive-queue")
    made, kept = (
        "".join(f"clusterqueue.kueue.x-k8s.io/{name} {what}\n" for name in names)
        for what in ("created", "unchanged")
    )
    assert first == (0, made, "")
    assert again == (0, kept, "")

    team = await kubectl_here.get("cq", "team-a-queue")
    other = await kubectl_here.get("clusterqueues", "non-preemptive-queue")
    assert preemption_of(team) == Preemption(
        Policy.LOWER_PRIORITY, Policy.ANY, BorrowWithinCohort(Policy.LOWER_PRIORITY)
    )
    assert preemption_of(other) == Preemption(
        Policy.NEVER, Policy.NEVER, BorrowWithinCohort(Policy.NEVER)
    )
    assert team["metadata"]["finalizers"] == [RESOURCE_IN_USE]
    quotas = cluster_queue_row(msgspec.convert(team, kueue.ClusterQueue)).groups[0].flavors[0]
    assert {name: quota.nominal for name, quota in quotas.resources.items()} == {
        "cpu": 16_000,
        "memory": 64 * 2**30,
        "nvidia.com/gpu": 4,
    }


@guide
async def test_each_block_of_the_guide_is_applied_alone_and_server_side(
    kubectl_here: Kubectl,
) -> None:
    for block in MANIFEST.read_text().split("\n---\n"):
        code, out, err = await kubectl_here("apply", "--server-side", "-f", "-", text=block)
        name = yaml.safe_load(block)["metadata"]["name"]
        assert (code, out, err) == (
            0,
            f"clusterqueue.kueue.x-k8s.io/{name} serverside-applied\n",
            "",
        )


WITHIN = ("Never", "LowerPriority", "LowerOrNewerEqualPriority")
RECLAIM = ("Never", "LowerPriority", "Any")
BORROW = ("Never", "LowerPriority")


async def test_every_value_of_the_three_policies_is_applied(kubectl_here: Kubectl) -> None:
    objects: list[Json] = []
    for within in WITHIN:
        for reclaim in RECLAIM:
            for borrow in BORROW:
                if reclaim == "Never" and borrow != "Never":
                    continue
                policies: Json = {
                    "withinClusterQueue": within,
                    "reclaimWithinCohort": reclaim,
                    "borrowWithinCohort": {"policy": borrow},
                }
                if borrow != "Never":
                    policies["borrowWithinCohort"]["maxPriorityThreshold"] = -7
                name = f"q-{len(objects)}"
                objects.append(cluster_queue(name, preemption=policies, cohortName="all"))
    code, _, err = await kubectl_here.apply(*objects)
    assert (code, err, len(objects)) == (0, "", 15)
    listed = (await kubectl_here.get("cq"))["items"]
    stored = {each["metadata"]["name"]: each["spec"]["preemption"] for each in listed}
    assert stored == {each["metadata"]["name"]: each["spec"]["preemption"] for each in objects}


async def test_a_whole_setup_is_applied_and_shown(kubectl_here: Kubectl) -> None:
    objects = [
        kueue_object("ResourceFlavor", "default-flavor"),
        kueue_object("WorkloadPriorityClass", "high", value=1000, description="first"),
        kueue_object("Cohort", "all", {"parentName": "root"}),
        cluster_queue("team", cohortName="all", namespaceSelector={}),
        local_queue("door", "team"),
        kueue_object("AdmissionCheck", "budget", {"controllerName": "example.com/budget"}),
        workload("work", priority=1000),
    ]
    code, out, err = await kubectl_here.apply(*objects)
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "resourceflavor.kueue.x-k8s.io/default-flavor created",
        "workloadpriorityclass.kueue.x-k8s.io/high created",
        "cohort.kueue.x-k8s.io/all created",
        "clusterqueue.kueue.x-k8s.io/team created",
        "localqueue.kueue.x-k8s.io/door created",
        "admissioncheck.kueue.x-k8s.io/budget created",
        "workload.kueue.x-k8s.io/work created",
    ]
    for short, expected in (
        ("cq", "NAME   COHORT   PENDING WORKLOADS\nteam   all      \n"),
        ("lq", "NAME   CLUSTERQUEUE   PENDING WORKLOADS   ADMITTED WORKLOADS\n"),
        ("wl", "NAME   QUEUE   RESERVED IN   ADMITTED   FINISHED   AGE\n"),
        ("rf", "NAME             AGE\n"),
        ("workloadpriorityclasses", "NAME   VALUE\nhigh   1000\n"),
    ):
        code, out, err = await kubectl_here("get", short)
        assert (code, err) == (0, "") and out.startswith(expected), (out, err)


async def test_v1beta1_manifests_are_taken_with_the_references_warning(
    kubectl_here: Kubectl,
) -> None:
    queue = cluster_queue("old", cohort="all") | {"apiVersion": "kueue.x-k8s.io/v1beta1"}
    code, out, err = await kubectl_here.apply(queue)
    assert (code, out) == (0, "clusterqueue.kueue.x-k8s.io/old created\n")
    assert err == "Warning: This version is deprecated. Use v1beta2 instead.\n"
    newer = await kubectl_here.get("clusterqueues.v1beta2.kueue.x-k8s.io", "old")
    assert newer["spec"]["cohortName"] == "all"


async def test_a_mistake_in_a_manifest_is_named_with_its_field(kubectl_here: Kubectl) -> None:
    typo = cluster_queue("a", cohortname="all")
    code, _, err = await kubectl_here.apply(typo)
    assert code == 1 and 'strict decoding error: unknown field "spec.cohortname"' in err
    never = {"reclaimWithinCohort": "Never", "borrowWithinCohort": {"policy": "LowerPriority"}}
    code, _, err = await kubectl_here.apply(cluster_queue("a", preemption=never))
    assert code == 1 and "reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never" in err
    code, _, err = await kubectl_here.apply(
        kueue_object("Cohort", "a", {"fairSharing": {"weight": "1n"}})
    )
    assert code == 1 and 'admission webhook "vcohort.kb.io" denied the request' in err
    assert "When not 0, weight must be > 10e-9" in err


async def test_the_definitions_are_applied_from_their_files(kubectl: Path, tmp_path: Path) -> None:
    """With their anchors, which any reader of YAML knows."""
    async with site(tmp_path, crds=False) as found:
        command = Kubectl(kubectl, found, tmp_path)
        for name in KUEUE_NAMES:
            code, out, err = await command("apply", "-f", "-", text=text(name))
            line = f"customresourcedefinition.apiextensions.k8s.io/{name} created\n"
            assert (code, out, err) == (0, line, "")
            stored = await command.get("crd", name)
            expected = load(name)["spec"]["versions"]
            assert stored["spec"]["versions"] == expected


async def test_the_fields_are_explained(kubectl_here: Kubectl) -> None:
    code, out, _ = await kubectl_here("explain", "cq.spec.preemption")
    assert code == 0
    for field in ("withinClusterQueue", "reclaimWithinCohort", "borrowWithinCohort"):
        assert field in out
