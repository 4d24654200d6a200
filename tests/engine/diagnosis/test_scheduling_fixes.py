"""A change that is suggested lets the unit start when it is written so, and the smallest is first.

The test writes the change into the rows itself, as a person would into the manifest, and decides on
a cluster that is built anew.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import pytest

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import parse_instant
from reprieve.engine.cluster.rows import (
    AffinityTerm,
    GroupRow,
    PodClass,
    PodRow,
    SpreadConstraint,
    Toleration,
)
from reprieve.engine.diagnosis import scheduling_fixes
from reprieve.engine.diagnosis.model import Change, Diagnosis, Fix
from reprieve.engine.diagnosis.reasons import Reason
from reprieve.engine.diagnosis.scheduling import of_attempt
from reprieve.engine.diagnosis.scheduling_figures import with_figures
from reprieve.engine.diagnosis.scheduling_fixes import MOST_DECISIONS, Question, fixes_for
from reprieve.engine.placement.profile import Policy
from reprieve.engine.placement.reasons import Code
from reprieve.engine.scheduling.outcome import Attempt, Unit
from reprieve.engine.scheduling.session import Session
from tests.engine.builders import (
    GPU,
    flat,
    gang,
    matching,
    node,
    pod,
    priority_class,
    snapshot_of,
    taint,
)

NOW = 1_700_000_000
POLICY = Policy(max_min_runtime=600)
CLASSES = {"middle": 5, "high": 10}
WANTED, MOST_DRAWN = 60, 600


@dataclass(frozen=True)
class Case:
    """A cluster in which something waits. `now`: Unix seconds."""

    rows: tuple[Any, ...]
    key: str = ""
    now: int = NOW

    def question(self) -> Question:
        snapshot = snapshot_of(*self.rows)
        return Question(snapshot, POLICY, Unit(tuple(snapshot.pending), self.key), self.now)

    def attempt(self) -> Attempt:
        asked = self.question()
        found = Session(asked.snapshot, POLICY, now=self.now).attempt(asked.unit)
        assert found is not None
        return found

    def starts(self) -> int | None:
        """How many are preempted so that it starts, None where it does not."""
        attempt = self.attempt()
        if attempt.code is Code.SUCCESS:
            return 0
        return None if attempt.plan is None else len(attempt.plan.victims)

    def why(self) -> Diagnosis | None:
        found = of_attempt(self.attempt())
        asked = self.question()
        if found is None:
            return None
        return with_figures(asked.snapshot, POLICY, asked.unit, found, now=self.now)

    def fixes(self) -> tuple[Fix, ...]:
        found = self.why()
        return () if found is None else fixes_for(self.question(), found)

    def with_fix(self, fix: Fix) -> Case:
        """The case once a person has done what the fix says."""
        if fix.change is Change.WAIT:
            if not fix.after:
                left = (row for row in self.rows if not getattr(row, "deleting", False))
                return replace(self, rows=tuple(left))
            return replace(self, now=parse_instant(fix.after) // SECOND + 1)
        return replace(self, rows=tuple(_changed(row, fix) for row in self.rows))


def _changed(row: Any, fix: Fix) -> Any:
    if isinstance(row, GroupRow):
        return _changed_group(row, fix)
    if not isinstance(row, PodRow) or row.node:
        return row
    if fix.change is Change.HIGHER_PRIORITY:
        return replace(row, priority=CLASSES[fix.after])
    entry = row.pod_class
    if fix.change is Change.FEWER_DEVICES:
        name = fix.field.removeprefix("resources.requests[").removesuffix("]")
        amounts = {**dict(entry.requests), name: int(fix.after)}
        entry = replace(entry, requests=tuple(sorted(amounts.items())))
    elif fix.change is Change.WITHOUT_CONSTRAINT:
        # Places count in the manifest as it was: from the last to the first.
        for field in sorted(fix.field.split(" and "), reverse=True):
            entry = _loosened(entry, field, fix.after)
    return replace(row, pod_class=entry)


def _changed_group(row: GroupRow, fix: Fix) -> GroupRow:
    if fix.change is Change.FEWER_PODS:
        return replace(row, min_count=int(fix.after))
    if fix.change is Change.HIGHER_PRIORITY:
        return replace(row, priority=CLASSES[fix.after])
    if "schedulingConstraints" in fix.field:
        return replace(row, topology_key="")
    return row


def _loosened(entry: PodClass, field: str, after: str) -> PodClass:
    inside = field.rpartition("[")[2].rstrip("]")
    place = int(inside) if inside.isdigit() else 0
    if field == "spec.tolerations":
        for text in after.split(" and "):
            more = taint(text)
            found = Toleration(more.key, "Equal", more.value, more.effect)
            entry = replace(entry, tolerations=(*entry.tolerations, found))
        return entry
    if field.startswith("spec.nodeSelector"):
        key = field.removeprefix("spec.nodeSelector[").removesuffix("]")
        kept = tuple(pair for pair in entry.node_selector if pair[0] != key)
        return replace(entry, node_selector=kept)
    for word, name in (
        ("topologySpreadConstraints", "spread"),
        ("podAffinity", "affinity"),
        ("podAntiAffinity", "anti_affinity"),
    ):
        if word in field:
            terms = list(getattr(entry, name))
            del terms[place]
            changes: dict[str, Any] = {name: tuple(terms)}
            return replace(entry, **changes)
    return entry


def _drawn(draw: random.Random) -> Case:
    """A small cluster with one waiting pod or gang, most of them in need of something."""
    nodes = []
    for number in range(draw.randint(2, 5)):
        taints = ["reserved=yes:NoSchedule"] if draw.random() < 0.3 else []
        labels = {"rack": f"r{number % 2}", "disk": draw.choice(["ssd", "hdd"])}
        gpus = draw.choice([4, 8])
        nodes.append(node(f"n{number}", gpus=gpus, labels=labels, taints=taints))
    running: list[PodRow] = []
    for place in nodes:
        free = place.allocatable[GPU]
        while free > 0 and draw.random() < 0.75:
            gpus = draw.randint(1, free)
            free -= gpus
            running.append(
                pod(
                    f"r{len(running)}",
                    node=place.name,
                    gpus=gpus,
                    priority=draw.choice([0, 1, 3, 7]),
                    start=NOW - draw.randint(1, 100),
                    min_runtime=draw.choice([None, None, 200]),
                    labels={"app": "x"},
                    deleting=draw.random() < 0.15,
                )
            )
    asked: dict[str, Any] = {"gpus": draw.randint(1, 8)}
    if draw.random() < 0.3:
        asked["node_selector"] = {"disk": draw.choice(["ssd", "nvme"])}
    if draw.random() < 0.25:
        term = AffinityTerm("kubernetes.io/hostname", matching({"app": "x"}), ("default",))
        asked["anti_affinity"] = (term,)
    if draw.random() < 0.15:
        term = AffinityTerm("kubernetes.io/hostname", matching({"app": "y"}), ("default",))
        asked["affinity"] = (term,)
    if draw.random() < 0.15:
        asked["spread"] = (SpreadConstraint("zone", 1, True, matching({"app": "x"})),)
    classes = [priority_class(name, value) for name, value in CLASSES.items()]
    priority = draw.choice([1, 2, 4])
    if draw.random() < 0.5:
        waiting: list[Any] = [pod("p", priority=priority, **asked)]
        key = ""
    else:
        rack = draw.choice(["", "rack"])
        size = draw.randint(2, 6)
        waiting = gang(size, priority=priority, topology_key=rack, **asked)
        key = "default/g"
    return Case(tuple(flat([nodes, running, classes, waiting])), key)


def test_the_first_change_that_is_suggested_lets_it_start() -> None:
    draw = random.Random(20261123)
    kinds: Counter[Change] = Counter()
    failed: list[tuple[Case, Fix]] = []
    none = waits = 0
    for _ in range(MOST_DRAWN):
        case = _drawn(draw)
        if case.starts() is not None:
            continue
        waits += 1
        fixes = case.fixes()
        if not fixes:
            none += 1
            continue
        kinds[fixes[0].change] += 1
        if case.with_fix(fixes[0]).starts() != fixes[0].victims:
            failed.append((case, fixes[0]))
        if kinds.total() >= WANTED and len(kinds) >= 5 and none >= 5:
            break
    print(f"{waits} wait, {kinds.total()} have a change that helps ({dict(kinds)}), {none} none")
    assert kinds.total() >= WANTED, kinds
    assert len(kinds) >= 5, kinds
    assert none >= 5
    assert len(failed) <= kinds.total() // 100, failed[:3]


def test_every_change_that_is_suggested_lets_it_start() -> None:
    draw = random.Random(7)
    tried = 0
    for _ in range(MOST_DRAWN):
        case = _drawn(draw)
        if case.starts() is None:
            for fix in case.fixes():
                assert case.with_fix(fix).starts() == fix.victims, (case, fix)
                tried += 1
        if tried >= WANTED:
            break
    assert tried >= WANTED


def _case(*rows: Any, key: str = "") -> Case:
    return Case(tuple(flat(rows)), key)


def test_the_highest_minimum_that_fits_is_suggested_first() -> None:
    case = _case(node("a", gpus=8), gang(8, gpus=2), key="default/g")
    path = "spec.schedulingPolicy.gang.minCount"
    assert case.fixes() == (
        Fix(Change.FEWER_PODS, path, "8", "4"),
        Fix(Change.FEWER_DEVICES, f"resources.requests[{GPU}]", "2", "1"),
    )


def test_the_end_of_a_minimum_runtime_that_is_enough_is_named() -> None:
    held = [
        pod("x", node="a", gpus=4, start=NOW - 10, min_runtime=60),
        pod("y", node="a", gpus=4, start=NOW - 10, min_runtime=110),
    ]
    case = _case(node("a", gpus=8), held, pod("p", gpus=8, priority=5))
    first = case.fixes()[0]
    assert first == Fix(Change.WAIT, "", "", "2023-11-14T22:15:00Z", 2)


def test_two_constraints_are_left_out_only_where_no_single_change_helps() -> None:
    asked = {"disk": "nvme", "rack": "r9"}
    case = _case(node("a", gpus=8), pod("p", gpus=8, node_selector=asked))
    (fix,) = case.fixes()
    assert fix.field == "spec.nodeSelector[disk] and spec.nodeSelector[rack]"
    assert case.with_fix(fix).starts() == 0


def test_the_next_priority_class_is_suggested_with_who_makes_way() -> None:
    classes = [priority_class(name, value) for name, value in CLASSES.items()]
    system = priority_class("system-node-critical", 2_000_000_000)
    case = _case(
        node("a", gpus=1), classes, system, pod("x", node="a", gpus=1, priority=7), pod("p", gpus=1)
    )
    assert case.fixes() == (Fix(Change.HIGHER_PRIORITY, "priorityClassName", "0", "high", 1),)


def test_no_change_is_an_answer() -> None:
    assert _case(node("a", gpus=1), pod("x", node="a", gpus=1), pod("p", gpus=1)).fixes() == ()


def test_the_engine_is_asked_twenty_times_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    class Counting(Session):
        def attempt(self, unit: Unit) -> Attempt | None:
            asked.append(unit)
            return super().attempt(unit)

    monkeypatch.setattr(scheduling_fixes, "Session", Counting)
    labels = {f"k{number}": "v" for number in range(12)}
    rows = node("a", gpus=8), pod("x", node="a", gpus=8, priority=50)
    case = _case(*rows, gang(40, gpus=8, node_selector=labels), key="default/g")
    assert case.fixes() == ()
    assert len(asked) == MOST_DECISIONS


def test_what_was_found_before_it_is_stopped_is_answered() -> None:
    case = _case(node("a", gpus=8), gang(8, gpus=2), key="default/g")
    found = case.why()
    assert found is not None
    answers = iter([False, False, False, True, True])
    fixes = fixes_for(case.question(), found, stop=lambda: next(answers))
    assert [each.change for each in fixes] == [Change.FEWER_PODS]
    assert case.with_fix(fixes[0]).starts() == 0
    assert fixes_for(case.question(), found, stop=lambda: True) == ()


def test_each_change_that_helps_is_reported_as_soon_as_it_is_found() -> None:
    rows = node("a", gpus=8), pod("x", node="a", gpus=4, priority=50)
    case = _case(*rows, gang(8, gpus=2), key="default/g")
    found = case.why()
    assert found is not None
    reported: list[tuple[Fix, ...]] = []
    fixes = fixes_for(case.question(), found, report=reported.append)
    assert len(fixes) > 0
    assert reported == [fixes[: number + 1] for number in range(len(fixes))]


@pytest.mark.parametrize(
    "reason", [Reason.GROUP_MISSING, Reason.NOT_UNIFORM, Reason.SET_ASIDE, Reason.BACKOFF]
)
def test_nothing_is_tried_where_no_change_of_these_could_help(reason: Reason) -> None:
    case = _case(node("a", gpus=8), gang(8, gpus=2), key="default/g")
    found = case.why()
    assert found is not None
    assert fixes_for(case.question(), replace(found, reason=reason)) == ()
