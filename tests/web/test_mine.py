"""My work tells a tenant what runs, waits and was preempted, with the rights of his namespace."""

from __future__ import annotations

import msgspec

from kubeworld.units.durations import HOUR
from kubeworld.units.instants import Nanos
from reprieve.web.live.watching import Key
from reprieve.web.pages import mine
from reprieve.web.server.mirrored import MirroredCluster
from reprieve.web.tables import Viewer
from tests.web.cluster import (
    GPU,
    START,
    at,
    cluster_queue,
    local_queue,
    mirror,
    node,
    notice,
    pod,
    put,
    rows,
    waiting_event,
    workload,
)
from tests.web.stories import NOW, disruption, mirror_of, quota_record

TENANT = Viewer(False, frozenset({"team-a"}))


def test_a_tenant_reads_use_of_his_queue_from_its_status_alone() -> None:
    cluster = mirror(local_queue("team-a", "cq", used=6), local_queue("team-b", "cq", used=9))

    page = mine.page(cluster, TENANT, {}, START)

    (queue,) = rows(page, "queues")
    assert (queue["queue"], queue["namespace"], queue["resource"]) == ("main", "team-a", GPU)
    assert (queue["used"], queue["reserved"], queue["nominal"]) == (6, 6, None)


async def test_a_namespace_that_is_named_and_not_seen_is_stated_and_not_shown_as_empty() -> None:
    cluster = MirroredCluster(mirror(local_queue("team-a", "cq", used=6)))

    def denied(*named: str) -> object:
        page = cluster.page(Key.of("mine", {"ns": named}, TENANT), START)
        return page.values.get("denied"), len(rows(page, "queues"))

    assert denied("team-a") == (None, 1)
    assert denied() == (None, 1)
    assert denied("team-a", "team-b", "absent") == (["absent", "team-b"], 1)
    assert denied("team-b") == (["team-b"], 0)


def test_quota_is_told_of_a_queue_that_nobody_else_uses() -> None:
    cluster = mirror(cluster_queue("cq", 16), local_queue("team-a", "cq", used=6))
    assert rows(mine.page(cluster, TENANT, {}, START), "queues")[0]["nominal"] == 16

    put(cluster, local_queue("team-b", "cq"))
    assert rows(mine.page(cluster, TENANT, {}, START), "queues")[0]["nominal"] is None


def test_what_runs_and_waits_is_the_tenants_own_with_its_place() -> None:
    cluster = mirror(
        node("n1"),
        local_queue("team-a", "cq"),
        local_queue("team-b", "cq"),
        pod("train-0", gpus=4, on="n1", job="train"),
        pod("other-0", "team-b", 4, on="n1", job="other"),
        workload("first", "team-b", 8, created=1, why="no quota"),
        workload("next", gpus=8, created=2, why="no quota"),
        waiting_event("Job", "next", "HeldByOthers", "the quota is in use"),
    )

    page = mine.page(cluster, TENANT, {}, START)

    assert [(each["unit"], each["amount"]) for each in rows(page, "running")] == [
        ("job/team-a/train", 4)
    ]
    (waits,) = rows(page, "waiting")
    assert (waits["unit"], waits["position"], waits["reason"]) == (
        "job/team-a/next",
        2,
        "HeldByOthers",
    )
    assert waits["step"] == "Wait until some of it ends, or request less."
    assert page.values["counts"] == {"running": 1, "waiting": 1, "preempted": 0, "notified": 0}


def test_what_was_preempted_says_for_whom_and_when_it_comes_back() -> None:
    record = quota_record()
    cluster = mirror_of([record])
    again = workload("sweep", "team-a", 8, why="evicted")
    again["metadata"]["name"] = "sweep"
    again["status"]["requeueState"] = {"count": 1, "requeueAt": at(90)}
    put(cluster, again)

    page = mine.page(cluster, TENANT, {}, Nanos(NOW + HOUR))

    found = {each["unit"]: each for each in rows(page, "preempted")}
    assert {each["lost"] for each in found.values()} == {1200, 2400}
    assert all("team-b" not in str(each) for each in found.values())
    assert {each["state"] for each in found.values()} == {"Gone"}
    assert rows(mine.page(cluster, TENANT, {}, Nanos(NOW + 25 * HOUR)), "preempted") == []
    foreign = Viewer(False, frozenset({"team-c"}))
    assert rows(mine.page(cluster, foreign, {}, Nanos(NOW + HOUR)), "preempted") == []


def test_work_that_waits_after_a_preemption_is_told_with_its_place_and_its_pause() -> None:
    record = quota_record()
    victim = record.spec.victims[0].root
    cluster = mirror_of([record])
    again = workload("sweep", "team-a", 8, why="evicted")
    again["metadata"] |= {"name": victim.name, "uid": victim.uid, "ownerReferences": []}
    again["status"]["requeueState"] = {"count": 1, "requeueAt": at(90)}
    put(cluster, local_queue("team-a", "a"))
    put(cluster, again)

    page = mine.page(cluster, TENANT, {}, Nanos(NOW + HOUR))

    (row,) = [each for each in rows(page, "preempted") if each["state"] == "Waiting"]
    assert (row["unit"], row["position"]) == (f"workload/team-a/{victim.name}", 1)
    assert row["tried"] == (START + 90_000_000_000) / 1_000_000_000
    assert msgspec.json.encode(row)


def test_of_the_same_preemption_each_viewer_is_shown_the_preemptor_that_he_may_know() -> None:
    record = quota_record()
    victim = record.spec.victims[0]
    plan, lineage = record.spec.plan_id, victim.lineage
    named = "another tenant's work #1f2e"
    told = disruption("team-a", victim.root.name, plan, lineage, preemptor=named)
    cluster = mirror_of([record], disruptions=[told])
    assert record.spec.preemptor is not None

    def shown(viewer: Viewer) -> set[object]:
        page = mine.page(cluster, viewer, {}, Nanos(NOW + HOUR))
        return {each["by"] for each in rows(page, "preempted") if each["lost"] == 4_800}

    assert shown(TENANT) == {named}
    assert shown(Viewer(True)) == {f"workload/team-b/{record.spec.preemptor.name}"}


def test_what_may_save_is_the_viewers_own_with_its_deadline_and_its_answers() -> None:
    cluster = mirror(
        notice("late", due=900, state="Noticed"),
        notice("soon", due=300, answered=1),
        notice("over", state="Released", answered=2),
        notice("pardoned", state="Pardoned"),
        notice("foreign", "team-b"),
    )

    page = mine.page(cluster, TENANT, {}, START)

    soon, late = rows(page, "notified")
    assert (soon["unit"], soon["answered"], soon["requested"]) == ("job/team-a/soon", 1, 2)
    assert late["due"] - soon["due"] == 600
    assert (soon["state"], late["state"], late["message"]) == ("Saving", "Noticed", "step 1200")
    assert soon["by"] == "workload #1 of another namespace"
    assert page.values["counts"]["notified"] == 2
