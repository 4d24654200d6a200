"""The records of one demand are one row of what is told."""

from __future__ import annotations

from typing import Any

from tests.explain.objects import Json, disruption, job, record, workload
from tests.explain.stories import Story, answered


def staged(body: Json, *stages: tuple[str, str]) -> Json:
    """Return a record with its stages."""
    said: list[dict[str, Any]] = [
        {"plane": plane, **({"preemption": name} if name else {})} for plane, name in stages
    ]
    return {**body, "spec": {**body["spec"], "stages": said}}


def test_who_made_way_in_two_stages_is_one_row() -> None:
    mine, lent, low = job(), job("sweep-17"), job("night")
    queued, theirs = workload(mine), workload(lent)
    first = staged(
        record("quota", queued, [theirs], rule="InCohortReclamation", minutes=9),
        *(("quota", ""), ("scheduling", "")),
    )
    second = staged(
        record("scheduling", mine, [low], rule="lower priority", minutes=8, number=2),
        *(("quota", "quota-1"), ("scheduling", "")),
    )
    story = Story("job/train", [mine, lent, low, queued, theirs, first, second])
    (row,) = answered(story).displaced_others
    assert (row.record, row.victims) == ("scheduling-2", 2)
    assert row.stages == "quota (quota-1), then scheduling"
    assert "sweep-17" in row.subject and "night" in row.subject


def test_who_made_way_reads_the_stages_in_the_record_or_else_in_the_disruption() -> None:
    mine, other = job(), job("sweep-17")
    gone = staged(
        record("idle", other, [mine], rule="BesidePriority", minutes=9),
        *(("idle", ""), ("scheduling", "")),
    )
    assert [each.stages for each in answered(Story("job/train", [mine, gone])).displaced] == [
        "idle, then scheduling"
    ]
    told = disruption("job-train", f"owner/{mine['metadata']['uid']}", minutes=9, times=1)
    demand = {"stages": ["idle", "scheduling"], "frees": {"room": True}}
    told["spec"]["demand"] = {**demand, "quota": "Settled", "placement": "Proven"}
    assert [each.stages for each in answered(Story("job/train", [mine, told])).displaced] == [
        "idle, then scheduling"
    ]
