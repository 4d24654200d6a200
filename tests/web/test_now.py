"""The page Now tells who holds, who waits, and where every GPU is."""

from __future__ import annotations

import pytest

from reprieve.web.pages import now
from reprieve.web.tables import InvalidParameter, Viewer
from tests.web.cluster import (
    GPU,
    START,
    cluster_queue,
    idle,
    local_queue,
    mirror,
    node,
    pod,
    put,
    rows,
    take,
    topology,
    waiting_event,
    workload,
)

EVERYTHING = Viewer(sees_all=True)


def test_every_gpu_is_in_exactly_one_part_of_the_bar() -> None:
    cluster = mirror(
        node("n1"),
        node("n2"),
        node("n3"),
        pod("train-0", gpus=4, on="n1", job="train"),
        pod("quiet-0", gpus=2, on="n1", job="quiet"),
        idle("quiet", ["quiet-0"]),
        pod("gone-0", gpus=8, on="n2", job="gone", leaving=True),
        pod("next-0", gpus=5, kept="n3"),
        pod("done-0", gpus=8, on="n3", phase="Succeeded"),
    )

    page = now.page(cluster, EVERYTHING, {}, START)

    assert page.values["bar"] == {
        "total": 24,
        "working": 4,
        "idle": 2,
        "leaving": 8,
        "claimed": 5,
        "free": 5,
    }
    assert [
        (
            each["node"],
            each["working"],
            each["idle"],
            each["leaving"],
            each["claimed"],
            each["free"],
        )
        for each in rows(page, "nodes")
    ] == [("n1", 4, 2, 0, 0, 2), ("n2", 0, 0, 8, 0, 0), ("n3", 0, 0, 0, 5, 3)]


def test_holders_stand_by_their_work_with_queue_cohort_and_state() -> None:
    cluster = mirror(
        node("n1", gpus=16),
        cluster_queue("research", 8, cohort="all"),
        local_queue("team-a", "research"),
        workload("train", gpus=4, pods=2, admitted_to="research"),
        pod("train-0", gpus=4, on="n1", job="train", created=5),
        pod("train-1", gpus=4, on="n1", job="train", created=9),
        pod("quiet-0", "team-b", gpus=2, on="n1", job="quiet"),
        idle("quiet", ["quiet-0"], "team-b"),
    )

    found = rows(now.page(cluster, EVERYTHING, {}, START), "holders")

    began = START / 1e9
    assert found == [
        {
            "unit": "job/team-a/train",
            "queue": "research",
            "cohort": "all",
            "amount": 8,
            "idle": 0,
            "leaving": 0,
            "pods": 2,
            "nodes": 1,
            "since": began + 6,
            "state": "Running",
        },
        {
            "unit": "job/team-b/quiet",
            "queue": "",
            "cohort": "",
            "amount": 2,
            "idle": 2,
            "leaving": 0,
            "pods": 1,
            "nodes": 1,
            "since": began + 1,
            "state": "Idle",
        },
    ]


def test_pods_of_a_deployment_a_gang_and_a_jobset_are_one_unit_each() -> None:
    labels = {"pod-template-hash": "7c9"}
    web = pod("web-7c9-x", gpus=1, on="n1", labels=labels)
    web["metadata"]["ownerReferences"] = [{**_controller("ReplicaSet", "web-7c9")}]
    cluster = mirror(
        node("n1", gpus=16),
        web,
        pod("m-0", gpus=1, on="n1", labels={"pod-group.scheduling.sigs.k8s.io": "gang"}),
        pod("m-1", gpus=1, on="n1", labels={"scheduling.x-k8s.io/pod-group": "gang"}),
        pod("s-0", gpus=1, on="n1", job="s-w-0", labels={"jobset.sigs.k8s.io/jobset-name": "s"}),
        pod("s-1", gpus=1, on="n1", job="s-w-1", labels={"jobset.sigs.k8s.io/jobset-name": "s"}),
        pod("alone", gpus=1, on="n1"),
    )

    found = rows(now.page(cluster, EVERYTHING, {}, START), "holders")

    assert {each["unit"]: each["amount"] for each in found} == {
        "deployment/team-a/web": 1,
        "podgroup/team-a/gang": 2,
        "jobset/team-a/s": 2,
        "pod/team-a/alone": 1,
    }


def test_work_that_waits_is_told_once_with_the_reason_that_was_told() -> None:
    cluster = mirror(
        node("n1"),
        local_queue("team-a", "research"),
        workload("train", gpus=8, pods=2, created=3, why="is not told, as there is an event"),
        pod("train-0", gpus=8, job="train", gated=True),
        waiting_event("Workload", "job-train", "HeldByOthers", "The quota is in use"),
        pod(
            "big",
            gpus=8,
            created=7,
            why="0/1 nodes are available: 1 Insufficient amd.com/gpu. "
            "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.",
        ),
    )

    found = rows(now.page(cluster, EVERYTHING, {}, START), "waiters")

    assert [(each["unit"], each["queue"], each["amount"], each["reason"]) for each in found] == [
        ("job/team-a/train", "research", 16, "HeldByOthers"),
        ("pod/team-a/big", "", 8, "Full"),
    ]
    assert found[0]["message"] == "The quota is in use"


def test_a_change_changes_the_rows_of_its_unit_and_node_and_leaves_others_the_same() -> None:
    cluster = mirror(
        node("n1"), node("n2"), pod("a", on="n1"), pod("b", on="n2"), pod("c", kept="n1")
    )
    before = now.page(cluster, EVERYTHING, {}, START)
    sums = {each.node.name: each for each in cluster.node_sums()}

    take(cluster, pod("a", on="n1"))

    after = now.page(cluster, EVERYTHING, {}, START)
    assert [each["unit"] for each in rows(before, "holders")] == ["pod/team-a/a", "pod/team-a/b"]
    assert [each["unit"] for each in rows(after, "holders")] == ["pod/team-a/b"]
    assert after.values["bar"]["claimed"] == 8
    again = {each.node.name: each for each in cluster.node_sums()}
    assert again["n2"] is sums["n2"]
    assert again["n1"] is not sums["n1"]


def test_gpus_that_went_idle_and_work_again_move_between_the_parts() -> None:
    cluster = mirror(node("n1"), pod("a-0", on="n1", job="a"), idle("a", ["a-0"]))
    assert now.page(cluster, EVERYTHING, {}, START).values["bar"]["idle"] == 8

    put(cluster, idle("a", ["a-0"], phase="Active"))

    bar = now.page(cluster, EVERYTHING, {}, START).values["bar"]
    assert (bar["idle"], bar["working"]) == (0, 8)


def test_a_resource_that_no_node_has_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(InvalidParameter, match=r"resource 'tpu': accepted: amd\.com/gpu, cpu"):
        now.page(mirror(node("n1")), EVERYTHING, {"resource": ("tpu",)}, START)


def test_cpu_is_counted_in_cores() -> None:
    page = now.page(mirror(node("n1")), EVERYTHING, {"resource": ("cpu",)}, START)

    assert page.values["bar"]["free"] == 64


def test_totals_are_told_to_tenants_only_where_three_hold() -> None:
    two = [node("n1", 64), pod("a", "team-a", on="n1"), pod("b", "team-b", on="n1")]
    tenant = Viewer(sees_all=False, namespaces=frozenset({"team-a"}))

    values = now.page(mirror(*two), tenant, {}, START).values
    assert (values["bar"], values["others"]) == (None, None)

    more = [pod(name, f"team-{name}", on="n1") for name in "cd"]
    values = now.page(mirror(*two, *more), tenant, {}, START).values
    assert values["bar"]["working"] == 32
    assert values["others"] == 24
    assert values["resource"] == GPU


def _controller(kind: str, name: str) -> dict[str, object]:
    return {"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": "u", "controller": True}


def test_nodes_say_in_which_domains_of_the_topology_they_are() -> None:
    racks = [{"zone": "z", "rack": each} for each in ("r1", "r2")]
    cluster = mirror(
        topology("other", "room"),
        node("n1", labels=racks[0]),
        node("n2", labels=racks[1] | {"room": "a"}),
        node("n3", labels={"zone": "z"}),
    )
    assert now.page(cluster, EVERYTHING, {}, START).values["levels"] == ["room"]
    racked = topology("racks", "zone", "rack", "kubernetes.io/hostname")
    put(cluster, racked)
    page = now.page(cluster, EVERYTHING, {}, START)
    # Two nodes have all levels of this one, a single node those of the other.
    assert page.values["levels"] == ["zone", "rack"]
    found = {each["node"]: each["domains"] for each in rows(page, "nodes")}
    assert found == {"n1": ["z", "r1"], "n2": ["z", "r2"], "n3": []}
    take(cluster, racked)
    take(cluster, topology("other", "room"))
    page = now.page(cluster, EVERYTHING, {}, START)
    assert page.values["levels"] == []
    assert all(each["domains"] == [] for each in rows(page, "nodes"))


def test_who_does_not_see_the_cluster_is_told_no_domains() -> None:
    cluster = mirror(topology("racks", "rack"), node("n1", labels={"rack": "r1"}))
    page = now.page(cluster, Viewer(sees_all=False, namespaces=frozenset({"team-a"})), {}, START)
    assert page.values["levels"] == [] and not page.tables["nodes"].rows
