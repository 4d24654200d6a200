"""What is in a trace file, plain or compressed: its lines or its JSON, and the numbers in them.

A file that cannot be read at all is an error; a line that cannot is counted by its reader. Whether
a file is compressed is decided by its first bytes, whatever its name.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from kubeworld.units.durations import HOUR, SECOND
from kubeworld.units.untrusted import Unreadable, read_float, read_integer, shown
from reprieve.units.errors import UsageError

__all__ = ["MOST_DEVICES", "devices", "is_text", "json_of", "numbered_lines", "seconds"]

MOST_DEVICES: Final = 1_000_000
_GZIP: Final = b"\x1f\x8b"
_LONGEST: Final = 100 * 365 * 24 * HOUR


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a text file without their ends, counted from 1.

    Bytes that are no UTF-8 come as halves of surrogate pairs (`is_text`), so that they cost their
    line alone, unless it is the first one: then the file is no text.

    Raises:
        UsageError: it is not there, is no text in UTF-8, or is damaged.
    """
    try:
        opened = gzip.open if _is_compressed(path) else open
        with opened(path, "rt", encoding="utf-8", errors="surrogateescape") as lines:
            for number, line in enumerate(lines, 1):
                if number == 1:
                    line.encode()
                yield number, line.rstrip("\r\n")
    except (OSError, EOFError, UnicodeError, zlib.error) as error:
        why = "it does not begin with UTF-8" if isinstance(error, UnicodeError) else _why(error)
        raise UsageError(f"{path}: {why}; accepted: a text file in UTF-8, plain or .gz") from None


def _why(error: Exception) -> str:
    """Return why a file cannot be opened or unpacked, in the words of who has to mend it."""
    if isinstance(error, EOFError):
        return "it ends in the midst of what is packed, as a download that was cut off"
    if isinstance(error, gzip.BadGzipFile | zlib.error):
        return "it begins as gzip does, and is none or damaged"
    said = error.strerror if isinstance(error, OSError) else None
    return said or str(error)


def is_text(line: str) -> bool:
    """Return whether a text can be written: halves of surrogate pairs cannot."""
    if line.isascii():
        return True
    try:
        line.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_compressed(path: Path) -> bool:
    with path.open("rb") as content:
        return content.read(2) == _GZIP


def json_of(path: Path, accepted: str) -> Any:
    """Return what a JSON file holds.

    Raises:
        UsageError: it is not there, is no JSON, or is damaged.
    """
    try:
        content = path.read_bytes()
        return json.loads(gzip.decompress(content) if content[:2] == _GZIP else content)
    except json.JSONDecodeError as error:
        what = "it is empty" if not error.doc.strip() else "no JSON from here on"
        place = f"{path}:{error.lineno}:{error.colno}"
        raise UsageError(f"{place}: {what}; accepted: {accepted}") from None
    except UnicodeError:
        raise UsageError(f"{path}: bytes that are no UTF-8; accepted: {accepted}") from None
    except RecursionError:
        raise UsageError(f"{path}: it is nested too deeply; accepted: {accepted}") from None
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise UsageError(f"{path}: {_why(error)}; accepted: {accepted}") from None


def seconds(text: str, what: str) -> int:
    """Return the nanoseconds of a decimal number of seconds that is not negative.

    Raises:
        Unreadable: it is none.
    """
    found = read_float(text)
    if not 0 <= found <= _LONGEST / SECOND:
        raise Unreadable(f"{what} {shown(text)}; accepted: seconds from 0 to 100 years")
    return round(found * SECOND)


def devices(text: str) -> int:
    """Return how many devices a text states; 0 is one too few.

    Raises:
        Unreadable: no whole number, or none from 1 to a million.
    """
    return read_integer(text, 1, MOST_DEVICES)
