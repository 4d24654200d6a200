"""Lines that are written beside the work: a bounded queue, a thread, and where the lines are sent.

The caller that adds a line never waits. A line that finds the queue full, or that cannot be
written, is lost and counted, and the file itself states how many are missing. The thread is a
daemon, so that a reader who stopped reading standard output keeps no process from ending.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

__all__ = ["LineWriter", "RotatedFile", "StandardOutput"]

log: Final = logging.getLogger("reprieve")

_STANDARD_OUTPUT: Final = 1
_MODE: Final = 0o640  # it names work of all tenants
_MOST_WAITING: Final = 16 * 1024 * 1024
_LARGEST: Final = 64 * 1024 * 1024
_KEPT: Final = 3
_TOGETHER: Final = 0.1  # seconds


class LineWriter:
    """A queue of lines and the thread that writes them.

    Args:
        write: writes whole lines; it raises OSError where it cannot, and is called again later.
        missing: the line that states how many are missing before it.
        lost: called for each loss: how many lines, and `full` (the queue was) or `unwritten`.
        most: bytes that wait at most.
    """

    def __init__(
        self,
        write: Callable[[bytes], None],
        missing: Callable[[int], bytes],
        lost: Callable[[int, str], None],
        most: int = _MOST_WAITING,
    ) -> None:
        self._write = write
        self._missing = missing
        self._lost = lost
        self._most = most
        self._changed = threading.Condition()
        self._lines: list[bytes] = []
        self._size = 0
        self._dropped = 0
        self._closing = False
        self._failed = False
        self._thread = threading.Thread(target=self._work, name="line-writer", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def write(self, line: bytes) -> None:
        """Have a line written, with its end; or count it where too much waits already."""
        with self._changed:
            full = self._size + len(line) > self._most
            if full:
                self._dropped += 1
            else:
                self._lines.append(line)
                self._size += len(line)
                if len(self._lines) == 1:
                    self._changed.notify()
        if full:
            self._lost(1, "full")

    def close(self, seconds: float) -> None:
        """Write what waits, and end; after `seconds` it is left unwritten."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(seconds)

    def _work(self) -> None:
        closing = False
        while not closing:
            with self._changed:
                self._changed.wait_for(lambda: self._lines or self._closing)
                if not self._closing:
                    # Those of a moment are written together: each write costs a turn of a thread.
                    self._changed.wait(_TOGETHER)
                closing = self._closing
                lines, self._lines, self._size = self._lines, [], 0
                dropped, self._dropped = self._dropped, 0
            if lines or dropped:
                self._try(lines, dropped)

    def _try(self, lines: list[bytes], dropped: int) -> None:
        text = b"".join(lines) + (self._missing(dropped) if dropped else b"")
        try:
            self._write(text)
        except OSError as error:
            with self._changed:
                self._dropped += dropped + len(lines)
            self._lost(len(lines), "unwritten")
            if not self._failed:
                self._failed = True
                log.warning(
                    "the decision log cannot be written: %s; each line is retried once, lost "
                    "lines are counted",
                    error,
                )


class RotatedFile:
    """A file that is renamed to `NAME.1` before it would grow larger than `largest` bytes.

    Of those before it `kept` stay, `NAME.1` the newest. What is there is appended to. A write is
    there as a whole or not at all.

    Raises:
        OSError: it cannot be opened for writing, or is no regular file.
    """

    def __init__(self, path: Path, largest: int = _LARGEST, kept: int = _KEPT) -> None:
        self._path = path
        self._largest = largest
        self._kept = kept
        self._file: int | None = None
        self._size = 0
        self._open()

    def write(self, text: bytes) -> None:
        """Append whole lines.

        Raises:
            OSError: they cannot be written, and none of them is there.
        """
        if self._size and self._size + len(text) > self._largest:
            self._rotate()
        file = self._open() if self._file is None else self._file
        try:
            _write_all(file, text)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(file, self._size)
            raise
        self._size += len(text)

    def close(self) -> None:
        """Close the file; the next write opens it again."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _open(self) -> int:
        # Without a reader a pipe would be waited for, were it not for O_NONBLOCK.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK
        file = os.open(self._path, flags, _MODE)
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            os.close(file)
            raise OSError("it is not a regular file")
        self._file, self._size = file, found.st_size
        return file

    def _rotate(self) -> None:
        self.close()
        for number in range(self._kept, 0, -1):
            older = self._numbered(number)
            newer = self._numbered(number - 1) if number > 1 else self._path
            with contextlib.suppress(FileNotFoundError):
                newer.replace(older)

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")


class StandardOutput:
    """Standard output, past Python's own buffer, whose lock a thread must not hold at the end.

    Raises:
        OSError: it is closed.
    """

    def __init__(self) -> None:
        os.fstat(_STANDARD_OUTPUT)
        self._torn = False

    def write(self, text: bytes) -> None:
        """Write whole lines, on a new line where the write before was cut off.

        Raises:
            OSError: not all of it could be written.
        """
        begun = b"\n" if self._torn else b""
        self._torn = True
        _write_all(_STANDARD_OUTPUT, begun + text)
        self._torn = False


def _write_all(file: int, text: bytes) -> None:
    left = memoryview(text)
    while left:
        left = left[os.write(file, left) :]
