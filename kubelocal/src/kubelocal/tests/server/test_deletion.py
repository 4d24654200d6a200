"""Deletion: grace, finalizers, propagation, preconditions, evictions, namespaces."""

from __future__ import annotations

from typing import Any

from kubelocal.tests.server.builders import CONFIG_MAPS, PODS, Client, config_map, job, pod, seen

JOBS = "/apis/batch/v1/namespaces/default/jobs"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"


async def bound(client: Client, name: str = "a", **spec: Any) -> dict[str, Any]:
    await client.create(PODS, pod(name, {"app": "a"}, **spec))
    binding = {"apiVersion": "v1", "kind": "Binding", "target": {"name": "n1"}}
    await client.create(f"{PODS}/{name}/binding", binding)
    return await client.merge(f"{PODS}/{name}/status", {"status": {"phase": "Running"}})


async def test_a_bound_pod_keeps_its_grace_period(client: Client) -> None:
    await bound(client, terminationGracePeriodSeconds=7)
    code, marked = await client.request("DELETE", f"{PODS}/a")
    again, _ = await client.request("DELETE", f"{PODS}/a")
    ended, success = await client.request("DELETE", f"{PODS}/a", {"gracePeriodSeconds": 0})
    gone, _ = await client.request("GET", f"{PODS}/a")

    assert (code, again, ended, gone) == (200, 200, 200, 404)
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 7
    assert marked["metadata"]["deletionTimestamp"] > marked["metadata"]["creationTimestamp"]
    assert (success["status"], success["details"]["name"]) == ("Success", "a")


async def test_a_grace_period_beyond_all_years_is_taken(client: Client) -> None:
    await bound(client, terminationGracePeriodSeconds=2**40)
    code, marked = await client.request("DELETE", f"{PODS}/a")
    assert code == 200
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 2**40
    assert marked["metadata"]["deletionTimestamp"] == "9999-12-31T23:59:59Z"


async def test_grace_can_be_shortened_and_not_prolonged(client: Client) -> None:
    await bound(client)
    graces = []
    for seconds in (20, 60, 5):
        _, marked = await client.request("DELETE", f"{PODS}/a", {"gracePeriodSeconds": seconds})
        graces.append(marked["metadata"]["deletionGracePeriodSeconds"])

    assert graces == [20, 20, 5]


async def test_a_pod_on_no_node_goes_at_once(client: Client) -> None:
    await client.create(PODS, pod("a"))
    version = (await client.get(PODS))["metadata"]["resourceVersion"]
    await client.request("DELETE", f"{PODS}/a")
    stream = await client.watch(PODS, resourceVersion=version)
    events = await stream.take(2)
    stream.close()

    assert seen(events) == [("MODIFIED", "a"), ("DELETED", "a")]
    assert "deletionTimestamp" in events[0]["object"]["metadata"]


async def test_a_finalizer_keeps_an_object_until_it_is_removed(client: Client) -> None:
    held = config_map("a")
    held["metadata"]["finalizers"] = ["example.com/hold"]
    await client.create(CONFIG_MAPS, held)
    _, marked = await client.request("DELETE", f"{CONFIG_MAPS}/a")
    more = {"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}}
    refused, status = await client.request(
        "PATCH", f"{CONFIG_MAPS}/a", more, "application/merge-patch+json"
    )
    await client.merge(f"{CONFIG_MAPS}/a", {"metadata": {"finalizers": None}})
    gone, _ = await client.request("GET", f"{CONFIG_MAPS}/a")

    assert "deletionTimestamp" in marked["metadata"]
    assert (refused, status["details"]["causes"][0]["field"]) == (422, "metadata.finalizers")
    assert gone == 404


async def test_propagation_is_kept_in_finalizers(client: Client) -> None:
    finalizers = {}
    for policy in ("Background", "Foreground", "Orphan"):
        await client.create(JOBS, job(policy.lower()))
        _, answer = await client.request(
            "DELETE", f"{JOBS}/{policy.lower()}", {"propagationPolicy": policy}
        )
        finalizers[policy] = answer["metadata"].get("finalizers")
    code, status = await client.request("DELETE", f"{JOBS}/orphan", {"propagationPolicy": "No"})

    assert finalizers == {
        "Background": None,
        "Foreground": ["foregroundDeletion"],
        "Orphan": ["orphan"],
    }
    assert (code, status["reason"]) == (422, "Invalid")


async def test_preconditions_hold_on_uid_and_version(client: Client) -> None:
    created = await client.create(CONFIG_MAPS, config_map("a"))
    uid, version = created["metadata"]["uid"], created["metadata"]["resourceVersion"]
    answers = []
    for preconditions in (
        {"uid": "other"},
        {"uid": uid, "resourceVersion": "1"},
        {"uid": uid, "resourceVersion": version},
    ):
        code, answer = await client.request(
            "DELETE", f"{CONFIG_MAPS}/a", {"preconditions": preconditions}
        )
        answers.append((code, answer.get("message", "")))

    head = 'Operation cannot be fulfilled on configmaps "a": Precondition failed: '
    assert answers == [
        (409, f"{head}UID in precondition: other, UID in object meta: {uid}"),
        (
            409,
            f"{head}ResourceVersion in precondition: 1, ResourceVersion in object meta: {version}",
        ),
        (200, ""),
    ]


async def test_a_collection_is_deleted_by_selector(client: Client) -> None:
    for name, app in (("a", "x"), ("b", "x"), ("c", "y")):
        await client.create(PODS, pod(name, {"app": app}))
    await client.request("DELETE", PODS, labelSelector="app=x")

    assert [one["metadata"]["name"] for one in (await client.get(PODS))["items"]] == ["c"]


async def test_a_pod_is_bound_once(client: Client) -> None:
    await bound(client)
    binding = {"apiVersion": "v1", "kind": "Binding", "target": {"name": "n2"}}
    code, status = await client.request("POST", f"{PODS}/a/binding", binding)
    stored = await client.get(f"{PODS}/a")

    assert (code, status["message"]) == (
        409,
        'Operation cannot be fulfilled on pods/binding "a": pod a is already assigned to node "n1"',
    )
    assert stored["spec"]["nodeName"] == "n1"
    conditions = {one["type"]: one["status"] for one in stored["status"]["conditions"]}
    assert conditions == {"PodScheduled": "True"}


async def test_an_eviction_asks_the_budget(client: Client) -> None:
    await bound(client, "a")
    await bound(client, "b")
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}},
    }
    await client.create(BUDGETS, budget)
    status = {
        "observedGeneration": 1,
        "disruptionsAllowed": 1,
        "currentHealthy": 2,
        "desiredHealthy": 1,
        "expectedPods": 2,
    }
    await client.merge(f"{BUDGETS}/web/status", {"status": status})
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}}
    first, _ = await client.request("POST", f"{PODS}/a/eviction", eviction)
    second, refusal = await client.request("POST", f"{PODS}/b/eviction", eviction)
    evicted = await client.get(f"{PODS}/a")

    assert (first, second) == (201, 429)
    assert refusal["details"]["causes"][0]["reason"] == "DisruptionBudget"
    assert evicted["metadata"]["deletionGracePeriodSeconds"] == 30
    assert evicted["status"]["conditions"][-1]["reason"] == "EvictionByEvictionAPI"


async def test_a_namespace_goes_with_its_last_object(client: Client) -> None:
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
    await client.create("/api/v1/namespaces", space)
    path = "/api/v1/namespaces/team/configmaps"
    held = {**config_map("held"), "metadata": {"name": "held", "finalizers": ["example.com/hold"]}}
    await client.create(path, held)
    free = {**config_map("free"), "metadata": {"name": "free"}}
    await client.create(path, free)
    _, marked = await client.request("DELETE", "/api/v1/namespaces/team")
    left = [one["metadata"]["name"] for one in (await client.get(path))["items"]]
    refused, status = await client.request("POST", path, free)
    await client.merge(f"{path}/held", {"metadata": {"finalizers": []}})
    gone, _ = await client.request("GET", "/api/v1/namespaces/team")

    assert marked["status"]["phase"] == "Terminating"
    assert left == ["held"]
    assert (refused, status["details"]["causes"][0]["reason"]) == (403, "NamespaceTerminating")
    assert gone == 404


async def test_an_emptied_namespace_waits_for_its_own_finalizers(client: Client) -> None:
    metadata = {"name": "team", "finalizers": ["example.com/hold"]}
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    await client.create("/api/v1/namespaces", space)
    await client.request("DELETE", "/api/v1/namespaces/team")
    waiting = await client.get("/api/v1/namespaces/team")
    bare = {**space, "metadata": {"name": "team"}}
    code, _ = await client.request("PUT", "/api/v1/namespaces/team", bare)
    gone, _ = await client.request("GET", "/api/v1/namespaces/team")

    assert waiting["status"]["phase"] == "Terminating"
    assert "finalizers" not in waiting["spec"]
    assert (code, gone) == (200, 404)


async def test_nothing_is_created_in_a_namespace_that_is_missing(client: Client) -> None:
    code, status = await client.request(
        "POST", "/api/v1/namespaces/nosuch/configmaps", {**config_map(), "metadata": {"name": "a"}}
    )

    assert (code, status["message"]) == (404, 'namespaces "nosuch" not found')


async def test_the_default_namespace_stays(client: Client) -> None:
    code, status = await client.request("DELETE", "/api/v1/namespaces/default")

    assert (code, status["reason"]) == (403, "Forbidden")
