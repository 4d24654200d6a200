"""What is asked for and not served makes work wait, with a condition that says so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from reprieve.api.kueue import PodSet, TopologyRequest, Workload, WorkloadSpec
from reprieve.api.kueue_topology import MULTI_KUEUE
from reprieve.engine.quota.cycle import cycle
from reprieve.engine.quota.entries import Outcome
from reprieve.engine.quota.queues import Queues
from reprieve.engine.quota.state import Holdings
from reprieve.intake.quota_workloads import PodSetRows, workload_row
from reprieve.jobs.pod_sets import pod_sets_of
from reprieve.jobs.table import BUILT_IN
from reprieve.kube.resource import PODS
from tests.quota.cases import NOW, Size, scene
from tests.quota_plane.pod_lives import ACTIVE
from tests.quota_plane.site import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    NAMESPACE,
    Object,
    cluster_queue,
    flavor,
    job,
    local_queue,
    site,
)

REQUIRED = "kueue.x-k8s.io/podset-required-topology"
PREFERRED = "kueue.x-k8s.io/podset-preferred-topology"
TEXT = (
    "pod set main requires the topology level cloud.example/rack, and topology-aware scheduling is "
    f"not supported: remove {REQUIRED} (or prefer the level) to have it queued"
)

WHY = (
    "Can't admit new workloads: references AdmissionCheck(s) of MultiKueue, which is not supported"
    ": far."
)


def asking(name: str, annotation: str, queue: str = "q") -> Object:
    found = job(name, queue, pods=1)
    metadata = {"annotations": {annotation: "cloud.example/rack"}}
    found["spec"]["template"]["metadata"] = metadata
    return found


async def test_who_requires_a_topology_waits_who_prefers_one_is_warned_and_multikueue_is_inactive(
    tmp_path: Path,
) -> None:
    check = {"metadata": {"name": "far"}, "spec": {"controllerName": MULTI_KUEUE}}
    far: dict[str, Any] = {"admissionChecksStrategy": {"admissionChecks": [{"name": "far"}]}}
    objects = (
        flavor(topologyName="racks", nodeLabels={"pool": "a"}),
        cluster_queue("team", 8),
        cluster_queue("other", 8, **far),
        *(local_queue("q", "team"), local_queue("away", "other")),
    )
    async with site(tmp_path, *objects, start=False) as cluster:
        await cluster.client.create(ADMISSION_CHECKS, check, dict)
        await cluster.client.patch_status(ADMISSION_CHECKS, "", "far", ACTIVE, dict)
        await cluster.start()
        await cluster.create(asking("bound", REQUIRED), asking("loose", PREFERRED))
        await cluster.create(job("away", "away"))

        async def said() -> bool:
            found = {name: await cluster.conditions(name) for name in ("bound", "away")}
            return (
                found["bound"].get("QuotaReserved") == ("False", "Misconfigured", TEXT)
                and found["away"].get("QuotaReserved")
                == ("False", "Suspended", "ClusterQueue other is inactive")
                and "loose" in await cluster.admitted()
            )

        await cluster.until("both are told why they wait, and the third runs", said)
        page = await cluster.client.list(PODS, dict, namespace=NAMESPACE)
        owners = {each["metadata"]["ownerReferences"][0]["name"] for each in page.items}
        assert owners <= {"loose"}

        async def inactive() -> bool:
            other = await cluster.client.get(CLUSTER_QUEUES, "", "other", dict)
            said = (other.get("status") or {}).get("conditions") or ()
            return [(e["status"], e["reason"], e["message"]) for e in said] == [
                ("False", "AdmissionCheckInactive", WHY)
            ]

        await cluster.until("the queue says why it is inactive", inactive)

        async def warned() -> bool:
            about = [each[3] for each in await cluster.events() if each[:2] == ("Job", "loose")]
            return "TopologyIgnored" in about

        await cluster.until("who prefers a level is warned", warned)


def test_the_workload_of_a_job_asks_for_what_its_template_is_annotated_with() -> None:
    (kind,) = (each for each in BUILT_IN if each.kind == "Job")
    (pod_set,) = pod_sets_of(kind, asking("a", REQUIRED))
    assert pod_set["topologyRequest"] == {"required": "cloud.example/rack"}
    (pod_set,) = pod_sets_of(kind, job("b"))
    assert "topologyRequest" not in pod_set


def test_over_random_clusters_nobody_that_requires_a_topology_is_admitted_or_preempts() -> None:
    random, waited, others = Random(5), 0, 0
    for number in range(200):
        case = scene(random, size=Size(pending=12))
        holdings, queues = Holdings(case.configuration), Queues(case.configuration)
        for workload in case.admitted:
            holdings.hold(workload)
        bound = set()
        for workload in (*case.pending, case.incoming):
            asked = TopologyRequest(required="rack") if random.random() < 0.4 else None
            spec = WorkloadSpec(pod_sets=[PodSet(topology_request=asked)])
            invalid = workload_row(Workload(spec=spec), PodSetRows()).invalid
            assert bool(invalid) == (asked is not None)
            bound.update([workload.key] if asked is not None else ())
            queues.push(replace(workload, invalid=invalid))
        for entry in cycle(holdings, queues, NOW).entries:
            if entry.workload.key in bound:
                assert entry.outcome not in (Outcome.ADMITTED, Outcome.PREEMPTING), number
                waited += "requires the topology level rack" in entry.message
            else:
                others += entry.outcome in (Outcome.ADMITTED, Outcome.PREEMPTING)
    assert waited >= 100 and others >= 60, (waited, others)
