"""What a gang of Koordinator is told that waits: with what the reason names changed, it starts."""

from __future__ import annotations

from typing import Any

from reprieve.engine.cluster.rows import Change
from reprieve.engine.diagnosis.model import Diagnosis
from reprieve.engine.diagnosis.reasons import Reason
from reprieve.engine.diagnosis.scheduling import KEPT, of_attempt
from reprieve.engine.scheduling.gangs.cycle import GangGroup
from reprieve.engine.scheduling.gangs.job import JobReason
from reprieve.engine.scheduling.outcome import Attempt
from reprieve.wording.diagnosis import sentence
from tests.engine.builders import pod
from tests.gangs.test_cycle import cycle, gang, machines, member

PROTECTED = {"scheduling.koordinator.sh/disable-preemptible": "true"}


def low(name: str, where: str, priority: int = 10, **facts: Any) -> Change:
    return pod(name, cpu=4000, priority=priority, node=where, **facts)


def members(count: int = 2) -> list[Change]:
    return [member(f"g-{number}") for number in range(count)]


def told(attempt: Attempt) -> Diagnosis:
    found = of_attempt(attempt)
    assert found is not None
    return found


def preempts(attempt: Attempt) -> bool:
    assert attempt.gang is not None and attempt.gang.job is not None
    return attempt.gang.job.reason is JobReason.SUCCESS


def test_with_lower_pods_that_do_not_suffice_it_is_not_told_that_there_are_none() -> None:
    rows = [*machines(2), low("low", "n1"), low("equal", "n2", 100)]
    found = told(cycle(rows, members()))
    assert found.reason is Reason.NO_VICTIMS_SUFFICE
    assert preempts(cycle([*machines(2), low("low", "n1"), low("other", "n2")], members()))


def test_with_no_lower_pods_it_is_told_that_the_nodes_are_full() -> None:
    rows = [*machines(2), low("a", "n1", 100), low("b", "n2", 100)]
    assert told(cycle(rows, members())).reason is Reason.FULL
    lower = [*machines(2), low("a", "n1", 99), low("b", "n2", 99)]
    assert preempts(cycle(lower, members()))


def test_with_lower_pods_that_are_protected_it_is_told_that_they_are() -> None:
    rows = [*machines(2), low("a", "n1", labels=PROTECTED), low("b", "n2")]
    found = told(cycle(rows, members()))
    assert (found.reason, found.refused) == (Reason.VICTIMS_PROTECTED, {KEPT: 1})
    assert "who stays: 1 protected by a label, quota, gang or budget" in sentence(found)
    assert preempts(cycle([*machines(2), low("a", "n1"), low("b", "n2")], members()))


def test_protection_that_makes_no_difference_is_not_blamed() -> None:
    rows = [*machines(2), low("a", "n1", labels=PROTECTED), low("b", "n2", 100)]
    assert told(cycle(rows, members())).reason is Reason.FULL


def test_a_surplus_member_is_named_as_what_blocks_the_job() -> None:
    def attempt(names: tuple[str, ...], group: GangGroup) -> Attempt:
        rows = [*machines(2), low("a", "n1"), low("b", "n2")]
        return cycle(rows, members(len(names)), members=names, group=group)

    found = told(attempt(("g-0", "g-1", "g-2"), gang(2)))
    assert found.reason is Reason.NO_VICTIMS_SUFFICE
    said = "all of its pods have to find a node, also the 1 beyond the minimum"
    assert said in sentence(found)
    assert preempts(attempt(("g-0", "g-1"), gang(2)))
