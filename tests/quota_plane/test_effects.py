"""What follows from cycles is a list, in order; a fault in one entry costs the others nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.engine.quota.cycle import cycle
from reprieve.engine.quota.entries import CycleResult, Outcome
from reprieve.engine.quota.holdings.state import Holdings
from reprieve.engine.quota.model import Policy, Preemption
from reprieve.planes.quota.deciding import effects as effects_module
from reprieve.planes.quota.deciding.effects import (
    Admit,
    DecideAgain,
    Effect,
    Explain,
    ExplainAlike,
    Facts,
    LeaveOut,
    Measure,
    NodesRefused,
    Preempt,
    RetryAt,
    Sample,
    TellFault,
    Undo,
    effects_of,
)
from tests.quota.cases import NOW
from tests.quota.test_cycle import job, one_queue, run

CONFIGURATION = one_queue(preemption=Preemption(Policy.LOWER_PRIORITY))


def preempting() -> tuple[Holdings, CycleResult]:
    """Return a cycle in which a job takes the place of two."""
    holdings, queues, _ = run(CONFIGURATION, job("low", 2), job("mean", 2))
    cycle(holdings, queues, NOW, 1)
    queues.push(job("high", 4, priority=1))
    return holdings, cycle(holdings, queues, NOW, 2)


def followed(holdings: Holdings, *results: CycleResult, most: int = 100) -> list[Effect]:
    facts = Facts(holdings.tree, holdings.configuration, 7, 3.0, most)
    inputs = {"ns/high": {"cycle": 2}}
    return list(effects_of([(result, inputs) for result in results], facts))


def kinds(effects: list[Effect]) -> list[str]:
    return [type(each).__name__ for each in effects]


def test_a_preemption_is_a_plan_with_its_input_and_a_mark_with_texts_for_each_victim() -> None:
    holdings, result = preempting()
    preempt, *told = followed(holdings, result)
    assert isinstance(preempt, Preempt)
    assert [victim.subject.name for victim in preempt.plan.victims] == [
        each.victim.name for each in preempt.markings
    ]
    assert {each.victim.name for each in preempt.markings} == {"low", "mean"}
    assert preempt.decision_input == {"cycle": 2}
    for marking in preempt.markings:
        assert "due to prioritization in the ClusterQueue" in marking.message
        assert [each.reason for each in marking.events] == ["EvictedDueToPreempted", "Preempted"]
        assert marking.events[0].message == marking.message
        assert marking.reported.reason == "PreemptedWorkload"
        assert f"ns/{marking.victim.name} " in marking.reported.message
    assert kinds(told) == ["Explain", "ExplainAlike", "Measure"]


def test_who_got_quota_is_admitted_and_only_the_others_are_told_why_they_wait() -> None:
    holdings, _, result = run(CONFIGURATION, job("a", 4), job("b", 4))
    admitted = followed(holdings, result)
    assert kinds(admitted) == ["Admit", "ExplainAlike", "Measure"]
    (admit,) = (each for each in admitted if isinstance(each, Admit))
    assert admit.entry.workload.name == "a"
    assert kinds(followed(holdings, result, most=1)) == [
        "Admit",
        "DecideAgain",
        "ExplainAlike",
        "Measure",
    ]
    assert isinstance(followed(holdings, result, most=1)[1], DecideAgain)


def test_over_several_cycles_each_is_told_once_as_it_stood_last() -> None:
    holdings, result = preempting()
    (entry,) = result.entries
    later = CycleResult(entries=[replace(entry, issued=(), message="as it stood last")])
    found = followed(holdings, result, later)
    (explain,) = (each for each in found if isinstance(each, Explain))
    assert explain.entry.message == "as it stood last"
    (alike,) = (each for each in found if isinstance(each, ExplainAlike))
    assert alike.considered == {"ns/high": explain.entry}
    assert [each.seconds for each in found if isinstance(each, Measure)] == [1.5, 1.5]


def test_what_is_to_be_tried_again_comes_first_and_faults_are_told() -> None:
    holdings, result = preempting()
    (entry,) = result.entries
    fault = ValueError("odd")
    odd = CycleResult(
        entries=[
            replace(entry, issued=(), outcome=Outcome.FAULT, failure=fault),
            replace(entry, issued=(), workload=job("u", 1), outcome=Outcome.UNPROVEN),
        ],
        retries={"team": Nanos(NOW + SECOND)},
        queue_faults={"other": fault},
    )
    found = followed(holdings, odd)
    assert found[:4] == [
        RetryAt("team", Nanos(NOW + SECOND)),
        Sample(odd.entries[0], {"cycle": 2}),
        NodesRefused("team"),
        LeaveOut("other", fault),
    ]
    (told,) = (each for each in found if isinstance(each, TellFault))
    assert (told.entry.failure, told.entry.workload.key) == (fault, "ns/high")
    assert told.event.reason == "DecisionFailed"


def test_one_whose_plan_cannot_be_made_is_taken_back_and_all_else_is_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def break_down(*_: object) -> None:
        raise RuntimeError("a fault of ours")

    holdings, result = preempting()
    monkeypatch.setattr(effects_module, "plan_of", break_down)
    found = followed(holdings, result)
    assert kinds(found) == ["Undo", "Explain", "ExplainAlike", "Measure"]
    assert isinstance(found[0], Undo) and found[0].entry is result.entries[0]


def test_effects_are_worked_out_without_a_change_to_what_was_decided() -> None:
    holdings, result = preempting()
    assert followed(holdings, result) == followed(holdings, result)
