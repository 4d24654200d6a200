"""The one reader of untrusted text: annotations, labels, variables, quantities, names of tenants.

Any user who may create a pod in one namespace writes such text, of up to the 256 KiB that the API
allows for annotations, and a custom resource's strings may be longer. So that no text can stop,
slow or fool the process that reads it:

1. The length is bounded before anything else looks at the text.
2. A `Form` never gives back what a repetition matched (all its repetitions are possessive, it has
   no look-around and no back reference), so that matching is linear in the length of the text.
3. What fails raises `Unreadable`: a message of at most `TOLD` characters with the value cut.

The values that are accepted are those of Go's `strconv` and `encoding/json`, which the compatible
systems read with. A test reads the sources: elsewhere text becomes numbers, matches and structures
only where it is not a tenant's.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final

__all__ = [
    "INT32",
    "INT64",
    "LONGEST_JSON",
    "LONGEST_NAME",
    "LONGEST_VALUE",
    "TOLD",
    "Form",
    "Unreadable",
    "bounded",
    "cut",
    "integer_or_none",
    "read_float",
    "read_integer",
    "read_json",
    "shown",
]

TOLD: Final = 200  # characters of what is stated about a text that cannot be read
LONGEST_VALUE: Final = 128  # characters of a number, a quantity, a duration, an instant
LONGEST_NAME: Final = 253  # characters of an object's name
LONGEST_JSON: Final = 64 * 1024  # characters of JSON in an annotation
_DEEPEST: Final = 32  # brackets of JSON that are open at once
_SHOWN: Final = 40  # characters of a value that are shown of it

INT32: Final = (-(2**31), 2**31 - 1)
INT64: Final = (-(2**63), 2**63 - 1)


class Unreadable(ValueError):
    """A text cannot be read. The message has at most `TOLD` characters, whatever the text."""

    def __init__(self, message: str) -> None:
        super().__init__(cut(message))


class Form:
    """A pattern for texts of at most `longest` characters, matched in linear time.

    Repetitions are possessive: `[0-9]++`, `(?:...)*+`, `x?+`. ASCII only: `[0-9]` is meant.
    """

    __slots__ = ("_pattern", "longest")

    def __init__(self, pattern: str, longest: int = LONGEST_VALUE) -> None:
        self._pattern = re.compile(pattern, re.ASCII)
        self.longest = longest

    @property
    def pattern(self) -> str:
        """The pattern as it is written."""
        return self._pattern.pattern

    def fullmatch(self, text: str) -> re.Match[str] | None:
        """Match the whole text; one that is too long matches nothing."""
        return self._pattern.fullmatch(text) if len(text) <= self.longest else None

    def match(self, text: str, position: int = 0) -> re.Match[str] | None:
        """Match from `position` on; a text that is too long matches nothing."""
        return self._pattern.match(text, position) if len(text) <= self.longest else None

    def without(self, text: str) -> str:
        """Return the text without what matches; one that is too long is returned as it is."""
        return self._pattern.sub("", text) if len(text) <= self.longest else text


def cut(text: str, most: int = TOLD) -> str:
    """Return the text, cut with `...` where it has more than `most` characters."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def shown(value: object) -> str:
    """Return a value as it is shown in a message: quoted, and cut where it is long."""
    text = value if isinstance(value, str) else str(value)
    quoted = repr(text[: _SHOWN + 1])
    if len(text) <= _SHOWN and len(quoted) <= 2 * _SHOWN:
        return quoted
    return f"{cut(quoted, _SHOWN)}' ({len(text)} characters)"


def bounded(text: str, longest: int = LONGEST_VALUE) -> str:
    """Return the text.

    Raises:
        Unreadable: it has more than `longest` characters.
    """
    if len(text) > longest:
        raise Unreadable(f"{shown(text)} is too long; accepted: at most {longest} characters")
    return text


_PLAIN: Final = 20  # digits; a number of 64 bits has no more
_INTEGER: Final = Form(r"[+-]?+[0-9]++")


def read_integer(text: str, least: int = INT32[0], most: int = INT32[1]) -> int:
    """Return what Go's `strconv.ParseInt` reads in base 10.

    Raises:
        Unreadable: not digits with an optional sign, or not from `least` to `most`.
    """
    # Nearly all texts have a plain form: this is called for every version of every object.
    plain = text.isdigit() and text.isascii() and len(text) <= LONGEST_VALUE
    number = int(text) if plain or _INTEGER.fullmatch(text) else None
    if number is None or not least <= number <= most:
        raise Unreadable(
            f"{shown(text)} is not a whole number; accepted: digits, from {least} to {most}"
        )
    return number


def integer_or_none(text: str | None, least: int = INT32[0], most: int = INT32[1]) -> int | None:
    """Return what `read_integer` reads, None where that is nothing."""
    if text is None:
        return None
    # Plain ones are read here: this is called for every version of every object.
    if text.isdigit() and text.isascii() and len(text) <= _PLAIN:
        number = int(text)
        return number if least <= number <= most else None
    try:
        return read_integer(text, least, most)
    except Unreadable:
        return None


# Infinities and NaN are left out; the group is a hexadecimal float.
_DIGITS: Final = r"[0-9]++(?:_[0-9]++)*+"
_HEX: Final = r"[0-9a-fA-F]++(?:_[0-9a-fA-F]++)*+"
_FLOAT: Final = Form(
    rf"[+-]?+(?:(0[xX](?:_?+{_HEX}\.?+(?:{_HEX})?+|\.{_HEX})[pP][+-]?+{_DIGITS})"
    rf"|(?:{_DIGITS}\.?+(?:{_DIGITS})?+|\.{_DIGITS})(?:[eE][+-]?+{_DIGITS})?+)"
)


def read_float(text: str) -> float:
    """Return what Go's `strconv.ParseFloat` reads, without infinities and NaN.

    Raises:
        Unreadable: no finite number.
    """
    form = _FLOAT.fullmatch(text)
    if form is not None:
        digits = text.replace("_", "")
        try:
            number = float.fromhex(digits) if form.group(1) else float(digits)
        except OverflowError:
            number = math.inf
        if math.isfinite(number):
            return number
    raise Unreadable(f"{shown(text)} is not a number; accepted: such as 5, 10.5 or 1e3")


_TOKEN: Final = re.compile(r'"(?:[^"\\]++|\\.)*+"?+|[\[{]|[\]}]', re.DOTALL)


def read_json(text: str, longest: int = LONGEST_JSON) -> Any:
    """Return the value of a JSON text, all of which JSON can write again.

    Raises:
        Unreadable: not JSON, longer than `longest` characters, or with more than 32 brackets open
            at once.
    """
    bounded(text, longest)
    if text.count("[") + text.count("{") > _DEEPEST and _depth(text) > _DEEPEST:
        raise Unreadable(f"{shown(text)} is nested too deeply; accepted: {_DEEPEST} levels of JSON")
    try:
        value = json.loads(
            text, parse_int=_json_integer, parse_float=_json_number, parse_constant=_json_number
        )
        json.dumps(value, ensure_ascii=False).encode()  # half of a surrogate pair is no text
    except (ValueError, RecursionError) as error:
        why = error.msg if isinstance(error, json.JSONDecodeError) else "a value is none of JSON's"
        raise Unreadable(f"{shown(text)} is not JSON: {why}") from None
    return value


def _json_integer(text: str) -> int | float:
    """Return a number as `encoding/json` has it: what is no int64 is a float."""
    number = int(text) if len(text) <= len(str(INT64[0])) else math.inf
    return number if INT64[0] <= number <= INT64[1] else _json_number(text)


def _json_number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError
    return number


def _depth(text: str) -> int:
    open_, deepest = 0, 0
    for token in _TOKEN.finditer(text):
        first = token.group()[0]
        if first in "[{":
            open_ += 1
            deepest = max(deepest, open_)
        elif first in "]}":
            open_ -= 1
    return deepest
