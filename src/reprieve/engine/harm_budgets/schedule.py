"""When the windows of a HarmBudget with a schedule begin and end.

A schedule is a cron expression in UTC. A window begins at each of its minutes and lasts for the
budget's duration. Windows that overlap are all held: a displacement leaves when the last window
that it fell into ends. Outside all windows the budget allows everything.

Pure: an instant in, an instant out. `intake.cron` reads the text.
"""

from __future__ import annotations

import datetime
from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from kubeworld.units.durations import HOUR, MINUTE
from kubeworld.units.instants import Nanos

__all__ = ["Schedule"]

_DAY: Final = 24 * HOUR
_EPOCH: Final = datetime.date(1970, 1, 1).toordinal()
_WEEK: Final = 7


@dataclass(frozen=True, slots=True)
class Schedule:
    """A cron expression.

    `times`: minutes of a day, ascending. `weekdays`: 0 is Sunday. `either`: days of the month and
    of the week are both given, and one of them is enough.
    """

    times: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either: bool = False

    def began(self, at: Nanos, duration: int) -> Nanos | None:
        """Return when the last window began that an instant lies in, None where it is in none."""
        began = _last_start(self, at // MINUTE, duration // MINUTE + 1)
        return None if began is None or began + duration <= at else began

    def starts_on(self, day: datetime.date) -> bool:
        """Return whether windows begin on a day."""
        if day.month not in self.months:
            return False
        in_month, in_week = day.day in self.days, day.isoweekday() % _WEEK in self.weekdays
        return (in_month or in_week) if self.either else (in_month and in_week)


# Rows of a ledger are queried again and again.
@lru_cache(maxsize=65_536)
def _last_start(schedule: Schedule, minute: int, within: int) -> Nanos | None:
    """Return the last start up to a minute since the epoch, no more than so many before it."""
    a_day = _DAY // MINUTE
    for day in range(minute // a_day, (minute - within) // a_day - 1, -1):
        latest = minute - day * a_day
        place = bisect_right(schedule.times, latest)
        if place and schedule.starts_on(datetime.date.fromordinal(_EPOCH + day)):
            return Nanos((day * a_day + schedule.times[place - 1]) * MINUTE)
    return None
