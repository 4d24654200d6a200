"""Pods that ask for devices by template get claims in a what-if, and give them back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from kubeworld.time import LoopClock, run_virtually
from kubeworld.units.durations import MINUTE
from kubeworld.units.instants import Nanos
from reprieve.cli.sessions.deciding import deciders_of
from reprieve.kube.resource import DEVICE_TEMPLATES, PODS, Resource
from reprieve.whatif.controllers.stand_ins import StandIns
from reprieve.whatif.copy.overlay import Overlay
from reprieve.whatif.questions.answer import Verdict
from reprieve.whatif.questions.emptied import emptied
from reprieve.whatif.questions.judging import answer_of
from reprieve.whatif.run import settled
from reprieve.whatif.snapshots.pruning import pruned
from reprieve.whatif.snapshots.snapshot import Listed, Snapshot
from reprieve.whatif.submitting.submission import Submitted
from tests.whatif.test_kinds import snapshot

Object = dict[str, Any]
T = TypeVar("T")
CLAIMS = Resource("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim")
JOBS = Resource("batch", "v1", "jobs", "Job")
GROUPS = Resource("scheduling.k8s.io", "v1beta1", "podgroups", "PodGroup")
ASKED = [{"name": "gpus", "resourceClaimTemplateName": "gpus"}]
PROTECTED = "resource.kubernetes.io/delete-protection"
DRIVER = "gpu.example.com"


def pod(name: str, **spec: Any) -> Object:
    container = {"name": "c", "resources": {"claims": [{"name": "gpus"}]}}
    body = {"containers": [container], "resourceClaims": ASKED, **spec}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "team"},
        "spec": {"schedulerName": "default-scheduler", **body},
    }


def _resource(kind: str, name: str, spec: Object, namespace: str = "") -> Object:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": kind,
        "metadata": metadata,
        "spec": spec,
    }


REQUEST = {"name": "gpu", "exactly": {"deviceClassName": "gpu"}}
TEMPLATE = _resource(
    "ResourceClaimTemplate", "gpus", {"spec": {"devices": {"requests": [REQUEST]}}}, "team"
)
SELECTOR = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
CLASS = _resource("DeviceClass", "gpu", {"selectors": [SELECTOR]})
SLICE = _resource(
    "ResourceSlice",
    "node-0",
    {
        "driver": DRIVER,
        "nodeName": "node-0",
        "pool": {"name": "node-0", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "gpu-0"}],
    },
)
AMOUNTS = {"cpu": "4", "memory": "8Gi", "pods": "110"}
NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "node-0"},
    "spec": {},
    "status": {"allocatable": AMOUNTS, "capacity": AMOUNTS},
}


def test_a_pod_that_asks_by_template_starts_and_the_next_waits_for_its_device() -> None:
    deciders = deciders_of("scheduling", ("default-scheduler",), {})
    cluster = snapshot(deciders, NODE, CLASS, SLICE, TEMPLATE)
    first = settled(cluster, deciders, [Submitted(PODS, pod("first"))])
    assert answer_of(first).verdict is Verdict.STARTS
    taken = first.overlay.frozen()
    second = settled(taken, deciders, [Submitted(PODS, pod("second"))])
    assert answer_of(second).verdict is Verdict.WAITS
    # Without anybody's work the device is free again.
    alone = settled(emptied(taken), deciders, [Submitted(PODS, pod("second"))])
    assert answer_of(alone).verdict is Verdict.STARTS


def _over(do: Callable[[Overlay, LoopClock], Any]) -> Overlay:
    """Do something to a cluster that has claims, and return what there is a minute later."""
    template = msgspec.json.encode(TEMPLATE)
    kinds = {
        ("", "pods"): Listed(PODS, {}, 1),
        ("resource.k8s.io", "resourceclaims"): Listed(CLAIMS, {}, 1),
        ("scheduling.k8s.io", "podgroups"): Listed(GROUPS, {}, 1),
        ("batch", "jobs"): Listed(JOBS, {}, 1),
        ("resource.k8s.io", DEVICE_TEMPLATES.plural): Listed(
            DEVICE_TEMPLATES, {("team", "gpus"): template}, 1
        ),
    }

    async def main() -> Overlay:
        clock = LoopClock(asyncio.get_running_loop(), Nanos(0))
        overlay = Overlay(Snapshot(Nanos(0), kinds), clock)
        running = asyncio.create_task(StandIns(overlay, clock).run())
        await do(overlay, clock)
        await clock.sleep(MINUTE)
        running.cancel()
        return overlay

    return run_virtually(main)


def test_a_claim_goes_with_its_pod_although_the_scheduler_protects_it() -> None:
    seen: list[Object] = []

    async def do(overlay: Overlay, clock: LoopClock) -> None:
        made = overlay.create(PODS, pod("work"))
        await clock.sleep(MINUTE)
        (claim,) = overlay.all(CLAIMS)
        seen.append(claim)
        metadata = {**claim["metadata"], "finalizers": [PROTECTED]}
        users = [{"resource": "pods", "name": "work", "uid": made["metadata"]["uid"]}]
        status = {"allocation": {"devices": {}}, "reservedFor": users}
        overlay.change(CLAIMS, {**claim, "metadata": metadata, "status": status})
        overlay.delete(("", "pods"), ("team", "work"), {"gracePeriodSeconds": 0})

    overlay = _over(do)
    assert seen[0]["spec"] == TEMPLATE["spec"]["spec"]
    assert seen[0]["metadata"]["ownerReferences"][0]["name"] == "work"
    assert not list(overlay.all(CLAIMS))


def test_a_claim_of_its_own_is_free_once_its_last_user_is_gone() -> None:
    async def do(overlay: Overlay, clock: LoopClock) -> None:
        named = [{"name": "gpus", "resourceClaimName": "shared"}]
        made = [overlay.create(PODS, pod(each, resourceClaims=named)) for each in ("a", "b")]
        users = [
            {"resource": "pods", "name": e["metadata"]["name"], "uid": e["metadata"]["uid"]}
            for e in made
        ]
        status = {"allocation": {"devices": {}}, "reservedFor": users}
        body = _resource("ResourceClaim", "shared", {}, "team")
        overlay.create(CLAIMS, {**body, "status": status})
        overlay.delete(("", "pods"), ("team", "a"), {"gracePeriodSeconds": 0})
        await clock.sleep(MINUTE)
        (claim,) = overlay.all(CLAIMS)
        assert claim["status"] == {**status, "reservedFor": users[1:]}
        overlay.delete(("", "pods"), ("team", "b"), {"gracePeriodSeconds": 0})

    (claim,) = _over(do).all(CLAIMS)
    assert claim["status"] == {}


def test_what_a_group_asks_for_its_members_share() -> None:
    async def do(overlay: Overlay, clock: LoopClock) -> None:
        in_group = {"schedulingGroup": {"podGroupName": "group"}}
        overlay.create(PODS, pod("a", **in_group))
        metadata = {"name": "group", "namespace": "team"}
        overlay.create(GROUPS, {"metadata": metadata, "spec": {"resourceClaims": ASKED}})
        overlay.create(PODS, pod("b", **in_group))

    overlay = _over(do)
    (claim,) = overlay.all(CLAIMS)
    said = [{"name": "gpus", "resourceClaimName": claim["metadata"]["name"]}]
    users = [*overlay.all(PODS), *overlay.all(GROUPS)]
    assert [each["status"]["resourceClaimStatuses"] for each in users] == [said] * 3


def test_a_pod_of_a_job_has_its_claim_before_the_next_one_is_made() -> None:
    async def do(overlay: Overlay, clock: LoopClock) -> None:
        metadata = {"name": "work", "namespace": "team"}
        spec = {"parallelism": 2, "template": {"spec": pod("")["spec"]}}
        overlay.create(JOBS, {"metadata": metadata, "spec": spec})

    changes = [each for each in _over(do).history if each.kind[1] in ("pods", "resourceclaims")]
    told = [(each.kind[1], "new" if each.old is None else "changed") for each in changes]
    of_one = [("pods", "new"), ("resourceclaims", "new"), ("pods", "changed")]
    assert told == of_one * 2


def test_a_stored_snapshot_keeps_what_claims_are_made_of() -> None:
    assert pruned(TEMPLATE)["spec"] == TEMPLATE["spec"]
