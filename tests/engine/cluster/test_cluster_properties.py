"""Whatever the order of events, the columns say what the rows say."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from reprieve.engine.cluster.cluster import Cluster
from reprieve.engine.cluster.invariants import Contents, Inconsistent, check, contents, rebuilt
from reprieve.engine.cluster.overlay import Overlay
from reprieve.engine.cluster.rows import BudgetRow, Change, Gone, Kind
from tests.engine.builders import cluster_of, later, node, pod
from tests.engine.cluster.histories import NODES, Lives, lives, told

SEEDS = range(150)
INTERESTING = (
    "late or again",
    "deleted again",
    "of a predecessor",
    "node removed",
    "node returned",
    "composite removed",
    "uid replaced",
    "resize",
    "annotate",
    "runtime changed",
    "finish",
    "assumed",
    "seen bound",
    "expired",
)


def expected(made: Lives) -> Contents:
    return rebuilt(list(made.final[Kind.POD].values()), made.final, Overlay())  # type: ignore[arg-type]


def test_after_every_batch_the_columns_are_what_a_rebuild_makes() -> None:
    seen: Counter[str] = Counter()
    for seed in SEEDS:
        made = lives(seed)
        chance = random.Random(seed)
        cluster = Cluster(validate=True)
        events = told(made, seed)
        now = 0
        while events:
            now += 1
            size = chance.randint(1, 5)
            batch, events = events[:size], events[size:]
            before = set(cluster.overlay.assumed)
            cluster.apply(batch)
            seen["seen bound"] += len(before - set(cluster.overlay.assumed))
            if chance.random() < 0.5:
                for uid in list(cluster.snapshot().pending)[:2]:
                    where = chance.choice((*NODES, "n8"))
                    if chance.random() < 0.4:
                        cluster.nominate(uid, chance.choice(("", where)), 7, now + 3)
                    else:
                        assert cluster.assume(uid, where, now + 3)
                        seen["assumed"] += 1
            if before and chance.random() < 0.3:
                cluster.forget(min(before))
            assumed, nominated = cluster.expire(now)
            seen["expired"] += len(assumed) + len(nominated)
        cluster.expire(now + 10)
        check(cluster.snapshot(), expected(made))
        seen += made.seen
    assert all(seen[what] >= 30 for what in INTERESTING), seen


def test_the_order_of_events_does_not_matter() -> None:
    for seed in range(40):
        made = lives(seed)
        found: list[Contents] = []
        for order in range(3):
            cluster = Cluster()
            cluster.apply(told(made, order))
            found.append(contents(cluster.snapshot()))
        assert found[0] == found[1] == found[2]


def test_a_list_repairs_whatever_was_missed() -> None:
    missed = 0
    for seed in range(60):
        made = lives(seed)
        chance = random.Random(seed)
        heard: list[Change] = []
        for life in made.events:
            heard.extend(life[: chance.randint(0, len(life))])
        missed += sum(len(life) for life in made.events) - len(heard)
        cluster = Cluster(validate=True)
        cluster.apply(heard)
        for kind in Kind:
            rows = made.final[kind]
            if kind in (Kind.NAMESPACE, Kind.PRIORITY_CLASS):
                cluster.replace(kind, [entry for entry in made.entries if entry.kind is kind])
            else:
                cluster.replace(kind, rows.values())  # type: ignore[arg-type]
        check(cluster.snapshot(), expected(made))
    assert missed > 500


def test_numbers_and_slots_are_used_again() -> None:
    cluster = cluster_of(node("n1"))
    for round_ in range(50):
        rows = [pod(f"p{round_}-{i}", node="n1", cpu=round_ + 1, group="g") for i in range(3)]
        cluster.apply(rows)
        cluster.apply([later(row, priority=5) for row in rows])
        cluster.apply(Gone(Kind.POD, row.uid, row.namespace, row.name) for row in rows)
    snapshot = cluster.snapshot()
    assert len(snapshot.pod_uids) <= 3
    assert len(snapshot.classes) <= 4
    assert len(snapshot.labels) <= 3
    assert snapshot.group_keys in ((), ("",))
    assert not snapshot.used.any()


def test_a_rebuild_notices_a_wrong_column() -> None:
    cluster = cluster_of(node("n1"), pod("p", node="n1", cpu=5))
    cluster._state.placed.used[1, 1] += 1
    with pytest.raises(Inconsistent, match="used"):
        cluster.apply([pod("q")])


def test_a_snapshot_never_changes() -> None:
    made = lives(7)
    events = told(made, 7)
    cluster = Cluster()
    cluster.apply(events[: len(events) // 2])
    snapshot = cluster.snapshot()
    before = contents(snapshot)
    cluster.apply(events[len(events) // 2 :])
    assert contents(cluster.snapshot()) != before
    assert contents(snapshot) == before
    for name in snapshot.__slots__:
        value = getattr(snapshot, name)
        if isinstance(value, np.ndarray):
            assert not value.flags.writeable and value.base is None, name


def test_budgets_are_sorted() -> None:
    rows = [BudgetRow(f"u{n}", ns, n, 1, None) for ns in "ba" for n in "dc"]  # type: ignore[arg-type]
    assert [(b.namespace, b.name) for b in cluster_of(rows).snapshot().budgets] == [
        ("a", "c"),
        ("a", "d"),
        ("b", "c"),
        ("b", "d"),
    ]
