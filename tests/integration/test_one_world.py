"""What `kubeworld` says of pods, quotas and patches is what the API server does with them.

`tests/kubeworld` puts the same questions to the embedded server and to a plan's copy of a cluster.
Here a real API server is asked, so that both are not wrong alike.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import pytest

from kubelocal.server.writing.options import PatchType as How
from kubeworld.objects.quality import quality
from kubeworld.writes.merging import BY_NAME, strategic_merge
from reprieve.kube.bodies import PatchType
from reprieve.kube.errors import ApiError, Forbidden
from reprieve.kube.resource import NAMESPACES, PODS, Resource
from reprieve.whatif.controllers.pod_templates import LIMIT_RANGES, PRIORITIES
from reprieve.whatif.submitting.pod_quotas import RESOURCE_QUOTAS
from tests.integration.site import Object, Site
from tests.kubeworld import test_one_world as questions
from tests.kubeworld.worlds import copied

#: What a real server of 1.37 does otherwise, and no decision reads: it limits this whole pod, too.
_OTHERWISE = {("a LimitRange", "the whole pod, requests", "resources")}
_DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
_LOOKS = 200
_LOOK_S = 0.1


@pytest.fixture
async def classes(site: Site) -> AsyncIterator[None]:
    """Have the priority classes of the questions, and take them away again."""
    for each in questions.CLASSES:
        await site.client.create(PRIORITIES, each, dict)
    yield
    for each in questions.CLASSES:
        await site.client.delete(PRIORITIES, "", each["metadata"]["name"])


async def _in_space(site: Site, resource: Resource, namespace: str, obj: Object) -> Any:
    body = {**obj, "metadata": {**obj["metadata"], "namespace": namespace}}
    return await site.client.create(resource, body, dict)


async def _space(site: Site, name: str) -> str:
    await site.client.create(NAMESPACES, {"metadata": {"name": name}}, dict)
    return name


async def _code(asked: Awaitable[Any]) -> Any:
    try:
        return await asked
    except ApiError as refusal:
        return refusal.code


@pytest.mark.usefixtures("classes")
async def test_pods_are_stored_as_a_plan_makes_them(site: Site) -> None:
    wrong = []
    for there in ("classes", "a LimitRange"):
        namespace = await _space(site, f"stored-{there.split()[-1].lower()}")
        for each in questions.SURROUNDED[there]:
            if each["kind"] == "LimitRange":
                await _in_space(site, LIMIT_RANGES, namespace, each)
        made = questions._copied_pods(questions.SURROUNDED[there])
        for asks, each in questions._made():
            stored = await _in_space(site, PODS, namespace, each)
            assert stored["status"]["qosClass"] == quality(stored["spec"]), asks
            here, other = questions._facts(stored), questions._facts(made[asks])
            wrong += [
                (there, asks, n, here[n], other[n])
                for n in here
                if here[n] != other[n] and (there, asks, n) not in _OTHERWISE
            ]
            await site.client.delete(PODS, namespace, each["metadata"]["name"], grace_seconds=0)
    assert wrong == []


@pytest.mark.usefixtures("classes")
async def test_a_quota_counts_the_pods_that_a_plan_counts(site: Site) -> None:
    expected = copied(questions._copied_scopes, questions.CLASSES)
    wrong = []
    for number, (scope, spec) in enumerate(questions.SCOPES.items()):
        namespace = await _space(site, f"scope-{number}")
        quota = questions.quota("q", {"pods": "0"}, **spec)
        await _in_space(site, RESOURCE_QUOTAS, namespace, quota)
        status = {"hard": {"pods": "0"}, "used": {"pods": "0"}}
        await site.client.patch_status(RESOURCE_QUOTAS, namespace, "q", status, dict)
        first = next(asks for asks in questions.ASKING if expected[scope, asks])
        await _until_counted(site, namespace, questions.ASKING[first])
        for index, (asks, body) in enumerate(questions.ASKING.items()):
            refused = await _refused(site, namespace, questions.pod(f"pod-{index}", body))
            if refused != expected[scope, asks]:
                wrong.append((scope, asks, refused))
    assert wrong == []


async def _refused(site: Site, namespace: str, pod: Object) -> bool:
    try:
        await _in_space(site, PODS, namespace, pod)
    except Forbidden as refusal:
        assert "exceeded quota" in refusal.message, refusal.message
        return True
    await site.client.delete(PODS, namespace, pod["metadata"]["name"], grace_seconds=0)
    return False


async def _until_counted(site: Site, namespace: str, body: Object) -> None:
    """Wait until the server knows the quota."""
    for number in range(_LOOKS):
        if await _refused(site, namespace, questions.pod(f"probe-{number}", body)):
            return
        await asyncio.sleep(_LOOK_S)
    raise AssertionError(f"the quota of {namespace} never counted")


async def test_patches_leave_what_they_leave_in_a_plan(site: Site) -> None:
    expected = copied(questions._copied_patches)
    namespace = await _space(site, "patched")
    types = {How.MERGE: PatchType.MERGE, How.STRATEGIC: PatchType.STRATEGIC}
    wrong = {}
    for number, (name, patch, how) in enumerate(questions._patches()):
        title = f"a-{number}"
        metadata = {**questions.PATCHED["metadata"], "name": title}
        await _in_space(site, PODS, namespace, {**questions.PATCHED, "metadata": metadata})
        answer = await _code(
            site.client.patch(PODS, namespace, title, patch, dict, patch_type=types[how])
        )
        found = questions._shape(answer)
        if found != expected[name]:
            wrong[name] = found, expected[name]
        await _code(
            site.client.patch(PODS, namespace, title, {"metadata": {"finalizers": None}}, dict)
        )
        await _code(site.client.delete(PODS, namespace, title, grace_seconds=0))
    assert wrong == {}


@pytest.mark.parametrize("names", ["c", "b", "cb", "bc", "ca"])
async def test_items_of_a_strategic_merge_patch_come_in_the_servers_order(
    site: Site, names: str
) -> None:
    def containers(wanted: str) -> Object:
        spec = {"containers": [{"name": name, "image": "example.org/app:1"} for name in wanted]}
        return {"spec": {"template": {"metadata": {"labels": {"app": "a"}}, "spec": spec}}}

    def order(obj: Object) -> str:
        return "".join(each["name"] for each in obj["spec"]["template"]["spec"]["containers"])

    namespace = await _space(site, f"order-{names}")
    old = containers("ab")
    selector = {"matchLabels": {"app": "a"}}
    spec = {**old["spec"], "replicas": 0, "selector": selector}
    await _in_space(site, _DEPLOYMENTS, namespace, {"metadata": {"name": "d"}, "spec": spec})
    patch = containers(names)
    stored = await site.client.patch(
        _DEPLOYMENTS, namespace, "d", patch, dict, patch_type=PatchType.STRATEGIC
    )
    assert order(stored) == order(strategic_merge(BY_NAME, old, patch))
