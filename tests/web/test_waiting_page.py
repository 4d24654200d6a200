"""The page Waiting shows whatever waits: for GPUs, for what no node has, and for cpu alone."""

from __future__ import annotations

from typing import Any

import pytest

from reprieve.cli.get import Answer, printed
from reprieve.web.mirror.mirror import Mirror
from reprieve.web.pages import now, waiting
from reprieve.web.pages.waiters import waiter_of
from reprieve.web.tables import Viewer
from tests.web.cluster import (
    GPU,
    START,
    cluster_queue,
    local_queue,
    mirror,
    node,
    owner,
    pod,
    rows,
    waiting_event,
    workload,
)

EVERYTHING = Viewer(sees_all=True)
OTHER = "nvidia.com/gpu"


def asking(name: str, namespace: str = "team-a", **amounts: str) -> dict[str, Any]:
    """Return a pod without a node that asks for these amounts."""
    made: dict[str, Any] = pod(name, namespace, gpus=1)
    requests = {each.replace("_", "/"): amount for each, amount in amounts.items()}
    made["spec"]["containers"][0]["resources"] = {"requests": requests, "limits": {}}
    return made


def cluster() -> Mirror:
    return mirror(
        node("n1"),
        pod("train"),
        asking("other", cpu="4", **{OTHER: "2"}),
        asking("only-cpu", cpu="500m"),
        asking("nothing"),
    )


def test_all_that_waits_is_shown_with_the_resource_that_it_waits_for() -> None:
    found = rows(waiting.page(cluster(), EVERYTHING, {}, START), "waiting")
    assert {
        each["unit"].rpartition("/")[2]: (each["amount"], each["resource"]) for each in found
    } == {
        "train": (8, GPU),
        "other": (2, OTHER),
        "only-cpu": (0.5, "cpu"),
        "nothing": (0, ""),
    }
    assert len(rows(now.page(cluster(), EVERYTHING, {}, START), "waiters")) == 4


def test_a_resource_that_no_node_has_can_be_asked_for_by_those_who_see_work_that_waits_for_it() -> (
    None
):
    page = waiting.page(cluster(), EVERYTHING, {"resource": (OTHER,)}, START)
    (only,) = rows(page, "waiting")
    assert only["amount"] == 2
    assert page.values["resources"] == [GPU, "cpu", OTHER]
    tenant = Viewer(sees_all=False, namespaces=frozenset({"team-b"}))
    assert waiting.page(cluster(), tenant, {}, START).values["resources"] == [GPU, "cpu"]


def test_at_a_terminal_amounts_stand_beside_their_resource_or_below_the_one_asked_for() -> None:
    page = waiting.page(cluster(), EVERYTHING, {}, START)
    lines = printed(Answer(page.tables["waiting"], (), START), "pending", "text").splitlines()
    assert lines[0].split() == [
        "UNIT",
        "QUEUE",
        "POSITION",
        "REQUESTS",
        "RESOURCE",
        "SINCE",
        "REASON",
    ]
    page = waiting.page(cluster(), EVERYTHING, {"resource": ("cpu",)}, START)
    answer = Answer(page.tables["waiting"], (), START, resource="cpu")
    lines = printed(answer, "pending", "text").splitlines()
    assert lines[0].split() == ["UNIT", "QUEUE", "POSITION", "CPU", "SINCE", "REASON"]
    assert {line.split()[3] for line in lines[1:]} == {"4", "0.5"}


def test_a_row_of_quota_has_the_use_of_its_queue_for_those_who_see_the_cluster() -> None:
    why = (
        "couldn't assign flavors: insufficient unused quota for amd.com/gpu in flavor default, "
        "4 more needed"
    )
    found = mirror(
        cluster_queue("main", 8),
        local_queue("team-a", "main"),
        workload("holds", gpus=8, admitted_to="main"),
        workload("mine", gpus=4, why=why),
    )
    (only,) = rows(waiting.page(found, EVERYTHING, {}, START), "waiting")
    assert only["message"].startswith(
        "main: 8 of 8 amd.com/gpu used, requests 4; the quota is in use by"
    )
    tenant = Viewer(sees_all=False, namespaces=frozenset({"team-a"}))
    (only,) = rows(waiting.page(found, tenant, {}, START), "waiting")
    assert only["message"].startswith("The quota is in use by")


_FULL = 'couldn\'t assign flavors to pod set main: topology "racks" '
_AND = '. Total nodes: 24; excluded: resource "amd.com/gpu": 9'
_PLACES = "Its quota is free, and no part of its topology has capacity for all of its pods now"


@pytest.mark.parametrize(
    ("request_", "said", "shown"),
    [
        (
            {"required": "example.com/rack"},
            "allows to fit only 15 out of 16 pod(s)",
            "no example.com/rack has capacity for 16 pods: the best has capacity for 15",
        ),
        (
            {"required": "example.com/rack"},
            "doesn't allow to fit any of 1 slice(s)",
            "no example.com/rack has capacity for 1 slice",
        ),
        (
            {"preferred": "example.com/rack"},
            "allows to fit only 15 out of 16 pod(s)",
            "the whole topology has capacity for 15 of 16 pods",
        ),
        (
            None,
            "doesn't allow to fit any of 2 pod(s)",
            "the whole topology has capacity for 0 of 2 pods",
        ),
        (
            {"required": "example.com/block"},
            "doesn't allow to fit; 1/2 slice(s) fit on level rack; 3/8 slice(s) fit on level host",
            "1 of 2 slices fit on level rack, 3 of 8 slices fit on level host",
        ),
    ],
)
def test_work_that_lacks_places_is_shown_with_the_level_that_lacks_room(
    request_: dict[str, str] | None, said: str, shown: str
) -> None:
    waiting_one = workload("gang", pods=16, why=_FULL + said + _AND)
    if request_ is not None:
        waiting_one["spec"]["podSets"][0]["topologyRequest"] = request_
    followed = mirror(
        cluster_queue("research", 64),
        local_queue("team-a", "research"),
        waiting_one,
        waiting_event("Job", "gang", "PlacesTaken", f"{_PLACES}."),
    )
    (only,) = rows(waiting.page(followed, EVERYTHING, {}, START), "waiting")
    assert only["reason"] == "PlacesTaken" and only["message"] == f"{_PLACES}: {shown}"


def serving(name: str, **facts: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a pod of the Deployment `serve`, and the Workload that stands for it alone."""
    made = pod(name, "team-a", gpus=1, labels={"pod-template-hash": "5d9c"}, **facts)
    made["metadata"]["ownerReferences"] = [owner("ReplicaSet", "serve-5d9c")]
    of_it = workload(name, gpus=1, admitted_to="main" if facts.get("on") else "", why="full")
    of_it["metadata"]["ownerReferences"] = [{**owner("Pod", name), "controller": False}]
    return made, of_it


def test_pods_of_a_deployment_that_wait_for_quota_are_one_row() -> None:
    pods = [serving("serve-5d9c-a", on="n1"), serving("serve-5d9c-b"), serving("serve-5d9c-c")]
    queues = [cluster_queue("main", 1), local_queue("team-a", "main")]
    found = mirror(node("n1"), *queues, *(each for both in pods for each in both))
    (row,) = rows(waiting.page(found, EVERYTHING, {}, START), "waiting")
    assert row["unit"] == "deployment/team-a/serve"
    assert (row["queue"], row["position"], row["amount"], row["pods"]) == ("main", 1, 2, 2)
    assert "gated" not in row["message"]
    (holder,) = rows(now.page(found, EVERYTHING, {}, START), "holders")
    assert (holder["unit"], holder["queue"]) == ("deployment/team-a/serve", "main")


def test_a_deployment_waits_with_its_own_workloads_alone() -> None:
    pods = [serving("serve-5d9c-b", created=5), serving("serve-5d9c-c", created=6)]
    queues = [cluster_queue("main", 1), local_queue("team-a", "main")]
    other = workload("train", gpus=8, created=1, priority=9)
    found = mirror(node("n1"), *queues, other, *(each for both in pods for each in both))
    waiter = waiter_of(found, "deployment/team-a/serve", GPU)
    assert waiter is not None
    assert (waiter.position, waiter.pods, waiter.amount) == (2, 2, 2)
