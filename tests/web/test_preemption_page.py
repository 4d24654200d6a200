"""The page of one preemption says what its record says, and what deciding again says of it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from reprieve.api.disruption import DisruptionDemand
from reprieve.api.reprieve import Frees, Preemption, Rejected, Stage, VictimState
from reprieve.records.plans.parts import Sizes, split
from reprieve.records.victim_states import numbers_by_state
from reprieve.web.pages import preemption
from reprieve.web.records.judged import Again
from reprieve.web.tables import NotFound, Page, Viewer
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
DECIDED, STARTED, GONE, FINISHED = 1772619300.0, 1772619301.0, 1772619360.0, 1772619552.0
TAKEN_BACK = "it used quota that another queue has lent and reclaims"


def shown(record: Preemption, viewer: Viewer = EVERYTHING, name: str = "", **given: Any) -> Page:
    mirror = mirror_of([record], **given)
    return preemption.page(mirror, viewer, {"name": (name or record.metadata.name,)}, NOW)


def test_a_preemption_by_quota_is_told_as_it_was_recorded() -> None:
    record = quota_record()
    page = shown(record)
    assert page.values == {
        "address": "quota-train-1",
        "demand": None,
        "record": "quota-train-1",
        "plan": record.spec.plan_id,
        "plane": "quota",
        "attempt": 1,
        "dryRun": False,
        "state": "Completed",
        "reason": "all victims are gone",
        "decided": DECIDED,
        "started": STARTED,
        "finished": FINISHED,
        "preemptor": "workload/team-b/train",
        "command": "reprieve explain preemption/quota-train-1 -n reprieve-system",
        "totals": {
            "objects": 2,
            "units": 2,
            "shown": 2,
            "gpus": 6,
            "lost": 3_600,
            "states": {"Evicted": 2},
            "complete": True,
        },
        "need": {
            "resource": "nvidia.com/gpu",
            "needed": 8,
            "free": 2,
            "coming": 0,
            "lacking": 6,
            "freed": 6,
            "exact": True,
            "countedAgain": 1,
        },
        "reprieved": {},
        "proof": {
            "level": "quota",
            "text": "the need fits the quota",
            "irreducible": True,
            "upheld": True,
            "profile": "compatible",
        },
        "again": {
            "state": "Same",
            "text": "Decided again from its stored input (3 ClusterQueues, 4 workloads with quota, "
            "1 at the head): the same plan",
        },
    }
    above = "its ClusterQueue used 6 nvidia.com/gpu above its nominal quota"
    common = {"objects": 1, "rule": TAKEN_BACK, "why": above, "state": "Evicted", "since": GONE}
    common |= {"message": "", "node": ""}
    assert rows_of(page, "victims") == [
        {"unit": "workload/team-a/probe", "gpus": 4, "lost": 2_400, "place": 1, **common},
        {"unit": "workload/team-a/eval", "gpus": 2, "lost": 1_200, "place": 2, **common},
    ]
    unknown = {"objects": 1, "gpus": 8, "priority": 0, "lost": None, "node": None}
    assert rows_of(page, "spared") == [
        {
            "unit": "workload/team-a/sweep",
            "fate": "Reprieved",
            "why": "reprieved: the preemptor fits with it in place",
            "place": 3,
            "queue": "a",
            **unknown,
        },
        {
            "unit": "workload/team-c/llm",
            "fate": "Spared",
            "why": "within nominal: its queue uses no more than its own",
            "place": None,
            "queue": "c",
            **unknown,
        },
    ]
    assert rows_of(page, "sums") == [
        {
            "pool": "",
            "namespace": "team-a",
            "group": "",
            "rule": TAKEN_BACK,
            "state": "Evicted",
            "units": 2,
            "objects": 2,
            "gpus": 6,
            "lost": 3_600,
        }
    ]
    assert rows_of(page, "amounts") == [
        {"resource": "nvidia.com/gpu", "needed": 8, "free": 0, "inFlight": 2, "freed": 6}
    ]


def test_a_gang_that_goes_as_a_whole_is_one_unit() -> None:
    page = shown(scheduling_record())
    assert rows_of(page, "victims") == [
        {
            "unit": "podgroup/team-b/low",
            "objects": 2,
            "gpus": 16,
            "rule": "lower priority, whole group",
            "why": "its group is evicted as a whole; NodeResourcesFit refuses its reprieve",
            "lost": 15_360,
            "state": "Evicted",
            "since": GONE,
            "message": "",
            "node": "n0, n1",
            "place": 2,
        }
    ]
    assert [(row["unit"], row["why"], row["node"]) for row in rows_of(page, "spared")] == [
        ("pod/team-c/lone", "reprieved: the preemptor fits with it in place", "n2")
    ]
    assert rows_of(page, "sums") == [
        {
            "pool": "h100",
            "namespace": "team-b",
            "group": "low",
            "rule": "lower priority, whole group",
            "state": "Evicted",
            "units": 1,
            "objects": 2,
            "gpus": 16,
            "lost": 15_360,
        }
    ]
    assert rows_of(page, "placement") == [{"node": "n0", "pods": 1}, {"node": "n1", "pods": 1}]
    assert page.values["need"]["exact"] is False
    assert page.values["proof"]["upheld"] is True
    assert page.values["reprieved"] == {"touches no member": 1}


def test_idle_work_is_told_with_who_was_put_back_and_who_was_never_needed() -> None:
    page = shown(idle_record())
    assert page.values["preemptor"] == "gpuworkload/needers/needy"
    assert page.values["again"]["state"] == "Same"
    (made_way,) = rows_of(page, "victims")
    assert (made_way["unit"], made_way["gpus"], made_way["lost"], made_way["why"]) == (
        "job/ml-team/second",
        8,
        24_000,
        "idle for 50 min",
    )
    assert [(row["unit"], row["fate"], row["why"]) for row in rows_of(page, "spared")] == [
        ("job/ml-team/oldest", "Reprieved", "reprieved: the preemptor fits with it in place"),
        ("job/ml-team/third", "Spared", "no pending workload needs it"),
    ]


def test_what_is_not_decided_again_yet_says_so_and_tells_the_record() -> None:
    page = shown(quota_record(), opened=False)
    assert page.values["again"] == {"state": "Pending", "text": ""}
    assert page.values["need"]["countedAgain"] is None
    assert page.values["proof"]["upheld"] is None
    assert [row["unit"] for row in rows_of(page, "victims")] == [
        "workload/team-a/probe",
        "workload/team-a/eval",
    ]
    assert rows_of(page, "spared") == []


def test_a_record_that_was_changed_is_told_as_another_decision() -> None:
    record = quota_record()
    forged = msgspec.structs.replace(record.spec, plan_id="0" * 16)
    page = shown(msgspec.structs.replace(record, spec=forged))
    assert page.values["again"]["state"] == "Differs"
    assert page.values["again"]["text"].endswith(
        f"NOT the recorded plan, but {record.spec.plan_id}"
    )
    assert page.values["proof"]["upheld"] is None


def test_who_has_a_part_in_it_is_told_of_his_own_and_the_rest_is_masked() -> None:
    record = quota_record()
    told = disruption("team-a", "probe", record.spec.plan_id, "owner/probe-job")
    viewer = Viewer(False, frozenset({"team-a"}))
    page = shown(record, viewer, record.spec.plan_id, disruptions=[told])
    assert page.values["preemptor"] == "another tenant's work #a3f1"
    assert page.values["record"] is None and page.values["command"] == ""
    assert page.values["address"] == record.spec.plan_id
    assert page.values["again"] == {"state": "Same", "text": ""}
    assert [row["unit"] for row in rows_of(page, "victims")] == [
        "workload/team-a/probe",
        "workload/team-a/eval",
    ]
    assert [row["unit"] for row in rows_of(page, "spared")] == ["workload/team-a/sweep"]


def test_a_preemptor_that_sees_no_victim_is_told_of_masked_work() -> None:
    record = quota_record()
    viewer = Viewer(False, frozenset({"team-b"}))
    page = shown(record, viewer, key=b"key")
    assert page.values["record"] == "quota-train-1"
    assert page.values["preemptor"] == "workload/team-b/train"
    rows = rows_of(page, "victims")
    assert len({row["unit"] for row in rows}) == 2
    for row in rows:
        assert row["unit"].startswith("another tenant's work #")
        assert (row["why"], row["node"], row["place"]) == ("", "", None)
    assert rows_of(page, "spared") == [] and rows_of(page, "sums") == []


@pytest.mark.parametrize("name", ["quota-train-1", "nothing", "", "PLAN"])
def test_a_foreign_record_is_missing_as_any_that_is_not_there(name: str) -> None:
    record = quota_record()
    stranger = Viewer(False, frozenset({"team-d"}))
    asked = record.spec.plan_id if name == "PLAN" else name
    mirror = mirror_of([record])
    with pytest.raises(NotFound) as refusal:
        preemption.page(mirror, stranger, {"name": (asked,)}, NOW)
    assert str(refusal.value) == f"no preemption {asked!r}"


def test_a_victims_tenant_does_not_find_it_by_the_name_that_holds_the_preemptors_uid() -> None:
    record = quota_record()
    viewer = Viewer(False, frozenset({"team-a"}))
    with pytest.raises(NotFound):
        shown(record, viewer)
    assert shown(record, viewer, record.spec.plan_id).values["record"] is None


def test_without_the_record_disruptions_tell_their_tenant() -> None:
    told = [
        disruption("team-a", name, "plan-1", f"owner/{name}", lost_device_seconds=lost)
        for name, lost in (("probe", 2_400), ("eval", 1_200))
    ]
    mirror = mirror_of(disruptions=told)
    viewer = Viewer(False, frozenset({"team-a"}))
    page = preemption.page(mirror, viewer, {"name": ("plan-1",)}, NOW)
    assert (page.values["record"], page.values["preemptor"], page.values["finished"]) == (
        None,
        "another tenant's work #a3f1",
        GONE,
    )
    assert page.values["totals"]["lost"] == 3_600
    assert [(row["unit"], row["lost"]) for row in rows_of(page, "victims")] == [
        ("job/team-a/probe", 2_400),
        ("job/team-a/eval", 1_200),
    ]
    with pytest.raises(NotFound):
        preemption.page(mirror, Viewer(False, frozenset({"b"})), {"name": ("plan-1",)}, NOW)


def test_without_the_record_disruptions_tell_of_the_one_demand() -> None:
    demand = DisruptionDemand(
        ["idle", "scheduling"],
        Frees(room=True),
        "Settled",
        "Proven",
        [Rejected("quota", "OwnedByAnother")],
        2,
    )
    mirror = mirror_of(disruptions=[disruption("a", "probe", "plan-1", "owner/x", demand=demand)])
    page = preemption.page(mirror, Viewer(False, frozenset({"a"})), {"name": ("plan-1",)}, NOW)
    assert page.values["demand"] == {
        "stages": [
            {"plane": "idle", "preemption": ""},
            {"plane": "scheduling", "preemption": ""},
        ],
        "proof": "quota settled before, placement proven",
        "rejected": [{"plane": "quota", "text": "another plane is the owner of the demand"}],
        "depth": 2,
    }


def test_a_plan_in_parts_is_told_from_its_head_until_it_is_opened() -> None:
    record = scheduling_record()
    parted = split(record.metadata.name, "reprieve-system", record.spec, Sizes(head=64, part=512))
    assert parted.parts and not parted.head.victims
    numbers = numbers_by_state(record.spec.victims, record.status.victims)
    status = msgspec.structs.replace(record.status, victims=[], numbers_by_state=numbers)
    head = msgspec.structs.replace(record, spec=parted.head, status=status)
    closed = shown(head, opened=False)
    assert closed.values["totals"] == {
        "objects": 2,
        "units": 0,
        "shown": 0,
        "gpus": None,
        "lost": None,
        "states": {},
        "complete": False,
    }
    mirror = mirror_of([head])
    mirror.opened.records[head.metadata.name] = record  # type: ignore[attr-defined]
    page = preemption.page(mirror, EVERYTHING, {"name": (head.metadata.name,)}, NOW)
    assert page.values["totals"]["units"] == 1 and page.values["totals"]["complete"]
    (row,) = rows_of(page, "victims")
    # Its status says which victims went by number alone, and no instant but its own end.
    assert (row["state"], row["since"]) == (VictimState.EVICTED.value, FINISHED)


def test_thousands_of_victims_are_summed_by_pool_namespace_and_group() -> None:
    record = scheduling_record()
    (first, *_) = record.spec.victims
    victims = [
        msgspec.structs.replace(
            first,
            root=msgspec.structs.replace(first.root, name=f"p-{n}", uid=f"u-{n}"),
            subject=msgspec.structs.replace(first.subject, name=f"p-{n}", uid=f"u-{n}"),
            unit="",
            lost_device_seconds=10,
        )
        for n in range(4_000)
    ]
    spec = msgspec.structs.replace(record.spec, victims=victims, input=None)
    status = msgspec.structs.replace(record.status, victims=[])
    page = shown(msgspec.structs.replace(record, spec=spec, status=status), opened=False)
    totals = page.values["totals"]
    assert (totals["units"], totals["shown"], totals["lost"]) == (4_000, 500, 40_000)
    assert totals["states"] == {"Pending": 4_000}
    (row,) = rows_of(page, "sums")
    assert (row["namespace"], row["units"], row["gpus"]) == ("team-b", 4_000, 32_000)


def test_a_record_without_its_input_cannot_be_decided_again() -> None:
    record = quota_record()
    bare = msgspec.structs.replace(record, spec=msgspec.structs.replace(record.spec, input=None))
    again = shown(bare).values["again"]
    assert again == {
        "state": Again.IMPOSSIBLE.value,
        "text": "Cannot be decided again: the record has no input",
    }


def test_a_demand_of_several_planes_has_its_stages_and_who_does_not_evict() -> None:
    record = quota_record()
    spec = msgspec.structs.replace(
        record.spec,
        stages=[Stage("idle", "idle-1"), Stage("quota"), Stage("scheduling")],
        rejected=[Rejected("idle", "OwnedByAnother")],
        proof=msgspec.structs.replace(record.spec.proof, quota="Proven", placement="Unproven"),
        depth=2,
    )
    found = msgspec.structs.replace(record, spec=spec)
    stages = [("idle", "idle-1"), ("quota", ""), ("scheduling", "")]
    assert shown(record).values["demand"] is None
    assert shown(found).values["demand"] == {
        "stages": [{"plane": plane, "preemption": name} for plane, name in stages],
        "proof": "quota proven, placement not proven",
        "rejected": [{"plane": "idle", "text": "another plane is the owner of the demand"}],
        "depth": 2,
    }
    victim = shown(found, Viewer(False, frozenset({"team-a"})), name=spec.plan_id)
    assert [each["preemption"] for each in victim.values["demand"]["stages"]] == ["", "", ""]
