"""Selectors over columns of labels say what they say about each object alone."""

from __future__ import annotations

import random

import numpy as np

from reprieve.engine.cluster.cluster import Cluster
from reprieve.engine.cluster.facts import LabelFacts, NodeFacts
from reprieve.engine.cluster.rows import Gone, Kind, Operator, PodRow, Requirement, Selector
from reprieve.engine.placement.filters.selection import Selection
from reprieve.engine.selectors import selects
from tests.engine.builders import node, pod

OPERATORS = (Operator.IN, Operator.NOT_IN, Operator.EXISTS, Operator.DOES_NOT_EXIST)


def _random_selector(rng: random.Random) -> Selector:
    return tuple(
        Requirement(
            rng.choice("abc"),
            operator,
            tuple(rng.sample("xyz", rng.randint(1, 2)))
            if operator in (Operator.IN, Operator.NOT_IN)
            else (),
        )
        for operator in rng.choices(OPERATORS, k=rng.randint(0, 3))
    )


def _random_pod(rng: random.Random, number: int) -> PodRow:
    labels = {key: rng.choice("xyz") for key in "abc" if rng.random() < 0.6}
    if rng.random() < 0.5:
        labels["index"] = str(rng.randrange(1000))
    return pod(f"p{number}", labels=labels, node="n", namespace=rng.choice(("one", "two")))


def test_columns_carried_from_state_to_state_say_what_new_ones_say() -> None:
    rng = random.Random(7)
    cluster = Cluster()
    cluster.apply([node("n")])
    carried = matched = 0
    before: LabelFacts | None = None
    for step in range(400):
        changes = []
        for _ in range(rng.randint(1, 4)):
            number = rng.randrange(30)
            row = _random_pod(rng, number)
            gone = rng.random() < 0.3
            changes.append(Gone(Kind.POD, row.uid, row.namespace, row.name) if gone else row)
        cluster.apply(changes)
        snapshot = cluster.snapshot()
        facts, anew = snapshot.label_facts, LabelFacts(snapshot.labels)
        carried += before is not None and facts is not before and step > 1
        before = facts
        for key in ("a", "index", "never"):
            found, expected = facts.label(key), anew.label(key)
            assert [found.values[n] if n >= 0 else None for n in found.numbers] == [
                expected.values[n] if n >= 0 else None for n in expected.numbers
            ]
        selector = _random_selector(rng)
        namespaces = rng.sample(("one", "two", "three"), rng.randint(1, 2))
        mask = Selection(snapshot).pods(selector, namespaces)
        alone = [
            entry is not None
            and entry.namespace in namespaces
            and selects(selector, dict(entry.labels))
            for entry in snapshot.labels
        ]
        np.testing.assert_array_equal(mask, alone)
        matched += bool(mask.any())
    assert carried > 300
    assert matched > 100


def test_a_column_with_far_more_values_than_sets_is_made_anew() -> None:
    cluster = Cluster()
    cluster.apply([node("n")])
    longest = 0
    for number in range(500):
        cluster.apply([pod("p", node="n", labels={"index": str(number)})])
        values = cluster.snapshot().label_facts.label("index").values
        assert str(number) in values
        longest = max(longest, len(values))
    assert 10 < longest < 100


def test_nodes_that_did_not_change_keep_their_columns() -> None:
    cluster = Cluster()
    cluster.apply([node("a", labels={"zone": "x"}), node("b")])
    facts = cluster.snapshot().node_facts
    assert facts.label("zone").numbers.tolist() == [0, -1]
    cluster.apply([pod("p", node="a")])
    assert cluster.snapshot().node_facts is facts
    cluster.apply([node("b", labels={"zone": "y"}, unschedulable=True)])
    later = cluster.snapshot().node_facts
    assert isinstance(later, NodeFacts)
    assert later is not facts
    assert later.label("zone").values == ("x", "y")
    assert later.unschedulable.tolist() == [False, True]
