"""Groups of pods: who stays, who goes, who is missing, and when it is over."""

from __future__ import annotations

from typing import Any

from reprieve.jobs.groups import group_over, roster, surplus
from tests.jobs.builders import GATE, Json, pod


def member(name: str, role: str = "r", total: int = 2, **more: Any) -> Json:
    notes = {"role-hash": role, "pod-group-total-count": str(total), **more.pop("notes", {})}
    return pod(name, notes=notes, **more)


def names(members: Any) -> list[str]:
    return [each["metadata"]["name"] for each in members]


def test_who_is_there_stays_and_nobody_is_missing() -> None:
    found = roster({"r": 2}, [member("a"), member("b")], GATE)
    assert (names(found.kept), found.absent, found.excess, found.replaced) == (
        ["a", "b"],
        0,
        (),
        (),
    )
    assert found.fits


def test_of_too_many_the_gated_and_the_newest_go() -> None:
    old = member("old", age=9, phase="Running", node="n")
    gated = member("gated", age=8, gated=True)
    new = member("new", age=1, phase="Running", node="n")
    loose = member("loose", age=20, finalizer=False)
    found = roster({"r": 2}, [loose, gated, new, old], GATE)
    assert names(found.kept) == ["old", "new"]
    assert names(found.excess) == ["gated", "loose"]


def test_a_failed_member_is_waited_for_and_goes_once_it_is_replaced() -> None:
    failed = member("failed", phase="Failed")
    found = roster({"r": 2}, [member("a"), failed], GATE)
    assert (names(found.kept), found.absent, found.replaced) == (["a", "failed"], 1, ())
    found = roster({"r": 2}, [member("a"), member("b"), failed], GATE)
    assert (found.absent, names(found.replaced)) == (0, ["failed"])


def test_of_replaced_members_the_last_active_stays_longest() -> None:
    early = member("early", phase="Failed", leaving="2026-01-01T00:01:00Z")
    late = member("late", phase="Failed", leaving="2026-01-01T00:02:00Z")
    found = roster({"r": 2}, [member("a"), early, late], GATE)
    assert names(found.kept) == ["a", "late"]
    assert names(found.replaced) == ["early"]


def test_roles_are_counted_apart_and_a_strange_one_does_not_fit() -> None:
    found = roster({"r": 1, "s": 1}, [member("a"), member("b", "s")], GATE)
    assert found.fits and found.absent == 0
    assert not roster({"r": 2}, [member("a"), member("b", "s")], GATE).fits
    assert roster({"r": 2}, [member("a"), member("b", "s", phase="Failed")], GATE).fits
    assert not roster({"r": 2}, [], GATE).fits


def test_a_group_without_a_workload_loses_those_above_its_total() -> None:
    members = [member("b", age=1), member("a", age=2), member("c", age=3)]
    assert names(surplus(members, 2)) == ["b"]


def test_a_group_is_over_when_all_have_succeeded() -> None:
    done = [member("a", phase="Succeeded"), member("b", phase="Succeeded")]
    assert group_over(done) == "Pods succeeded: 2/2."
    assert group_over([done[0], member("b", phase="Running")]) is None
    assert group_over([done[0], member("b", phase="Failed")]) is None
    assert group_over(done[:1]) is None


def test_a_group_that_may_not_be_retried_ends_with_its_failure() -> None:
    final = member("b", phase="Failed", notes={"retriable-in-group": "false"})
    assert group_over([member("a", phase="Succeeded"), final]) == "Pods succeeded: 1/2."
    assert group_over([member("a", phase="Running"), final]) is None


def test_a_serving_group_is_never_over() -> None:
    serving = {"pod-group-serving": "true"}
    assert group_over([member("a", total=1, phase="Succeeded", notes=serving)]) is None
