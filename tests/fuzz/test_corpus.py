"""What fuzzing has found, and what an audit found, is read by every reader of tenants' text."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.targets import TARGETS

CORPUS = Path(__file__).parent / "corpus"
LONG = {
    "digits": b"1" * 5_000,
    "digits and a letter": b"1" * 250_000 + b"x",
    "exponent": b"1e" + b"9" * 5_000,
    "exponent of a small unit": b"1e999999999n",
    "points": b"1." * 100_000,
    "units": b"1s" * 100_000,
    "brackets": b"[" * 100_000,
    "objects": b'{"a":' * 20_000,
    "nested list": b'{"items":[' + b"[" * 5_000 + b"]" * 5_000 + b"]}",
    "digits in a list": b"[" + b"1" * 5_000 + b"]",
    "strings": b'["\\' + b'"' * 100_000,
    "separators": b"\x1f" * 5_000,
    "ranges": b"0-99999999999,1-2147483647,7,x-,-",
    "name": b"a-." * 80_000,
    "words": b"insufficient quota for a in flavor b, previously considered podsets requests ("
    * 400,
    "groups": b'device.attributes["a"].b.matches("' + b"(.|.)" * 36 + b'!")',
    "unicode": "٣²ä\N{SNOWMAN}\u202e".encode() * 1_000,
    "bytes": bytes(range(256)) * 4,
}
PIECES = st.sampled_from(
    [
        b"1" * 200,
        b"9",
        b"-",
        b".",
        b"e",
        b"Ki",
        b"m",
        b"n",
        b"s",
        b"[",
        b"{",
        b'"',
        b"\\",
        b":",
        b",",
        b"/",
        b"a",
        b"A-",
        b"\x1f",
        b"\x00",
        b"\xff",
        "²".encode(),
        b"true",
        b"null",
        b"T",
        b"2026-03-04T10:00:00Z",
        b"+23:59",
        b"0x",
        b"p",
        b"_",
        b" ",
        b"Always",
        b"Strict",
    ]
)


@pytest.mark.parametrize("name", TARGETS)
def test_the_corpus_is_read(name: str) -> None:
    folder = CORPUS / name
    for data in (*LONG.values(), *(each.read_bytes() for each in sorted(folder.glob("*")))):
        TARGETS[name](data)
        TARGETS[name](b"\x1f".join((data, b"5", b"", data)))


@pytest.mark.parametrize("name", TARGETS)
@settings(max_examples=60, deadline=None)
@given(data=st.lists(PIECES, max_size=120).map(b"".join))
def test_whatever_is_made_of_odd_pieces_is_read(name: str, data: bytes) -> None:
    TARGETS[name](data)
