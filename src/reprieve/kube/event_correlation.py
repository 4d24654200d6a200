"""Which of many events become objects: counting, aggregation and the spam filter.

For each event, in this order, as client-go's EventCorrelator does it:

1. Aggregation: from the tenth different message about the same thing (same subject, type and
   reason, each within 600 s of the one before) on, events share one object whose message is that
   of the last one behind `(combined from similar events): `.
2. Counting: an event that equals one written before patches that one: count, last time, message.
3. Spam filter: a subject may have a burst of 25 events, then one every 300 s; more are skipped.

The memory is bounded: what was not touched longest is forgotten, and counts anew. Pure: time comes
in with the event. Source: client-go, tools/record/events_cache.go.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from reprieve.kube.references import Reference
from reprieve.units.durations import SECOND
from reprieve.units.instants import Nanos

__all__ = ["COMBINED", "Correlator", "Happening", "Series"]

COMBINED: Final = "(combined from similar events): "
_SIMILAR_MOST: Final = 10
_SIMILAR_WINDOW: Final = 600 * SECOND
_BURST: Final = 25
_REFILL: Final = 300 * SECOND
_KEPT: Final = 4_096

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Happening:
    """One call of the recorder; `wall` and `monotonic` say when."""

    regarding: Reference
    type: str
    reason: str
    message: str
    annotations: Mapping[str, str]
    wall: Nanos
    monotonic: Nanos


@dataclass(slots=True)
class Series:
    """What happened once or more, and stands in one Event object.

    Attributes:
        name: of the object.
        message: of the last occurrence, possibly with the prefix.
        annotations: of the last occurrence.
        first: wall time of the first occurrence.
        last: wall time of the last one.
        count: occurrences.
        written: whether the object exists as far as is known.
    """

    name: str
    message: str
    annotations: Mapping[str, str]
    first: Nanos
    last: Nanos
    count: int
    written: bool = False


@dataclass(slots=True)
class _Similar:
    last: int
    # The distinct messages of the window, oldest first, at most _SIMILAR_MOST.
    messages: dict[str, None] = field(default_factory=dict)


@dataclass(slots=True)
class _Bucket:
    tokens: float
    filled: int


class _Memory(Generic[T]):
    """A mapping that forgets what was not touched longest."""

    def __init__(self) -> None:
        self._held: OrderedDict[Hashable, T] = OrderedDict()

    def get(self, key: Hashable, default: Callable[[], T]) -> T:
        if key in self._held:
            self._held.move_to_end(key)
            return self._held[key]
        made = self._held[key] = default()
        if len(self._held) > _KEPT:
            self._held.popitem(last=False)
        return made


class Correlator:
    """Remembers what was written and decides what becomes of the next event."""

    def __init__(self) -> None:
        self._similar: _Memory[_Similar] = _Memory()
        self._series: _Memory[Series] = _Memory()
        self._buckets: _Memory[_Bucket] = _Memory()
        self._last_name = 0

    def observe(self, happening: Happening) -> Series | None:
        """Return the series with this occurrence counted in, None where it is spam."""
        message, key = self._aggregate(happening)
        series = self._series.get(key, lambda: self._begin(happening))
        series.count += 1
        series.message = message
        series.annotations = {**series.annotations, **happening.annotations}
        series.last = happening.wall
        return series if self._admit(happening) else None

    def _aggregate(self, happening: Happening) -> tuple[str, Hashable]:
        kind = (happening.regarding, happening.type, happening.reason)
        similar = self._similar.get(kind, lambda: _Similar(happening.monotonic))
        if happening.monotonic - similar.last > _SIMILAR_WINDOW:
            similar.messages.clear()
        similar.messages[happening.message] = None
        similar.last = happening.monotonic
        if len(similar.messages) < _SIMILAR_MOST:
            return happening.message, (*kind, happening.message)
        del similar.messages[next(iter(similar.messages))]
        return COMBINED + happening.message, kind

    def _begin(self, happening: Happening) -> Series:
        # Names come from the time; two events of the same instant need two names all the same.
        self._last_name = max(happening.wall, self._last_name + 1)
        # 253 characters are the limit of a name, 17 of them for the dot and the number.
        stem = happening.regarding.name[:236].rstrip("-.")
        return Series(
            name=f"{stem}.{self._last_name:x}",
            message=happening.message,
            annotations={},
            first=happening.wall,
            last=happening.wall,
            count=0,
        )

    def _admit(self, happening: Happening) -> bool:
        now = happening.monotonic
        bucket = self._buckets.get(happening.regarding, lambda: _Bucket(_BURST, now))
        bucket.tokens = min(_BURST, bucket.tokens + (now - bucket.filled) / _REFILL)
        bucket.filled = now
        if bucket.tokens < 1:
            return False
        bucket.tokens -= 1
        return True
