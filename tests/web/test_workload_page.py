"""The page of a unit tells its life over all attempts, and why at each turn."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kubeworld.units.durations import HOUR, MINUTE, SECOND
from kubeworld.units.instants import Nanos, format_instant
from reprieve.api.reprieve import IntentPhase, VictimState, VictimStatus
from reprieve.web.mirror.mirror import Mirror
from reprieve.web.pages import workload
from reprieve.web.tables import NotFound, Page, Viewer
from tests.web import cluster
from tests.web.stories import (
    NOW,
    disruption,
    mirror_of,
    quota_record,
    rows_of,
    scheduling_record,
)

EVERYTHING = Viewer(sees_all=True)
LACKS = (
    "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in "
    "flavor gpus, 2 more needed"
)
DECIDED = 1772619300.0
SPARED = "staying within the nominal quota of its own ClusterQueue"


def after(seconds: int) -> str:
    return format_instant(Nanos(NOW + seconds * SECOND))


def queued(name: str = "probe", *conditions: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The Workload of team-a's job, which has been there for an hour."""
    made = cluster.workload(name, "team-a", 4)
    made["metadata"].update(name=name, uid=f"{name}-uid", creationTimestamp=after(-3_600))
    made["metadata"]["ownerReferences"][0]["uid"] = f"{name}-job"
    made["status"].update(conditions=list(conditions), **more)
    return made


def condition(kind: str, status: str, seconds: int, message: str = "") -> dict[str, Any]:
    return {
        "type": kind,
        "status": status,
        "reason": "Told",
        "message": message,
        "lastTransitionTime": after(seconds),
    }


def shown(mirror: Mirror, unit: str, viewer: Viewer = EVERYTHING, when: int = 600) -> Page:
    kind, namespace, name = unit.split("/")
    parameters = {"kind": (kind,), "namespace": (namespace,), "name": (name,)}
    return workload.page(mirror, viewer, parameters, Nanos(NOW + when * SECOND))


def test_a_job_that_made_way_and_waits_again() -> None:
    record = quota_record()
    told = disruption("team-a", "probe", record.spec.plan_id, "owner/probe-job")
    mirror = mirror_of([record], [told])
    cluster.put(
        mirror,
        queued(
            "probe",
            condition("QuotaReserved", "False", 61, LACKS),
            condition("Evicted", "True", 60),
        ),
    )
    page = shown(mirror, "job/team-a/probe")
    waiting = page.values["waits"]
    assert page.values == {
        "unit": "job/team-a/probe",
        "kind": "Job",
        "namespace": "team-a",
        "name": "probe",
        "state": "Waits",
        "since": DECIDED + 60,
        "created": DECIDED - 3_600,
        "queue": "main",
        "clusterQueue": "",
        "priority": 0,
        "command": "reprieve explain job/probe -n team-a",
        "attempts": 2,
        "gpus": 4,
        "idle": None,
        "totals": {"displaced": 1, "lost": 2_400, "day": 1},
        "waits": waiting,
    }
    assert waiting == {
        "plane": "quota",
        "reason": "HeldByOthers",
        "message": "The quota is in use by work that is not preempted for it: it lacks 2 "
        "nvidia.com/gpu in flavor gpus",
        "step": "Wait until some of it ends, or request less.",
        "since": DECIDED + 60,
        "queue": "",
        "position": 1,
        "shape": "1 x 4",
        "resource": "amd.com/gpu",
    }
    life = [(row["state"], row["begin"], row["end"], row["gpus"]) for row in rows_of(page, "life")]
    assert life == [
        ("Waits", DECIDED - 3_600, DECIDED - 300, 4),
        ("Runs", DECIDED - 300, DECIDED + 1, 4),
        ("Leaves", DECIDED + 1, DECIDED + 60, 4),
        ("Waits", DECIDED + 60, None, 4),
    ]
    assert rows_of(page, "displacements") == [
        {
            "preemption": "quota-train-1",
            "at": DECIDED + 1,
            "ended": DECIDED + 60,
            "plane": "quota",
            "by": "workload/team-b/train",
            "rule": "it used quota that another queue has lent and reclaims",
            "objects": 1,
            "gpus": 4,
            "lost": 2_400,
            "ran": 301.0,
            "times": 1,
            "why": "its ClusterQueue used 6 nvidia.com/gpu above its nominal quota; 1st of 3 "
            "workloads that could be chosen, of which 1 was reprieved (other ClusterQueues first, "
            "then lower priority, then later admission)",
            "spared": SPARED,
            "outcome": "Evicted",
        }
    ]


def test_its_tenant_reads_the_same_but_for_whom() -> None:
    record = quota_record()
    told = disruption("team-a", "probe", record.spec.plan_id, "owner/probe-job")
    mirror = mirror_of([record], [told])
    tenant = Viewer(False, frozenset({"team-a"}))
    whole, own = (shown(mirror, "job/team-a/probe", each) for each in (EVERYTHING, tenant))
    assert own.tables["life"].rows.keys() == whole.tables["life"].rows.keys()
    (row,) = rows_of(own, "displacements")
    assert (row["by"], row["preemption"]) == (
        "another tenant's work #a3f1",
        record.spec.plan_id,
    )
    (other,) = rows_of(whole, "displacements")
    assert {**row, "by": other["by"], "preemption": other["preemption"]} == other


def test_a_job_that_runs_again_has_one_bar_over_both_attempts() -> None:
    record = quota_record()
    mirror = mirror_of([record])
    cluster.put(
        mirror,
        queued(
            "probe",
            condition("QuotaReserved", "True", 900),
            condition("Admitted", "True", 900),
            condition("PodsReady", "True", 960),
            admission={"clusterQueue": "a", "podSetAssignments": []},
        ),
    )
    pod = cluster.pod("probe-x", "team-a", 4, on="n0", job="probe")
    pod["status"]["startTime"] = after(910)
    cluster.put(mirror, pod)
    page = shown(mirror, "job/team-a/probe", when=1_200)
    assert [(row["state"], row["begin"], row["end"]) for row in rows_of(page, "life")] == [
        ("Waits", DECIDED - 3_600, DECIDED - 300),
        ("Runs", DECIDED - 300, DECIDED + 1),
        ("Leaves", DECIDED + 1, DECIDED + 60),
        ("Waits", DECIDED + 60, DECIDED + 900),
        ("Starts", DECIDED + 900, DECIDED + 960),
        ("Runs", DECIDED + 960, None),
    ]
    assert (page.values["state"], page.values["attempts"], page.values["waits"]) == (
        "Runs",
        2,
        None,
    )
    assert page.values["since"] == DECIDED + 960
    assert rows_of(page, "pods") == [
        {
            "node": "n0",
            "state": "Running",
            "pods": 1,
            "gpus": 4,
            "since": DECIDED + 910,
            "names": ["probe-x"],
        }
    ]


def test_pods_that_came_back_under_other_names_are_one_line_with_those_that_went() -> None:
    record = scheduling_record()
    victims = [
        msgspec.structs.replace(
            each,
            unit="",
            lineage="owner/deployment-uid",
            lost_device_seconds=960,
            root=msgspec.structs.replace(each.root, name=f"web-5d4f8c9b7d-x{2 + 2 * n}lkp"),
        )
        for n, each in enumerate(record.spec.victims)
    ]
    spec = msgspec.structs.replace(record.spec, victims=victims)
    mirror = mirror_of([msgspec.structs.replace(record, spec=spec)], opened=False)
    labels = {"pod-template-hash": "5d4f8c9b7d"}
    now = cluster.pod("web-5d4f8c9b7d-bbbbb", "team-b", 8, on="n9", labels=labels)
    now["metadata"]["ownerReferences"] = [cluster.owner("ReplicaSet", "web-5d4f8c9b7d")]
    cluster.put(mirror, now)
    page = shown(mirror, "deployment/team-b/web")
    (row,) = rows_of(page, "displacements")
    assert (row["objects"], row["gpus"], row["lost"]) == (2, 16, 1_920)
    assert (page.values["state"], page.values["attempts"]) == ("Runs", 2)


def test_how_often_it_made_way_is_counted_over_the_day_before() -> None:
    day = [
        disruption(
            "team-a",
            "web",
            f"plan-{hours}",
            "owner/web",
            noticed_at=format_instant(Nanos(NOW - hours * HOUR)),
            evicting_at=format_instant(Nanos(NOW - hours * HOUR)),
            ended_at=format_instant(Nanos(NOW - hours * HOUR + MINUTE)),
        )
        for hours in (30, 20, 2, 1)
    ]
    page = shown(mirror_of(disruptions=day), "job/team-a/web")
    assert [(row["preemption"], row["times"]) for row in rows_of(page, "displacements")] == [
        ("plan-1", 3),
        ("plan-2", 2),
        ("plan-20", 2),
        ("plan-30", 1),
    ]
    assert page.values["totals"] == {"displaced": 4, "lost": 4 * 4_800, "day": 3}
    assert page.values["state"] == "Gone"


def test_who_was_spared_in_the_end_did_not_make_way() -> None:
    record = quota_record()
    status = msgspec.structs.replace(
        record.status,
        phase=IntentPhase.ABANDONED,
        victims=[
            VictimStatus(each.root.uid, VictimState.SPARED, after(5))
            for each in record.spec.victims
        ],
    )
    mirror = mirror_of([msgspec.structs.replace(record, status=status)])
    page = shown(mirror, "workload/team-a/probe")
    assert [row["outcome"] for row in rows_of(page, "displacements")] == ["Spared"]
    assert (page.values["attempts"], page.values["totals"]["displaced"]) == (0, 0)
    assert rows_of(page, "life") == []


def test_the_preemptor_is_told_who_made_way_for_it() -> None:
    page = shown(mirror_of([quota_record()]), "workload/team-b/train")
    assert rows_of(page, "displaced") == [
        {
            "preemption": "quota-train-1",
            "at": DECIDED,
            "plane": "quota",
            "units": 2,
            "gpus": 6,
            "lost": 3_600,
            "rule": "it used quota that another queue has lent and reclaims",
            "whose": ["workload/team-a/probe", "workload/team-a/eval"],
            "state": "Completed",
        }
    ]
    assert page.values["state"] == "Gone"


@pytest.mark.parametrize(
    ("unit", "namespaces"),
    [
        ("job/team-a/nothing", ("team-a",)),
        ("job/team-a/probe", ("team-b",)),
        ("workload/team-a/probe", ()),
        ("job//probe", ("",)),
        ("//", ("team-a",)),
    ],
)
def test_what_is_foreign_is_missing_as_what_is_not_there(
    unit: str, namespaces: tuple[str, ...]
) -> None:
    mirror = mirror_of([quota_record()])
    if unit == "job/team-a/probe":
        cluster.put(mirror, queued())
    kind, namespace, name = unit.split("/")
    with pytest.raises(NotFound) as refusal:
        shown(mirror, unit, Viewer(False, frozenset(namespaces)))
    assert str(refusal.value) == f"no {kind} {namespace}/{name}"
