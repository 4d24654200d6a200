"""The reader of untrusted text: what it reads, what it refuses, and how little work that takes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kubeworld.units.durations import InvalidDuration, parse_duration
from kubeworld.units.instants import InvalidInstant, parse_instant
from kubeworld.units.quantities import (
    InvalidQuantity,
    parse_exact,
    parse_milli,
    parse_quantity,
)
from kubeworld.units.untrusted import (
    INT64,
    LONGEST_VALUE,
    TOLD,
    Form,
    Unreadable,
    bounded,
    cut,
    read_float,
    read_integer,
    read_json,
    shown,
)
from reprieve.engine.quota.holdings.shares import fair_weight

READERS: dict[Callable[[str], object], type[Unreadable]] = {
    read_integer: Unreadable,
    read_float: Unreadable,
    read_json: Unreadable,
    fair_weight: Unreadable,
    parse_duration: InvalidDuration,
    parse_instant: InvalidInstant,
    parse_exact: InvalidQuantity,
    parse_milli: InvalidQuantity,
    parse_quantity: InvalidQuantity,
}
PIECES = (
    *("1" * 5_000, "0", "-", "+", ".", "e", "E", "x", "0x", "p", "_", "m", "Ki", "1s", "h", "µs"),
    *("[", "{", '"', "\\", ":", ",", "null", "NaN", "Infinity", "-Infinity", "1e400", "T", "Z"),
    *("2026-03-04T10:00:00", "+23:59", "\x00", "ä", "٣", "²", "\ud800", "\N{SNOWMAN}", " ", "\n"),
)
TEXTS = st.one_of(
    st.text(max_size=300),
    st.lists(st.sampled_from(PIECES), max_size=12).map("".join),
    st.tuples(st.sampled_from(PIECES), st.integers(1, 40_000)).map(lambda two: two[0] * two[1]),
)


@pytest.mark.parametrize("read", READERS, ids=lambda read: read.__name__)
@given(text=TEXTS)
@example("1" * 250_000 + "x")
@example("1" * 5_000)
@example("1e" + "9" * 5_000)
@example("1." * 100_000)
@example("[" * 100_000)
@example('{"a":' * 10_000)
@example("[" + "1" * 5_000 + "]")
@example("0x1p" + "9" * 100)
@example("0001-01-01T00:00:00+23:59")
@example("9999-12-31T23:59:59-23:59")
def test_a_reader_returns_or_says_shortly_why_not(read: Callable[[str], object], text: str) -> None:
    try:
        read(text)
    except READERS[read] as error:
        assert len(str(error)) <= TOLD


@pytest.mark.parametrize(
    ("text", "number"), [("0", 0), ("-5", -5), ("+7", 7), ("0012", 12), ("2147483647", 2**31 - 1)]
)
def test_whole_numbers_are_those_that_go_reads(text: str, number: int) -> None:
    assert read_integer(text) == number


@pytest.mark.parametrize("text", ["", "1_000", " 5", "5 ", "٣", "²", "1.0", "2147483648", "--1"])
def test_what_go_reads_as_no_whole_number_is_none(text: str) -> None:
    with pytest.raises(Unreadable, match="accepted: digits, from -2147483648 to 2147483647"):
        read_integer(text)


def test_a_whole_number_has_the_bounds_that_are_asked_for() -> None:
    assert read_integer("2147483648", *INT64) == 2**31
    with pytest.raises(Unreadable):
        read_integer("0", 1, 9)


def test_json_has_a_greatest_depth_and_brackets_in_texts_count_for_none() -> None:
    assert read_json("[" * 32 + "]" * 32) is not None
    with pytest.raises(Unreadable, match="nested too deeply; accepted: 32 levels"):
        read_json("[" * 33 + "]" * 33)
    assert read_json('["' + "[" * 100 + '", "\\"[[{"]') == ["[" * 100, '"[[{']
    assert read_json("[" + "[],{}," * 200 + "1]")[-1] == 1


def test_the_length_is_bounded_and_the_bound_is_accepted() -> None:
    longest = "1" * LONGEST_VALUE
    assert parse_quantity(longest) == int(longest)
    with pytest.raises(InvalidQuantity):
        parse_quantity(f"{longest}1")
    assert bounded("ab", 2) == "ab"
    with pytest.raises(Unreadable, match="'abc' is too long; accepted: at most 2 characters"):
        bounded("abc", 2)
    assert Form("a++", 3).fullmatch("aaa") is not None
    assert Form("a++", 3).fullmatch("aaaa") is Form("a++", 3).match("aaaa") is None


def test_a_number_that_is_no_quantity_is_refused_as_a_text_is() -> None:
    for number in (10**5_000, -(10**5_000), float("inf"), float("nan")):
        with pytest.raises(InvalidQuantity):
            parse_quantity(number)


def test_a_value_is_shown_quoted_and_cut() -> None:
    assert shown("10%") == "'10%'"
    assert shown(5) == "'5'"
    assert shown("1" * 5_000) == f"'{'1' * 36}...' (5000 characters)"
    assert all(len(shown(c * n)) < 90 for c in ("\x00", "\ud800", "'", "ä") for n in (30, 5_000))
    assert cut("a" * 200) == "a" * 200
    assert cut("a" * 201) == "a" * 197 + "..."
    assert str(Unreadable("a" * 5_000)) == cut("a" * 5_000)


@pytest.mark.parametrize("text", ["NaN", "[-Infinity]", '"\\ud800"', '{"a": "\\udc00"}', "1e999"])
def test_what_json_cannot_say_again_is_no_json(text: str) -> None:
    with pytest.raises(Unreadable, match="is not JSON"):
        read_json(text)
