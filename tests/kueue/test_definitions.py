"""Kueue's kinds as an API server serves them: defaults, schema, rules, columns, names."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubelocal.tests.server.builders import Client
from reprieve.api.crds import KUEUE_NAMES, kueue_crds, load
from reprieve.api.kueue import API_VERSION, OLD_API_VERSION
from tests.kueue.objects import (
    API,
    Json,
    admission,
    cluster_queue,
    condition,
    group,
    kueue_object,
    local_queue,
    pod_set,
    reserved,
    workload,
)

QUEUES = f"{API}/clusterqueues"
DOORS = f"{API}/namespaces/default/localqueues"
WORK = f"{API}/namespaces/default/workloads"
OBSERVED = Path(__file__).resolve().parents[2].parent / "shared" / "observed"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"

CLASS = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"}
POD_CLASS = {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": "high"}


async def refusal(client: Client, path: str, obj: Json) -> str:
    """The message with which `obj` is not created."""
    code, body = await client.request("POST", path, obj)
    assert code == 422, body
    return str(body["message"])


async def update_refusal(client: Client, path: str, patch: Json) -> str:
    code, body = await client.request("PATCH", path, patch, "application/merge-patch+json")
    assert code == 422, body
    return str(body["message"])


def fields(node: Json, path: str = "") -> Iterator[tuple[str, Json]]:
    for key, inner in node.get("properties", {}).items():
        yield f"{path}.{key}", inner
        yield from fields(inner, f"{path}.{key}")
    if "items" in node:
        yield from fields(node["items"], f"{path}[]")


@pytest.mark.parametrize("name", KUEUE_NAMES)
def test_v1beta2_is_stored_and_v1beta1_served_with_a_warning(name: str) -> None:
    new, old = load(name)["spec"]["versions"]
    assert (new["name"], new["served"], new["storage"]) == ("v1beta2", True, True)
    assert (old["name"], old["served"], old["storage"]) == ("v1beta1", True, False)
    assert old["deprecationWarning"] == "This version is deprecated. Use v1beta2 instead."


@pytest.mark.parametrize("name", KUEUE_NAMES)
def test_every_field_is_described(name: str) -> None:
    for version in load(name)["spec"]["versions"]:
        found = dict(fields(version["schema"]["openAPIV3Schema"]))
        del found[".metadata"]
        assert [path for path, field in found.items() if not field.get("description")] == []


@pytest.mark.parametrize("name", KUEUE_NAMES)
def test_no_comma_in_a_text_made_a_key_of_its_rest(name: str) -> None:
    def empty(node: Any) -> Iterator[str]:
        inner = node.items() if isinstance(node, dict) else enumerate(node)
        for key, value in inner:
            if value is None:
                yield str(key)
            elif isinstance(value, dict | list):
                yield from empty(value)

    assert list(empty(load(name))) == []


def test_the_webhook_is_named_where_versions_are_converted() -> None:
    config = {"url": "https://127.0.0.1:9/convert", "caBundle": "eA=="}
    converted = {
        crd["metadata"]["name"]
        for crd in kueue_crds(config)
        if crd["spec"].get("conversion", {}).get("webhook", {}).get("clientConfig") == config
    }
    assert converted == {
        f"{plural}.kueue.x-k8s.io"
        for plural in ("clusterqueues", "cohorts", "localqueues", "workloads")
    }


async def test_a_short_cluster_queue_gets_all_defaults(client: Client) -> None:
    made = await client.create(QUEUES, cluster_queue())
    spec = made["spec"]
    del spec["resourceGroups"]
    assert spec == {
        "queueingStrategy": "BestEffortFIFO",
        "stopPolicy": "None",
        "flavorFungibility": {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "TryNextFlavor"},
        "preemption": {
            "withinClusterQueue": "Never",
            "reclaimWithinCohort": "Never",
            "borrowWithinCohort": {"policy": "Never"},
        },
    }


LIMITED = group({"cpu": 4}, borrowingLimit=1)
UNEVEN = deepcopy(group({"cpu": 4}))
UNEVEN["coveredResources"] = ["cpu", "memory"]


@pytest.mark.parametrize(
    ("obj", "text"),
    [
        (cluster_queue("a", LIMITED), "borrowingLimit must be nil when cohort is empty"),
        (
            cluster_queue("a", UNEVEN),
            "flavors must have the same number of resources as the coveredResources",
        ),
        (
            cluster_queue("a", preemption={"borrowWithinCohort": {"policy": "LowerPriority"}}),
            "reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never",
        ),
        (
            cluster_queue("a", flavorFungibility={"preference": "PreemptionOverBorrowing"}),
            (
                "preference can only be set when both whenCanBorrow and whenCanPreempt"
                " are TryNextFlavor"
            ),
        ),
        (cluster_queue("a", stopPolicy="Stop"), 'supported values: "None", "Hold", "HoldAndDrain"'),
        (cluster_queue("a", cohortName="Not-A-Name"), "spec.cohortName"),
        (cluster_queue("a", *[group({"cpu": 1})] * 17), "must have at most 16 items"),
    ],
)
async def test_a_cluster_queue_that_breaks_a_rule_is_refused(
    client: Client, obj: Json, text: str
) -> None:
    assert text in await refusal(client, QUEUES, obj)


@pytest.mark.parametrize("quota", ["1Gb", "four", ""])
async def test_a_quota_that_is_no_quantity_is_refused(client: Client, quota: str) -> None:
    message = await refusal(client, QUEUES, cluster_queue("a", group({"memory": quota})))
    assert "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota" in message


async def test_a_limit_needs_a_cohort_and_has_one(client: Client) -> None:
    made = await client.create(QUEUES, cluster_queue("a", LIMITED, cohortName="all"))
    (quota,) = made["spec"]["resourceGroups"][0]["flavors"][0]["resources"]
    assert quota == {"name": "cpu", "nominalQuota": 4, "borrowingLimit": 1}


async def test_a_local_queue_stays_with_its_cluster_queue(client: Client) -> None:
    await client.create(DOORS, local_queue())
    message = await update_refusal(client, f"{DOORS}/door", {"spec": {"clusterQueue": "other"}})
    assert "field is immutable" in message
    await client.merge(f"{DOORS}/door", {"spec": {"stopPolicy": "Hold"}})


@pytest.mark.parametrize(
    ("obj", "text"),
    [
        (
            workload("a", pod_set(count=1, minCount=2)),
            "minCount should be positive and less or equal to count",
        ),
        (
            workload(
                "a",
                priorityClassRef={"group": "kueue.x-k8s.io", "kind": "PriorityClass", "name": "x"},
            ),
            "only the WorkloadPriorityClass kind is allowed for the kueue.x-k8s.io group",
        ),
        (
            workload("a", priorityClassRef={**POD_CLASS, "kind": "WorkloadPriorityClass"}),
            "only the PriorityClass kind is allowed for the scheduling.k8s.io group",
        ),
        (
            workload(
                "a",
                priorityClassRef={
                    "group": "scheduling.k8s.io",
                    "kind": "PriorityClass",
                    "name": "x",
                },
            ),
            "priority should not be nil when priorityClassRef is set",
        ),
        (workload("a", *[pod_set(f"p{i}") for i in range(19)]), "must have at most 18 items"),
        (workload("a", pod_set("Main")), "spec.podSets[0].name"),
        (workload("a", maximumExecutionTimeSeconds=0), "greater than or equal to 1"),
    ],
)
async def test_a_workload_that_breaks_a_rule_is_refused(
    client: Client, obj: Json, text: str
) -> None:
    assert text in await refusal(client, WORK, obj)


async def held(client: Client, **spec: Any) -> None:
    """A workload that holds quota."""
    await client.create(WORK, workload(**spec))
    await client.merge(f"{WORK}/work/status", {"status": reserved()})


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        ({}, {"queueName": "other"}, "queueName is immutable while workload quota reserved"),
        (
            {},
            {"priorityClassRef": CLASS, "priority": 1},
            "priorityClassRef is immutable while workload quota reserved",
        ),
        (
            {"priorityClassRef": CLASS, "priority": 1},
            {"priorityClassRef": {**CLASS, "group": "scheduling.k8s.io", "kind": "PriorityClass"}},
            "priorityClassRef.group is immutable while workload quota reserved",
        ),
        (
            {"priorityClassRef": POD_CLASS, "priority": 1},
            {"priorityClassRef": {"name": "low"}},
            (
                "priorityClassRef.name is immutable for scheduling.k8s.io/priorityclass"
                " while workload quota reserved"
            ),
        ),
    ],
)
async def test_a_workload_that_holds_quota_keeps(
    client: Client, before: Json, after: Json, text: str
) -> None:
    await held(client, **before)
    assert text in await update_refusal(client, f"{WORK}/work", {"spec": after})


async def test_a_workload_priority_class_may_change_while_quota_is_held(client: Client) -> None:
    await held(client, priorityClassRef=CLASS, priority=1)
    patch = {"spec": {"priorityClassRef": {"name": "low"}, "priority": 0}}
    changed = await client.merge(f"{WORK}/work", patch)
    assert (changed["spec"]["priorityClassRef"]["name"], changed["spec"]["priority"]) == ("low", 0)


async def test_the_time_limit_stays_while_admitted(client: Client) -> None:
    await client.create(WORK, workload(maximumExecutionTimeSeconds=60))
    status = reserved(conditions=[condition("QuotaReserved"), condition("Admitted")])
    await client.merge(f"{WORK}/work/status", {"status": status})
    patch = {"spec": {"maximumExecutionTimeSeconds": 90}}
    message = await update_refusal(client, f"{WORK}/work", patch)
    assert "maximumExecutionTimeSeconds is immutable while workload quota reserved" in message


async def test_every_pod_set_gets_quota(client: Client) -> None:
    await client.create(WORK, workload("work", pod_set("a"), pod_set("b")))
    status = reserved(admission=admission(name="a"))
    message = await update_refusal(client, f"{WORK}/work/status", {"status": status})
    assert "podSetAssignments must have the same number of podSets as the spec" in message


async def test_a_workload_is_in_one_cluster(client: Client) -> None:
    await client.create(WORK, workload())
    both = {"clusterName": "a", "nominatedClusterNames": ["a"]}
    message = await update_refusal(client, f"{WORK}/work/status", {"status": both})
    assert "clusterName and nominatedClusterNames are mutually exclusive" in message
    await client.merge(f"{WORK}/work/status", {"status": {"clusterName": "a"}})
    message = await update_refusal(client, f"{WORK}/work/status", {"status": {"clusterName": "b"}})
    assert "clusterName is immutable once set" in message


async def test_a_flavor_keeps_its_topology(client: Client) -> None:
    path = f"{API}/resourceflavors"
    bare = kueue_object("ResourceFlavor", "racks", {"topologyName": "racks"})
    assert "at least one nodeLabel is required when topology is set" in await refusal(
        client, path, bare
    )
    bare["spec"]["nodeLabels"] = {"rack": "a"}
    await client.create(path, bare)
    message = await update_refusal(client, f"{path}/racks", {"spec": {"topologyName": "rows"}})
    assert "topologyName is immutable when topologyName is set" in message


HOST = "kubernetes.io/hostname"


@pytest.mark.parametrize(
    ("levels", "told"),
    [
        (("block", "rack", "block"), "must be unique"),
        ((HOST, "rack"), "the kubernetes.io/hostname label can only be used at the lowest level"),
        ((), "spec.levels"),
        (("no label",), "spec.levels[0].nodeLabel"),
        (tuple(f"level-{number}" for number in range(17)), "spec.levels"),
    ],
)
@pytest.mark.parametrize("version", [API_VERSION, OLD_API_VERSION])
async def test_levels_of_a_topology_are_labels_and_hosts_the_lowest(
    client: Client, version: str, levels: tuple[str, ...], told: str
) -> None:
    path = f"/apis/{version}/topologies"
    made = {**topology(*levels), "apiVersion": version}
    assert told in await refusal(client, path, made)


async def test_levels_change_only_where_hosts_are_the_lowest_before_and_after(
    client: Client,
) -> None:
    path = f"{API}/topologies"
    why = "levels are mutable only when kubernetes.io/hostname is the lowest level both before and"
    await client.create(path, topology("rack", HOST, name="hosts"))
    await client.create(path, topology("block", "rack", name="racks"))
    for name, levels in (("hosts", ("rack",)), ("racks", ("block", "rack", HOST))):
        spec = topology(*levels)["spec"]
        assert why in await update_refusal(client, f"{path}/{name}", {"spec": spec})
    changed = {"spec": topology("block", "rack", HOST)["spec"]}
    await client.merge(f"{path}/hosts", changed)


def topology(*levels: str, name: str = "t") -> Json:
    return kueue_object("Topology", name, {"levels": [{"nodeLabel": each} for each in levels]})


async def test_kubectl_shows_the_columns_of_the_reference(client: Client) -> None:
    await client.create(QUEUES, cluster_queue("a", cohortName="all"))
    await client.merge(f"{QUEUES}/a/status", {"status": {"pendingWorkloads": 3}})
    await client.create(WORK, workload())
    status = reserved(conditions=[condition("QuotaReserved"), condition("Admitted")])
    await client.merge(f"{WORK}/work/status", {"status": status})

    async def table(path: str) -> tuple[list[str], list[Any]]:
        _, body = await client.request("GET", path, accept=TABLE)
        shown = [c["name"] for c in body["columnDefinitions"] if not c["priority"]]
        return shown, body["rows"][0]["cells"]

    names, cells = await table(QUEUES)
    assert names == ["Name", "Cohort", "Pending Workloads"]
    assert cells == ["a", "all", "BestEffortFIFO", 3, None]
    names, cells = await table(WORK)
    assert names == ["Name", "Queue", "Reserved in", "Admitted", "Finished", "Age"]
    assert cells[:5] == ["work", "door", "team", "True", None]


def observed() -> list[Json]:
    """What a real API server with the reference's definitions answered."""
    texts = [path.read_text() for path in sorted(OBSERVED.glob("kueue-*.yaml"))]
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    found = {}
    for text in texts:
        for document in yaml.load_all(text, Loader=loader):
            for item in document["items"]:
                if item["apiVersion"].startswith("kueue.x-k8s.io/"):
                    key = (
                        item["kind"],
                        item["metadata"]["uid"],
                        item["metadata"]["resourceVersion"],
                    )
                    found[key] = item
    return list(found.values())


@pytest.mark.skipif(not OBSERVED.is_dir(), reason="no recordings in ../shared/observed")
async def test_objects_of_a_real_cluster_come_back_as_they_are(client: Client) -> None:
    places = {
        "ClusterQueue": QUEUES,
        "LocalQueue": f"{API}/namespaces/{{}}/localqueues",
        "Workload": f"{API}/namespaces/{{}}/workloads",
        "WorkloadPriorityClass": f"{API}/workloadpriorityclasses",
    }
    objects = observed()
    assert {each["kind"] for each in objects} == set(places)
    for name in sorted({each["metadata"].get("namespace", "") for each in objects} - {""}):
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        await client.create("/api/v1/namespaces", namespace)
    for index, each in enumerate(objects):
        path = places[each["kind"]].format(each["metadata"].get("namespace", ""))
        made = {**each, "metadata": {"name": f"copy-{index}"}}
        answer = await client.create(path, made, fieldValidation="Strict")
        if "status" in each:
            whole = {**answer, "status": each["status"]}
            code, answer = await client.request("PUT", f"{path}/copy-{index}/status", whole)
            assert code == 200, answer
        for part in ("spec", "status", "value"):
            assert answer.get(part) == each.get(part)
