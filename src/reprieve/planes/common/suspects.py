"""Work about which deciding ended a whole process: the next leader leaves it alone at first.

C code that keeps the interpreter's lock can be stopped only by the end of the process, and the next
leader would meet the same work again. So the lease keeper writes into an annotation of the process
lease what was being decided when it ends a silent operator, and an operator that begins anew, since
it has decisions that do not end, has these written there. The next leader sets this work aside from
its start: for ten minutes, twice as long after each time in a row, at most a day.

The end of a pause is wall time of another machine, so that a pause is never longer than its count
allows. No work is listed for good: work that was not suspected for a day is forgotten. Source: the
design's "Processes and time".
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kubeworld.units.clock import Clock
from kubeworld.units.durations import HOUR, MINUTE, SECOND
from kubeworld.units.instants import Nanos
from kubeworld.units.untrusted import Unreadable, read_json
from reprieve.engine.plan import Plane
from reprieve.units.errors import ReprieveError

__all__ = [
    "ANNOTATION",
    "Accused",
    "Ended",
    "Suspect",
    "Suspects",
    "accused_again",
    "key_of",
    "read_suspects",
    "written",
]

ANNOTATION: Final = "reprieve.dev/ended-deciding"
_MOST_CHARACTERS: Final = 900
_DIGEST: Final = 16  # characters of it
_MOST: Final = 16
_FIRST_PAUSE: Final = 10 * MINUTE
_LONGEST_PAUSE: Final = 24 * HOUR
_REMEMBERED: Final = 24 * HOUR


class Ended(ReprieveError):
    """A process was ended while it decided about this work, which waits for so many seconds."""

    def __init__(self, what: str, pause: int) -> None:
        super().__init__(
            f"deciding about {what} did not end, and the process that did so had to be ended; it "
            f"is tried again after {pause} s"
        )
        self.what = what
        self.pause = pause


@dataclass(frozen=True, slots=True)
class Accused:
    """What a plane was at: a group's or Workload's namespace/name, a pod's uid."""

    plane: Plane
    what: str


@dataclass(frozen=True, slots=True)
class Suspect:
    """Work that ended processes so many times in a row; it waits until an instant of wall time."""

    plane: Plane
    what: str
    count: int
    until: Nanos


def pause_after(count: int) -> int:
    """Return how long work waits after so many times in a row, in nanoseconds."""
    return min(_FIRST_PAUSE << min(count - 1, 10), _LONGEST_PAUSE)


def key_of(what: str) -> str:
    """Return what work is known by from one process to the next: ASCII, 900 characters at most."""
    if what.isascii() and len(what) <= _MOST_CHARACTERS:
        return what
    text = what.encode("ascii", "backslashreplace").decode("ascii")
    if len(text) <= _MOST_CHARACTERS:
        return text
    # Two that begin alike are not one.
    digest = hashlib.sha256(text.encode("ascii")).hexdigest()[:_DIGEST]
    return f"{text[: _MOST_CHARACTERS - _DIGEST]}{digest}"


def accused_again(
    before: Sequence[Suspect], accused: Iterable[Accused], now: Nanos
) -> tuple[Suspect, ...]:
    """Return the suspects once these are accused as well; the latest come last."""
    known = {(each.plane, each.what): each for each in before if each.until + _REMEMBERED > now}
    for each in accused:
        what = key_of(each.what)
        earlier = known.pop((each.plane, what), None)
        count = 1 + (earlier.count if earlier is not None else 0)
        until = Nanos(now + pause_after(count))
        known[each.plane, what] = Suspect(each.plane, what, count, until)
    return tuple(known.values())[-_MOST:]


def written(suspects: Sequence[Suspect]) -> str:
    """Return the annotation that states so."""
    return json.dumps(
        [
            {"plane": each.plane.value, "what": each.what, "count": each.count, "until": each.until}
            for each in suspects
        ]
    )


def read_suspects(text: str | None) -> tuple[Suspect, ...]:
    """Return what the annotation states; nothing where it cannot be read."""
    try:
        said = read_json(text or "[]")
    except Unreadable:
        return ()
    found = map(_suspect, said[-_MOST:] if isinstance(said, list) else ())
    return tuple(each for each in found if each is not None)


def _suspect(said: Any) -> Suspect | None:
    match said:
        case {"plane": str(plane), "what": str(what), "count": int(count), "until": int(until)}:
            if plane in tuple(Plane) and count > 0:
                return Suspect(Plane(plane), what, count, Nanos(until))
    return None


class Suspects:
    """Who of them waits, in a process that leads.

    `count` is called with the plane of each whose work has come and waits.
    """

    def __init__(self, clock: Clock, count: Callable[[Plane], None] = lambda plane: None) -> None:
        self._clock = clock
        self._count = count
        self._until: dict[tuple[Plane, str], int] = {}  # monotonic
        self._reported: set[tuple[Plane, str]] = set()

    def delay(self, suspects: Iterable[Suspect]) -> None:
        """Delay these from now on."""
        wall, now = self._clock.wall(), self._clock.monotonic()
        for each in suspects:
            left = min(each.until - wall, pause_after(each.count))
            if left > 0:
                self._until[each.plane, key_of(each.what)] = now + left

    def until(self, plane: Plane, what: str) -> Nanos | None:
        """Return until when work waits, in monotonic time; None when it does not."""
        if not self._until:
            return None
        key = plane, key_of(what)
        until = self._until.get(key)
        if until is None:
            return None
        if until <= self._clock.monotonic():
            del self._until[key]
            return None
        if key not in self._reported:
            self._reported.add(key)
            self._count(plane)
        return Nanos(until)

    def pop_delay(self, plane: Plane, what: str) -> Nanos | None:
        """Return until when work waits, for one who keeps that in mind: it is forgotten here."""
        until = self.until(plane, what)
        if until is not None:
            del self._until[plane, key_of(what)]
        return until

    def refuse(self, plane: Plane, what: str) -> None:
        """Return when work may be decided about.

        Raises:
            Ended: it waits.
        """
        until = self.until(plane, what)
        if until is not None:
            raise Ended(what, (until - self._clock.monotonic()) // SECOND + 1)
