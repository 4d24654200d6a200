"""Records are held against the log: whom they have as evicted was told to go, and nobody else."""

from __future__ import annotations

from typing import Any

from tests.reliability.accounts import compare
from tests.reliability.audit import Findings

Object = dict[str, Any]


def record(
    phase: str,
    *named: str,
    parts: tuple[str, ...] = (),
    numbers: dict[str, str] | None = None,
    **states: str,
) -> Object:
    listed = [{"uid": uid, "state": state} for uid, state in states.items()]
    victims = [{"root": {"uid": uid}, "subject": {"uid": uid}} for uid in named]
    spec = {"victims": victims, "parts": list(parts)}
    status = {"phase": phase, "victims": listed, "numbersByState": numbers or {}}
    return {"spec": spec, "status": status}


def test_records_that_say_what_the_log_says_differ_in_nothing() -> None:
    findings = Findings(told_to_go={"a", "b"}, parts={"p": ["b", "c"]})
    found = compare(
        [record("Completed", a="Evicted"), record("Completed", parts=("p",), c="Spared")], findings
    )
    assert dict(found.states) == {"Evicted": 2, "Spared": 1}
    assert not (found.evicted_twice or found.not_deleted or found.not_evicted or found.examples)


def test_of_a_record_in_parts_the_states_are_told_by_number_and_the_rest_is_evicted() -> None:
    findings = Findings(told_to_go={"d"}, parts={"p": ["a", "b"], "q": ["c", "d"]})
    over = record("Completed", parts=("p", "q"), numbers={"Gone": "0-1", "Spared": "2"})
    assert dict(compare([over], findings).states) == {"Gone": 2, "Spared": 1, "Evicted": 1}


def test_of_an_open_record_in_parts_nobody_is_evicted_yet() -> None:
    findings = Findings(parts={"p": ["a", "b"]})
    found = compare([record("Evicting", parts=("p",), a="Evicted")], findings)
    assert {state: number for state, number in found.states.items() if number} == {"Evicted": 1}


def test_of_a_record_in_parts_that_could_not_be_begun_nobody_is_evicted() -> None:
    findings = Findings(told_to_go={"a", "b"}, parts={"p": ["a", "b"]})
    both = [record("Abandoned", parts=("p",)), record("Completed", parts=("p",))]
    found = compare(both, findings)
    assert dict(found.states) == {"Spared": 2, "Evicted": 2}
    assert not (found.evicted_twice or found.examples)


def test_who_is_evicted_in_two_records_is_named() -> None:
    both = [record("Completed", a="Evicted"), record("Completed", a="Evicted")]
    assert compare(both, Findings(told_to_go={"a"})).evicted_twice == ["a"]


def test_who_was_evicted_without_being_told_to_go_is_counted_by_what_ended_it() -> None:
    findings = Findings(ended_by={"a": "a deletion of admin"})
    found = compare([record("Completed", a="Evicted", b="Evicted")], findings)
    assert dict(found.not_deleted) == {"a deletion of admin": 1, "nobody ended it": 1}


def test_who_was_told_to_go_and_is_evicted_nowhere_is_counted_by_what_the_records_say() -> None:
    findings = Findings(told_to_go={"a", "b", "c"})
    found = compare([record("Completed", a="Gone"), record("Executing", "b")], findings)
    assert dict(found.not_evicted) == {"Gone": 1, "in an open record": 1, "in no record": 1}
