"""Names and walks that the vectors do not name."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from reprieve.engine.idle.discovery import (
    Failed,
    Forbidden,
    Found,
    Lookup,
    Missing,
    Owner,
    OwnerForbidden,
    OwnerUnreadable,
    gpu_workload_name,
    owns,
    resolve_root,
)
from reprieve.engine.idle.evaluation_lease import LeaseState, may_take
from reprieve.engine.idle.literal import LiteralSwitches
from reprieve.engine.plan import Ref
from reprieve.units.ids import Uid
from reprieve.wording.kaiwo import resolution_error_text
from tests.engine.rows import NOW, ago

OFF = LiteralSwitches()
POD = Found(Ref("v1", "Pod", "ml", "p", Uid("p")), (Owner("batch/v1", "Job", "j", Uid("j"), True),))
START = Lookup("v1", "Pod", "ml", "p")


def test_a_name_that_is_too_long_loses_its_middle_and_keeps_its_uid() -> None:
    name = "a" * 120 + "." + "b" * 132
    made = gpu_workload_name("Job", name, "12345678-abcd")
    assert len(made) <= 253
    assert made.startswith("job-aaa")
    assert made.endswith("bbb-12345678")
    fits = "n" * (253 - len("job-") - len("-12345678"))
    assert gpu_workload_name("Job", fits, "12345678-abcd") == f"job-{fits}-12345678"


def test_the_walk_asks_for_the_owner_with_its_uid() -> None:
    walk = resolve_root(START, OFF, POD)
    assert next(walk) == Lookup("batch/v1", "Job", "ml", "j", Uid("j"))


def test_what_stops_a_walk_is_told_apart() -> None:
    for answer, error, text in (
        (Forbidden("403"), OwnerForbidden, "add get permission"),
        (Failed("timeout"), OwnerUnreadable, "transient error resolving owner"),
    ):
        walk = resolve_root(START, OFF, POD)
        next(walk)
        with pytest.raises(error) as raised:
            walk.send(answer)
        assert text in resolution_error_text(raised.value)


def test_a_pod_whose_owner_is_gone_belongs_to_nobody() -> None:
    walk = owns(Ref("apps/v1", "Deployment", "ml", "d", Uid("d")), POD, True, OFF)
    next(walk)
    with pytest.raises(StopIteration) as ended:
        walk.send(Missing())
    assert ended.value.value is False


def test_a_lease_is_taken_only_when_it_is_free() -> None:
    held = LeaseState("other", ago(29), 30)
    assert not may_take(held, "me", NOW)
    assert may_take(LeaseState("other", ago(30), 30), "me", NOW)
    assert may_take(LeaseState("other", ago(1)), "me", NOW)  # no duration counts as run out
    assert may_take(LeaseState("other", None, 30), "me", NOW)


def test_the_oracle_knows_nothing_of_the_engine() -> None:
    for path in (Path(__file__).parents[1] / "oracle").rglob("*.py"):
        if path.name.startswith("test_"):
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        imported = [
            name.name
            for each in ast.walk(tree)
            if isinstance(each, ast.Import)
            for name in each.names
        ] + [each.module or "" for each in ast.walk(tree) if isinstance(each, ast.ImportFrom)]
        foreign = (n for n in imported if n.partition(".")[0] in ("reprieve", "tests", "bench"))
        assert [n for n in foreign if not n.startswith("tests.oracle")] == [], path
