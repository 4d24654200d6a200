"""The past of a cluster: a sample at regular times, from which pages of then are made.

Sums by team reach back eight days, units as far as 20 MB reach, a week at most. A cluster that
cannot be read is not sampled: that is a gap, and shown as one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import Final

from kubeworld.units.durations import MINUTE
from kubeworld.units.instants import Nanos
from reprieve.web.history.model import Eviction, Moment, Sample, length_since, sample_of
from reprieve.web.history.moments import Moments
from reprieve.web.history.prometheus import Prometheus
from reprieve.web.history.series import TeamSeries
from reprieve.web.history.stores import MemoryStore, Store
from reprieve.web.history.tiers import Tiers

__all__ = ["EVERY", "History"]

log: Final = logging.getLogger("reprieve.web")

EVERY: Final = MINUTE
_SUMS: Final = "sums"


class History:
    """Samples of a cluster.

    Args:
        store: keeps them; without one they are in memory.
        every: nanoseconds from one sample to the next.
        elsewhere: has the sums, as long as it answers; samples are made all the same.
    """

    def __init__(
        self,
        store: Store | None = None,
        every: int = EVERY,
        elsewhere: Prometheus | None = None,
    ) -> None:
        self.every = every
        self.elsewhere = elsewhere
        self.series = TeamSeries()
        self._store = store or MemoryStore()
        self._tiers = Tiers.decoded(self._store.read(_SUMS) or b"")
        self._moments = Moments(self._store)
        self._failing = False

    @property
    def newest(self) -> Nanos | None:
        """When the last sample was made."""
        return self._tiers.newest

    @property
    def oldest(self) -> Nanos | None:
        """The first instant of which units are known."""
        return self._moments.oldest

    def add(self, moment: Moment, evictions: Iterable[Eviction]) -> None:
        """Keep a sample; one that is not later than the last is dropped."""
        before = self._tiers.newest
        if before is not None and moment.at <= before:
            return
        length = length_since(before, moment.at, self.every)
        sample = sample_of(moment, length, evictions)
        self._tiers.add(sample)
        self.series.add(sample)
        try:
            self._store.write(_SUMS, self._tiers.encoded())
            self._moments.add(moment)
        except OSError as error:
            if not self._failing:
                log.warning("history: samples cannot be stored: %s", error.strerror or error)
            self._failing = True
        else:
            self._failing = False

    def between(self, start: Nanos, end: Nanos) -> Iterator[Sample]:
        """Yield the sums of a time, the oldest first."""
        if self.elsewhere is not None and self.elsewhere.answers:
            return self.elsewhere.between(start, end)
        return self._tiers.between(start, end)

    @property
    def source(self) -> str:
        """Where the sums come from, in a sentence; empty where samples of this process alone."""
        if self.elsewhere is None:
            return ""
        if self.elsewhere.answers:
            return f"The sums come from Prometheus at {self.elsewhere.shown}."
        if not self.elsewhere.fault:
            return f"Prometheus at {self.elsewhere.shown} was queried and has not answered yet."
        return f"{self.elsewhere.fault}. These are the samples of this page's own server."

    def at(self, instant: Nanos) -> Moment | None:
        """Return the last moment that is not later, None where none is kept."""
        return self._moments.at(instant)
