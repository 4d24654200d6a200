"""Which pods a disruption budget selects, against the rules taken literally."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from reprieve.engine.cluster import facts
from reprieve.engine.cluster.facts import Column
from reprieve.engine.cluster.rows import Operator, Requirement
from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.placement.profile import Policy
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.scheduling.victims import budget_matches as matching
from reprieve.engine.scheduling.victims.budget_matches import BudgetMatches, budget_matches
from reprieve.engine.scheduling.victims.budgets import counted_units, violating_pods
from reprieve.engine.scheduling.victims.units import potential_units
from reprieve.engine.selectors import selects
from tests.engine.builders import budget, flat, gang, node, pod, snapshot_of

_NAMESPACES = ("a", "b", "c")
_VALUES = ("x", "y", "z")


@pytest.mark.parametrize("most_columns", [64, 2])
def test_budgets_select_the_labelled_pods_of_their_namespace_that_their_selector_means(
    most_columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts, "_MOST_COLUMNS", most_columns)
    chance, counted = random.Random(3), Counter[str]()
    for _ in range(200):
        pods = [
            pod(f"p{n}", namespace=chance.choice(_NAMESPACES), node="n1", labels=_labels(chance))
            for n in range(chance.randint(0, 12))
        ]
        rows = [
            replace(
                budget(f"b{n}", {}, namespace=chance.choice((*_NAMESPACES, "d"))),
                selector=_asks(chance),
            )
            for n in range(6)
        ]
        snapshot = snapshot_of(node("n1"), pods, rows)
        found = _matches_in(snapshot)
        expected = {
            each.name: [
                number
                for number, entry in enumerate(snapshot.labels)
                if entry is not None
                and entry.labels
                and entry.namespace == each.namespace
                and selects(each.selector, dict(entry.labels))
            ]
            for each in rows
            if each.selector
        }
        selected = {
            row.name: numbers.tolist()
            for row, numbers in zip(found.budgets, found.selected, strict=True)
        }
        assert selected == expected
        by_labels: dict[int, list[int]] = {}
        for index, row in enumerate(found.budgets):
            for number in expected[row.name]:
                by_labels.setdefault(number, []).append(index)
        assert found.by_labels() == by_labels
        count = [len(by_labels.get(number, ())) for number in range(len(snapshot.labels))]
        assert found.count.tolist() == count
        assert all(found.first[number] == those[0] for number, those in by_labels.items())
        counted["none"] += not by_labels
        counted["several"] += max(count, default=0) > 1
    assert counted["none"] >= 5
    assert counted["several"] >= 50


def test_which_pods_have_labels_is_asked_once_for_all_budgets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[object] = []
    labelled = matching._labelled

    def counted(*given: Any) -> Any:
        calls.append(given)
        return labelled(*given)

    monkeypatch.setattr(matching, "_labelled", counted)
    absent = (Requirement("nope", Operator.DOES_NOT_EXIST, ()),)
    rows = [replace(budget(f"b{n}", {}), selector=absent) for n in range(20)]
    pods = [pod(f"p{n}", node="n1", labels={"index": str(n)} if n else {}) for n in range(20)]
    found = _matches_in(snapshot_of(node("n1"), pods, rows))
    assert len(calls) == 1
    assert found.count.tolist().count(20) == 19
    assert set(found.count.tolist()) == {0, 20}


def test_budgets_on_ever_new_labels_do_not_each_make_a_column_of_all_pods(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[object] = []
    column_of = facts.column_of

    def counted(column: Sequence[str | None]) -> Column:
        made.append(column)
        return column_of(column)

    monkeypatch.setattr(facts, "column_of", counted)
    pods = [pod(f"p{n}", node="n1", labels={f"key-{n}": "x", "app": "a"}) for n in range(300)]
    rows = [budget(f"b{n:03}", {f"key-{n}": "x"}) for n in range(300)]
    snapshot = snapshot_of(node("n1"), pods, rows)
    made.clear()
    found = _matches_in(snapshot)
    assert [len(numbers) for numbers in found.selected] == [1] * 300
    assert sorted(found.count.tolist())[-300:] == [1] * 300
    assert len(made) <= 64


@pytest.mark.parametrize("far", [1, 5_000], ids=["close priorities", "far priorities"])
def test_pods_violate_alike_when_only_the_units_that_count_are_put_in_order(far: int) -> None:
    chance, seen = random.Random(5), Counter[str]()
    for _ in range(300):
        apps = "abcd"[: chance.randint(1, 4)]
        rows: list[Any] = [
            gang(
                size,
                f"g{n}",
                nodes=["n1"] * size,
                all_or_nothing=chance.random() < 0.7,
                priority=far * chance.randint(0, 3),
                start=chance.randint(0, 2),
                labels={"app": chance.choice(apps)},
            )
            for n, size in enumerate(chance.choices(range(1, 5), k=chance.randint(1, 6)))
        ]
        rows += [
            pod(
                f"p{n}",
                node="n1",
                priority=far * chance.randint(0, 3),
                labels={"app": chance.choice((*apps, "none")), "tier": chance.choice(_VALUES)},
            )
            for n in range(chance.randint(0, 20))
        ]
        rows += [budget(app, {"app": app}, chance.randint(0, 4)) for app in apps]
        if chance.random() < 0.3:
            rows.append(budget("tier", {"tier": "x"}, chance.randint(0, 2)))
        if chance.random() < 0.3:
            names = chance.sample([row.name for row in flat(rows)], 2)
            rows[-1] = replace(rows[-1], disrupted=frozenset(names))
        snapshot = snapshot_of(node("n1"), *rows)
        matches = _matches_in(snapshot)
        units = potential_units(snapshot, snapshot.pod_node >= 0, 10**6, Policy())
        asked = np.array([chance.random() < 0.3 for _ in range(len(units))], np.bool_)
        counted = counted_units(units, units.slots(), asked, matches)
        assert (counted >= asked).all()
        every, some = (
            units.ordered(np.flatnonzero(chosen)) for chosen in (counted | True, counted)
        )
        expected = violating_pods(units, every, matches)[asked[every]]
        assert violating_pods(units, some, matches)[asked[some]].tolist() == expected.tolist()
        seen["fewer"] += int(counted.sum()) < len(units) - 2
        seen["violating"] += bool(expected.any())
    assert min(seen["fewer"], seen["violating"]) >= 60, seen


def _matches_in(snapshot: Snapshot) -> BudgetMatches:
    policy = Policy()
    return budget_matches(Simulation(snapshot, policy, policy.profiles[0]))


def _labels(chance: random.Random) -> dict[str, str]:
    return {key: chance.choice(_VALUES) for key in ("app", "tier") if chance.random() < 0.6}


def _asks(chance: random.Random) -> tuple[Requirement, ...] | None:
    if chance.random() < 0.1:
        return chance.choice(((), None))
    found = []
    for key in chance.sample(("app", "tier", "zone"), chance.randint(1, 2)):
        operator = chance.choice(
            (Operator.IN, Operator.IN, Operator.NOT_IN, Operator.EXISTS, Operator.DOES_NOT_EXIST)
        )
        values = tuple(sorted(chance.sample(_VALUES, chance.randint(1, 2))))
        wanted = values if operator in (Operator.IN, Operator.NOT_IN) else ()
        found.append(Requirement(key, operator, wanted))
    return tuple(found)
