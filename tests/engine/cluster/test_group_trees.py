"""How groups hang together: of a snapshot, and of the groups as they come and go."""

from __future__ import annotations

from random import Random

import pytest

from reprieve.engine.cluster.forest import Forest
from reprieve.engine.cluster.rows import COMPOSITE, GroupRow
from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.cluster.trees import MOST_LEVELS, Way
from tests.engine.builders import cluster_of, composite, group, snapshot_of


def index(snapshot: Snapshot, key: str) -> int:
    return snapshot.group_index[key]


def chain(length: int) -> list[GroupRow]:
    """A pod group below so many composite groups."""
    names = [f"c{number}" for number in range(length)]
    above = [
        composite(name, parent=parent) for name, parent in zip(names, ["", *names], strict=False)
    ]
    return [*above, group("g", parent=names[-1] if names else "")]


@pytest.mark.parametrize("length", range(MOST_LEVELS + 2))
def test_a_way_up_has_at_most_four_levels(length: int) -> None:
    snapshot = snapshot_of(*chain(length))
    leaf = index(snapshot, "default/g")
    way = snapshot.trees.way(leaf)
    assert way is (Way.ROOT if length < MOST_LEVELS else Way.ENDLESS)
    root = snapshot.group_keys[snapshot.trees.root[leaf]]
    topmost = max(0, length - MOST_LEVELS + 1)
    assert root == (f"{COMPOSITE}default/c{topmost}" if length else "default/g")


def test_a_missing_parent_ends_the_way_and_a_circle_has_no_end() -> None:
    snapshot = snapshot_of(
        group("lost", parent="gone"),
        composite("a", parent="b"),
        composite("b", parent="a"),
        group("round", parent="a"),
    )
    trees = snapshot.trees
    assert trees.way(index(snapshot, "default/lost")) is Way.MISSING
    assert trees.way(index(snapshot, "default/round")) is Way.ENDLESS
    assert trees.root[index(snapshot, "default/lost")] == index(snapshot, "default/lost")
    assert trees.children == {}


def test_children_come_in_the_order_of_their_creation_then_by_name() -> None:
    snapshot = snapshot_of(
        composite("root"),
        group("b", parent="root", created=5),
        group("a", parent="root", created=7),
        composite("middle", parent="root", created=5),
        group("below", parent="middle"),
    )
    leaves = snapshot.trees.leaves(index(snapshot, f"{COMPOSITE}default/root"))
    assert [snapshot.group_keys[leaf] for leaf in leaves] == [
        "default/b",
        "default/below",
        "default/a",
    ]


def test_the_highest_group_of_mode_all_is_the_unit() -> None:
    snapshot = snapshot_of(
        composite("root"),
        composite("middle", parent="root", all_or_nothing=True),
        group("in", parent="middle"),
        group("beside", parent="root", all_or_nothing=True),
        group("single", parent="root"),
    )
    units = {
        name: int(snapshot.trees.unit[index(snapshot, f"default/{name}")])
        for name in ("in", "beside", "single")
    }
    assert units == {
        "in": index(snapshot, f"{COMPOSITE}default/middle"),
        "beside": index(snapshot, "default/beside"),
        "single": -1,
    }


def test_a_group_and_a_composite_group_of_one_name_are_two() -> None:
    cluster = cluster_of(composite("same", priority=7), group("same", parent="same", priority=3))
    snapshot = cluster.snapshot()
    leaf, root = index(snapshot, "default/same"), index(snapshot, f"{COMPOSITE}default/same")
    assert snapshot.trees.root[leaf] == root
    assert snapshot.trees.priority(nearest=False)[leaf] == 7
    assert snapshot.trees.priority(nearest=True)[leaf] == 3


def test_the_forest_says_what_the_snapshot_says() -> None:
    random, compared = Random(5), 0
    for _ in range(60):
        names = [f"c{number}" for number in range(6)]
        rows = [
            composite(name, parent=random.choice(("", "gone", *names)), created=random.randrange(3))
            for name in random.sample(names, 5)
        ]
        rows += [group(f"g{n}", parent=random.choice(("", *names))) for n in range(6)]
        random.shuffle(rows)
        forest = Forest(trees=True)
        for row in rows:
            forest.apply(row)
        gone = random.choice(rows)
        forest.remove(gone.key)
        snapshot = snapshot_of(*(row for row in rows if row is not gone))
        for key, number in snapshot.group_index.items():
            way, root = forest.root(key)
            assert way is snapshot.trees.way(number)
            if way is Way.ROOT:
                compared += 1
                assert root == snapshot.group_keys[snapshot.trees.root[number]]
                leaves = {snapshot.group_keys[leaf] for leaf in snapshot.trees.leaves(number)}
                below = {k for k in forest.leaves(key) if forest.root(k)[0] is Way.ROOT}
                assert leaves == below
    assert compared >= 150


def test_with_the_gate_off_every_group_stands_for_itself() -> None:
    forest = Forest()
    forest.apply(composite("root"))
    forest.apply(group("g", parent="root"))
    assert forest.root("default/g") == (Way.ROOT, "default/g")
    assert forest.children(f"{COMPOSITE}default/root") == []
