"""The lines of `decisions.jsonl`: preemptions of several planes for one job are one demand."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

from kubeworld.units.durations import HOUR, MINUTE
from reprieve.simulation.replaying.lives import Admitted, Preempted, Replay, Victim
from reprieve.simulation.stories import decision_lines


def went(at: int, preemptor: str, victim: str, plane: str) -> Preempted:
    return Preempted(at, preemptor, (Victim(victim, "rule", 0, at),), "why", plane)


def told(*decisions: Preempted | Admitted) -> list[dict[str, Any]]:
    """Return what is said of demands, of each preemption."""
    replay = cast("Replay", SimpleNamespace(decisions=decisions))
    lines = [json.loads(line) for line in decision_lines(replay, {})]
    names = ("stages", "depth", "debt_of")
    return [{n: each[n] for n in names if n in each} for each in lines if "victims" in each]


def test_preemptions_of_several_planes_for_one_job_are_stages_of_one_demand() -> None:
    assert told(
        went(0, "wanted", "sweep", "quota"),
        went(MINUTE, "wanted", "tune", "scheduling"),
        went(MINUTE, "wanted", "other", "scheduling"),
        Admitted(2 * MINUTE, "wanted", False, False),
        went(3 * MINUTE, "wanted", "late", "idle"),
    ) == [
        {"stages": ["quota"], "depth": 1},
        {"stages": ["quota", "scheduling"], "depth": 1},
        {"stages": ["quota", "scheduling"], "depth": 1},
        {"stages": ["idle"], "depth": 1},
    ]


def test_the_return_of_a_displaced_job_says_by_whom_it_was_displaced_for_an_hour() -> None:
    first, second = went(0, "top", "middle", "scheduling"), went(1, "middle", "low", "scheduling")
    deeper, late = went(2, "low", "last", "idle"), went(HOUR + 1, "middle", "low", "scheduling")
    assert told(first, second, deeper, late) == [
        {"stages": ["scheduling"], "depth": 1},
        {"stages": ["scheduling"], "depth": 2, "debt_of": "top"},
        {"stages": ["idle"], "depth": 3, "debt_of": "middle"},
        {"stages": ["scheduling"], "depth": 1},
    ]


def test_one_plane_alone_says_nothing_of_demands_and_idle_work_that_goes_for_nobody_is_none() -> (
    None
):
    assert told(went(0, "wanted", "sweep", "")) == [{}]
    assert told(went(0, "", "one", "idle"), went(1, "", "two", "idle")) == [
        {"stages": ["idle"], "depth": 1},
        {"stages": ["idle"], "depth": 1},
    ]
