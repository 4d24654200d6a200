"""The list of preemptions has a row for each plan that its viewer may know of."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from reprieve.api.reprieve import IntentPhase, Stage
from reprieve.web.mirror.mirror import Mirror
from reprieve.web.pages import preemptions
from reprieve.web.tables import InvalidParameter, Viewer
from tests.web.stories import (
    NOW,
    disruption,
    idle_record,
    mirror_of,
    quota_record,
    rows_of,
    scheduling_record,
)

EVERYTHING = Viewer(sees_all=True)


def listed(mirror: Mirror, viewer: Viewer = EVERYTHING, **asked: str) -> list[dict[str, Any]]:
    parameters = {name: (text,) for name, text in asked.items()}
    page = preemptions.page(mirror, viewer, parameters, NOW)
    rows = rows_of(page, "preemptions")
    assert page.values["found"] == page.values["shown"] == len(rows)
    return rows


def all_three() -> Mirror:
    return mirror_of([quota_record(), idle_record(), scheduling_record()])


def test_every_plan_is_one_row_with_the_figures_of_its_record() -> None:
    quota, idle, scheduling = (quota_record(), idle_record(), scheduling_record())
    rows = {row.pop("plane"): row for row in listed(mirror_of([quota, idle, scheduling]))}
    common = {"decided": 1772619300.0, "state": "Completed", "duration": 252.0, "dryRun": False}
    common["stages"] = ""
    assert rows == {
        "quota": {
            "preemption": "quota-train-1",
            "preemptor": "workload/team-b/train",
            "units": 2,
            "victims": 2,
            "gpus": 6,
            "lost": 3_600,
            "rule": "it used quota that another queue has lent and reclaims",
            "whose": ["workload/team-a/probe", "workload/team-a/eval"],
            **common,
        },
        "idle": {
            "preemption": "idle-needy-1",
            "preemptor": "gpuworkload/needers/needy",
            "units": 1,
            "victims": 1,
            "gpus": 8,
            "lost": 24_000,
            "rule": "its devices were idle for the longest, and others waited for them",
            "whose": ["job/ml-team/second"],
            **common,
        },
        "scheduling": {
            "preemption": "scheduling-g-1",
            "preemptor": "podgroup/team-a/train",
            "units": 1,
            "victims": 2,
            "gpus": 16,
            "lost": 15_360,
            "rule": "lower priority, whole group",
            "whose": ["podgroup/team-b/low"],
            **common,
        },
    }


def test_the_records_of_one_demand_are_one_row_with_the_victims_of_all() -> None:
    quota, scheduling = quota_record(), scheduling_record()
    stages = [Stage("quota", quota.metadata.name), Stage("scheduling")]
    spec = msgspec.structs.replace(scheduling.spec, stages=stages)
    (row,) = listed(mirror_of([quota, msgspec.structs.replace(scheduling, spec=spec)]))
    assert (row["preemption"], row["stages"]) == ("scheduling-g-1", "quota, then scheduling")
    assert (row["units"], row["victims"], row["gpus"], row["lost"]) == (3, 4, 22, 18_960)


def test_a_victim_that_two_records_of_a_demand_name_went_once() -> None:
    first = scheduling_record()
    stages = [Stage("scheduling", first.metadata.name), Stage("scheduling")]
    metadata = msgspec.structs.replace(first.metadata, name="scheduling-g-2", uid="second")
    spec = msgspec.structs.replace(first.spec, stages=stages)
    second = msgspec.structs.replace(first, metadata=metadata, spec=spec)
    (row,) = listed(mirror_of([first, second]))
    assert (row["preemption"], row["stages"]) == ("scheduling-g-2", "scheduling")
    assert (row["units"], row["victims"], row["gpus"]) == (1, 2, 16)


def test_filters_leave_what_they_ask_for() -> None:
    going_on = idle_record("idle-open-1")
    status = msgspec.structs.replace(going_on.status, phase=IntentPhase.EVICTING, finished_at="")
    open_one = msgspec.structs.replace(going_on, status=status)
    mirror = mirror_of([quota_record(), idle_record(), scheduling_record(), open_one])
    assert [row["preemption"] for row in listed(mirror, plane="quota")] == ["quota-train-1"]
    (row,) = listed(mirror, state="Evicting")
    assert (row["preemption"], row["duration"]) == ("idle-open-1", None)
    assert {row["preemption"] for row in listed(mirror, ns="team-b")} == {
        "scheduling-g-1",
        "quota-train-1",
    }
    assert len(listed(mirror, since="1m")) == 4
    page = preemptions.page(mirror, EVERYTHING, {"since": ("1m",)}, type(NOW)(NOW + 10**12))
    assert rows_of(page, "preemptions") == []


def test_dry_runs_are_told_where_they_are_asked_for() -> None:
    record = quota_record()
    dry = msgspec.structs.replace(record, spec=msgspec.structs.replace(record.spec, dry_run=True))
    mirror = mirror_of([dry])
    assert listed(mirror) == []
    assert [row["dryRun"] for row in listed(mirror, dry="1")] == [True]


@pytest.mark.parametrize(
    ("name", "text", "accepted"),
    [
        ("plane", "gpu", "plane 'gpu': accepted: idle, quota, scheduling"),
        (
            "state",
            "Done",
            "state 'Done': accepted: Planned, Noticed, Evicting, Completed, Abandoned",
        ),
        ("since", "yesterday", "since 'yesterday': accepted: a duration such as 30m, 24h"),
        ("dry", "yes", "dry 'yes': accepted: 0, 1"),
    ],
)
def test_what_cannot_be_asked_for_is_refused_with_what_can(
    name: str, text: str, accepted: str
) -> None:
    with pytest.raises(InvalidParameter) as refusal:
        listed(all_three(), EVERYTHING, **{name: text})
    assert str(refusal.value) == accepted


def test_a_victims_tenant_is_told_of_his_own_and_by_the_plans_id() -> None:
    record = scheduling_record()
    stranger = Viewer(False, frozenset({"team-d"}))
    assert listed(mirror_of([record, quota_record()]), stranger) == []
    viewer = Viewer(False, frozenset({"team-a"}))
    rows = {row["preemption"]: row for row in listed(mirror_of([quota_record(), record]), viewer)}
    quota = rows.pop(quota_record().spec.plan_id)
    assert quota["preemptor"] == "another tenant's work"
    assert (quota["victims"], quota["gpus"]) == (2, 6)
    # The gang of team-a is the preemptor of this one: it learns how much was preempted, not whose.
    own = rows.pop("scheduling-g-1")
    assert (own["victims"], own["whose"]) == (2, ["another tenant's work"])
    assert not rows


def test_a_plan_without_a_record_is_told_by_disruptions_and_never_twice() -> None:
    record = quota_record()
    told = [
        disruption("team-a", "probe", record.spec.plan_id, "owner/probe-job"),
        disruption("team-a", "web", "plan-2", "owner/web"),
    ]
    rows = listed(mirror_of([record], told), Viewer(False, frozenset({"team-a"})))
    assert {row["preemption"]: (row["preemptor"], row["units"]) for row in rows} == {
        record.spec.plan_id: ("another tenant's work #a3f1", 2),
        "plan-2": ("another tenant's work #a3f1", 1),
    }
