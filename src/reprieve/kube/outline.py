"""The parts of JSON that is nested too deeply for a decoder that recurses.

The API server stores custom resources with up to 10,000 levels where their schema allows anything,
the decoder stops at some 1,000: a list with one such object could not be read at all. Here a text
is cut into the members of its outermost value, without recursion and in one pass over blocks of
bytes, so that every other object of the list is decoded as ever and the one is named.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

__all__ = ["Part", "part", "parts"]

_BLOCK: Final = 2**20  # bytes looked at together
_QUOTE, _BACKSLASH, _COMMA, _COLON = b'"\\,:'


class Part(NamedTuple):
    """A member of an object, or an item of a list, whose `key` is empty; `text` is its JSON."""

    key: bytes
    text: bytes


def parts(text: bytes) -> Iterator[Part]:
    """Yield the members of the outermost object or list, in order; nothing for other values.

    A text that is no JSON yields parts that are none either.
    """
    key, begin = b"", -1
    for place, mark in _marks(text):
        if begin < 0:
            begin = place + 1
        elif mark == _COLON:
            key, begin = text[begin:place].strip()[1:-1], place + 1
        else:
            found = text[begin:place].strip()
            if found or mark == _COMMA:
                yield Part(key, found)
            if mark != _COMMA:
                return
            key, begin = b"", place + 1


def part(text: bytes, *path: bytes) -> bytes:
    """Return the JSON at a path of keys, empty where there is none."""
    for key in path:
        text = next((each.text for each in parts(text) if each.key == key), b"")
    return text


def _marks(text: bytes) -> Iterator[tuple[int, int]]:
    """Yield where the outermost value begins and ends, with its commas and colons in between."""
    # Numpy has threads, and the process forks after this module was loaded (`lease_keeper`).
    import numpy as np

    backslashes, quotes, depth = 0, 0, 0  # at the end of the block before
    for start in range(0, len(text), _BLOCK):
        block = np.frombuffer(text, np.uint8, min(_BLOCK, len(text) - start), start)
        index = np.arange(len(block))
        # A quote counts if the backslashes right before it are even in number.
        other = np.where(block == _BACKSLASH, -1 - backslashes, index)
        last = np.maximum.accumulate(other)
        run = np.concatenate(([backslashes], index[:-1] - last[:-1]))
        seen = np.cumsum((block == _QUOTE) & (run % 2 == 0)) + quotes
        plain = seen % 2 == 0
        opens = plain & ((block == 0x5B) | (block == 0x7B))
        closes = plain & ((block == 0x5D) | (block == 0x7D))
        level = np.cumsum(opens.astype(np.int64) - closes) + depth
        between = plain & ((block == _COMMA) | (block == _COLON))
        wanted = ((opens | between) & (level == 1)) | (closes & (level == 0))
        for place in np.flatnonzero(wanted).tolist():
            yield start + place, block.item(place)
        backslashes = int(index[-1] - last[-1])
        quotes, depth = int(seen[-1] % 2), int(level[-1])
