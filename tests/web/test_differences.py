"""Differences that are applied to a snapshot give the server's page, whatever happened."""

from __future__ import annotations

import itertools
import json
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.web.live.differences import advanced, begun
from reprieve.web.live.topic import RING_AGE, Topic, read_position
from reprieve.web.tables import Cell, Column, Kind, Page, Table
from tests.web.reading import Browser, meant

_COLUMNS = (Column("unit", Kind.UNIT), Column("gpus", Kind.NUMBER), Column("why", Kind.LIST))
_CELLS = st.tuples(
    st.sampled_from(["job/a/x", "job/b/y", None]),
    st.one_of(st.none(), st.integers(0, 3), st.floats(0, 2, width=16)),
    st.lists(st.text(max_size=3), max_size=2),
)
_TABLES = st.dictionaries(st.sampled_from("abcdef"), _CELLS).map(lambda r: Table(_COLUMNS, r))
_PAGES = st.builds(
    Page,
    values=st.dictionaries(
        st.sampled_from(["gpus", "cluster"]),
        st.one_of(st.integers(0, 2), st.dictionaries(st.sampled_from("xy"), st.integers(0, 2))),
    ),
    tables=st.fixed_dictionaries(
        {"holders": _TABLES}, optional={"waiting": st.one_of(_TABLES, st.just(Table(())))}
    ),
)


def _topic(page: Page, **more: int) -> Topic:
    return Topic("now", "e1", page, Nanos(0), **more)


def _page(*gpus: int, name: str = "holders") -> Page:
    rows: dict[str, tuple[Cell, ...]] = {
        f"u{at}": (f"job/a/u{at}", count, []) for at, count in enumerate(gpus)
    }
    return Page({"total": sum(gpus)}, {name: Table(_COLUMNS, rows)})


@given(st.lists(_PAGES, min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_a_reader_that_looks_now_and_then_shows_the_servers_page(
    pages: list[Page], random: Random
) -> None:
    topic, browser, patient = _topic(pages[0]), Browser(), Browser()
    browser.hear(topic.after(None))
    for page in pages[1:]:
        topic.show(page, Nanos(0), Nanos(0))
        browser.hear(topic.after(read_position(browser.position)))
        assert browser.shown() == meant(page)
        if random.random() < 0.5:
            patient.hear(topic.after(read_position(patient.position)))
            assert patient.shown() == meant(page)


@given(_PAGES)
def test_a_page_that_is_the_same_in_other_objects_is_no_change(page: Page) -> None:
    again = Page(
        dict(page.values), {name: Table(t.columns, dict(t.rows)) for name, t in page.tables.items()}
    )
    topic = _topic(page)

    assert not topic.show(again, Nanos(0), Nanos(0))
    assert topic.position.sequence == 0


def test_a_slot_stays_with_its_row_and_is_never_given_again() -> None:
    state = begun(_page(1, 2, 3))
    state, _ = advanced(state, Page({}, {"holders": Table(_COLUMNS, {"u2": ("job/a/u2", 3, [])})}))
    state, difference = advanced(state, _page(1, 2, 4))

    assert state.tables["holders"].slots == {"u2": 2, "u0": 3, "u1": 4}
    assert difference is not None
    changes = difference.tables["holders"]
    assert (changes.remove, changes.add.slots, changes.set) == ([], [3, 4], [(1, [2], [4])])


def test_a_mapping_that_goes_on_changing_after_it_was_shown_hides_nothing() -> None:
    rows: dict[str, tuple[Cell, ...]] = {"u0": ("job/a/u0", 1, [])}
    numbers = {"total": 1}
    page = Page({"gpus": numbers}, {"holders": Table(_COLUMNS, rows)})
    topic, browser = _topic(page), Browser()
    browser.hear(topic.after(None))

    rows["u0"], numbers["total"] = ("job/a/u0", 5, []), 5

    assert topic.show(page, Nanos(0), Nanos(0))
    browser.hear(topic.after(read_position(browser.position)))
    assert browser.shown() == meant(page)
    assert browser.snapshots == 1


def test_the_documents_have_exactly_the_fields_of_the_contract() -> None:
    topic = Topic("now", "e1", _page(1), Nanos(1_795_455_000_123_000_000))
    snapshot = json.loads(topic.snapshot())
    topic.show(_page(2, 3), Nanos(2 * SECOND), Nanos(0))
    frame = topic.after(read_position("e1.0")).decode()

    assert snapshot == {
        "page": "now",
        "epoch": "e1",
        "sequence": 0,
        "now": 1_795_455_000.123,
        "values": {"total": 1},
        "tables": {
            "holders": {
                "columns": [["unit", "unit"], ["gpus", "number"], ["why", "list"]],
                "slots": [0],
                "data": [["job/a/u0"], [1], [[]]],
            }
        },
    }
    assert frame.split("\n")[:2] == ["id: e1.1", "event: difference"]
    assert json.loads(frame.split("data: ")[1]) == {
        "sequence": 1,
        "now": 2.0,
        "values": {"total": 5},
        "gone": [],
        "tables": {
            "holders": {
                "remove": [],
                "add": {"slots": [1], "data": [["job/a/u1"], [3], [[]]]},
                "set": [[1, [0], [2]]],
            }
        },
    }


@pytest.mark.parametrize(
    "told", ["", "e1", "e0.3", "e1.99", "e1.-1", "e1.٣", "e1.", ".3", "e1." + "9" * 30]
)
def test_a_position_that_is_none_of_this_topic_gets_a_snapshot(told: str) -> None:
    topic = _topic(_page(1))
    for count in range(2, 6):
        topic.show(_page(count), Nanos(0), Nanos(0))

    assert b"event: snapshot" in topic.after(read_position(told))


def test_what_is_older_than_five_minutes_is_told_as_a_snapshot() -> None:
    def asked(age: int) -> bytes:
        topic = _topic(_page(*range(50)))
        topic.show(_page(*range(1, 51)), Nanos(0), Nanos(0))
        topic.show(_page(*range(2, 52)), Nanos(0), Nanos(age))
        return topic.after(read_position("e1.0")).split(b"\n")[1]

    assert asked(RING_AGE) == b"event: difference"
    assert asked(RING_AGE + 1) == b"event: snapshot"


def test_a_slow_reader_gets_the_page_once_its_differences_are_longer_than_that() -> None:
    topic = _topic(_page(1))
    for count in range(2, 100):
        topic.show(_page(count), Nanos(0), Nanos(0))

    late = topic.after(read_position("e1.0"))
    assert late.count(b"event: ") == 1
    assert b"event: snapshot" in late
    assert topic.after(read_position("e1.97")).count(b"event: difference") == 1
    assert topic.after(read_position("e1.98")) == b""


def test_the_differences_that_are_kept_have_a_bound_in_bytes() -> None:
    topic = _topic(_page(*range(100)), ring_bytes=1_000)
    for turn in range(1, 200):
        topic.show(_page(*range(turn, turn + 100)), Nanos(0), Nanos(0))

    assert sum(len(event.frame) for event in topic._ring) <= 1_000


def test_two_hundred_resumes_at_random_numbers_show_the_servers_page() -> None:
    """Of connections that broke and of servers that were started anew, which have another epoch."""
    random = Random(18)
    outcomes = {"differences": 0, "nothing": 0, "snapshot": 0, "restarted": 0}
    epochs = itertools.count()

    def changed() -> Page:
        rows: dict[str, tuple[Cell, ...]] = {
            f"u{at}": (f"job/a/u{at}", random.randint(0, 4), ["x"] * random.randint(0, 1))
            for at in random.sample(range(40), random.randint(20, 30))
        }
        return Page({"total": random.randint(0, 3)}, {"holders": Table(_COLUMNS, rows)})

    for _ in range(200):
        page = changed()
        topic = Topic("now", f"e{next(epochs)}", page, Nanos(0))
        browser = Browser()
        browser.hear(topic.after(None))
        told, most, now = random.randint(0, 3), random.randint(0, 4), 0
        for turn in range(told + most):
            page = changed()
            now += random.choice((1, 1, 1, 200)) * SECOND
            topic.show(page, Nanos(0), Nanos(now))
            if turn < told:
                browser.hear(topic.after(read_position(browser.position)))
        before = browser.snapshots
        if random.random() < 0.2:
            topic = Topic("now", f"e{next(epochs)}", page, Nanos(0))
            outcomes["restarted"] += 1
        events = topic.after(read_position(browser.position))
        browser.hear(events)

        assert browser.shown() == meant(page)
        assert browser.position == str(topic.position)
        if not events:
            outcomes["nothing"] += 1
        else:
            outcomes["snapshot" if browser.snapshots > before else "differences"] += 1

    assert min(outcomes.values()) >= 20, outcomes
