"""Create, read, update: versions, preconditions, generations, subresources, admission."""

from __future__ import annotations

from typing import Any

from kubelocal.cluster import EmbeddedCluster
from kubelocal.tests.server.builders import (
    CONFIG_MAPS,
    PODS,
    Client,
    config_map,
    definition,
    job,
    pod,
    task,
)

JOBS = "/apis/batch/v1/namespaces/default/jobs"
TASKS = "/apis/example.com/v1/namespaces/default/tasks"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


async def test_a_created_object_has_system_fields_and_a_growing_version(client: Client) -> None:
    first = await client.create(CONFIG_MAPS, config_map("a", x="1"))
    second = await client.create(CONFIG_MAPS, config_map("b"))

    assert first["metadata"]["uid"] != second["metadata"]["uid"]
    assert first["metadata"]["creationTimestamp"].endswith("Z")
    assert int(second["metadata"]["resourceVersion"]) > int(first["metadata"]["resourceVersion"])
    assert await client.get(f"{CONFIG_MAPS}/a") == first


async def test_a_second_create_of_a_name_is_refused(client: Client) -> None:
    await client.create(CONFIG_MAPS, config_map("a"))

    code, status = await client.request("POST", CONFIG_MAPS, config_map("a"))

    assert (code, status["reason"]) == (409, "AlreadyExists")
    assert status["message"] == 'configmaps "a" already exists'
    assert status["details"] == {"name": "a", "kind": "configmaps"}


async def test_a_stale_resource_version_is_a_conflict(client: Client) -> None:
    old = await client.create(CONFIG_MAPS, config_map("a", x="1"))
    await client.merge(f"{CONFIG_MAPS}/a", {"data": {"x": "2"}})

    code, status = await client.request("PUT", f"{CONFIG_MAPS}/a", old)

    assert (code, status["reason"]) == (409, "Conflict")
    assert status["message"] == (
        'Operation cannot be fulfilled on configmaps "a": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )
    assert (await client.get(f"{CONFIG_MAPS}/a"))["data"] == {"x": "2"}


async def test_an_update_with_another_uid_is_a_conflict(client: Client) -> None:
    created = await client.create(CONFIG_MAPS, config_map("a"))
    created["metadata"]["uid"] = "00000000-0000-0000-0000-000000000000"

    code, status = await client.request("PUT", f"{CONFIG_MAPS}/a", created)

    assert (code, status["reason"]) == (409, "Conflict")
    assert "Precondition failed: UID in precondition" in status["message"]


async def test_an_update_that_changes_nothing_is_no_write(client: Client) -> None:
    created = await client.create(CONFIG_MAPS, config_map("a", x="1"))

    assert await client.merge(f"{CONFIG_MAPS}/a", {"data": {"x": "1"}}) == created


async def test_only_changes_of_what_is_asked_for_count_as_generations(client: Client) -> None:
    await client.create(JOBS, job())
    labelled = await client.merge(f"{JOBS}/a", {"metadata": {"labels": {"a": "b"}}})
    suspended = await client.merge(f"{JOBS}/a", {"spec": {"suspend": True}})
    finished = await client.merge(f"{JOBS}/a/status", {"status": {"succeeded": 1}})

    generations = [one["metadata"]["generation"] for one in (labelled, suspended, finished)]
    assert generations == [1, 2, 2]


async def test_status_and_spec_are_written_apart(client: Client) -> None:
    await client.create(JOBS, {**job(), "status": {"succeeded": 5}})

    main = await client.merge(f"{JOBS}/a", {"status": {"succeeded": 3}})
    status = await client.merge(
        f"{JOBS}/a/status", {"status": {"succeeded": 1}, "spec": {"suspend": True}}
    )

    assert "succeeded" not in main["status"]
    assert (status["status"]["succeeded"], status["spec"]["suspend"]) == (1, False)


async def test_generated_names_start_with_the_prefix_and_differ(client: Client) -> None:
    nameless = config_map()
    nameless["metadata"] = {"generateName": "made-"}
    names = {(await client.create(CONFIG_MAPS, nameless))["metadata"]["name"] for _ in range(5)}

    assert len(names) == 5
    assert all(name.startswith("made-") and len(name) == 10 for name in names)


async def test_a_dry_run_validates_and_stores_nothing(client: Client) -> None:
    created = await client.create(CONFIG_MAPS, config_map("a", x="1"), dryRun="All")
    code, _ = await client.request("GET", f"{CONFIG_MAPS}/a")
    refused, status = await client.request("POST", PODS, pod("Bad_Name"), dryRun="All")

    assert created["data"] == {"x": "1"}
    assert code == 404
    assert (refused, status["reason"]) == (422, "Invalid")


async def test_unknown_fields_are_refused_or_warned_of_as_asked(client: Client) -> None:
    odd = {**config_map("a"), "nosuch": 1}
    code, status = await client.request("POST", CONFIG_MAPS, odd, fieldValidation="Strict")
    async with client.session.post(
        CONFIG_MAPS, json=odd, params={"fieldValidation": "Warn"}
    ) as response:
        warning = response.headers["Warning"]
        body = await response.json()

    assert (code, status["reason"]) == (400, "BadRequest")
    assert 'unknown field "nosuch"' in status["message"]
    assert warning == '299 - "unknown field \\"nosuch\\""'
    assert "nosuch" not in body


async def test_what_was_warned_of_is_said_once_also_of_what_is_refused(client: Client) -> None:
    endpoints = "/api/v1/namespaces/default/endpoints"
    odd = {"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "A_B"}, "nosuch": 1}
    async with client.session.post(endpoints, json=odd) as response:
        refused = (response.status, response.headers.getall("Warning"))
    query = {"watch": "true", "timeoutSeconds": "1"}
    async with client.session.get(endpoints, params=query) as response:
        watched = (response.status, response.headers.getall("Warning"))

    old = "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"
    assert refused == (422, [f'299 - "{old}"', '299 - "unknown field \\"nosuch\\""'])
    assert watched == (200, [f'299 - "{old}"'])


async def test_pods_get_the_priority_of_their_class(client: Client) -> None:
    for name, value, default in (("high", 1000, False), ("usual", 5, True)):
        await client.create(
            CLASSES,
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": name},
                "value": value,
                "globalDefault": default,
            },
        )
    named = await client.create(PODS, pod("a", priorityClassName="high"))
    unnamed = await client.create(PODS, pod("b"))
    system = await client.create(PODS, pod("c", priorityClassName="system-node-critical"))
    code, status = await client.request("POST", PODS, pod("d", priorityClassName="nosuch"))

    assert [one["spec"]["priority"] for one in (named, unnamed, system)] == [1000, 5, 2_000_001_000]
    assert unnamed["spec"]["priorityClassName"] == "usual"
    assert (code, status["message"]) == (
        403,
        'pods "d" is forbidden: no PriorityClass with name nosuch was found',
    )


async def test_only_one_priority_class_can_be_the_default(client: Client) -> None:
    def default(name: str) -> dict[str, object]:
        return {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": 1,
            "globalDefault": True,
        }

    await client.create(CLASSES, default("a"))
    code, status = await client.request("POST", CLASSES, default("b"))

    assert code == 403
    assert status["message"].endswith(
        "PriorityClass a is already marked as default. Only one default can exist"
    )


async def test_a_definition_serves_its_kind_at_once(client: Client) -> None:
    missing, _ = await client.request("GET", TASKS)
    crd = await client.create(CRDS, definition())
    created = await client.create(TASKS, task("a", mode="Batch"))
    code, status = await client.request("POST", TASKS, task("b", mode="Nope"))

    conditions = {one["type"]: one["status"] for one in crd["status"]["conditions"]}
    assert missing == 404
    assert conditions == {"NamesAccepted": "True", "Established": "True"}
    assert crd["status"]["storedVersions"] == ["v1"]
    assert created["spec"] == {"mode": "Batch", "replicas": 1}
    assert (code, status["details"]["causes"][0]["field"]) == (422, "spec.mode")


async def test_a_definition_whose_names_are_taken_is_not_served(client: Client) -> None:
    await client.create(CRDS, definition())
    other = definition("chores", "Task")
    crd = await client.create(CRDS, other)
    code, _ = await client.request("GET", "/apis/example.com/v1/namespaces/default/chores")

    conditions = {one["type"]: one["status"] for one in crd["status"]["conditions"]}
    assert conditions == {"NamesAccepted": "False", "Established": "False"}
    assert code == 404


async def test_a_deleted_definition_takes_its_objects_along(client: Client) -> None:
    await client.create(CRDS, definition())
    await client.create(TASKS, task("a"))
    await client.request("DELETE", f"{CRDS}/tasks.example.com")
    gone, _ = await client.request("GET", TASKS)
    await client.create(CRDS, definition())

    assert gone == 404
    assert (await client.get(TASKS))["items"] == []


async def test_scale_reads_and_writes_the_replica_count(client: Client) -> None:
    await client.create(CRDS, definition())
    await client.create(TASKS, task("a"))
    scaled = await client.merge(f"{TASKS}/a/scale", {"spec": {"replicas": 3}})
    stored = await client.get(f"{TASKS}/a")

    assert (scaled["kind"], scaled["spec"], scaled["status"]) == (
        "Scale",
        {"replicas": 3},
        {"replicas": 0},
    )
    assert (stored["spec"]["replicas"], stored["metadata"]["generation"]) == (3, 2)


async def test_a_custom_object_needs_its_version_in_a_replacement(client: Client) -> None:
    await client.create(CRDS, definition())
    await client.create(TASKS, task("a"))

    code, status = await client.request("PUT", f"{TASKS}/a", task("a", replicas=2))

    assert (code, status["details"]["causes"][0]["field"]) == (422, "metadata.resourceVersion")


async def test_events_are_the_same_objects_in_both_groups(client: Client) -> None:
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "e", "namespace": "default"},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
        "message": "seen",
        "reason": "Testing",
        "type": "Normal",
    }
    core = "/api/v1/namespaces/default/events"
    await client.create(core, event)
    new = await client.get("/apis/events.k8s.io/v1/namespaces/default/events/e")
    found = await client.get(core, fieldSelector="involvedObject.name=p,reason=Testing")

    assert (new["apiVersion"], new["note"], new["regarding"]["name"]) == (
        "events.k8s.io/v1",
        "seen",
        "p",
    )
    assert [one["metadata"]["name"] for one in found["items"]] == ["e"]


async def test_the_namespaces_and_classes_of_a_new_cluster(
    client: Client, cluster: EmbeddedCluster
) -> None:
    namespaces = await client.get("/api/v1/namespaces")
    classes = await client.get(CLASSES)

    assert [one["metadata"]["name"] for one in namespaces["items"]] == [
        "default",
        "kube-node-lease",
        "kube-public",
        "kube-system",
    ]
    assert {one["metadata"]["name"]: one["value"] for one in classes["items"]} == {
        "system-cluster-critical": 2_000_000_000,
        "system-node-critical": 2_000_001_000,
    }


async def test_label_keys_of_a_new_pod_become_expressions_of_its_selectors(client: Client) -> None:
    made = pod("keyed")
    made["metadata"]["labels"] = {"app": "web", "hash": "7"}
    selector = {"matchLabels": {"app": "web"}}
    term = {"topologyKey": "zone", "labelSelector": selector, "mismatchLabelKeys": ["hash", "x"]}
    spread = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    made["spec"] |= {
        "affinity": {
            "podAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 1, "podAffinityTerm": {**term, "matchLabelKeys": ["app"]}}
                ]
            },
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]},
        },
        "topologySpreadConstraints": [
            {**spread, "labelSelector": selector, "matchLabelKeys": ["hash"]},
            {**spread, "topologyKey": "rack"},
        ],
    }

    spec = (await client.create(PODS, made))["spec"]

    other = {"key": "hash", "operator": "NotIn", "values": ["7"]}
    same = {"key": "hash", "operator": "In", "values": ["7"]}
    app = {"key": "app", "operator": "In", "values": ["web"]}
    preferred = spec["affinity"]["podAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    required = spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert preferred[0]["podAffinityTerm"]["labelSelector"]["matchExpressions"] == [app, other]
    assert required[0]["labelSelector"] == {**selector, "matchExpressions": [other]}
    spread_over = spec["topologySpreadConstraints"]
    assert spread_over[0]["labelSelector"] == {**selector, "matchExpressions": [same]}
    assert "labelSelector" not in spread_over[1]


async def test_no_two_services_have_an_address_or_a_node_port_in_common(client: Client) -> None:
    services = "/api/v1/namespaces/default/services"

    def named(name: str, **spec: Any) -> dict[str, Any]:
        ports = [{"port": 80, **({"nodePort": spec.pop("node")} if "node" in spec else {})}]
        head = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}}
        return {**head, "spec": {"ports": ports, **spec}}

    async def refused(obj: dict[str, Any]) -> str:
        code, status = await client.request("POST", services, obj)
        assert code == 422, status
        return str(status["message"]).partition("is invalid: ")[2]

    first = named("a", clusterIP="10.96.0.7", type="NodePort", node=30080)
    made = await client.create(services, first)
    for name in ("b", "c"):
        await client.create(services, named(name, type="NodePort"))
    listed = (await client.get(services))["items"]
    texts = [
        await refused(named("d", clusterIP="10.96.0.7")),
        await refused(named("d", clusterIP="192.168.0.1")),
        await refused(named("d", clusterIP="2001:db8::1")),
        await refused(named("d", type="NodePort", node=30080)),
    ]
    to_other = {"spec": {"ports": [{"port": 80, "nodePort": 30080}]}}
    code, status = await client.request(
        "PATCH", f"{services}/b", to_other, "application/merge-patch+json"
    )
    moved, why = await client.request(
        "PATCH",
        f"{services}/b",
        {"spec": {"clusterIP": "10.96.0.8"}},
        "application/merge-patch+json",
    )
    kept = await client.merge(f"{services}/a", {"spec": {"selector": {"app": "a"}}})

    assert texts == [
        (
            'spec.clusterIPs: Invalid value: ["10.96.0.7"]: failed to allocate IP 10.96.0.7: '
            "provided IP is already allocated"
        ),
        (
            'spec.clusterIPs: Invalid value: ["192.168.0.1"]: failed to allocate IP 192.168.0.1: '
            "the provided network does not match the current range"
        ),
        (
            'spec.clusterIPs[0]: Invalid value: ["2001:db8::1"]: IPv6 is not configured on this '
            "cluster"
        ),
        "spec.ports[0].nodePort: Invalid value: 30080: provided port is already allocated",
    ]
    assert (code, moved) == (422, 422)
    assert status["message"].endswith(texts[3])
    assert why["message"].endswith(
        'spec.clusterIPs[0]: Invalid value: ["10.96.0.8"]: may not change once set'
    )
    assert kept["spec"]["ports"] == made["spec"]["ports"]
    assert len({one["spec"]["clusterIP"] for one in listed}) == 3
    assert len({one["spec"]["ports"][0]["nodePort"] for one in listed}) == 3


async def test_a_service_that_moves_outside_gives_its_address_back(client: Client) -> None:
    services = "/api/v1/namespaces/default/services"
    head = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}}
    spec = {"ports": [{"port": 80}], "clusterIP": "10.96.0.7"}
    await client.create(services, {**head, "spec": spec})
    outside = await client.merge(
        f"{services}/a", {"spec": {"type": "ExternalName", "externalName": "a.example"}}
    )
    code, _ = await client.request(
        "POST", services, {**head, "metadata": {"name": "b"}, "spec": spec}
    )

    gone = {"clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"}
    assert (gone & outside["spec"].keys(), code) == (set(), 201)


async def test_a_service_keeps_its_addresses_as_far_as_its_type_has_them(client: Client) -> None:
    services = "/api/v1/namespaces/default/services"
    spec = {"type": "NodePort", "ports": [{"port": 80}]}
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "s", "namespace": "default"},
        "spec": spec,
    }
    made = await client.create(services, service)
    code, replaced = await client.request("PUT", f"{services}/s", service)
    inward = await client.merge(f"{services}/s", {"spec": {"type": "ClusterIP"}})

    (port,) = made["spec"]["ports"]
    assert 30_000 <= port["nodePort"] <= 32_767
    assert (code, replaced["spec"]) == (200, made["spec"])
    assert [each.get("nodePort") for each in inward["spec"]["ports"]] == [None]
    assert inward["spec"]["clusterIP"] == made["spec"]["clusterIP"]
    assert "externalTrafficPolicy" not in inward["spec"]
