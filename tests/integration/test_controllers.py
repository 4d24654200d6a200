"""What the steps of `kubeworld.controllers` say is what the controllers of a cluster do.

On the embedded cluster its machines carry these steps out; a real cluster has its own
kube-controller-manager.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kubeworld.controllers import deployments, garbage, jobs, replica_sets, stateful_sets
from kubeworld.controllers.acts import Create, Delete, Outcome, Status, Update
from kubeworld.controllers.job_tally import Tally
from kubeworld.objects.conditions import condition
from kubeworld.objects.owners import controller_of
from kubeworld.units.instants import Nanos, parse_instant
from reprieve.kube.bodies import Propagation
from reprieve.kube.resource import PODS, Resource
from tests.integration.site import (
    DEPLOYMENTS,
    JOBS,
    NAMESPACE,
    REPLICA_SETS,
    STATEFUL_SETS,
    Object,
    Site,
)

NOW: Nanos = parse_instant("2026-03-04T10:00:00Z")
#: By these a real controller scales in the middle of a roll-out, which is not imitated.
_SCALING = (
    "deployment.kubernetes.io/desired-replicas",
    "deployment.kubernetes.io/max-replicas",
)
#: Hashes of templates are of each controller's own making.
_HASHES = ("controller-revision-hash", "pod-template-hash")
_TEMPLATE: Object = {
    "metadata": {"labels": {"app": "a"}, "annotations": {"note": "x"}},
    "spec": {"containers": [{"name": "main", "image": "registry.example/main:1"}]},
}


def owner(resource: Resource, name: str, **spec: Any) -> Object:
    template = _TEMPLATE
    if resource is JOBS:
        template = {**_TEMPLATE, "spec": {**_TEMPLATE["spec"], "restartPolicy": "Never"}}
    else:
        spec = {"selector": {"matchLabels": {"app": "a"}}, **spec}
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"template": template, **spec},
    }


def step_of_a_job(job: Object, pods: list[Object]) -> Outcome:
    return jobs.step(job, pods, Tally(), NOW, lambda stem: "xxxxx")


def step_of(rule: Callable[..., Outcome]) -> Callable[[Object, list[Object]], Outcome]:
    return lambda obj, below: rule(obj, below, NOW, lambda stem: "xxxxx")


CASES = {
    "a Job": (JOBS, owner(JOBS, "plain", parallelism=2, completions=3), PODS, step_of_a_job),
    "an indexed Job": (
        JOBS,
        owner(
            JOBS,
            "indexed",
            parallelism=3,
            completions=3,
            completionMode="Indexed",
            backoffLimitPerIndex=1,
        ),
        PODS,
        step_of_a_job,
    ),
    "a ReplicaSet": (
        REPLICA_SETS,
        owner(REPLICA_SETS, "set", replicas=3),
        PODS,
        step_of(replica_sets.step),
    ),
    "a Deployment": (
        DEPLOYMENTS,
        owner(DEPLOYMENTS, "web", replicas=2, minReadySeconds=5),
        REPLICA_SETS,
        step_of(deployments.step),
    ),
    "a StatefulSet, all at once": (
        STATEFUL_SETS,
        owner(
            STATEFUL_SETS,
            "db",
            replicas=3,
            serviceName="db",
            podManagementPolicy="Parallel",
            ordinals={"start": 2},
        ),
        PODS,
        step_of(stateful_sets.step),
    ),
    "a StatefulSet, one after the other": (
        STATEFUL_SETS,
        owner(STATEFUL_SETS, "queue", replicas=3),
        PODS,
        step_of(stateful_sets.step),
    ),
}


def facts(obj: Object) -> Object:
    """Return what a controller gives its child, of which letters and hashes are left out."""
    metadata, spec = obj["metadata"], obj["spec"]
    labels = {k: v for k, v in metadata["labels"].items() if k not in _HASHES}
    numbered = "apps.kubernetes.io/pod-index" in labels
    return {
        "name": metadata["name"] if numbered else metadata["name"].rpartition("-")[0],
        "labels": labels,
        "hashes": sorted(set(metadata["labels"]) & set(_HASHES)),
        "annotations": {
            k: v for k, v in (metadata.get("annotations") or {}).items() if k not in _SCALING
        },
        "owner": controller_of(obj),
        "hostname": spec.get("hostname"),
        "subdomain": spec.get("subdomain"),
        "replicas": spec.get("replicas"),
        "ready": spec.get("minReadySeconds"),
    }


def made_by(outcome: Outcome) -> list[Object]:
    return [act.object for act in outcome.acts if isinstance(act, Create)]


async def children(site: Site, resource: Resource, obj: Object, count: int) -> list[Object]:
    """Wait until an owner has that many children, and return them."""
    uid = obj["metadata"]["uid"]

    async def there() -> list[Object] | None:
        found = await site.all(resource, NAMESPACE)
        mine = [each for each in found if (controller_of(each) or {}).get("uid") == uid]
        staying = [each for each in mine if "deletionTimestamp" not in each["metadata"]]
        return staying if len(staying) == count else None

    return await site.until(there, f"{obj['metadata']['name']} has {count} children")


@pytest.mark.parametrize("what", CASES)
async def test_children_are_made_as_a_step_says(site: Site, what: str) -> None:
    resource, manifest, below, step = CASES[what]
    stored = await site.create(manifest)
    expected = made_by(step(stored, []))
    assert expected
    found = await children(site, below, stored, len(expected))

    def ordered(objects: list[Object]) -> list[Object]:
        return sorted(map(facts, objects), key=lambda each: (each["name"], str(each["labels"])))

    assert ordered(found) == ordered(expected)

    async def present() -> tuple[Object, list[Object]]:
        now = await site.find(resource, manifest["metadata"]["name"])
        held = await site.all(below, NAMESPACE)
        uid = now["metadata"]["uid"]
        return now, [each for each in held if (controller_of(each) or {}).get("uid") == uid]

    # Nothing more is to be done, of which the status tells as much.
    async def settled() -> Object | None:
        now, mine = await present()
        acts = step(now, mine).acts
        writes = [act for act in acts if isinstance(act, Create | Delete)]
        return now if len(mine) == len(expected) and not writes else None

    await site.until(settled, f"{what} has all that it wants")

    async def counted() -> bool:
        now, mine = await present()
        said = [act.status for act in step(now, mine).acts if isinstance(act, Status)]
        replicas = (now.get("status") or {}).get("replicas")
        counts = {each["replicas"] for each in said if "replicas" in each}
        return bool(replicas == manifest["spec"]["replicas"] and counts <= {replicas})

    if resource is not JOBS:
        await site.until(counted, f"{what} counts its pods as the step does")


async def test_a_set_that_shrinks_loses_whom_a_step_takes(site: Site) -> None:
    shrinks = owner(REPLICA_SETS, "shrinks", replicas=3)
    amounts = {"amd.com/gpu": "2"}  # of four: the third pod waits
    resources = {"requests": amounts, "limits": amounts}
    [main] = shrinks["spec"]["template"]["spec"]["containers"]
    shrinks["spec"]["template"] = {
        **shrinks["spec"]["template"],
        "spec": {"containers": [{**main, "resources": resources}]},
    }
    stored = await site.create(shrinks)

    async def two_run() -> list[Object] | None:
        pods = await children(site, PODS, stored, 3)
        phases = [(pod.get("status") or {}).get("phase") for pod in pods]
        return pods if phases.count("Running") == 2 else None

    pods = await site.until(two_run, "two of three pods run")
    fewer = {**stored, "spec": {**stored["spec"], "replicas": 2}}
    acts = replica_sets.step(fewer, pods, NOW, str).acts
    gone = {act.object["metadata"]["name"] for act in acts if isinstance(act, Delete)}
    await site.client.patch(REPLICA_SETS, NAMESPACE, "shrinks", {"spec": {"replicas": 2}}, dict)
    left = await children(site, PODS, stored, 2)
    names = {each["metadata"]["name"] for each in pods}
    assert {each["metadata"]["name"] for each in left} == names - gone


async def test_a_job_is_suspended_and_resumed_as_a_step_says(
    site: Site, release: tuple[int, int]
) -> None:
    stored = await site.create(owner(JOBS, "held", suspend=True))
    for suspended, pods in ((True, 0), (False, 1), (True, 0)):
        patch = {"spec": {"suspend": suspended}}
        await site.client.patch(JOBS, NAMESPACE, "held", patch, dict)
        await children(site, PODS, stored, pods)

        async def said(suspended: bool = suspended) -> Object | None:
            now = await site.find(JOBS, "held")
            found = condition(now, "Suspended")
            status = {} if found is None else dict(now["status"])
            if found is None or found["status"] != str(suspended):
                return None
            expected: Object = {}
            jobs.note_suspension(now, status := {**status, **expected}, "2026-03-04T10:00:00Z")
            again = condition({"status": status}, "Suspended")
            assert again is not None
            same = {n: found[n] for n in ("status", "reason", "message")}
            assert same == {n: again[n] for n in same}
            if suspended and release < (1, 36):
                return now  # it leaves the time of the start in place
            return now if ("startTime" in now["status"]) != suspended else None

        await site.until(said, f"held is {'' if suspended else 'not '}suspended")


@pytest.mark.parametrize("how", [Propagation.ORPHAN, Propagation.FOREGROUND])
async def test_dependents_of_one_that_is_deleted_fare_as_a_step_says(
    site: Site, how: Propagation
) -> None:
    name = f"gone-{how.value.lower()}"
    stored = await site.create(owner(REPLICA_SETS, name, replicas=1))
    [pod] = await children(site, PODS, stored, 1)
    await site.client.delete(REPLICA_SETS, NAMESPACE, name, propagation=how)
    finalizer = {"Orphan": "orphan", "Foreground": "foregroundDeletion"}[how.value]
    leaving = {
        **stored,
        "metadata": {
            **stored["metadata"],
            "deletionTimestamp": "2026-03-04T10:00:00Z",
            "finalizers": [finalizer],
        },
    }
    acts = list(garbage.step(leaving, {}, [pod]))
    if how is Propagation.FOREGROUND:
        assert acts == []  # it waits for its pod
        [act] = garbage.step(pod, {stored["metadata"]["uid"]: leaving}, [])
        assert isinstance(act, Delete)
        expected: Object = {}
    else:
        assert all(isinstance(act, Update) for act in acts)
        expected = acts[0].object["metadata"]

    async def over() -> bool:
        return not await site.find(REPLICA_SETS, name)

    await site.until(over, f"{name} is gone")

    async def same() -> bool:
        left = await site.find(PODS, pod["metadata"]["name"])
        return bool(left) == bool(expected) and (
            (left.get("metadata") or {}).get("ownerReferences") == expected.get("ownerReferences")
        )

    await site.until(same, f"the pod of {name} fares as it should")
