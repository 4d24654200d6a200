"""What is wrong with an object that was sent: fields and texts in the real server's wording.

Reasons and texts are those of the API machinery's field errors; a `Cause` becomes one entry of a
Status object's `details.causes`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = [
    "Cause",
    "Invalid",
    "StrictDecoding",
    "bad",
    "duplicate",
    "forbidden",
    "named",
    "required",
    "too_long",
    "too_many",
    "unsupported",
]


@dataclass(frozen=True, slots=True)
class Cause:
    """One wrong field: `reason` as in `FieldValueInvalid`, the path and the text after it."""

    reason: str
    message: str
    field: str


class Invalid(Exception):
    """The object decodes but is not acceptable: HTTP 422 with these causes."""

    def __init__(self, causes: Sequence[Cause]) -> None:
        self.causes = tuple(causes)
        super().__init__("; ".join(f"{cause.field}: {cause.message}" for cause in causes))


class StrictDecoding(Exception):
    """The body does not decode into its kind: HTTP 400.

    `messages`: one text for each unknown field, or the one text that names a wrong type;
    `message`: the whole sentence that the Status object carries.
    """

    def __init__(self, kind: str, version: str, messages: Sequence[str], *, strict: bool) -> None:
        self.messages = list(messages)
        text = ", ".join(messages)
        if strict:
            text = f"strict decoding error: {text}"
        self.message = f'{kind} in version "{version}" cannot be handled as a {kind}: {text}'
        super().__init__(self.message)


def required(field: str, detail: str = "") -> Cause:
    """A field that must have a value."""
    return Cause("FieldValueRequired", _detailed("Required value", detail), field)


def bad(field: str, value: Any, detail: str) -> Cause:
    """An `Invalid value` with the value as the server prints it."""
    return Cause("FieldValueInvalid", f"Invalid value: {shown(value)}: {detail}", field)


def unsupported(field: str, value: Any, supported: Iterable[str]) -> Cause:
    """A word that is none of the supported ones, which are named in this order."""
    choices = ", ".join(json.dumps(choice) for choice in supported)
    return Cause(
        "FieldValueNotSupported",
        f"Unsupported value: {shown(value)}: supported values: {choices}",
        field,
    )


def duplicate(field: str, value: Any) -> Cause:
    """A value that stands there twice."""
    return Cause("FieldValueDuplicate", f"Duplicate value: {shown(value)}", field)


def forbidden(field: str, detail: str) -> Cause:
    """A value or a change that is not allowed here."""
    return Cause("FieldValueForbidden", _detailed("Forbidden", detail), field)


def named(name: Any, field: str, problem_of: Callable[[str], str | None]) -> Iterator[Cause]:
    """A name that must be there and be none in which `problem_of` finds a fault."""
    if not name:
        yield required(field)
    elif (problem := problem_of(name)) is not None:
        yield bad(field, name, problem)


def too_long(field: str, maximum: int) -> Cause:
    """A text of more than `maximum` bytes."""
    return Cause("FieldValueTooLong", f"Too long: may not be more than {maximum} bytes", field)


def too_many(field: str, count: int, maximum: int) -> Cause:
    """A list of `count` items where `maximum` are allowed."""
    items = "item" if maximum == 1 else "items"
    return Cause(
        "FieldValueTooMany", f"Too many: {count}: must have at most {maximum} {items}", field
    )


def shown(value: Any) -> str:
    """Return `value` as field errors print it: JSON, `null` for nothing."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    if isinstance(value, (dict, list)):
        # The server's JSON writer keeps markup characters out of compound values.
        for character in "<>&":
            text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _detailed(text: str, detail: str) -> str:
    return f"{text}: {detail}" if detail else text
