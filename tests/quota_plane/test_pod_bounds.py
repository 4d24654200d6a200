"""A pod is let go only where it requests no more than its Workload was admitted for."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kubeworld.objects.paths import first
from reprieve.engine.quota.assigning.request_rules import RequestRules
from reprieve.jobs.pods import ROLE, SURPLUS
from reprieve.kube.resource import PODS
from tests.quota_plane.gated_site import QUEUE, gated_site
from tests.quota_plane.kind_stories import (
    GROUP,
    ROWS,
    STATEFUL_SETS,
    TOTAL,
    is_gated,
    manifest,
    resource,
)
from tests.quota_plane.site import (
    NAMESPACE,
    Object,
    Site,
    cluster_queue,
    flavor,
    local_queue,
    node,
    priority_class,
)
from tests.quota_plane.test_bounded_sets import (
    KINDS,
    MAKERS,
    cpus_admitted,
    cpus_let_go,
    request,
    stateful_set,
)
from tests.quota_plane.test_claimed_devices import CLASSES
from tests.quota_plane.test_kinds import prepare

NODES = [node("node-0", 64)]


def queues(cpu: int) -> list[Object]:
    return [flavor(), cluster_queue("cq", cpu), local_queue("q", "cq"), priority_class("low", 1)]


def member(name: str, cpu: str, role: str = "same") -> Object:
    body = manifest("Pod", name)
    body["metadata"]["labels"] = {QUEUE: "q", GROUP: "g"}
    body["metadata"]["annotations"] = {TOTAL: "2", ROLE: role}
    body["spec"]["containers"][0]["resources"]["requests"]["cpu"] = cpu
    return body


async def pods(cluster: Site) -> dict[str, tuple[bool, str]]:
    """Return of each pod whether it is gated, and why where it exceeds what is admitted."""
    found = (await cluster.client.list(PODS, dict, namespace=NAMESPACE)).items
    return {
        pod["metadata"]["name"]: (
            is_gated(pod),
            next(
                (
                    each["message"]
                    for each in first(pod, "status.conditions") or ()
                    if each["type"] == SURPLUS and each["status"] == "True"
                ),
                "",
            ),
        )
        for pod in found
    }


async def test_a_member_that_states_the_role_of_a_smaller_pod_stays_gated(tmp_path: Path) -> None:
    kinds = (ROWS["Pod"],)
    async with gated_site(tmp_path, *queues(2), kinds=kinds, nodes=NODES) as cluster:
        for name, cpu in (("a", "1"), ("b", "12")):
            await cluster.client.create(PODS, member(name, cpu), dict)
        why = (
            "pod group 'g' has quota for pods that request less cpu than this one: it stays gated "
            "until the group is queued again with pods of one role that request the same"
        )

        async def held() -> bool:
            return await pods(cluster) == {"a": (False, ""), "b": (True, why)}

        await cluster.until("the larger one is held", held)
        await asyncio.sleep(60)
        assert await held()
        # One that requests what was admitted takes its place.
        await cluster.client.delete(PODS, NAMESPACE, "b")
        await cluster.client.create(PODS, member("c", "1"), dict)

        async def complete() -> bool:
            found = await pods(cluster)
            return found["a"] == found["c"] == (False, "")

        await cluster.until("the group is complete", complete)
        assert await cpus_let_go(cluster) == await cpus_admitted(cluster) == 2


async def test_a_member_whose_claim_has_no_template_yet_stays_gated(tmp_path: Path) -> None:
    """Once it runs, its template may ask for all devices of a node."""
    kinds, rules = (ROWS["Pod"],), {"rules": RequestRules(device_classes=CLASSES)}
    async with gated_site(tmp_path, *queues(2), kinds=kinds, nodes=NODES, options=rules) as cluster:
        claiming = member("b", "1")
        claiming["spec"]["resourceClaims"] = [{"name": "g", "resourceClaimTemplateName": "t"}]
        for each in (member("a", "1"), claiming):
            await cluster.client.create(PODS, each, dict)
        why = (
            "the requests of this pod cannot be counted, and pod group 'g' has quota for pods "
            "whose requests can: it stays gated until the group is queued again with pods of one "
            "role that request the same"
        )

        async def held() -> bool:
            return await pods(cluster) == {"a": (False, ""), "b": (True, why)}

        await cluster.until("the claiming one is held", held)


@pytest.mark.parametrize("kind", ["StatefulSet", "LeaderWorkerSet"])
async def test_replicas_of_a_template_that_grew_while_no_webhook_answered_stay_gated(
    kind: str, tmp_path: Path
) -> None:
    away = [False]
    kinds = (*KINDS, ROWS["LeaderWorkerSet"])
    async with gated_site(
        tmp_path, *queues(2), kinds=kinds, nodes=NODES, prepare=prepare, away=lambda: away[0]
    ) as cluster:
        body = MAKERS[kind](2)
        if kind == "StatefulSet":
            body["spec"]["updateStrategy"] = {"type": "OnDelete"}
        name = body["metadata"]["name"]
        await cluster.client.create(resource(ROWS[kind]), body, dict)

        async def runs() -> bool:
            return await cpus_let_go(cluster) == await cpus_admitted(cluster) == 2

        await cluster.until("both replicas run", runs)
        away[0] = True
        await request(cluster, kind, name, 6)
        away[0] = False
        for each in await pods(cluster):
            await cluster.client.delete(PODS, NAMESPACE, each)
        why = f"{kind} '{name}' has quota for pods that request less cpu than this one"

        async def held() -> bool:
            found = await pods(cluster)
            return bool(found) and all(gated and why in text for gated, text in found.values())

        await cluster.until("all replicas are held", held)
        await asyncio.sleep(60)
        assert await held()


async def test_a_replica_of_an_older_revision_runs_only_with_the_quota_of_its_set(
    tmp_path: Path,
) -> None:
    """A rollout that an owner never ends is no way around the queue."""
    async with gated_site(
        tmp_path, *queues(1), kinds=KINDS, nodes=NODES, without=("statefulsets",)
    ) as cluster:
        client = cluster.client
        body = stateful_set(2)
        body["spec"]["updateStrategy"] = {
            "type": "RollingUpdate",
            "rollingUpdate": {"partition": 9},
        }
        made = await client.create(STATEFUL_SETS, body, dict)
        status = {"replicas": 1, "currentRevision": "web-old", "updateRevision": "web-new"}
        await client.patch_status(STATEFUL_SETS, NAMESPACE, "web", status, dict)
        template = made["spec"]["template"]
        pod = {"metadata": {**template["metadata"], "name": "web-0"}, "spec": template["spec"]}
        pod["metadata"]["namespace"] = NAMESPACE
        pod["metadata"]["labels"] = {
            **template["metadata"]["labels"],
            "controller-revision-hash": "web-old",
            "apps.kubernetes.io/pod-index": "0",
        }
        above = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "controller": True}
        pod["metadata"]["ownerReferences"] = [{**above, "uid": made["metadata"]["uid"]}]
        await client.create(PODS, pod, dict)
        await asyncio.sleep(30)
        assert await pods(cluster) == {"web-0": (True, "")}  # two of which one has quota
        await cluster.change_queue("cq", cluster_queue("cq", 2)["spec"])

        async def runs() -> bool:
            return await pods(cluster) == {"web-0": (False, "")}

        await cluster.until("it runs with quota", runs)
