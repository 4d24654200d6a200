"""What is known of who borrows, from search to search, is what there is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random

from reprieve.engine.quota.holdings.holders import Row
from reprieve.engine.quota.holdings.snapshot import Snapshot
from reprieve.engine.quota.holdings.state import Holdings
from reprieve.engine.quota.model import Reason
from reprieve.engine.quota.targets.borrowers import Gathered, beside
from tests.quota.cases import NOW, Size, held, scene

SIZE = Size(queues=8, cohorts=6, admitted=30, quota=5, sizes=(0, 1, 1, 2, 3, 4))


def unshared(snapshot: Snapshot) -> Snapshot:
    """Return the same snapshot, of which nothing is known yet."""
    return Snapshot(
        snapshot.configuration,
        snapshot.tree,
        snapshot.usage,
        snapshot.lists,
        snapshot.local_queue_usage,
        snapshot.reckoning,
    )


def keys(gathered: Gathered) -> list[list[list[Row]]]:
    return [[list(rows) for rows in lists] for lists in gathered]


def by_definition(snapshot: Snapshot, top: int, below: int, need: frozenset[int]) -> set[str]:
    """Return the keys of whoever is below `top`, while everything on the way there exceeds."""
    tree, found = snapshot.tree, set()
    for queue in tree.queues.values():
        path = tree.path[queue]
        if top not in path or tree.names[queue] in tree.inactive:
            continue
        way = path[: path.index(top)]
        if below in way or not all(
            any(snapshot.usage[column][node] > tree.subtree[column][node] for column in need)
            for node in way
        ):
            continue
        for (_, columns), rows in snapshot.lists[queue].items():
            found |= {row[3] for row in rows if columns & need}
    return found


def questions(snapshot: Snapshot, random: Random) -> Iterator[tuple[int, int, frozenset[int]]]:
    tree = snapshot.tree
    columns = range(len(snapshot.usage))
    for queue in tree.queues.values():
        for below, top in zip(tree.path[queue], tree.path[queue][1:], strict=False):
            for column in columns:
                yield top, below, frozenset((column,))
            yield top, below, frozenset(random.sample(columns, min(2, len(columns))))


def agree(snapshot: Snapshot, random: Random, seen: Counter[str]) -> None:
    plain = unshared(snapshot)
    asked = list(questions(snapshot, random))
    random.shuffle(asked)
    for top, below, need in asked[:80]:
        known = sum(map(len, snapshot.borrowers.values()))
        found = beside(snapshot, top, below, need)
        plain.borrowers.clear()
        assert keys(found) == keys(beside(plain, top, below, need))
        assert {row[3] for lists in found for rows in lists for row in rows} == by_definition(
            snapshot, top, below, need
        )
        if found[0] or found[1]:
            seen["somebody"] += 1
            seen["known"] += known == sum(map(len, snapshot.borrowers.values()))
        seen["evicted"] += bool(found[0])
        seen["several"] += len(found[1]) > 1


def test_what_snapshots_share_is_what_each_of_them_holds() -> None:
    random, seen = Random(71), Counter[str]()
    for _ in range(60):
        case = scene(random, size=SIZE)
        holdings = Holdings(case.configuration)
        for workload in case.admitted:
            holdings.hold(workload)
        pairs = holdings.tree.flavor_resources
        flavors = sorted({pair.flavor for pair in pairs}) or ["f0"]
        resources = sorted({pair.resource for pair in pairs}) or ["cpu"]
        older: list[Snapshot] = []
        for step in range(12):
            snapshot = holdings.snapshot()
            agree(snapshot, random, seen)
            event = random.choice(("hold", "release", "evict", "count", "without", "nothing"))
            key = random.choice(sorted(holdings.holders))
            if event == "hold":
                queue = random.choice(sorted(holdings.tree.queues))
                holdings.hold(held(random, f"new-{step}", queue, flavors, resources, SIZE))
            elif event == "release" and len(holdings.holders) > 1:
                holdings.release(key)
            elif event == "evict":
                holdings.expect_eviction(key, Reason.IN_COHORT_RECLAMATION, NOW)
            elif event == "count":
                change = random.choice((snapshot.add_usage, snapshot.remove_usage))
                for holder in random.choices([*holdings.holders.values()], k=4):
                    change(holder.queue, holder.held)
                agree(snapshot, random, seen)
            elif event == "without":
                gone = random.choices([*holdings.holders.values()], k=4)
                agree(snapshot.without(gone), random, seen)
            seen[event] += 1
            older.append(snapshot)
            agree(random.choice(older), random, seen)
            if not holdings.holders:
                break
    assert min(seen.values()) >= 60, seen
    assert seen["known"] >= 300 and seen["several"] >= 300, seen
