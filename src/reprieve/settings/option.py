"""An option of a plane: one row states its key, its type, its default, and who else reads it.

What follows from a row, so that an option is declared once:

- the keys that a section of the `--config` file accepts, and the reader of its value (`read`);
- what a candidate of `reprieve shadow` replaces in recorded inputs (`recorded`), or why it changes
  nothing there (`unrecorded`);
- what a policy of a study refuses (`replayed`);
- the table in `docs/`, the chart's values with their comments, and the chart's schema, which
  `python -m tests.docs.generated` writes.

An option of the form `OWN` has a reader of its own; its row has all the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final

from kubeworld.units.durations import parse_duration
from reprieve.settings.fields import boolean, choice, duration, integer, refuse, text

__all__ = [
    "NOT_WHICH",
    "NO_DECISION",
    "Form",
    "Option",
    "keys",
    "not_replayed",
    "read",
    "recorded_fields",
]

NO_DECISION: Final = "it changes no decision"
NOT_WHICH: Final = "it states when victims are evicted, not which"


class Form(Enum):
    """Which values an option accepts."""

    SWITCH = auto()  # true or false
    DURATION = auto()  # a Go duration; read as nanoseconds
    NUMBER = auto()  # an integer within bounds
    WORD = auto()  # one of `words`
    NAME = auto()  # text, empty for none
    OWN = auto()  # read elsewhere


@dataclass(frozen=True, slots=True)
class Option:
    """A key of a section.

    `default` is as people write it, and `""` for one that is off as long as it is not set.
    `meaning` is Markdown, one sentence. `field`: the name under which `read` returns the value.
    `least` and `most`: bounds of a number; `shortest` and `longest`: of a duration. `recorded`:
    fields of the recorded policy that a candidate replaces with this key.
    """

    key: str
    form: Form
    default: bool | int | str
    meaning: str
    field: str = ""
    words: tuple[str, ...] = ()
    least: int = 0
    most: int = 0
    shortest: str = "0s"
    longest: str = ""
    recorded: tuple[str, ...] = ()
    unrecorded: str = NO_DECISION
    replayed: bool = True

    def value(self, given: object, place: str) -> Any:
        """Return what was given, or the default, in the engine's form.

        Raises:
            UsageError: what is wrong, where, and what is accepted.
        """
        said = self.default if given is None else given
        where = f"{place}.{self.key}"
        if self.form is Form.SWITCH:
            return boolean(said, where)
        if self.form is Form.NUMBER:
            return integer(said, where, self.least, self.most)
        if self.form is Form.WORD:
            return choice(said, where, self.words)
        if self.form is Form.NAME:
            return text(said, where) if said else ""
        found = duration(said, where)
        if found < parse_duration(self.shortest):
            refuse(where, said, "a duration above zero")
        if self.longest and found > parse_duration(self.longest):
            refuse(where, said, f"durations from {self.shortest} to {self.longest}")
        return found


def keys(options: Iterable[Option]) -> tuple[str, ...]:
    """Return the keys that a section accepts."""
    return tuple(option.key for option in options)


def read(options: Sequence[Option], section: Mapping[str, Any], place: str) -> dict[str, Any]:
    """Return the values of all options that have no reader of their own, by field.

    Raises:
        UsageError: what is wrong, where, and what is accepted.
    """
    return {
        option.field: option.value(section.get(option.key), place)
        for option in options
        if option.form is not Form.OWN
    }


def not_replayed(options: Iterable[Option]) -> tuple[str, ...]:
    """Return the keys that change nothing in a replay of a trace."""
    return tuple(option.key for option in options if not option.replayed)


def recorded_fields(options: Iterable[Option]) -> dict[str, tuple[str, ...]]:
    """Return by key which fields of a recorded policy a candidate replaces with it."""
    return {option.key: option.recorded for option in options if option.recorded}
