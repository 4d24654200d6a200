"""A recorded decision is made again under a candidate, and both sides lose by the same rule."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from reprieve.api.reprieve import Preemption
from reprieve.cli.texts.shadow_text import shadow_text
from reprieve.engine.idle.model import Fit
from reprieve.engine.quota.model import Preemption as Rules
from reprieve.engine.victim_choice import VictimChoice
from reprieve.shadow.candidate import Candidate
from reprieve.shadow.comparison import Comparison, Verdict, compared
from reprieve.shadow.document import Sums, document
from tests.shadow.records import (
    idle_record,
    own_plugins,
    place_record,
    quota_record,
    scheduling_record,
)

RECORDED = Candidate("as recorded")
IRREDUCIBLE = Candidate("c", idle={"irreducible": True})
LEAST_HARM = Candidate("c", scheduling={"harm_order": True})
LACKS = (
    "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in "
    "flavor gpus, 1 more needed"
)
PROTECTED = Candidate("c", preempt_min_runtime_s=7_200)


def asked(record: dict[str, Any], candidate: Candidate, **spec: Any) -> Comparison:
    changed = {**record, "spec": {**record["spec"], **spec}}
    return compared(msgspec.convert(changed, Preemption), candidate, own_plugins)


def sides(found: Comparison) -> tuple[dict[str, int], dict[str, int]]:
    """Return who is taken on both sides, with the device-seconds that each loses."""
    before = {each.name: each.lost_device_seconds for each in found.recorded}
    return before, {each.name: each.lost_device_seconds for each in found.candidate}


@pytest.mark.parametrize("made", [idle_record, scheduling_record, quota_record])
def test_as_it_was_recorded_a_decision_gives_the_recorded_plan(made: Callable[[], Any]) -> None:
    found = asked(made(), RECORDED)
    assert (found.verdict, found.reproduced, found.why) == (Verdict.SAME, True, "")
    before, after = sides(found)
    assert before == after and len(before) > 0
    assert found.recorded_lost == found.candidate_lost > 0


@pytest.mark.parametrize(
    ("record", "candidate", "preemptor", "before", "after"),
    [
        pytest.param(
            idle_record(),
            IRREDUCIBLE,
            "GpuWorkload ml-team/needy",
            {"GpuWorkload ml-team/small": 28_800, "GpuWorkload ml-team/large": 14_400},
            {"GpuWorkload ml-team/large": 14_400},
            id="idle",
        ),
        pytest.param(
            scheduling_record(),
            LEAST_HARM,
            "PodGroup default/high",
            {"Pod default/young": 3_600},
            {"Pod default/old": 600},  # since its last checkpoint
            id="scheduling",
        ),
        pytest.param(
            quota_record(),
            PROTECTED,
            "Workload ns/urgent",
            {"Workload ns/recent": 3_600},
            {"Workload ns/veteran": 14_400},
            id="quota",
        ),
    ],
)
def test_a_candidate_takes_others_and_the_engine_says_whom(
    record: Any, candidate: Candidate, preemptor: str, before: Any, after: Any
) -> None:
    found = asked(record, candidate)
    assert (found.verdict, found.preemptor, found.reproduced, found.why) == (
        Verdict.OTHER,
        preemptor,
        True,
        "",
    )
    assert sides(found) == (before, after)


@pytest.mark.parametrize(
    ("record", "candidate", "why"),
    [
        (
            quota_record(),
            Candidate("c", preemption=Rules()),
            LACKS,
        ),
        (
            quota_record(),
            Candidate("c", preempt_min_runtime_s=100_000),
            LACKS,
        ),
    ],
)
def test_a_candidate_that_takes_nobody_says_why(
    record: Any, candidate: Candidate, why: str
) -> None:
    found = asked(record, candidate)
    assert (found.verdict, found.candidate, found.candidate_lost) == (Verdict.NOBODY, (), 0)
    assert found.why.startswith(why)


@pytest.mark.parametrize(
    ("spec", "verdict", "why"),
    [
        (
            {"input": {"version": 1, "omitted": "9000 workloads"}},
            Verdict.OMITTED,
            "the input was too large to be stored (9000 workloads)",
        ),
        ({"input": {"version": 2}}, Verdict.UNDECIDED, "spec.input.version is 2; accepted: 1"),
        ({"input": None}, Verdict.UNDECIDED, "it has no input"),
        (
            {"input": None, "revision": 0},
            Verdict.UNDECIDED,
            "nothing was decided: it was found in Preempting",
        ),
    ],
)
def test_what_cannot_be_decided_again_is_told(spec: Any, verdict: Verdict, why: str) -> None:
    found = asked(idle_record(), RECORDED, **spec)
    assert (found.verdict, found.why, found.decided) == (verdict, why, False)
    assert (found.recorded, found.candidate, found.reproduced) == ((), (), False)


def test_a_proof_of_placement_is_not_made_up_without_nodes() -> None:
    found = asked(idle_record(), Candidate("c", idle={"fit": Fit.NODE}))
    assert (found.verdict, found.why) == (
        Verdict.UNDECIDED,
        "with fit Sum no nodes were recorded, on which to prove a placement",
    )


def test_a_plan_that_is_not_the_recorded_one_is_counted_apart() -> None:
    found = asked(quota_record(), RECORDED, planId="0123")
    assert (found.verdict, found.reproduced) == (Verdict.SAME, False)


def test_sums_count_every_decision_once_and_lost_work_of_those_decided() -> None:
    found = [
        asked(idle_record("a"), IRREDUCIBLE),
        asked(idle_record("b"), IRREDUCIBLE, decidedAt="2026-03-03T00:00:00Z"),
        asked(quota_record("c"), Candidate("c", preemption=Rules())),
        asked(quota_record("d"), RECORDED),
        asked(quota_record("e"), RECORDED, input={"version": 1, "omitted": "much"}),
        asked(quota_record("f"), RECORDED, input=None),
    ]
    told = document(IRREDUCIBLE, found)
    assert [each.name for each in told.decisions] == ["b", "a", "c", "d", "e", "f"]
    idle = Sums(2, 2, 0, 2, 0, 0, 0, 2, 4, 2, 86_400, 28_800, 2)
    quota = Sums(4, 2, 1, 0, 1, 1, 1, 2, 2, 1, 7_200, 3_600, 4)
    assert told.planes == {"idle": idle, "quota": quota}
    assert told.total == Sums(6, 4, 1, 2, 1, 1, 1, 4, 6, 3, 93_600, 32_400, 6)


def test_the_decisions_of_several_planes_for_one_demand_are_one_line() -> None:
    stages = [{"plane": "idle"}, {"plane": "scheduling"}]
    first = asked(idle_record("idle-7"), LEAST_HARM, stages=stages)
    going_on = [{"plane": "idle", "preemption": "idle-7"}, {"plane": "scheduling"}]
    later = {"stages": going_on, "decidedAt": "2026-03-04T10:16:00Z"}
    second = asked(scheduling_record("scheduling-7"), LEAST_HARM, **later)
    alone = asked(quota_record(), PROTECTED)
    assert [each.demand for each in (first, second, alone)] == ["idle-7", "idle-7", "quota-1"]
    told = document(IRREDUCIBLE, [second, alone, first])
    assert (told.total.decisions, told.total.demands) == (3, 2)
    assert any("each made its own decision" in each for each in told.cannot_know)
    lines = list(shadow_text(told, 200))
    assert any("on 3 decisions for 2 demands (" in line for line in lines)
    rows = [line for line in lines if "ml-team/needy" in line or "default/high" in line]
    assert [re.split(r"  +", row)[1:] for row in rows] == [
        [
            "idle, then scheduling",
            "GpuWorkload ml-team/needy",
            "default/young, 2 on both sides",
            "default/old, 2 on both sides",
            "13.0 -> 12.2",
        ]
    ]


def test_a_decision_after_one_that_is_another_now_is_not_decided_again() -> None:
    """It was made beside the victims of the former one, which stay, or are others."""
    stages = [{"plane": "idle"}, {"plane": "scheduling"}]
    going_on = [{"plane": "idle", "preemption": "idle-7"}, {"plane": "scheduling"}]
    first = asked(idle_record("idle-7"), IRREDUCIBLE, stages=stages)
    later = {"stages": going_on, "decidedAt": "2026-03-04T10:16:00Z"}
    second = asked(scheduling_record("scheduling-7"), RECORDED, **later)
    other = asked(scheduling_record("scheduling-8"), RECORDED, decidedAt="2026-03-04T10:17:00Z")
    assert (first.verdict, second.verdict) == (Verdict.OTHER, Verdict.SAME)
    told = document(IRREDUCIBLE, [second, first, other])
    verdicts = [each.verdict for each in told.decisions]
    assert verdicts == [Verdict.OTHER, Verdict.UNDECIDED, Verdict.SAME]
    assert told.total == Sums(3, 2, 1, 1, 0, 0, 1, 2, 3, 2, 46_920, 18_120, 2)
    lines = list(shadow_text(told, 200))
    assert any("not decided" in line and "in the decision before it (1)" in line for line in lines)
    (row,) = [line for line in lines if "ml-team/needy" in line]
    assert "default/young" not in row and row.endswith("12.0 -> 4.0")


def test_pods_are_placed_again_on_the_recorded_nodes_and_other_victims_free_another_host() -> None:
    found = asked(place_record(), RECORDED)
    assert (found.verdict, found.reproduced) == (Verdict.SAME, True)
    best = asked(place_record(), Candidate("c", quota={"profile": VictimChoice.BEST}))
    before, after = sides(best)
    assert (best.verdict, before, after) == (
        Verdict.OTHER,
        {"Workload ns/large": 8 * 3_598},
        {"Workload ns/small": 3 * 3_599},
    )
