"""The records of one demand are one row of what is told."""

from __future__ import annotations

from typing import Any

from tests.explain.objects import Json, job, record, workload
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
