"""Admission webhooks: called in order and over TLS, obeyed, and reported in the server's words."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kubelocal.cluster import EmbeddedCluster
from kubelocal.tests.server.builders import CONFIG_MAPS, PODS, Client, config_map, pod
from kubelocal.tests.server.webhook import Webhook, configuration, json_patch, serving

HOOKS = "/apis/admissionregistration.k8s.io/v1"
MUTATING = f"{HOOKS}/mutatingwebhookconfigurations"
VALIDATING = f"{HOOKS}/validatingwebhookconfigurations"


async def allow(request: dict[str, Any]) -> dict[str, Any]:
    return {"allowed": True}


async def deny(request: dict[str, Any]) -> dict[str, Any]:
    status = {"message": "not today", "code": 403, "reason": "Forbidden"}
    return {"allowed": False, "status": status}


def adds(key: str, value: str) -> dict[str, Any]:
    return json_patch({"op": "add", "path": f"/data/{key}", "value": value})


async def test_mutating_webhooks_work_on_each_others_result_in_order_of_names(
    client: Client,
) -> None:
    async def first(request: dict[str, Any]) -> dict[str, Any]:
        return adds("order", request["object"]["data"].get("order", "") + "1")

    async def second(request: dict[str, Any]) -> dict[str, Any]:
        return adds("order", request["object"]["data"].get("order", "") + "2")

    async with serving(first) as one, serving(second) as two:
        await client.create(MUTATING, configuration("Mutating", two, "b"))
        await client.create(MUTATING, configuration("Mutating", one, "a"))
        created = await client.create(CONFIG_MAPS, config_map("x", kept="yes"))
        merged = await client.merge(f"{CONFIG_MAPS}/x", {"data": {"order": ""}})
        stored = await client.get(f"{CONFIG_MAPS}/x")

    assert created["data"] == {"kept": "yes", "order": "12"}
    assert merged["data"] == stored["data"] == {"kept": "yes", "order": "12"}
    assert created["metadata"]["uid"] == stored["metadata"]["uid"]
    # Each was asked once about each write, whatever the others answered.
    assert [len(one.asked), len(two.asked)] == [2, 2]


@pytest.mark.parametrize(
    ("policy", "order", "asked"), [("IfNeeded", "121", [2, 1]), ("Never", "12", [1, 1])]
)
async def test_a_webhook_that_wants_to_sees_what_others_made_of_the_object(
    client: Client, policy: str, order: str, asked: list[int]
) -> None:
    async def first(request: dict[str, Any]) -> dict[str, Any]:
        return adds("order", request["object"]["data"].get("order", "") + "1")

    async def second(request: dict[str, Any]) -> dict[str, Any]:
        return adds("order", request["object"]["data"].get("order", "") + "2")

    async with serving(first) as one, serving(second) as two:
        again = configuration("Mutating", one, "a", reinvocationPolicy=policy)
        await client.create(MUTATING, again)
        await client.create(
            MUTATING, configuration("Mutating", two, "b", reinvocationPolicy=policy)
        )
        created = await client.create(CONFIG_MAPS, config_map("x", a="b"))

    assert created["data"] == {"a": "b", "order": order}
    assert [len(one.asked), len(two.asked)] == asked


async def test_nobody_is_asked_again_about_what_nobody_changed(client: Client) -> None:
    async with serving(allow) as one, serving(allow) as two:
        for name, hook in (("a", one), ("b", two)):
            made = configuration("Mutating", hook, name, reinvocationPolicy="IfNeeded")
            await client.create(MUTATING, made)
        await client.create(CONFIG_MAPS, config_map("x", a="b"))

    assert [len(one.asked), len(two.asked)] == [1, 1]


async def test_a_webhook_is_told_who_does_what(client: Client) -> None:
    async with serving(allow) as hook:
        await client.create(VALIDATING, configuration("Validating", hook))
        await client.create(CONFIG_MAPS, config_map("x", a="1"))
        await client.merge(f"{CONFIG_MAPS}/x", {"data": {"a": "2"}})
    created, changed = hook.asked

    assert created["userInfo"]["username"] == "admin"
    assert created["kind"] == {"group": "", "version": "v1", "kind": "ConfigMap"}
    assert created["resource"] == {"group": "", "version": "v1", "resource": "configmaps"}
    assert [created[key] for key in ("operation", "name", "namespace", "dryRun", "oldObject")] == [
        "CREATE",
        "x",
        "default",
        False,
        None,
    ]
    assert created["object"]["metadata"]["uid"]
    assert (changed["operation"], changed["oldObject"]["data"], changed["object"]["data"]) == (
        "UPDATE",
        {"a": "1"},
        {"a": "2"},
    )


@pytest.mark.parametrize("kind", ["Mutating", "Validating"])
async def test_a_refusal_names_the_webhook_and_stores_nothing(client: Client, kind: str) -> None:
    async with serving(deny) as hook:
        path = MUTATING if kind == "Mutating" else VALIDATING
        await client.create(path, configuration(kind, hook))
        answers = [
            await client.request("POST", CONFIG_MAPS, config_map("x")),
            await client.apply(f"{CONFIG_MAPS}/x", config_map("x"), "me"),
        ]
        stored, _ = await client.request("GET", f"{CONFIG_MAPS}/x")

    assert [(code, body["message"], body["reason"]) for code, body in answers] == [
        (403, 'admission webhook "a.example.com" denied the request: not today', "Forbidden")
    ] * 2
    assert stored == 404


async def test_a_delete_is_asked_about_with_the_old_object(client: Client) -> None:
    async with serving(deny) as hook:
        made = configuration("Validating", hook)
        made["webhooks"][0]["rules"][0]["operations"] = ["DELETE"]
        await client.create(VALIDATING, made)
        await client.create(CONFIG_MAPS, config_map("x", a="1"))
        one, _ = await client.request("DELETE", f"{CONFIG_MAPS}/x")
        many, _ = await client.request("DELETE", CONFIG_MAPS)

    assert (one, many) == (403, 403)
    assert [(asked["object"], asked["oldObject"]["data"]) for asked in hook.asked] == [
        (None, {"a": "1"})
    ] * 2


async def test_selectors_rules_scope_and_conditions_choose_what_is_asked(client: Client) -> None:
    async with serving(deny) as hook:
        await client.create(
            VALIDATING,
            configuration(
                "Validating",
                hook,
                namespaceSelector={"matchLabels": {"kubernetes.io/metadata.name": "default"}},
                objectSelector={"matchLabels": {"watched": "yes"}},
                matchConditions=[{"name": "big", "expression": "object.data.size == 'big'"}],
            ),
        )

        async def creates(namespace: str, name: str, size: str, **labels: str) -> int:
            obj = config_map(name, size=size)
            obj["metadata"] = {"name": name, "labels": labels}
            path = f"/api/v1/namespaces/{namespace}/configmaps"
            return (await client.request("POST", path, obj))[0]

        codes = [
            await creates("default", "a", "big", watched="yes"),
            await creates("default", "b", "small", watched="yes"),
            await creates("default", "c", "big"),
            await creates("kube-public", "d", "big", watched="yes"),
            (await client.request("POST", PODS, pod("e", {"watched": "yes"})))[0],
        ]
    assert codes == [403, 201, 201, 201, 201]


async def test_subresources_have_rules_of_their_own(client: Client) -> None:
    async with serving(deny) as hook:
        await client.create(VALIDATING, configuration("Validating", hook, resources="pods/status"))
        await client.create(PODS, pod())
        spec = await client.merge(f"{PODS}/a", {"metadata": {"labels": {"x": "y"}}})
        status, body = await client.request(
            "PATCH",
            f"{PODS}/a/status",
            {"status": {"phase": "Running"}},
            "application/merge-patch+json",
        )

    assert (spec["metadata"]["labels"], status) == ({"x": "y"}, 403)
    assert [asked["subResource"] for asked in hook.asked] == ["status"]
    assert "denied the request: not today" in body["message"]


async def test_an_eviction_is_asked_about_as_a_subresource(client: Client) -> None:
    async with serving(deny) as hook:
        await client.create(
            VALIDATING, configuration("Validating", hook, resources="pods/eviction")
        )
        await client.create(PODS, pod())
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}}
        code, _ = await client.request("POST", f"{PODS}/a/eviction", eviction)
        pods = await client.get(PODS)

    assert (code, len(pods["items"])) == (403, 1)
    assert hook.asked[0]["kind"] == {"group": "policy", "version": "v1", "kind": "Eviction"}


@pytest.mark.parametrize(("policy", "code"), [("Fail", 500), ("Ignore", 201)])
async def test_the_failure_policy_decides_about_a_webhook_that_is_not_there(
    client: Client, policy: str, code: int
) -> None:
    hook = Webhook(allow, port=9)
    hook.bundle = ""
    await client.create(VALIDATING, configuration("Validating", hook, failurePolicy=policy))
    answer, body = await client.request("POST", CONFIG_MAPS, config_map("x"))

    assert answer == code
    if code == 500:
        assert body["reason"] == "InternalError"
        assert body["message"].startswith(
            'Internal error occurred: failed calling webhook "a.example.com": failed to call '
            'webhook: Post "https://127.0.0.1:9/review?timeout=10s": '
        )


async def test_a_webhook_that_does_not_answer_in_time_has_failed(client: Client) -> None:
    never = asyncio.Event()

    async def wait(request: dict[str, Any]) -> dict[str, Any]:
        await never.wait()
        return {"allowed": True}

    async with serving(wait) as hook:
        await client.create(VALIDATING, configuration("Validating", hook, timeoutSeconds=1))
        code, body = await client.request("POST", CONFIG_MAPS, config_map("x"))
        never.set()

    assert (code, body["message"].endswith('?timeout=1s": context deadline exceeded')) == (
        500,
        True,
    )


async def test_a_certificate_of_another_authority_is_not_trusted(client: Client) -> None:
    async with serving(allow) as hook, serving(allow) as other:
        hook.bundle = other.bundle
        await client.create(VALIDATING, configuration("Validating", hook))
        code, body = await client.request("POST", CONFIG_MAPS, config_map("x"))

    assert (code, hook.asked) == (500, [])
    assert "certificate" in body["message"].lower()


async def test_a_service_is_found_through_its_endpoints(client: Client) -> None:
    async with serving(deny, "hooks.default.svc") as hook:
        made = configuration("Validating", hook)
        service = {"namespace": "default", "name": "hooks", "path": "/check", "port": 443}
        made["webhooks"][0]["clientConfig"] = {"service": service, "caBundle": hook.bundle}
        await client.create(VALIDATING, made)
        missing = await client.request("POST", CONFIG_MAPS, config_map("x"))
        ports = [{"name": "https", "port": 443, "targetPort": 9443}]
        await client.create(
            "/api/v1/namespaces/default/services",
            {"kind": "Service", "apiVersion": "v1", "metadata": {"name": "hooks"}}
            | {"spec": {"ports": ports}},
        )
        empty = await client.request("POST", CONFIG_MAPS, config_map("x"))
        await client.create(
            "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices",
            {
                "kind": "EndpointSlice",
                "apiVersion": "discovery.k8s.io/v1",
                "metadata": {"name": "h", "labels": {"kubernetes.io/service-name": "hooks"}},
                "addressType": "IPv4",
                "endpoints": [{"addresses": ["127.0.0.1"]}],
                "ports": [{"name": "https", "port": hook.port}],
            },
        )
        found = await client.request("POST", CONFIG_MAPS, config_map("x"))

    assert [code for code, _ in (missing, empty, found)] == [500, 500, 403]
    assert missing[1]["message"].endswith('service "hooks" not found')
    assert empty[1]["message"].endswith('no endpoints available for service "hooks"')
    assert len(hook.asked) == 1


async def test_webhooks_are_told_of_a_dry_run(client: Client) -> None:
    async with serving(allow) as pure, serving(allow) as impure:
        await client.create(VALIDATING, configuration("Validating", pure, "pure"))
        first = await client.request("POST", CONFIG_MAPS, config_map("x"), dryRun="All")
        careful = configuration("Validating", impure, "careful", sideEffects="NoneOnDryRun")
        await client.create(VALIDATING, careful)
        second = await client.request("POST", CONFIG_MAPS, config_map("x"), dryRun="All")

    assert (first[0], second[0]) == (201, 201)
    assert [asked["dryRun"] for asked in (*pure.asked, *impure.asked)] == [True, True, True]


async def test_warnings_reach_the_client(client: Client) -> None:
    async def warn(request: dict[str, Any]) -> dict[str, Any]:
        return {"allowed": True, "warnings": ["old fashioned"]}

    async with serving(warn) as hook:
        await client.create(VALIDATING, configuration("Validating", hook))
        async with client.session.post(CONFIG_MAPS, json=config_map("x")) as response:
            warnings = response.headers.getall("Warning")

    assert warnings == ['299 - "old fashioned"']


async def test_a_patch_that_does_not_fit_is_an_error_of_the_webhook(client: Client) -> None:
    async def broken(request: dict[str, Any]) -> dict[str, Any]:
        return json_patch({"op": "remove", "path": "/data/none"})

    async with serving(broken) as hook:
        await client.create(MUTATING, configuration("Mutating", hook))
        code, body = await client.request("POST", CONFIG_MAPS, config_map("x", a="1"))

    assert code == 500
    assert 'failed calling webhook "a.example.com"' in body["message"]


async def test_what_a_webhook_makes_is_checked_like_what_a_client_sends(client: Client) -> None:
    async def wrong(request: dict[str, Any]) -> dict[str, Any]:
        return json_patch({"op": "add", "path": "/data/a b", "value": "x"})

    async with serving(wrong) as hook:
        await client.create(MUTATING, configuration("Mutating", hook))
        code, body = await client.request("POST", CONFIG_MAPS, config_map("x", a="1"))

    assert (code, body["reason"]) == (422, "Invalid")


async def test_a_write_that_waits_for_a_webhook_sees_what_came_between(client: Client) -> None:
    """A PUT against an old version is a conflict although it was current when it came."""
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def wait(request: dict[str, Any]) -> dict[str, Any]:
        if "slow" in request["object"].get("data", {}):
            reached.set()
            await go_on.wait()
        return {"allowed": True}

    async with serving(wait) as hook:
        await client.create(VALIDATING, configuration("Validating", hook))
        made = await client.create(CONFIG_MAPS, config_map("x"))
        slow = {**made, "data": {"slow": "yes"}}
        put = asyncio.create_task(client.request("PUT", f"{CONFIG_MAPS}/x", slow))
        await reached.wait()
        await client.merge(f"{CONFIG_MAPS}/x", {"data": {"quick": "yes"}})
        go_on.set()
        code, _ = await put
        stored = await client.get(f"{CONFIG_MAPS}/x")

    assert (code, stored["data"]) == (409, {"quick": "yes"})


async def test_webhooks_are_not_asked_about_webhooks(
    client: Client, cluster: EmbeddedCluster
) -> None:
    async with serving(deny) as hook:
        everything = configuration("Validating", hook, resources="*/*")
        everything["webhooks"][0]["rules"][0]["apiGroups"] = ["*"]
        await client.create(VALIDATING, everything)
        code, _ = await client.request("DELETE", f"{VALIDATING}/a")

    assert (code, hook.asked) == (200, [])


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"name": "short"}, "name"),
        ({"clientConfig": {}}, "clientConfig"),
        ({"clientConfig": {"url": "http://127.0.0.1"}}, "clientConfig.url"),
        ({"clientConfig": {"service": {"name": "a"}}}, "clientConfig.service.namespace"),
        (
            {"clientConfig": {"url": "https://127.0.0.1", "caBundle": "bm90aGluZw=="}},
            "clientConfig.caBundle",
        ),
        ({"sideEffects": "Some"}, "sideEffects"),
        ({"admissionReviewVersions": ["v1beta1"]}, "admissionReviewVersions"),
        ({"timeoutSeconds": 31}, "timeoutSeconds"),
    ],
)
async def test_a_webhook_that_cannot_be_asked_is_refused(
    client: Client, change: dict[str, Any], field: str
) -> None:
    made = configuration("Validating", Webhook(allow, port=9))
    made["webhooks"][0] |= change
    code, body = await client.request("POST", VALIDATING, made)

    assert code == 422
    assert [cause["field"] for cause in body["details"]["causes"]] == [f"webhooks[0].{field}"]
