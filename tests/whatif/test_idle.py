"""Idle work that a plan names is preempted then: three planes on one cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from kubelocal.machines.node.gpus import Root
from reprieve.cli.sessions.deciding import installed_deciders
from reprieve.cli.sessions.reading import reading_client
from reprieve.cli.snapshot import wanted_kinds
from reprieve.cli.texts.plan_text import plan_text
from reprieve.engine.diagnosis.reasons import Reason
from reprieve.kube.bodies import PatchType
from reprieve.kube.credentials import load_connection
from reprieve.kube.resource import GPU_WORKLOADS, KAIWO_CONFIGS, PREEMPTIONS
from reprieve.scenarios.model import NodeSpec
from reprieve.whatif.copy.lists import discovered, gather
from reprieve.whatif.questions.answer import Answer, Verdict
from reprieve.whatif.questions.planning import planned as plan
from reprieve.whatif.snapshots.stored import snapshot_of_bytes, stored_bytes
from reprieve.whatif.submitting.submission import Document, matched
from tests.idle.site import PREFIX
from tests.quota_plane.site import JOBS, cluster_queue, flavor, job, local_queue
from tests.scheduling.site import NAMESPACE, Site, site
from tests.virtual_time import LoopClock
from tests.whatif.asking import ask
from tests.whatif.playing import create

Object = dict[str, Any]
PLANES = "idle,scheduling,quota"
GPU = "amd.com/gpu"
QUOTA = {
    "coveredResources": ["cpu", GPU],
    "flavors": [
        {
            "name": "default-flavor",
            "resources": [{"name": each, "nominalQuota": "100"} for each in ("cpu", GPU)],
        }
    ],
}
BASE = (flavor(), cluster_queue("cq", 0, resourceGroups=[QUOTA]), local_queue("q", "cq"))
_SETTLED_S = 60.0


def gpu_job(name: str, gpus: int, *, queue: str = "", pods: int = 1, **annotations: str) -> Object:
    """Return a Job whose pods ask for so many GPUs each; `grace_period="1s"` is an annotation."""
    body = job(name, queue, pods=pods, suspend=bool(queue))
    if not queue:
        body["metadata"]["labels"] = {}
    body["metadata"]["annotations"] = {
        PREFIX + key.replace("_", "-"): value for key, value in annotations.items()
    }
    limits = {"cpu": "1", GPU: str(gpus)}
    container = body["spec"]["template"]["spec"]["containers"][0]
    container["resources"] = {"requests": dict(limits), "limits": {GPU: str(gpus)}}
    return body


@asynccontextmanager
async def three_planes(folder: Path, *nodes: int) -> AsyncIterator[Site]:
    """Start a cluster with nodes of so many GPUs each and an operator of three planes."""
    specs = [
        NodeSpec(f"node-{i}", {"cpu": "32", "memory": "64Gi", "pods": "110", GPU: str(gpus)})
        for i, gpus in enumerate(nodes)
    ]
    async with site(specs, folder, kubelet=True, kueue=True) as cluster:
        for obj in BASE:
            await create(cluster.client, obj)
        await cluster.operator(
            "--controllers", PLANES, environment=environment(cluster, grace_period="1s")
        )
        yield cluster


def environment(cluster: Site, grace_period: str) -> dict[str, str]:
    """Return the variables of an idle plane beside the cluster's exporter."""
    return {
        "GPU_PREEMPTION_ENABLED": "true",
        "GPU_PREEMPTION_METRICS_ENDPOINT": cluster.embedded.metrics_endpoint,
        "GPU_PREEMPTION_DEFAULT_GRACE_PERIOD": grace_period,
    }


async def started(cluster: Site, body: Object, percent: float) -> None:
    """Create a Job, let its GPUs be so busy, and wait until all is told of it."""
    name = body["metadata"]["name"]
    exporter = cluster.embedded.machines.exporter
    exporter.set_utilization(Root(NAMESPACE, "Job", name), percent)
    await cluster.client.create(JOBS, body, dict)
    await asyncio.sleep(_SETTLED_S)


async def planned(cluster: Site, *objects: Object) -> Answer:
    asked = await ask(
        cluster.embedded.kubeconfig,
        *objects,
        controllers=PLANES,
        names=["default-scheduler"],
        namespace=NAMESPACE,
        environment={"GPU_PREEMPTION_DEFAULT_GRACE_PERIOD": "1s"},
    )
    assert not {path for method, path, dry in asked.sent if method != "GET" and dry != "All"}
    return asked.answer


def idle_reason(answer: Answer) -> Reason | None:
    """Return why no idle work is preempted for what was submitted."""
    (outcome,) = answer.outcomes
    return None if outcome.idle is None else outcome.idle.reason


async def happened(cluster: Site) -> set[tuple[str, str, str]]:
    """Return plane, kind and name of everybody whom records name."""
    page = await cluster.client.list(PREEMPTIONS, dict)
    return {
        (each["spec"]["plane"], victim["root"]["kind"], victim["root"]["name"])
        for each in page.items
        for victim in each["spec"]["victims"]
    }


async def test_idle_work_that_makes_way_is_named_and_then_makes_way(tmp_path: Path) -> None:
    async with three_planes(tmp_path, 4, 4) as cluster:
        await started(cluster, gpu_job("idle", 4, enabled="true"), 0.0)
        await started(cluster, gpu_job("busy", 4, enabled="true"), 90.0)
        wanted = gpu_job("wanted", 4, enabled="true")
        answer = await planned(cluster, wanted)
        assert answer.verdict is Verdict.STARTS_WITH_VICTIMS, answer
        assert [(e.plane, e.kind, e.name, e.rule) for e in answer.victims] == [
            ("idle", "Job", "idle", "OldestIdle")
        ]
        assert answer.victims[0].devices == 4
        assert not answer.warnings
        lines = plan_text(answer, PLANES.split(","))
        assert "     Job team/idle  4 amd.com/gpu  " in "\n".join(lines), lines
        await started(cluster, wanted, 90.0)
        assert await happened(cluster) == {("idle", "Job", "idle")}
        placed = {
            (name.rpartition("-")[0], where) for name, where in (await cluster.placed()).items()
        }
        where = {(each.pod.rpartition("-")[0], each.node) for each in answer.placement}
        assert where == {each for each in placed if each[0] == "wanted"}


async def test_queued_work_for_which_idle_work_makes_way_has_its_quota_first(
    tmp_path: Path,
) -> None:
    async with three_planes(tmp_path, 4) as cluster:
        await started(cluster, gpu_job("idle", 4, enabled="true"), 0.0)
        wanted = gpu_job("wanted", 2, queue="q", pods=2, enabled="true")
        answer = await planned(cluster, wanted)
        assert answer.verdict is Verdict.STARTS_WITH_VICTIMS, answer
        assert [(each.plane, each.name) for each in answer.victims] == [("idle", "idle")]
        assert [each.cluster_queue for each in answer.outcomes] == ["cq"]
        await started(cluster, wanted, 90.0)
        assert await happened(cluster) == {("idle", "Job", "idle")}
        assert len(await cluster.placed()) == 2


async def test_a_stored_snapshot_gives_the_same_plan(tmp_path: Path) -> None:
    async with three_planes(tmp_path, 4) as cluster:
        await started(cluster, gpu_job("idle", 4, enabled="true"), 0.0)
        config: Object = {"metadata": {"name": "kaiwo"}, "spec": {"gpuPreemption": {}}}
        config["spec"]["gpuPreemption"]["defaultGracePeriod"] = "1s"
        await cluster.client.patch(KAIWO_CONFIGS, "", "kaiwo", config, dict)
        connection = await load_connection(str(cluster.embedded.kubeconfig))
        client = reading_client(connection, LoopClock())
        taken = await gather(client, wanted_kinds(), LoopClock())
        await client.close()
    stored = snapshot_of_bytes(stored_bytes(taken), "the test")
    deciders = installed_deciders(stored, ("default-scheduler",), {})
    assert deciders.options.controllers == ("idle", "scheduling", "quota")
    wanted = gpu_job("wanted", 4, enabled="true")
    found = matched([Document(wanted, "the test")], discovered(stored.documents), NAMESPACE)
    live = await plan(None, taken, deciders, found)
    again = await plan(None, stored, deciders, found)
    assert live.verdict is again.verdict is Verdict.STARTS_WITH_VICTIMS
    assert live.victims == again.victims
    assert [(each.plane, each.name) for each in again.victims] == [("idle", "idle")]


async def test_busy_work_and_work_that_did_not_opt_in_stay(tmp_path: Path) -> None:
    async with three_planes(tmp_path, 4, 4) as cluster:
        await started(cluster, gpu_job("busy", 4, enabled="true"), 90.0)
        await started(cluster, gpu_job("outside", 4), 0.0)
        wanted = gpu_job("wanted", 4, enabled="true")
        answer = await planned(cluster, wanted)
        assert answer.verdict is Verdict.WAITS, answer
        assert answer.victims == ()
        assert idle_reason(answer) is Reason.NOBODY_IDLE
        outside = await planned(cluster, gpu_job("asks-nobody", 4))
        assert idle_reason(outside) is Reason.NOT_OPTED_IN
        await started(cluster, wanted, 90.0)
        assert await happened(cluster) == set()
        assert not any(name.startswith("wanted") for name in await cluster.placed())


async def test_a_sample_that_is_out_of_date_makes_nobody_idle(tmp_path: Path) -> None:
    async with three_planes(tmp_path, 4) as cluster:
        await started(cluster, gpu_job("idle", 4, enabled="true"), 0.0)
        await cluster.stop()
        (workload,) = (await cluster.client.list(GPU_WORKLOADS, dict)).items
        pods = workload["status"]["trackedPods"]
        for metric in pods[0]["gpuMetrics"]:
            metric["lastUpdate"] = "2020-01-01T00:00:00Z"
        await cluster.client.patch(
            GPU_WORKLOADS,
            NAMESPACE,
            workload["metadata"]["name"],
            {"status": {"trackedPods": pods}},
            dict,
            patch_type=PatchType.MERGE,
            subresource="status",
        )
        answer = await planned(cluster, gpu_job("wanted", 4, enabled="true"))
        assert answer.verdict is Verdict.WAITS, answer
        assert answer.victims == ()
        assert idle_reason(answer) is Reason.STALE_METRICS


async def test_work_that_is_not_idle_for_long_enough_is_told_with_when(tmp_path: Path) -> None:
    async with three_planes(tmp_path, 4) as cluster:
        await started(cluster, gpu_job("idle", 4, enabled="true", grace_period="1h"), 0.0)
        answer = await planned(cluster, gpu_job("wanted", 4, enabled="true"))
        assert answer.verdict is Verdict.WAITS, answer
        assert idle_reason(answer) is Reason.NOT_IDLE_YET
        (outcome,) = answer.outcomes
        assert outcome.idle is not None and " at 20" in outcome.idle.text
        # What waits for quota is told, too: it requests GPUs that it does not have yet.
        larger = gpu_job("larger", 40, queue="q", pods=3, enabled="true")
        (outcome,) = (await planned(cluster, larger)).outcomes
        assert outcome.verdict is Verdict.NEVER_FITS and outcome.idle is None
