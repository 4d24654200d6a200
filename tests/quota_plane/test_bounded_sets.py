"""What of a set is let go is bounded by what is admitted now, in whatever order things happen."""

from __future__ import annotations

import asyncio
import contextlib
import random
from pathlib import Path

import pytest

from kubeworld.objects.paths import first
from reprieve.kube.errors import ApiError
from reprieve.kube.resource import EVENTS, PODS
from tests.quota_plane.gated_site import CLASS, QUEUE, gated_site
from tests.quota_plane.kind_stories import ROWS, STATEFUL_SETS, is_gated, manifest, resource
from tests.quota_plane.site import (
    JOBS,
    NAMESPACE,
    WORKLOADS,
    Object,
    Site,
    cluster_queue,
    flavor,
    job,
    local_queue,
    node,
    priority_class,
)
from tests.quota_plane.test_kinds import prepare

KINDS = (ROWS["Pod"], ROWS["StatefulSet"])


def stateful_set(replicas: int, policy: str = "Parallel") -> Object:
    obj = manifest("StatefulSet", "web")
    obj["metadata"]["labels"] = {QUEUE: "q", CLASS: "low"}
    obj["spec"] |= {"replicas": replicas, "podManagementPolicy": policy}
    requests = obj["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]
    requests["cpu"] = "1"
    return obj


async def let_go(cluster: Site) -> int:
    """Return how many pods are there without a gate."""
    pods = (await cluster.client.list(PODS, dict, namespace=NAMESPACE)).items
    return sum(not is_gated(pod) for pod in pods)


async def admitted(cluster: Site) -> int:
    """Return for how many pods the Workloads have quota."""
    workloads = (await cluster.client.list(WORKLOADS, dict, namespace=NAMESPACE)).items
    return sum(
        each["count"]
        for workload in workloads
        for each in first(workload, "status.admission.podSetAssignments") or ()
    )


@pytest.mark.parametrize(
    "wait", [0.3, *(pytest.param(each, marks=pytest.mark.slow) for each in (0.0, 0.6, 4.0, 12.0))]
)
async def test_a_set_scaled_through_zero_is_queued_with_all_its_replicas(
    wait: float, tmp_path: Path
) -> None:
    objects = [flavor(), cluster_queue("cq", 1), local_queue("q", "cq"), priority_class("low", 1)]
    async with gated_site(tmp_path, *objects, kinds=KINDS, nodes=[node("node-0")]) as cluster:
        client = cluster.client
        await client.create(STATEFUL_SETS, stateful_set(1), dict)

        async def runs() -> bool:
            return await let_go(cluster) == 1

        await cluster.until("one runs", runs)
        await client.patch_scale(STATEFUL_SETS, NAMESPACE, "web", 0)
        await asyncio.sleep(wait)
        await client.patch_scale(STATEFUL_SETS, NAMESPACE, "web", 4)
        await asyncio.sleep(30)
        # With one still there in between, that one goes on; never more than have quota.
        assert await let_go(cluster) <= await admitted(cluster) <= 1
        (workload,) = (await client.list(WORKLOADS, dict, namespace=NAMESPACE)).items
        if wait >= 4:
            assert workload["spec"]["podSets"][0]["count"] == 4
            assert await let_go(cluster) == 0


@pytest.mark.parametrize("seed", range(3))
async def test_no_order_of_scaling_changing_and_restarting_lets_more_go(
    seed: int, tmp_path: Path
) -> None:
    chance = random.Random(seed)
    objects = [flavor(), cluster_queue("cq", 3), local_queue("q", "cq"), priority_class("low", 1)]
    async with gated_site(tmp_path, *objects, kinds=KINDS, nodes=[node("node-0")]) as cluster:
        client = cluster.client
        policy = chance.choice(("Parallel", "OrderedReady"))
        await client.create(STATEFUL_SETS, stateful_set(2, policy), dict)
        done: list[object] = []
        for _ in range(14):
            step = chance.choice(("scale", "scale", "scale", "deactivate", "delete", "restart"))
            done.append(step)
            workloads = (await client.list(WORKLOADS, dict, namespace=NAMESPACE)).items
            if step == "scale":
                done.append(replicas := chance.choice((0, 1, 2, 3, 4, 6)))
                await client.patch_scale(STATEFUL_SETS, NAMESPACE, "web", replicas)
            elif step == "restart":
                kinds = cluster.plane.context.options if cluster.plane is not None else None
                await cluster.stop()
                await cluster.start(kinds)
            elif workloads:
                name = workloads[0]["metadata"]["name"]
                if step == "delete":
                    await client.delete(WORKLOADS, NAMESPACE, name)
                else:
                    active = {"spec": {"active": chance.random() < 0.5}}
                    await client.patch(WORKLOADS, NAMESPACE, name, active, dict)
            await asyncio.sleep(chance.choice((0.0, 0.2, 0.6, 2.0, 8.0, 30.0)))
        # What terminates has its time to end; then nothing is beyond its admission.
        await asyncio.sleep(90)
        assert await let_go(cluster) <= await admitted(cluster) <= 3, done


def deployment(replicas: int) -> Object:
    body = manifest("Deployment", "dep")
    body["metadata"]["labels"] = {QUEUE: "q"}
    body["spec"]["replicas"] = replicas
    requests = body["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]
    requests["cpu"] = "1"
    return body


async def test_a_pod_that_names_a_queue_and_was_made_while_no_webhook_answered_is_ended(
    tmp_path: Path,
) -> None:
    """One that names none is nobody's matter, nor is one below a job."""
    objects = [flavor(), cluster_queue("cq", 1), local_queue("q", "cq")]
    lone, other, below = (manifest("Pod", name) for name in ("lone", "other", "below"))
    lone["metadata"]["labels"] = below["metadata"]["labels"] = {QUEUE: "q"}
    kinds = (ROWS["Pod"], ROWS["Job"])

    async def before(cluster: Site) -> None:
        made = await cluster.client.create(JOBS, job("above", suspend=False, pods=0), dict)
        above = {"apiVersion": "batch/v1", "kind": "Job", "name": "above", "controller": True}
        below["metadata"]["ownerReferences"] = [{**above, "uid": made["metadata"]["uid"]}]
        for each in (lone, other, below):
            await cluster.client.create(PODS, each, dict)

    async with gated_site(
        tmp_path, *objects, kinds=kinds, nodes=[node("node-0")], prepare=before
    ) as cluster:
        client = cluster.client

        async def told() -> bool:
            events = (await client.list(EVENTS, dict, namespace=NAMESPACE)).items
            about = {e["involvedObject"]["name"] for e in events if e["reason"] == "NotGated"}
            return about == {"lone"}

        await asyncio.sleep(30)
        assert len((await client.list(PODS, dict, namespace=NAMESPACE)).items) == 3
        await cluster.until("it is told", told)
        await asyncio.sleep(180)
        left = (await client.list(PODS, dict, namespace=NAMESPACE)).items
        live = {each["metadata"]["name"] for each in left if each["status"]["phase"] != "Failed"}
        assert live == {"other", "below"}


def by_expressions(body: Object) -> Object:
    """Return a set that selects the same pods, without `matchLabels`."""
    labels = body["spec"]["selector"]["matchLabels"]
    expressions = [
        {"key": key, "operator": "In", "values": [value, "else"]} for key, value in labels.items()
    ]
    more = [
        {"key": next(iter(labels)), "operator": "Exists"},
        {"key": "example.com/none", "operator": "DoesNotExist"},
        {"key": next(iter(labels)), "operator": "NotIn", "values": ["third", "fourth"]},
    ]
    selector = {"matchExpressions": [*expressions, *more]}
    return {**body, "spec": {**body["spec"], "selector": selector}}


@pytest.mark.parametrize("name", ["Deployment", "StatefulSet", "by-expressions"])
async def test_a_set_that_was_made_while_no_webhook_answered_is_told_reclaimed_and_queued(
    name: str, tmp_path: Path
) -> None:
    """Its template never said who gates its pods, and nobody changes it."""
    kind = ROWS["StatefulSet" if name == "StatefulSet" else "Deployment"]
    sets = resource(kind)
    body = stateful_set(2) if name == "StatefulSet" else deployment(2)
    if name == "by-expressions":
        body = by_expressions(body)
    objects = [flavor(), cluster_queue("cq", 1), local_queue("q", "cq"), priority_class("low", 1)]

    async def before(cluster: Site) -> None:
        await cluster.client.create(sets, body, dict)

        async def runs() -> bool:
            return await let_go(cluster) == 2

        await cluster.until("it runs without quota", runs)

    async with gated_site(
        tmp_path, *objects, kinds=(ROWS["Pod"], kind), nodes=[node("node-0")], prepare=before
    ) as cluster:
        client = cluster.client

        async def told() -> bool:
            events = (await client.list(EVENTS, dict, namespace=NAMESPACE)).items
            return any(
                each["involvedObject"]["name"] == body["metadata"]["name"]
                and each["reason"] == "NotGated"
                for each in events
            )

        await cluster.until("it is told", told)
        assert await let_go(cluster) == 2
        await asyncio.sleep(150)
        assert await let_go(cluster) == await admitted(cluster) == (name != "StatefulSet")
        pods = (await client.list(PODS, dict, namespace=NAMESPACE)).items
        assert len(pods) == 2
        await asyncio.sleep(300)
        again = (await client.list(PODS, dict, namespace=NAMESPACE)).items
        assert {each["metadata"]["uid"] for each in again} == {
            each["metadata"]["uid"] for each in pods
        }


def worker_set(replicas: int) -> Object:
    body = manifest("LeaderWorkerSet", "lws")
    body["metadata"]["labels"] = {QUEUE: "q"}
    body["spec"]["replicas"] = replicas
    template = body["spec"]["leaderWorkerTemplate"]
    template["size"] = 1
    template.pop("leaderTemplate", None)
    requests = template["workerTemplate"]["spec"]["containers"][0]["resources"]["requests"]
    requests["cpu"] = "1"
    return body


def queued_job(parallelism: int) -> Object:
    return job("job", pods=parallelism)


MAKERS = {
    "StatefulSet": stateful_set,
    "Deployment": deployment,
    "LeaderWorkerSet": worker_set,
    "Job": queued_job,
}
TEMPLATES = {"LeaderWorkerSet": ("spec", "leaderWorkerTemplate", "workerTemplate")}


async def request(cluster: Site, kind: str, name: str, cpu: int) -> None:
    """Change what the pods of a set request, where no webhook refuses it."""
    sets = resource(ROWS[kind])
    held = await cluster.client.get(sets, NAMESPACE, name, dict)
    path = TEMPLATES.get(kind, ("spec", "template"))
    containers = first(held, ".".join(path))["spec"]["containers"]
    containers[0]["resources"]["requests"]["cpu"] = str(cpu)
    change: Object = {"spec": {"containers": containers}}
    for part in reversed(path):
        change = {part: change}
    with contextlib.suppress(ApiError):
        await cluster.client.patch(sets, NAMESPACE, name, change, dict)


async def resize_one(cluster: Site, chance: random.Random) -> int:
    """Resize one of the pods in place, where no webhook refuses it; return to how many cpus."""
    cpus = chance.choice((1, 2, 6))
    pods = (await cluster.client.list(PODS, dict, namespace=NAMESPACE)).items
    if pods:
        pod = chance.choice(sorted(pods, key=lambda each: str(each["metadata"]["name"])))
        containers = pod["spec"]["containers"]
        containers[0]["resources"] = {"requests": {"cpu": str(cpus)}}
        with contextlib.suppress(ApiError):
            await cluster.client.patch(
                PODS,
                NAMESPACE,
                pod["metadata"]["name"],
                {"spec": {"containers": containers}},
                dict,
                subresource="resize",
            )
    return cpus


async def cpus_let_go(cluster: Site) -> int:
    """Return how many cpus the pods without a gate request."""
    pods = (await cluster.client.list(PODS, dict, namespace=NAMESPACE)).items
    return sum(
        int(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"])
        for pod in pods
        if not is_gated(pod) and pod["status"]["phase"] != "Failed"
    )


async def cpus_admitted(cluster: Site) -> int:
    """Return how many cpus the Workloads hold."""
    workloads = (await cluster.client.list(WORKLOADS, dict, namespace=NAMESPACE)).items
    return sum(
        int(each["resourceUsage"]["cpu"])
        for workload in workloads
        if not is_finished(workload)
        for each in first(workload, "status.admission.podSetAssignments") or ()
    )


def is_finished(workload: Object) -> bool:
    said = first(workload, "status.conditions") or ()
    return any(each["type"] == "Finished" and each["status"] == "True" for each in said)


@pytest.mark.parametrize("seed", range(8))
async def test_no_order_of_creating_changing_and_webhooks_away_leaves_more_running(
    seed: int, tmp_path: Path
) -> None:
    chance, away = random.Random(seed), [False]
    objects = [flavor(), cluster_queue("cq", 3), local_queue("q", "cq"), priority_class("low", 1)]
    kinds = (*KINDS, ROWS["Deployment"], ROWS["LeaderWorkerSet"], ROWS["Job"])
    made: dict[str, str] = {}
    async with gated_site(
        tmp_path,
        *objects,
        kinds=kinds,
        nodes=[node("node-0", 64)],
        prepare=prepare,
        away=lambda: away[0],
    ) as cluster:
        client = cluster.client
        done: list[object] = []
        for _ in range(14):
            steps = ("create", "scale", "scale", "patch", "request", "away", "away", "restart")
            step = chance.choice((*steps, "pod", "resize", "resize"))
            done.append(step)
            if step == "away":
                away[0] = not away[0]
            elif step == "restart":
                options = cluster.plane.context.options if cluster.plane is not None else None
                await cluster.stop()
                (await cluster.start(options)).context.gates_pods = True
            elif step == "create" and len(made) < 2:
                kind = chance.choice([each for each in MAKERS if each not in made.values()])
                body = MAKERS[kind](2)
                made[body["metadata"]["name"]] = kind
                await client.create(resource(ROWS[kind]), body, dict)
            elif step == "resize":
                done.append(await resize_one(cluster, chance))
            elif step == "pod":
                pods = (await client.list(PODS, dict, namespace=NAMESPACE)).items
                if pods:
                    name = chance.choice(sorted(each["metadata"]["name"] for each in pods))
                    await client.delete(PODS, NAMESPACE, name)
            elif made:
                name = chance.choice(sorted(made))
                sets = resource(ROWS[made[name]])
                if step == "scale" and made[name] != "Job":
                    done.append(replicas := chance.choice((0, 1, 2, 4)))
                    await client.patch_scale(sets, NAMESPACE, name, replicas)
                elif step == "request" and made[name] != "Job":
                    await request(cluster, made[name], name, chance.choice((1, 2, 6)))
                else:
                    notes = {"metadata": {"annotations": {"turn": str(chance.random())}}}
                    await client.patch(sets, NAMESPACE, name, notes, dict)
            await asyncio.sleep(chance.choice((0.0, 0.6, 8.0, 30.0, 90.0)))
        away[0] = False
        # A grace, a pause for each time that pods came again without a gate, and their ends.
        await asyncio.sleep(480)
        assert await cpus_let_go(cluster) <= await cpus_admitted(cluster) <= 3, done
