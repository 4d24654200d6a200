"""Pending workloads of one ClusterQueue against a plain list, and what a flush costs."""

from __future__ import annotations

from random import Random

import pytest

from reprieve.engine.quota.waiting.pending import Pending, Row

SHAPES = ("small", "medium", "large")


class Plain:
    """The same with one list, walked again and again."""

    def __init__(self) -> None:
        self.rows: dict[Row, tuple[str, bool]] = {}
        self.hopeless: set[str] = set()

    def add(self, row: Row, shape: str) -> None:
        self.rows[row] = (shape, False)

    def set_aside(self, row: Row, shape: str) -> None:
        self.rows[row] = (shape, True)

    def set_aside_alike(self, shape: str) -> None:
        self.hopeless.add(shape)
        for row, (other, _) in self.rows.items():
            if other == shape:
                self.rows[row] = (shape, True)

    def flush(self) -> None:
        self.hopeless.clear()
        self.rows = {row: (shape, False) for row, (shape, _) in self.rows.items()}

    def listed(self, aside: bool) -> list[Row]:
        return sorted(row for row, (_, where) in self.rows.items() if where is aside)


def test_order_and_shapes_are_those_of_a_plain_list() -> None:
    interesting = 0
    for seed in range(200):
        random, pending, plain = Random(seed), Pending(), Plain()
        for step in range(100):
            shape = random.choice(SHAPES)
            match random.choice(("add", "add", "add", "aside", "alike", "flush", "take", "remove")):
                case "add" | "aside" as what:
                    row = (-random.randrange(3), random.randrange(5), f"uid-{step}", f"n/w{step}")
                    if what == "add":
                        pending.add(row, shape)
                        plain.add(row, shape)
                    else:
                        pending.set_aside(row, shape)
                        plain.set_aside(row, shape)
                case "alike":
                    pending.set_aside_alike(shape)
                    plain.set_aside_alike(shape)
                case "flush":
                    interesting += bool(plain.listed(True))
                    pending.flush()
                    plain.flush()
                case "take":
                    first = pending.first()
                    if first is not None:
                        pending.remove(first, plain.rows.pop(first)[0])
                case "remove":
                    if plain.rows:
                        row = random.choice(sorted(plain.rows))
                        pending.remove(row, plain.rows.pop(row)[0])
            queued, aside = plain.listed(False), plain.listed(True)
            assert pending.first() == (queued[0] if queued else None)
            assert (sorted(pending.queued()), sorted(pending.aside())) == (queued, aside)
            assert pending.counts() == (len(queued), len(aside))
            assert {each for each in SHAPES if pending.is_hopeless(each)} == plain.hopeless
            assert all(pending.is_aside(row, plain.rows[row][0]) for row in aside)
            assert all(pending.is_queued(row, plain.rows[row][0]) for row in queued)
    assert interesting > 500


@pytest.mark.parametrize(("many", "few"), [("queued", "aside"), ("aside", "queued")])
def test_few_stand_in_order_among_many_after_a_flush(many: str, few: str) -> None:
    pending = Pending()
    rows: list[Row] = [(0, number, "", f"n/{number}") for number in range(100)]
    late = set(rows[::30])
    for where, chosen in ((few, late), (many, set(rows) - late)):
        for row in Random(1).sample(sorted(chosen), len(chosen)):
            (pending.add if where == "queued" else pending.set_aside)(row, "one")
    pending.flush()
    taken = []
    while (first := pending.first()) is not None:
        taken.append(first)
        pending.remove(first, "one")
    assert (taken, pending.counts()) == (rows, (0, 0))


def test_a_flush_moves_whole_shapes() -> None:
    pending = Pending()
    for number in range(1_000):
        pending.add((0, number, "", f"n/{number}"), "one")
    before = pending.alike("one").queued
    pending.set_aside_alike("one")
    assert (pending.counts(), pending.first()) == ((0, 1_000), None)
    pending.flush()
    assert pending.alike("one").queued is before
