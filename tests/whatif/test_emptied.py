"""A cluster without anybody's work: devices are free again, but for what runs on every node."""

from __future__ import annotations

from typing import Any

import msgspec

from kubeworld.units.instants import Nanos
from reprieve.kube.resource import PODS, Resource
from reprieve.whatif.questions.emptied import emptied
from reprieve.whatif.snapshots.snapshot import Listed, Snapshot

CLAIMS = Resource("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim")


def pod(name: str, owner: str) -> dict[str, Any]:
    owners = [{"apiVersion": "apps/v1", "kind": owner, "name": owner, "uid": owner}]
    return {"metadata": {"namespace": "team", "name": name, "ownerReferences": owners}}


def claim(name: str, *users: str) -> dict[str, Any]:
    used = [{"resource": "pods", "name": user, "uid": user} for user in users]
    status = {"allocation": {"devices": {"results": []}}, "reservedFor": used}
    return {"metadata": {"namespace": "team", "name": name}, "status": status}


def listed(resource: Resource, *objects: dict[str, Any]) -> Listed:
    return Listed(
        resource, {("team", e["metadata"]["name"]): msgspec.json.encode(e) for e in objects}, 1
    )


def left(pods: list[dict[str, Any]], *claims: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return pods and claims of the emptied cluster by name."""
    kinds = (listed(PODS, *pods), listed(CLAIMS, *claims))
    taken = Snapshot(
        Nanos(1), {(each.resource.group, each.resource.plural): each for each in kinds}
    )
    found = emptied(taken).kinds.values()
    return {
        name: msgspec.json.decode(raw) for each in found for (_, name), raw in each.objects.items()
    }


def test_claims_of_who_is_gone_have_no_devices_and_those_of_every_node_keep_theirs() -> None:
    agent, job = pod("agent", "DaemonSet"), pod("job", "Job")
    of_agent, of_job, of_nobody = claim("a", "agent"), claim("j", "job"), claim("n")
    shared = claim("s", "job", "agent")
    assert left([agent, job], of_agent, of_job, of_nobody, shared) == {
        "agent": agent,
        "a": of_agent,
        "j": {**of_job, "status": {}},
        "n": {**of_nobody, "status": {}},
        "s": shared,
    }


def test_what_cannot_be_read_is_left_to_the_planes_and_a_pod_like_that_is_somebodys_work() -> None:
    odd_claim = {**claim("odd"), "status": {"reservedFor": "nobody"}}
    odd_pod = {"metadata": {"namespace": "team", "name": "odd-pod", "ownerReferences": 7}}
    assert left([odd_pod], odd_claim) == {"odd": odd_claim}
