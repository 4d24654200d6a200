"""What an operator and the keeper of its lease have in common: memory that both see, and a link.

Over the link one line is sent to the keeper, which lease it is to keep, and at the end whom the
operator accuses; lines return, each a level of `logging` and a text, or `SUSPECTS` and who is one.
When an end of the link closes, the process behind it has ended, or has closed it.
"""

from __future__ import annotations

import mmap
import signal
from dataclasses import dataclass, field
from typing import Final

from kubeworld.units.instants import Nanos
from reprieve.engine.plan import Plane
from reprieve.planes.common.suspects import Accused, key_of

__all__ = ["ANSWERS", "DUMP", "END", "SUSPECTS", "Shared", "WantedLease", "line"]

ANSWERS: Final = 60  # of the event loop in one lease duration
DUMP: Final = signal.SIGUSR1
END: Final = signal.SIGUSR2
SUSPECTS: Final = "suspects"  # begins the line in which the keeper states who is one
_NONE: Final = -1
_SLOT: Final = 1024  # bytes in shared memory


@dataclass(frozen=True, slots=True)
class WantedLease:
    """Which lease is to be kept, for whom, and for how long one who is silent; nanoseconds.

    `annotations`: what it states of its holder.
    """

    namespace: str
    name: str
    identity: str
    duration: int
    longest_silence: int
    annotations: dict[str, str] = field(default_factory=dict)


class Shared:
    """What both processes see: three int64, and for each plane what it is at.

    The numbers are: held until, epoch, the operator's last answer. Each is written by one process
    and in one piece. A plane's slot is the number of the thread that is at work, the length of what
    it is at, and that text. It is read when the operator has been silent for long.
    """

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _SLOT * (1 + len(Plane)))
        self._numbers = memoryview(self._memory).cast("q")
        self._numbers[0] = _NONE
        self._slots = {plane: _SLOT * number for number, plane in enumerate(Plane, 1)}

    @property
    def held_until(self) -> Nanos | None:
        until = self._numbers[0]
        return None if until == _NONE else Nanos(until)

    @property
    def epoch(self) -> int:
        return self._numbers[1]

    @property
    def answered(self) -> int:
        return self._numbers[2]

    def publish(self, held_until: Nanos | None, epoch: int) -> None:
        """State until when the lease is held, the epoch first."""
        self._numbers[1] = epoch
        self._numbers[0] = _NONE if held_until is None else held_until

    def answer(self, now: int) -> None:
        """State that the operator's event loop is there."""
        self._numbers[2] = now

    def note(self, plane: Plane, what: str, thread: int) -> None:
        """State what a thread is at for a plane; nothing for the empty text."""
        start = self._slots[plane]
        text = key_of(what).encode("ascii")
        self._numbers[start // 8 + 1] = 0
        self._memory[start + 16 : start + 16 + len(text)] = text
        self._numbers[start // 8] = thread
        self._numbers[start // 8 + 1] = len(text)

    def noted(self) -> dict[Accused, int]:
        """Return what the planes are at, and the number of the thread that is."""
        found = {}
        for plane, start in self._slots.items():
            thread, length = self._numbers[start // 8 : start // 8 + 2]
            if length:
                text = self._memory[start + 16 : start + 16 + length].decode("ascii")
                found[Accused(plane, text)] = thread
        return found


def line(level: int, text: str) -> bytes:
    """Return what the keeper sends for the operator to log."""
    return f"{level:d} {' '.join(text.split())}".encode()[:1_000] + b"\n"
