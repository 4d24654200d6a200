"""A StatefulSet and a Deployment that outgrow their quota, with the real controllers of pods.

`kube-controller-manager` makes every pod again that is deleted, at once; what it does with a gated
replica that says it is one too many is a real server's behaviour. Kubelets are played.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import yaml

from kubeworld.objects.paths import first
from reprieve.jobs.pods import SURPLUS
from reprieve.kube.errors import NotFound
from reprieve.kube.resource import PODS, Resource
from tests.integration.control_plane import Binaries
from tests.quota_plane.deletions import counted_deletions
from tests.quota_plane.kind_stories import GROUP, STATEFUL_SETS, TOTAL, is_gated
from tests.quota_plane.site import (
    CLUSTER_QUEUES,
    NAMESPACE,
    WORKLOADS,
    Object,
    cluster_queue,
    flavor,
    local_queue,
)
from tests.quota_plane.test_pod_bounds import member
from tests.quota_plane.test_surplus import (
    A_WHILE_S,
    DEPLOYMENTS,
    HOOKS,
    VALUES,
    labelled,
    text,
)
from tests.reliability.stand import Stand, stand

FLAVORS = Resource("kueue.x-k8s.io", "v1beta2", "resourceflavors", "ResourceFlavor", False)
LOCAL_QUEUES = Resource("kueue.x-k8s.io", "v1beta2", "localqueues", "LocalQueue")
_PATIENCE_S = 240.0


@pytest.mark.slow
async def test_sets_that_outgrow_their_quota_lose_no_pods_with_the_real_controllers(
    controllers: Binaries, tmp_path: Path
) -> None:
    config = tmp_path / "values.yaml"
    config.write_text(yaml.safe_dump(VALUES))
    async with stand(controllers, tmp_path, nodes=4, cpus=8) as cluster:
        operators = cluster.operators(
            *("--controllers", "quota,scheduling", "--scheduler-name", "default-scheduler"),
            *("--config", str(config)),
        )
        await operators.start()
        try:
            await until("the webhooks are registered", lambda: registered(cluster))
            await cluster.create(FLAVORS, flavor())
            await cluster.create(CLUSTER_QUEUES, cluster_queue("cq", 16))
            await cluster.create(LOCAL_QUEUES, local_queue("q", "cq"))
            async with counted_deletions(cluster.client) as deletions:
                await outgrow_a_stateful_set(cluster)
                await outgrow_a_group(cluster)
                lost = {owner for (owner, _), _ in deletions.by_minute.items() if owner[0] == "Pod"}
                assert lost == set()
            await state_the_role_of_a_smaller_pod(cluster)
            await keep_a_rollout_from_its_end(cluster)
        finally:
            await operators.stop()


async def outgrow_a_stateful_set(cluster: Stand) -> None:
    await cluster.client.create(STATEFUL_SETS, labelled("StatefulSet", "ss", 2), dict)
    both = {"ss-0": "Running", "ss-1": "Running"}

    async def runs() -> bool:
        return await phases(cluster, "ss") == both

    await until("two replicas run", runs)
    await cluster.client.patch_scale(STATEFUL_SETS, NAMESPACE, "ss", 8)

    async def held() -> bool:
        return await surplus(cluster, "ss") == {"ss-2"}

    await until("the third says that it is one too many", held)
    await asyncio.sleep(2 * A_WHILE_S)
    assert await phases(cluster, "ss") == {**both, "ss-2": "Gated"}


async def outgrow_a_group(cluster: Stand) -> None:
    obj = labelled("Deployment", "web", 3)
    obj["spec"]["template"]["metadata"]["annotations"] = {GROUP: "few", TOTAL: "2"}
    await cluster.client.create(DEPLOYMENTS, obj, dict)

    async def held() -> bool:
        at = sorted((await phases(cluster, "web")).values())
        return at == ["Gated", "Running", "Running"] and len(await surplus(cluster, "web")) == 1

    await until("two run, and the third says why it does not", held)
    await asyncio.sleep(2 * A_WHILE_S)
    assert await held()
    (spare,) = await surplus(cluster, "web")
    pod: Object = await cluster.client.get(PODS, NAMESPACE, spare, dict)
    (said,) = (each for each in pod["status"]["conditions"] if each["type"] == SURPLUS)
    assert said["message"] == text("few", 2)


async def state_the_role_of_a_smaller_pod(cluster: Stand) -> None:
    for name, cpu in (("a-small", "1"), ("b-large", "6")):
        pod = member(name, cpu)
        pod["metadata"]["labels"]["app"] = "roles"
        await cluster.client.create(PODS, pod, dict)

    async def held() -> bool:
        at = await phases(cluster, "roles")
        return at == {"a-small": "Running", "b-large": "Gated"} and bool(
            await surplus(cluster, "roles")
        )

    await until("the larger one stays gated", held)
    await asyncio.sleep(A_WHILE_S)
    assert await held()


async def keep_a_rollout_from_its_end(cluster: Stand) -> None:
    """A replica of the older revision is made again while its set has no quota."""
    obj = labelled("StatefulSet", "roll", 1)
    obj["spec"]["updateStrategy"] = {"type": "RollingUpdate", "rollingUpdate": {"partition": 9}}
    await cluster.client.create(STATEFUL_SETS, obj, dict)

    async def runs() -> bool:
        return await phases(cluster, "roll") == {"roll-0": "Running"}

    await until("the replica runs", runs)
    change = {"spec": {"template": {"metadata": {"annotations": {"turn": "2"}}}}}
    await cluster.client.patch(STATEFUL_SETS, NAMESPACE, "roll", change, dict)

    async def rolls() -> bool:
        held: Object = await cluster.client.get(STATEFUL_SETS, NAMESPACE, "roll", dict)
        return bool(held["status"]["currentRevision"] != held["status"]["updateRevision"])

    await until("a rollout is under way", rolls)
    workloads = (await cluster.client.list(WORKLOADS, dict, namespace=NAMESPACE)).items
    (name,) = (w["metadata"]["name"] for w in workloads if "-roll-" in w["metadata"]["name"])
    await cluster.client.patch(WORKLOADS, NAMESPACE, name, {"spec": {"active": False}}, dict)

    async def gated() -> bool:
        return await phases(cluster, "roll") == {"roll-0": "Gated"}

    await until("the replica waits for quota", gated)
    await asyncio.sleep(A_WHILE_S)
    assert await gated() and await rolls()


async def registered(cluster: Stand) -> bool:
    try:
        found: Object = await cluster.client.get(HOOKS, "", "reprieve-quota", dict)
    except NotFound:
        return False
    return any(each["name"] == "mpod.kb.io" for each in found["webhooks"])


async def pods_of(cluster: Stand, name: str) -> list[Object]:
    page = await cluster.client.list(PODS, dict, namespace=NAMESPACE)
    return [pod for pod in page.items if pod["metadata"]["labels"].get("app") == name]


async def phases(cluster: Stand, name: str) -> dict[str, str]:
    return {
        pod["metadata"]["name"]: "Gated" if is_gated(pod) else pod["status"]["phase"]
        for pod in await pods_of(cluster, name)
    }


async def surplus(cluster: Stand, name: str) -> set[str]:
    return {
        pod["metadata"]["name"]
        for pod in await pods_of(cluster, name)
        for each in first(pod, "status.conditions") or ()
        if (each["type"], each["status"]) == (SURPLUS, "True")
    }


async def until(what: str, holds: Callable[[], Awaitable[bool]]) -> None:
    deadline = asyncio.get_running_loop().time() + _PATIENCE_S
    while not await holds():
        assert asyncio.get_running_loop().time() < deadline, f"in vain: {what}"
        await asyncio.sleep(0.5)
