"""More pods than a group has quota for: the operator in its own process makes no storm of them.

A StatefulSet is scaled past its quota through its scale subresource, where no webhook is asked, and
a Deployment makes more pods than its group may have. Their controllers make every pod again that is
deleted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
import yaml

from kubeworld.objects.paths import first
from reprieve.jobs.pods import SURPLUS
from reprieve.kube.errors import NotFound
from reprieve.kube.resource import PODS, Resource
from reprieve.scenarios.embedded import OPERATOR_NAMESPACE
from reprieve.scenarios.operator import OperatorProcesses
from tests.quota_plane.deletions import Deletions, counted_deletions
from tests.quota_plane.gated_site import QUEUE
from tests.quota_plane.kind_stories import (
    GROUP,
    STATEFUL_SETS,
    TOTAL,
    is_gated,
    manifest,
    pods_labelled,
)
from tests.quota_plane.site import (
    NAMESPACE,
    Object,
    Site,
    cluster_queue,
    flavor,
    local_queue,
    site,
)

pytestmark = pytest.mark.real_time  # the operator is a process of its own

DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
HOOKS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration",
    namespaced=False,
)
#: Long enough for a storm to be one: before there were pauses it deleted 17 pods a second.
A_WHILE_S = 6.0
VALUES = {
    "quota": {
        "webhooks": {"url": "https://127.0.0.1:0"},
        "configuration": {
            "apiVersion": "config.kueue.x-k8s.io/v1beta2",
            "kind": "Configuration",
            "integrations": {"frameworks": ["pod", "deployment", "statefulset"]},
        },
    }
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[tuple[Site, Deletions]]:
    folder = tmp_path_factory.mktemp("surplus")
    config = folder / "values.yaml"
    config.write_text(yaml.safe_dump(VALUES))
    objects = [flavor(), cluster_queue("cq", 16), local_queue("q", "cq")]
    async with site(folder, *objects, start=False) as running:
        arguments = ("--controllers", "quota", "--metrics-port", "0", "--config", str(config))
        operator = OperatorProcesses(
            running.embedded.operator_kubeconfig,
            {"GPU_PREEMPTION_OPERATOR_NAMESPACE": OPERATOR_NAMESPACE},
            arguments=arguments,
        )
        await operator.start()
        try:
            await running.until("the webhooks are registered", lambda: registered(running))
            async with counted_deletions(running.client) as found:
                yield running, found
        finally:
            await operator.stop()


async def registered(cluster: Site) -> bool:
    try:
        found = await cluster.client.get(HOOKS, "", "reprieve-quota", dict)
    except NotFound:
        return False
    return any(each["name"] == "mpod.kb.io" for each in found["webhooks"])


def labelled(kind: str, name: str, replicas: int) -> Object:
    obj = manifest(kind, name)
    obj["metadata"]["labels"] = {QUEUE: "q"}
    obj["spec"]["replicas"] = replicas
    return obj


async def phases(cluster: Site, name: str) -> dict[str, str]:
    """Return what the pods of one set are at, by name."""
    return {
        each["metadata"]["name"]: "Gated" if is_gated(each) else str(first(each, "status.phase"))
        for each in await pods_labelled(cluster, f"app={name}")
    }


async def surplus(cluster: Site, name: str) -> dict[str, tuple[str, str]]:
    """Return what pods say of being one too many, by name."""
    return {
        pod["metadata"]["name"]: (each["status"], each["message"])
        for pod in await pods_labelled(cluster, f"app={name}")
        for each in first(pod, "status.conditions") or ()
        if each["type"] == SURPLUS
    }


def text(group: str, count: int) -> str:
    return (
        f"pod group '{group}' may have {count} pods and has them: this one is one more, and stays "
        "gated until one of them is deleted, or the group is queued again with more"
    )


@pytest.mark.asyncio(loop_scope="module")
async def test_a_set_that_is_scaled_past_its_quota_has_a_gated_pod_that_says_why(
    cluster: tuple[Site, Deletions],
) -> None:
    running, deletions = cluster
    await running.client.create(STATEFUL_SETS, labelled("StatefulSet", "ss", 2), dict)
    both = {"ss-0": "Running", "ss-1": "Running"}

    async def runs() -> bool:
        return await phases(running, "ss") == both

    await running.until("two replicas run", runs)
    await running.client.patch_scale(STATEFUL_SETS, NAMESPACE, "ss", 8)

    async def held() -> bool:
        return (await surplus(running, "ss")).keys() == {"ss-2"}

    await running.until("the third says that it is one too many", held)
    why = (
        "StatefulSet 'ss' got quota for 2 of its 8 replicas, and this is another one: it stays "
        "gated until the StatefulSet is queued again; scale it to 0 and then to 8"
    )
    await asyncio.sleep(A_WHILE_S)
    assert await phases(running, "ss") == {**both, "ss-2": "Gated"}
    assert await surplus(running, "ss") == {"ss-2": ("True", why)}
    assert deletions.total("Pod", "ss") == 0
    events = {(kind, name, reason): why for kind, name, _, reason, why in await running.events()}
    assert events["Pod", "ss-2", "ExcessPodGated"] == why
    assert events["StatefulSet", "ss", "SurplusReplicas"] == (
        "it got quota for 2 of its 8 replicas, and the others stay gated; "
        "scale the StatefulSet to 0 and then to 8 to have all of them queued"
    )
    # A replica that is made again takes its place, which the third does not take meanwhile.
    await running.client.delete(PODS, NAMESPACE, "ss-0")

    async def again() -> bool:
        return await phases(running, "ss") == {**both, "ss-2": "Gated"}

    await running.until("the first runs again", again)
    assert (await surplus(running, "ss"))["ss-2"][0] == "True"
    await running.client.patch_scale(STATEFUL_SETS, NAMESPACE, "ss", 2)
    await running.until("two are left", runs)


@pytest.mark.asyncio(loop_scope="module")
async def test_a_deployment_larger_than_its_group_has_a_gated_pod_that_takes_over(
    cluster: tuple[Site, Deletions],
) -> None:
    running, deletions = cluster
    obj = labelled("Deployment", "web", 3)
    notes = {GROUP: "few", TOTAL: "2"}
    obj["spec"]["template"]["metadata"]["annotations"] = notes
    await running.client.create(DEPLOYMENTS, obj, dict)

    async def held() -> bool:
        said = sorted((await phases(running, "web")).values())
        return said == ["Gated", "Running", "Running"] and bool(await surplus(running, "web"))

    await running.until("two run, and the third says why it does not", held)
    (spare,) = await surplus(running, "web")
    await asyncio.sleep(A_WHILE_S)
    assert await held()
    assert await surplus(running, "web") == {spare: ("True", text("few", 2))}
    (owner,) = {
        each["metadata"]["ownerReferences"][0]["name"]
        for each in await pods_labelled(running, "app=web")
    }
    assert deletions.total("Pod", owner) == 0
    gone = next(n for n, phase in (await phases(running, "web")).items() if phase == "Running")
    await running.client.delete(PODS, NAMESPACE, gone)

    async def taken_over() -> bool:
        return (await phases(running, "web")).get(spare) == "Running"

    await running.until("the third takes the place of one that is gone", taken_over)
    said = await surplus(running, "web")
    assert said[spare] == ("False", "this pod is one of those that its group may have")
