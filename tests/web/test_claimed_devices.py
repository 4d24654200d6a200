"""Devices that pods hold or wait for by claims count in all tables, each of them once."""

from __future__ import annotations

from typing import Any

import pytest

from reprieve.web.mirror.mirror import Mirror
from reprieve.web.pages import now, waiting
from reprieve.web.tables import Viewer
from tests.web.cluster import START, Json, local_queue, meta, mirror, pod, put, rows, take, workload

EVERYTHING = Viewer(sees_all=True)
CLASS = "gpu.example.com"
GPU = f"deviceclass.resource.kubernetes.io/{CLASS}"
SMALL = "deviceclass.resource.kubernetes.io/small.example.com"
NAMED = "example.com/gpu"
DRIVER = "driver.example.com"


def device_class(name: str = CLASS, model: str = "", extended: str = "") -> Json:
    selector = [{"cel": {"expression": f'device.attributes["{DRIVER}"].model == "{model}"'}}]
    spec = {"selectors": selector if model else [], "extendedResourceName": extended or None}
    return {"kind": "DeviceClass", "metadata": meta(name), "spec": spec}


def exactly(count: int = 1, of: str = CLASS, **more: Any) -> Json:
    return {"name": "gpus", "exactly": {"deviceClassName": of, "count": count, **more}}


def claim(
    name: str, request: Json, held: list[str] | None = None, by: list[str] | None = None, **of: Any
) -> Json:
    """Return a claim; `held`: `REQUEST:NODE:DEVICE`, by pods of these names."""
    status: Json = {}
    if held is not None:
        results = []
        for each in held:
            asked, node, device = each.split(":")
            result = {"request": asked, "driver": DRIVER, "pool": node, "device": device}
            results.append({**result, "adminAccess": of.get("admin")})
        status["allocation"] = {"devices": {"results": results}}
    status["reservedFor"] = [
        {"resource": "pods", "name": each, "uid": f"uid-team-a-{each}"} for each in by or ()
    ]
    return {
        "kind": "ResourceClaim",
        "metadata": meta(name, "team-a", annotations=of.get("annotations") or {}),
        "spec": {"devices": {"requests": [request]}},
        "status": status,
    }


def template(name: str, request: Json) -> Json:
    metadata = meta(name, "team-a")
    spec = {"spec": {"devices": {"requests": [request]}}}
    return {"kind": "ResourceClaimTemplate", "metadata": metadata, "spec": spec}


def published(node: str, *devices: str, model: str = "big") -> Json:
    made = [
        {"name": each, "attributes": {f"{DRIVER}/model": {"string": model}}} for each in devices
    ]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": made}
    return {"kind": "ResourceSlice", "metadata": meta(f"slice-{node}"), "spec": spec}


def machine(name: str = "n1") -> Json:
    status = {"allocatable": {"cpu": "64"}}
    return {"kind": "Node", "metadata": meta(name, labels={}), "spec": {}, "status": status}


def user(name: str, *claims: str, of_template: str = "", **more: Any) -> Json:
    """Return a pod that names these claims, or has one of a template that is not made yet."""
    found = pod(name, gpus=0, **more)
    found["spec"]["containers"] = [{"resources": {"requests": {"cpu": "1"}}}]
    entries = [{"name": each, "resourceClaimName": each} for each in claims]
    if of_template:
        entries.append({"name": "own", "resourceClaimTemplateName": of_template})
    found["spec"]["resourceClaims"] = entries
    return found


def held(cluster: Mirror, resource: str = GPU) -> dict[str, int]:
    page = now.page(cluster, EVERYTHING, {"resource": (resource,)}, START)
    return {each["unit"]: each["amount"] for each in rows(page, "holders")}


def bar(cluster: Mirror, resource: str = GPU) -> Json:
    page = now.page(cluster, EVERYTHING, {"resource": (resource,)}, START)
    return {name: page.values["bar"][name] for name in ("total", "working", "free")}


def pending(cluster: Mirror) -> dict[str, tuple[int, str]]:
    page = waiting.page(cluster, EVERYTHING, {}, START)
    return {each["unit"]: (each["amount"], each["resource"]) for each in rows(page, "waiting")}


def test_what_holds_devices_by_claims_is_a_holder_and_its_node_has_what_is_published() -> None:
    devices = [f"gpu-{n}" for n in range(8)]
    taken = [f"gpus:n1:gpu-{n}" for n in range(3)]
    cluster = mirror(
        device_class(),
        published("n1", *devices),
        machine(),
        claim("three", exactly(3), taken, ["train"]),
        user("train", "three", on="n1", job="train"),
    )

    assert held(cluster) == {"job/team-a/train": 3}
    assert bar(cluster) == {"total": 8, "working": 3, "free": 5}
    page = now.page(cluster, EVERYTHING, {}, START)
    assert page.values["resource"] == GPU
    (node,) = rows(page, "nodes")
    assert (node["total"], node["working"], node["free"]) == (8, 3, 5)


def test_a_class_with_an_extended_resource_counts_under_its_name_and_its_claim_not_twice() -> None:
    by_name = pod("named", gpus=0, on="n1")
    by_name["spec"]["containers"] = [{"resources": {"requests": {NAMED: "2"}}}]
    made = {"resource.kubernetes.io/extended-resource-claim": "true"}
    taken = ["gpus:n1:gpu-1", "gpus:n1:gpu-2"]
    cluster = mirror(
        device_class(extended=NAMED),
        published("n1", "gpu-0", "gpu-1", "gpu-2", "gpu-3"),
        machine(),
        claim("one", exactly(), ["gpus:n1:gpu-0"], ["a"]),
        user("a", "one", on="n1"),
        by_name,
        claim("made", exactly(2), taken, ["named"], annotations=made),
    )

    assert held(cluster, NAMED) == {"pod/team-a/named": 2, "pod/team-a/a": 1}
    assert bar(cluster, NAMED) == {"total": 4, "working": 3, "free": 1}


def test_of_first_available_the_alternative_that_was_given_counts() -> None:
    request = {
        "name": "gpus",
        "firstAvailable": [
            {"name": "big", "deviceClassName": CLASS, "count": 1},
            {"name": "small", "deviceClassName": "small.example.com", "count": 2},
        ],
    }
    taken = ["gpus/small:n1:s-0", "gpus/small:n1:s-1"]
    cluster = mirror(
        device_class(),
        device_class("small.example.com"),
        machine(),
        claim("given", request, taken, ["a"]),
        claim("open", request),
        user("a", "given", on="n1"),
        user("b", "open"),
    )

    assert held(cluster, SMALL) == {"pod/team-a/a": 2}
    assert held(cluster) == {}
    assert pending(cluster) == {"pod/team-a/b": (1, GPU)}


def test_a_shared_claim_counts_once_for_who_has_used_it_longest_until_that_one_has_ended() -> None:
    first, second = user("a", "one", on="n1", created=5), user("b", "one", on="n1", created=1)
    shared = claim("one", exactly(2), ["gpus:n1:gpu-0", "gpus:n1:gpu-1"], ["a", "b"])
    cluster = mirror(device_class(), machine(), second, shared, first)

    assert held(cluster) == {"pod/team-a/a": 2}
    take(cluster, first)
    assert held(cluster) == {"pod/team-a/b": 2}
    put(cluster, user("c", "one"))
    assert held(cluster) == {"pod/team-a/b": 2}
    assert pending(cluster) == {"pod/team-a/c": (1, "cpu")}


@pytest.mark.parametrize("late", ["pods", "claims", "classes"])
def test_the_order_in_which_kinds_are_read_changes_nothing(late: str) -> None:
    kinds = {
        "pods": [user("a", "one", on="n1")],
        "claims": [claim("one", exactly(), ["gpus:n1:gpu-0"], ["a"])],
        "classes": [device_class(extended=NAMED)],
    }
    rest = [each for kind, some in kinds.items() if kind != late for each in some]
    cluster = mirror(machine(), *rest)
    cluster.unit("pod/team-a/a")
    for each in kinds[late]:
        put(cluster, each)
    assert held(cluster, NAMED) == {"pod/team-a/a": 1}


def test_access_for_administration_holds_nothing() -> None:
    watched = claim("all", exactly(adminAccess=True), ["gpus:n1:gpu-0"], ["a"], admin=True)
    cluster = mirror(device_class(), published("n1", "gpu-0"), machine(), watched)
    put(cluster, user("a", "all", on="n1"))
    assert held(cluster) == {}
    assert bar(cluster) == {"total": 1, "working": 0, "free": 1}


def test_a_device_of_two_classes_is_free_under_neither_once_a_claim_has_it() -> None:
    cluster = mirror(
        device_class(),
        device_class("small.example.com", model="big"),
        published("n1", "gpu-0", "gpu-1"),
        machine(),
        claim("one", exactly(of="small.example.com"), ["gpus:n1:gpu-0"], ["a"]),
        user("a", "one", on="n1"),
    )
    assert bar(cluster) == {"total": 1, "working": 0, "free": 1}
    assert bar(cluster, SMALL) == {"total": 2, "working": 1, "free": 1}


def test_what_waits_counts_the_devices_of_claims_that_are_still_to_be_made() -> None:
    cluster = mirror(
        device_class(), machine(), template("two", exactly(2)), user("a", of_template="two")
    )
    assert pending(cluster) == {"pod/team-a/a": (2, GPU)}


def test_what_waits_in_a_queue_counts_its_claims_too_those_of_a_template_for_each_pod() -> None:
    queued = workload("train", gpus=0, pods=3)
    (pod_set,) = queued["spec"]["podSets"]
    pod_set["template"]["spec"] = {
        "containers": [{"resources": {"requests": {"cpu": "1"}}}],
        "resourceClaims": [
            {"name": "own", "resourceClaimTemplateName": "two"},
            {"name": "all", "resourceClaimName": "shared"},
        ],
    }
    cluster = mirror(
        device_class(),
        machine(),
        local_queue("team-a", "research"),
        template("two", exactly(2)),
        claim("shared", exactly(1)),
        queued,
    )
    (found,) = rows(waiting.page(cluster, EVERYTHING, {}, START), "waiting")
    assert (found["amount"], found["resource"], found["shape"]) == (7, GPU, "3 x 2")
