"""How the values of a column stand in one text: the shortest of a few forms that gives them back.

1. Instants of whole seconds: seconds between each and the one before it, the first since 1970.
2. Random ids in the form of RFC 9562: their hexadecimal digits alone.
3. Values of one width: one after the other.
4. Values without spaces: with a space between them.
5. Others: in a list.

What differs by chance hardly gets smaller when the file is compressed, so that hyphens, separators
and what can be reckoned are left out before.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import accumulate, pairwise
from typing import Final

__all__ = ["Form", "written", "written_form"]


class Form(StrEnum):
    """What the values are."""

    TEXT = "text"
    ID = "id"
    INSTANT = "instant"


_ID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_IDS: Final = re.compile(rf"(?:{_ID.pattern} )++")
_INSTANTS: Final = re.compile(r"(?:[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z )++")
_DIGITS: Final = 32
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND: Final = timedelta(seconds=1)


def written(values: Sequence[str]) -> tuple[str | list[str], Form, int]:
    """Return how the values stand, what they are, and their width where nothing parts them."""
    text = " ".join(values)
    if text.count(" ") != len(values) - 1 or not all(values):
        return list(values), Form.TEXT, 0
    if _IDS.fullmatch(f"{text} "):
        return text.replace("-", "").replace(" ", ""), Form.ID, _DIGITS
    if _INSTANTS.fullmatch(f"{text} "):
        steps = _steps(values)
        if steps is not None:
            return " ".join(map(str, steps)), Form.INSTANT, 0
    width = len(values[0])
    if len(values) > 1 and all(len(each) == width for each in values):
        return "".join(values), Form.TEXT, width
    return text, Form.TEXT, 0


def written_form(values: str | list[str], form: Form, width: int) -> list[str]:
    """Return the values again.

    Raises:
        ValueError: they do not have the form.
    """
    if isinstance(values, list):
        return values
    if width < 0 or (width and len(values) % width):
        raise ValueError(f"{len(values)} characters are no values of {width}")
    parts = values.split(" ") if not width else _parted(values, width)
    if form is Form.ID:
        return [f"{e[:8]}-{e[8:12]}-{e[12:16]}-{e[16:20]}-{e[20:]}" for e in parts]
    if form is Form.INSTANT:
        return [_instant(second) for second in accumulate(map(int, parts))]
    return parts


def _parted(text: str, width: int) -> list[str]:
    return [text[start : start + width] for start in range(0, len(text), width)]


def _steps(values: Sequence[str]) -> list[int] | None:
    """Return the seconds between instants, None where one of them is none."""
    try:
        seconds = [(datetime.fromisoformat(each) - _EPOCH) // _SECOND for each in values]
    except ValueError:
        return None
    return [after - before for before, after in pairwise((0, *seconds))]


def _instant(second: int) -> str:
    try:
        return (_EPOCH + second * _SECOND).strftime("%Y-%m-%dT%H:%M:%SZ")
    except OverflowError:
        raise ValueError(f"{second} s are no instant") from None
