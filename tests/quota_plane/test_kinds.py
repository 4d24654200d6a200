"""Every kind of the table, and one that a user added: queued, admitted, preempted, finished.

No controller of these kinds runs: the test writes what it would write into their statuses.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reprieve.controllers.quota.context import QuotaOptions
from reprieve.controllers.quota.watches import resource_of
from reprieve.jobs.model import JobKind, Test
from reprieve.jobs.paths import first, put
from reprieve.jobs.table import BUILT_IN, job_kinds
from reprieve.kube.resource import CUSTOM_RESOURCE_DEFINITIONS
from reprieve.units.errors import UsageError
from tests.quota_plane.site import NAMESPACE, Object, Site, site
from tests.quota_plane.test_jobs import LOWER, base

OWN = {
    "apiVersion": "science.example/v1",
    "kind": "Simulation",
    "plural": "simulations",
    "framework": "science.example/simulation",
    "suspend": "spec.paused",
    "podSets": [
        {"template": "spec.solver.template", "name": "solver", "counts": [["spec.solver.size"]]}
    ],
    "succeeded": [{"field": "status.phase", "values": ["Done"]}],
    "failed": [{"field": "status.phase", "values": ["Broken"]}],
    "ready": [{"field": "status.phase", "values": ["Running"]}],
    "active": [{"positive": ["status.pods"]}],
}
KINDS = {
    kind.kind: kind
    for kind in job_kinds([OWN])
    if kind.kind not in ("Job", "SparkApplication") and kind.suspend and kind.pod_sets
}


def definition(kind: JobKind) -> Object:
    """Return a definition that takes any object of a kind."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": anything, "status": anything}}
    version = {
        "name": kind.api_version.rpartition("/")[2],
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{kind.group}"},
        "spec": {
            "group": kind.group,
            "scope": "Namespaced",
            "names": {"plural": kind.plural, "kind": kind.kind, "singular": kind.kind.lower()},
            "versions": [version],
        },
    }


def manifest(kind: JobKind, name: str, priority: str) -> Object:
    """Return an object of the kind with one pod of two cpus in its first pod set."""
    container = {"name": "c", "resources": {"requests": {"cpu": "2"}}}
    template = {"spec": {"containers": [container]}}
    source = kind.pod_sets[0]
    obj: Object = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "labels": {
                "kueue.x-k8s.io/queue-name": "q",
                "kueue.x-k8s.io/priority-class": priority,
            },
        },
    }
    item: Object = {} if source.each else obj
    put(item, source.template, template)
    if source.each:
        put(item, source.name_from, "part")
        put(obj, source.each, [item])
    for factor in source.counts:
        put(item, factor[0], 1)
    put(obj, kind.suspend, True)
    if kind.kind == "RayJob":
        put(obj, "spec.submissionMode", "HTTPMode")  # no pod submits it
    return obj


def state_of(tests: list[Test], *, on: bool) -> Object:
    """Return a status in which the first test holds, or does not."""
    obj: Object = {}
    test = tests[0]
    if test.condition:
        status = "True" if on else "False"
        condition = {"type": test.condition, "status": status, "message": "the end"}
        put(obj, "status.conditions", [condition])
    if test.field:
        put(obj, test.field, (test.values or ["Running"])[0] if on else "Suspended")
    for path in (test.reaches.sum if test.reaches else test.positive)[:1]:
        _put_below(obj, path, 1 if on else 0)
    found: Object = obj["status"]
    return found


def _put_below(obj: Object, path: str, value: int) -> None:
    """Write at a path whose `*` is a map or a list of one item."""
    head, star, rest = path.partition(".*.")
    if not star:
        put(obj, path, value)
    elif "replicaStatuses" in head:
        put(obj, head, {"Worker": {rest: value}})
    else:
        put(obj, head, [{"name": "part", rest: value}])


async def set_status(cluster: Site, kind: JobKind, name: str, status: Object) -> None:
    await cluster.client.patch_status(resource_of(kind), NAMESPACE, name, status, dict)


async def suspended(cluster: Site, kind: JobKind, name: str) -> bool:
    obj: Object = await cluster.client.get(resource_of(kind), NAMESPACE, name, dict)
    return first(obj, kind.suspend) is True


@pytest.mark.parametrize("name", sorted(KINDS))
async def test_a_kind_is_queued_admitted_preempted_requeued_and_finished(
    name: str, tmp_path: Path
) -> None:
    kind = KINDS[name]
    options = QuotaOptions(kinds=(kind,))
    without = ("children",)
    async with site(
        tmp_path, *base(3, preemption=LOWER), options=options, without=without
    ) as cluster:
        await _served(cluster, kind)
        await cluster.client.create(resource_of(kind), manifest(kind, "low", "low"), dict)

        def runs(which: str) -> Any:
            async def holds() -> bool:
                return await cluster.admitted() == {which} and not await suspended(
                    cluster, kind, which
                )

            return holds

        await cluster.until("low runs", runs("low"))
        await set_status(cluster, kind, "low", state_of(kind.active, on=True))
        await cluster.client.create(resource_of(kind), manifest(kind, "high", "high"), dict)

        async def stopped() -> bool:
            return await suspended(cluster, kind, "low")

        await cluster.until("low is suspended", stopped)
        # It holds its quota until its pods are gone.
        assert (await cluster.conditions("low"))["QuotaReserved"][0] == "True"
        assert (await cluster.conditions("low"))["Preempted"][:2] == ("True", "InClusterQueue")
        await set_status(cluster, kind, "low", state_of(kind.active, on=False))
        await cluster.until("high runs", runs("high"))
        assert (await cluster.conditions("low"))["Requeued"][:2] == ("True", "Preempted")
        if not kind.succeeded:
            await cluster.client.delete(resource_of(kind), NAMESPACE, "high")
        else:
            await set_status(cluster, kind, "high", state_of(kind.succeeded, on=True))
        await cluster.until("low runs again", runs("low"))
        if kind.succeeded:
            said = await cluster.conditions("high")
            assert said["Finished"][:2] == ("True", "Succeeded")


async def _served(cluster: Site, kind: JobKind) -> None:
    try:
        await cluster.client.list(resource_of(kind), dict)
    except Exception:
        await cluster.client.create(CUSTOM_RESOURCE_DEFINITIONS, definition(kind), dict)


def test_a_row_that_cannot_be_read_is_refused_with_its_place() -> None:
    with pytest.raises(UsageError, match=r"quota.jobKinds\[0\]: .*colour"):
        job_kinds([{**OWN, "colour": "red"}])
    assert len(job_kinds([OWN])) == len(BUILT_IN) + 1
