"""ResourceQuotas and LimitRanges: what a namespace holds, and what its containers get."""

from __future__ import annotations

from typing import Any

import pytest

from kubelocal.tests.server.builders import CONFIG_MAPS, PODS, Client, config_map, job, pod

QUOTAS = "/api/v1/namespaces/default/resourcequotas"
LIMITS = "/api/v1/namespaces/default/limitranges"


def quota(name: str = "small", hard: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": name},
        "spec": {"hard": hard or {}, **spec},
    }


def limit_range(**item: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "bounds"},
        "spec": {"limits": [{"type": "Container", **item}]},
    }


def asking(name: str, limits: dict[str, str] | None = None, **requests: str) -> dict[str, Any]:
    made = pod(name)
    made["spec"]["containers"][0]["resources"] = {"requests": requests, "limits": limits or {}}
    return made


async def test_what_exceeds_a_quota_is_refused_with_the_figures(client: Client) -> None:
    hard = {"pods": "2", "requests.cpu": "3", "requests.memory": "3Gi"}
    await client.create(QUOTAS, quota(hard=hard))
    await client.create(PODS, asking("a", cpu="2", memory="1Gi"))
    code, body = await client.request("POST", PODS, asking("b", cpu="1500m", memory="2560Mi"))
    await client.create(PODS, asking("c", cpu="1", memory="1Gi"))
    third, third_body = await client.request("POST", PODS, asking("d", cpu="0", memory="0"))
    status = (await client.get(f"{QUOTAS}/small"))["status"]

    assert (code, third) == (403, 403)
    assert body["message"] == (
        'pods "b" is forbidden: exceeded quota: small, requested: '
        "requests.cpu=1500m,requests.memory=2560Mi, used: requests.cpu=2,requests.memory=1Gi, "
        "limited: requests.cpu=3,requests.memory=3Gi"
    )
    assert third_body["message"] == (
        'pods "d" is forbidden: exceeded quota: small, requested: pods=1, used: pods=2, '
        "limited: pods=2"
    )
    assert status == {
        "hard": hard,
        "used": {"pods": "2", "requests.cpu": "3", "requests.memory": "2Gi"},
    }


async def test_a_pod_that_ended_or_went_leaves_room(client: Client) -> None:
    await client.create(QUOTAS, quota(hard={"pods": "1", "requests.amd.com/gpu": "4"}))
    await client.create(PODS, asking("a", {"amd.com/gpu": "4"}))
    full, _ = await client.request("POST", PODS, asking("b"))
    done = {"status": {"phase": "Succeeded"}}
    await client.request("PATCH", f"{PODS}/a/status", done, "application/merge-patch+json")
    after_end = (await client.get(f"{QUOTAS}/small"))["status"]["used"]
    await client.create(PODS, asking("b", {"amd.com/gpu": "2"}))
    await client.request("DELETE", f"{PODS}/b")
    after_delete = (await client.get(f"{QUOTAS}/small"))["status"]["used"]

    assert full == 403
    assert after_end == after_delete == {"pods": "0", "requests.amd.com/gpu": "0"}


async def test_what_a_quota_adds_up_has_to_be_said(client: Client) -> None:
    await client.create(QUOTAS, quota(hard={"requests.cpu": "1", "limits.memory": "1Gi"}))
    code, body = await client.request("POST", PODS, pod("a"))

    assert code == 403
    assert body["message"] == (
        'pods "a" is forbidden: failed quota: small: must specify limits.memory for: main; '
        "requests.cpu for: main"
    )


@pytest.mark.parametrize(
    ("hard", "path", "obj"),
    [
        ("configmaps", CONFIG_MAPS, config_map("b")),
        ("count/configmaps", CONFIG_MAPS, config_map("b")),
        ("count/jobs.batch", "/apis/batch/v1/namespaces/default/jobs", job("b")),
    ],
)
async def test_objects_of_every_kind_can_be_counted(
    client: Client, hard: str, path: str, obj: dict[str, Any]
) -> None:
    await client.create(QUOTAS, quota(hard={hard: "1"}))
    await client.create(path, {**obj, "metadata": {"name": "a"}})
    code, body = await client.request("POST", path, obj)
    elsewhere, _ = await client.request(
        "POST", path.replace("default", "kube-public"), {**obj, "metadata": {"name": "a"}}
    )

    assert (code, elsewhere) == (403, 201)
    assert (
        f"exceeded quota: small, requested: {hard}=1, used: {hard}=1, limited: {hard}=1"
        in (body["message"])
    )


async def test_a_scoped_quota_holds_for_its_pods_only(client: Client) -> None:
    expression = {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}
    scope: dict[str, Any] = {"scopeSelector": {"matchExpressions": [expression]}}
    await client.create(QUOTAS, quota(hard={"pods": "0"}, **scope))
    await client.create(
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "high"},
            "value": 100,
        },
    )
    low, _ = await client.request("POST", PODS, pod("low"))
    high, _ = await client.request("POST", PODS, pod("high", priorityClassName="high"))

    assert (low, high) == (201, 403)


async def test_containers_get_the_defaults_of_their_namespace(client: Client) -> None:
    await client.create(
        LIMITS, limit_range(default={"cpu": "2"}, defaultRequest={"cpu": "1", "memory": "1Gi"})
    )
    made = await client.create(PODS, pod("a"))
    given = await client.create(PODS, asking("b", {"cpu": "1"}, cpu="500m"))

    assert made["spec"]["containers"][0]["resources"] == {
        "limits": {"cpu": "2"},
        "requests": {"cpu": "1", "memory": "1Gi"},
    }
    assert made["metadata"]["annotations"] == {
        "kubernetes.io/limit-ranger": (
            "LimitRanger plugin set: cpu, memory request for container main; cpu limit for "
            "container main"
        )
    }
    assert made["status"]["qosClass"] == "Burstable"
    assert given["spec"]["containers"][0]["resources"]["requests"] == {
        "cpu": "500m",
        "memory": "1Gi",
    }


async def test_everything_beyond_the_bounds_is_named(client: Client) -> None:
    await client.create(LIMITS, limit_range(min={"cpu": "100m"}, max={"cpu": "1", "memory": "1Gi"}))
    code, body = await client.request(
        "POST", PODS, asking("a", {"cpu": "2", "memory": "2Gi"}, cpu="50m")
    )

    assert code == 403
    assert body["message"] == (
        'pods "a" is forbidden: [minimum cpu usage per Container is 100m, but request is 50m, '
        "maximum cpu usage per Container is 1, but limit is 2, maximum memory usage per Container "
        "is 1Gi, but limit is 2Gi]"
    )
