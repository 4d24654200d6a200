"""The decision log, read again: what was stated of a unit up to an instant, and what was sampled.

The rotated files before a log belong to it (`NAME.3` is older than `NAME.1`). A file is read line
by line, and of what is queried only the last words are kept, so that logs of any size are read in
the memory of a few lines. A line that was cut off by the end of a process is skipped and counted,
and so is one of more than 1 MiB, of which no more than that is ever in memory: the input of a
sample has 512 KiB at most. Source: `decision_log` for the form of lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

from kubeworld.units.instants import InvalidInstant, Nanos, parse_instant
from reprieve.units.errors import UsageError

__all__ = ["History", "Line", "history_of", "lines_of_log"]

_MOST_FILES: Final = 100
_LONGEST: Final = 2**20  # bytes of a line, with its end


class Line(msgspec.Struct, frozen=True, gc=False):
    """Any line of the log: of a change of reason, a sample (`input`), or lines that are missing."""

    time: str
    plane: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    reason: str = ""
    previous: str = ""
    sentence: str = ""
    input: dict[str, Any] | None = None
    dropped: int = 0

    @property
    def at(self) -> Nanos:
        """When it was written.

        Raises:
            InvalidInstant: it does not state it.
        """
        return parse_instant(self.time)


@dataclass
class History:
    """What a log states of units at an instant.

    Attributes:
        first: the instant of the log's first line, None where it has none.
        last: that of its last line up to the end of reading.
        standing: the last change of reason of each unit up to the instant, by plane and uid.
        since: when each began to wait without a break, likewise.
        following: the change after it.
        samples: the sample of each unit that is nearest to the instant.
        dropped: lines that are missing up to the instant.
        unreadable: lines that are no lines of a log.
    """

    first: Nanos | None = None
    last: Nanos | None = None
    standing: dict[tuple[str, str], Line] = field(default_factory=dict)
    since: dict[tuple[str, str], Line] = field(default_factory=dict)
    following: dict[tuple[str, str], Line] = field(default_factory=dict)
    samples: dict[tuple[str, str], Line] = field(default_factory=dict)
    dropped: int = 0
    unreadable: int = 0


def history_of(path: Path, instant: Nanos, is_asked: Callable[[Line], bool]) -> History:
    """Return what a log states of the units that are queried.

    Raises:
        UsageError: it cannot be read.
    """
    found = History()
    for line in lines_of_log(path):
        if line is None:
            found.unreadable += 1
            continue
        try:
            at = line.at
        except InvalidInstant:
            found.unreadable += 1
            continue
        found.first = at if found.first is None else found.first
        found.last = at
        if line.dropped:
            found.dropped += line.dropped if at <= instant else 0
        elif is_asked(line):
            _apply(found, line, at, instant)
    return found


def lines_of_log(path: Path) -> Iterator[Line | None]:
    """Yield the lines of a log and of the files before it, the oldest first; None: no such line.

    Raises:
        UsageError: it cannot be read.
    """
    older = (path.with_name(f"{path.name}.{number}") for number in range(_MOST_FILES, 0, -1))
    decode = msgspec.json.Decoder(Line).decode
    try:
        for file in (*(each for each in older if each.exists()), path):
            with file.open("rb") as content:
                for text in _lines(content):
                    try:
                        yield None if text is None else decode(text)
                    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                        yield None
    except OSError as error:
        raise UsageError(
            f"--decision-log: {str(path)!r} cannot be read: {error.strerror}; accepted: a file of "
            "reprieve run --decision-log"
        ) from None


def _lines(content: BinaryIO) -> Iterator[bytes | None]:
    """Yield the lines of a file; None for each that is too long, which is passed over in pieces."""
    while text := content.readline(_LONGEST):
        if len(text) < _LONGEST or text.endswith(b"\n"):
            yield text
            continue
        while (text := content.readline(_LONGEST)) and not text.endswith(b"\n"):
            pass
        yield None


def _apply(found: History, line: Line, at: Nanos, instant: Nanos) -> None:
    key = (line.plane, line.uid or f"{line.kind} {line.namespace}/{line.name}")
    if line.input is not None:
        known = found.samples.get(key)
        if known is None or abs(at - instant) <= abs(known.at - instant):
            found.samples[key] = line
    elif at <= instant:
        if not line.previous:
            found.since[key] = line
        found.standing[key] = line
    else:
        found.following.setdefault(key, line)
