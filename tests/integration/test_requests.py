"""What we count for a pod that is not there yet is what the API server makes of it.

Random pods with LimitRanges, sidecars, overheads and requests of the whole pod are created. The
amounts of the pod as stored are summed up; those of its template are worked out as for a Workload.
"""

from __future__ import annotations

import json
import random
from typing import Any, Final

import msgspec

from reprieve.api import kueue
from reprieve.api.scheduling import PodObject
from reprieve.intake.cluster.requests import requests_of
from reprieve.intake.quota_limits import LimitRange, container_limits
from reprieve.intake.quota_workloads import PodSetRows
from reprieve.kube.errors import Forbidden, Invalid
from reprieve.kube.resource import NAMESPACES, PODS, Resource
from tests.integration.site import Object, Site

_RANGES: Final = Resource("", "v1", "limitranges", "LimitRange")
_CLASSES: Final = Resource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", namespaced=False)
_OVERHEAD: Final[dict[str, str | int | float]] = {"cpu": "250m", "memory": "64Mi"}
#: Lower amounts for requests, higher ones for limits.
_DRAWN: Final = {
    "cpu": (("0", "1e-1", "333m", "0.5", "1"), ("1500m", "2", "1.0001")),
    "memory": (("0", "100M", "512Mi", "0.5Gi"), ("1Gi", "1536Mi", "1e9")),
    "ephemeral-storage": (("100M", "0.5Gi"), ("1Gi", "1e9")),
    "hugepages-2Mi": (("4Mi",), ("4Mi",)),
    "nvidia.com/gpu": (("1", "2"), ("1", "2")),
}
_NATIVE: Final = ("cpu", "memory")
_MOST: Final = {"cpu": "4", "memory": "4Gi", "ephemeral-storage": "4Gi"}
_LEAST: Final = {"cpu": "0", "memory": "0", "ephemeral-storage": "1M"}
_WANTED: Final = 120


def amounts(chance: random.Random, share: float, part: int, *names: str) -> Object:
    """Return some of the named resources, each with a random amount of its part of the drawn."""
    return {
        name: chance.choice(_DRAWN[name][part])
        for name in names or _DRAWN
        if chance.random() < share
    }


def resources(chance: random.Random, *names: str) -> Object:
    """Return requests and limits that are often one without the other, and often neither."""
    limits = amounts(chance, 0.4, 1, *names)
    requests = amounts(chance, 0.3, 0, *names)
    # What is not overcommitted is not requested without a limit, nor with another one.
    for name in ("nvidia.com/gpu", "hugepages-2Mi"):
        if requests.pop(name, None) and name in limits:
            requests[name] = limits[name]
    found: Object = {"requests": requests, "limits": limits}
    return {part: given for part, given in found.items() if given or chance.random() < 0.2}


def container(chance: random.Random, name: str) -> Object:
    found: Object = {"name": name, "image": "registry.example/main:1"}
    if chance.random() < 0.8:
        found["resources"] = resources(chance)
    return found


def template(chance: random.Random) -> Object:
    """Return the spec of a pod."""
    spec: Object = {
        "restartPolicy": "Never",
        "containers": [container(chance, f"main-{i}") for i in range(chance.randint(1, 3))],
        "initContainers": [
            container(chance, f"init-{i}")
            | ({"restartPolicy": "Always"} if chance.random() < 0.5 else {})
            for i in range(chance.choice((0, 0, 1, 2)))
        ],
    }
    if chance.random() < 0.3:
        spec["resources"] = resources(
            chance, *chance.choice((_NATIVE, (*_NATIVE, "hugepages-2Mi")))
        )
    return spec


def limit_range(chance: random.Random) -> Object:
    item: Object = {"type": "Container"}
    for place, name in enumerate(("defaultRequest", "default")):
        given = amounts(chance, 0.5, place, *_NATIVE, "ephemeral-storage")
        if given:
            item[name] = given
    # The server makes a default of a bound, and no default may be below it.
    for name, bounds in (("max", _MOST), ("min", _LEAST)):
        if chance.random() < 0.3:
            item[name] = {each: bounds[each] for each in bounds if chance.random() < 0.5}
    return {"metadata": {"name": "defaults"}, "spec": {"limits": [item]}}


async def test_a_template_counts_for_what_the_api_server_makes_of_its_pods(
    site: Site, release: tuple[int, int]
) -> None:
    chance = random.Random(4)
    # The embedded cluster serves no runtime classes.
    classes = site.name != "embedded"
    if classes:
        sandboxed = {"metadata": {"name": "sandboxed"}, "handler": "sandboxed"}
        overhead = {"overhead": {"podFixed": _OVERHEAD}}
        await site.client.create(_CLASSES, {**sandboxed, **overhead}, dict)
    compared, differing = 0, []
    for space in range(60):
        namespace = f"space-{space}"
        await site.client.create(NAMESPACES, {"metadata": {"name": namespace}}, dict)
        ranges = [
            # The server goes through several in no order, and may not know the second one yet.
            limit_range(chance)
        ][: chance.choice((0, 1, 1, 1))]
        stored = [await in_space(site, _RANGES, namespace, each) for each in ranges]
        for number in range(12):
            spec = template(chance)
            if release < (1, 36) or (release < (1, 37) and '"0"' in json.dumps([spec, ranges])):
                # Its server makes a request of a pod's limit where containers request none of it;
                # that of 1.36 where they request 0 of it.
                spec.pop("resources", None)
            if classes and chance.random() < 0.3:
                spec["runtimeClassName"] = "sandboxed"
            body = {"metadata": {"name": f"pod-{number}"}, "spec": spec}
            try:
                made = await in_space(site, PODS, namespace, body)
            except (Forbidden, Invalid):
                continue
            compared += 1
            if counted(spec, stored) != summed(made["spec"]):
                differing.append((stored, spec, counted(spec, stored), summed(made["spec"])))
        if compared >= _WANTED:
            break
    assert compared >= _WANTED
    assert not differing, f"{len(differing)} of {compared}, the first: {differing[0]}"


async def in_space(site: Site, resource: Resource, namespace: str, body: Object) -> Any:
    return await site.client.create(
        resource, {**body, "metadata": {**body["metadata"], "namespace": namespace}}, dict
    )


def counted(spec: Object, ranges: list[Object]) -> dict[str, int]:
    """Return what a Workload with such pods asks for."""
    limits = container_limits(msgspec.convert(each, LimitRange) for each in ranges)
    rows = PodSetRows(limits=limits, overheads={"sandboxed": _OVERHEAD})
    pod_set: Object = {"name": "main", "count": 1, "template": {"spec": spec}}
    row, _ = rows.of(msgspec.convert(pod_set, kueue.PodSet))
    return {name: amount for name, amount in row.requests.items() if amount}


def summed(spec: Object) -> dict[str, int]:
    """Return what the pod that the server stored asks for."""
    return dict(requests_of(msgspec.convert({"spec": spec}, PodObject)).amounts)
