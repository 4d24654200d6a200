"""Sums of teams over time: fine for what is near, coarse for what is far.

Samples enter the first tier; five of them become one of the second, and sixty one of the third.
With a sample a minute these reach back three hours, 26 hours and eight days. A point in time is
answered by the finest tier that reaches it. What is kept is bounded by the number of samples and
of teams in each (`MOST_TEAMS`), whatever the cluster does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

import msgspec

from kubeworld.units.instants import Nanos
from reprieve.web.history.model import Sample, merged

__all__ = ["Tiers"]

#: How many samples of the tier before become one, and how many are kept.
_TIERS: Final = ((1, 180), (5, 312), (12, 192))


class _Stored(msgspec.Struct):
    kept: list[list[Sample]]
    pending: list[list[Sample]]


class Tiers:
    """Samples by how fine they are."""

    def __init__(self) -> None:
        self._kept: list[deque[Sample]] = [deque(maxlen=most) for _, most in _TIERS]
        # What is not yet enough for one of the next tier; of the last one always empty.
        self._pending: list[list[Sample]] = [[] for _ in _TIERS]

    @property
    def newest(self) -> Nanos | None:
        """When the last sample was made."""
        return Nanos(self._kept[0][-1].at) if self._kept[0] else None

    def add(self, sample: Sample, tier: int = 0) -> None:
        """Keep a sample."""
        self._kept[tier].append(sample)
        if tier + 1 == len(_TIERS):
            return
        pending = self._pending[tier]
        pending.append(sample)
        if len(pending) == _TIERS[tier + 1][0]:
            self._pending[tier] = []
            self.add(merged(pending), tier + 1)

    def between(self, start: Nanos, end: Nanos) -> Iterator[Sample]:
        """Yield what is kept of a time, the oldest first, each part as fine as it is kept."""
        found: list[Sample] = []
        until = end
        for kept in self._kept:
            inside = [each for each in kept if start < each.at <= until]
            found = [*inside, *found]
            if kept:
                # The oldest sample of a tier covers the time before it as well.
                until = Nanos(min(until, kept[0].at - kept[0].length))
        yield from found

    def encoded(self) -> bytes:
        """Return all of it as bytes."""
        return msgspec.msgpack.encode(_Stored([list(each) for each in self._kept], self._pending))

    @classmethod
    def decoded(cls, content: bytes) -> Tiers:
        """Return what was encoded; nothing where that cannot be read."""
        found = cls()
        try:
            stored = msgspec.msgpack.decode(content, type=_Stored)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return found
        if len(stored.kept) == len(stored.pending) == len(_TIERS):
            for kept, samples in zip(found._kept, stored.kept, strict=True):
                kept.extend(samples)
            found._pending = stored.pending
        return found
