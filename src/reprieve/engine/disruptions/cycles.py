"""Which displacements of a loop are held, and until when.

A hold lasts until the oldest of the last `limit` of those displacements is out of the window. When
the same loop is found again within a window of the end of its last hold, it lasts for two windows
from then, the next time for four, and so on up to a day, as far as the ledger reaches back. What is
held does not happen, so a hold is never longer than it was stated to be.

Source: specification of disruptions, section 4.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kubeworld.units.durations import HOUR
from kubeworld.units.instants import Nanos
from reprieve.engine.disruptions.history import History
from reprieve.engine.disruptions.lineage import Lineage
from reprieve.engine.disruptions.loops import FoundLoop, find_loops
from reprieve.engine.disruptions.questions import Loop

__all__ = ["Cycles"]

_LONGEST_HOLD: Final = 24 * HOUR
_MOST_DOUBLED: Final = 16


@dataclass(frozen=True, slots=True)
class _Verdict:
    """One loop, and the end of each hold by preemptor and victim as their families were called."""

    loop: Loop
    ends: dict[tuple[str, str], Nanos]


class Cycles:
    """Looks for loops whenever a row may close one, and remembers whom it holds."""

    def __init__(self, history: History, limit: int, window: int) -> None:
        self._history = history
        self._limit = limit
        self._window = window
        self._verdicts: list[_Verdict] = []
        # The last hold of a loop, by its members: its end, and how many came before it in a row.
        self._holds: dict[frozenset[str], tuple[Nanos, int]] = {}

    def clear(self) -> None:
        """Forget all."""
        self._verdicts.clear()
        self._holds.clear()

    def observe(self, row: int, preemptor: int, victim: int) -> bool:
        """Search for loops that a row has closed, read with these families, if it counts.

        Return whether there are any, by which a lineage may be held now.
        """
        # One that this row closes continues from its victim, and comes this way for the nth time.
        if preemptor < 0 or not self._history.displaces(victim):
            return False
        history, at = self._history, self._history.at(row)
        since = Nanos(at - self._window)
        if not history.reached(preemptor, victim, since, self._limit):
            return False
        both, found = {preemptor, victim}, False
        for loop in find_loops(history.edges(since), self._limit):
            if loop.held and both <= set(map(history.numbered, loop.members)):
                self._judge(loop, at)
                found = True
        return found

    def held(self, preemptor: int, victim: int, now: Nanos) -> tuple[Nanos, Nanos] | None:
        """Return when a family is held from another until, and when that was found."""
        found = (
            (verdict.ends[edge], verdict.loop.found)
            for verdict in self._verdicts
            if verdict.loop.until > now
            for edge in verdict.ends
            if self._families(edge) == (preemptor, victim)
        )
        return max(found, default=None)

    def held_from(self, preemptor: int, now: Nanos) -> set[int]:
        """Return which families are held from one."""
        numbered = self._history.numbered
        return {
            numbered(other)
            for verdict in self._verdicts
            if verdict.loop.until > now
            for one, other in verdict.ends
            if numbered(one) == preemptor
        }

    def loops(self, now: Nanos) -> tuple[Loop, ...]:
        """Return the loops in which a lineage is held, by their members."""
        current = (verdict.loop for verdict in self._verdicts if verdict.loop.until > now)
        return tuple(sorted(current, key=lambda loop: loop.members))

    def _judge(self, loop: FoundLoop, now: Nanos) -> None:
        """Hold what is to be held of a loop and is not yet."""
        free = [e for e in loop.held if not self._holds_now((e.preemptor, e.victim), now)]
        if not free:
            return
        members = frozenset(loop.members)
        ended, times = self._holds.get(members, (Nanos(0), -1))
        if ended <= now:
            times = times + 1 if times >= 0 and now <= ended + self._window else 0
        lasts = min(self._window << min(times, _MOST_DOUBLED), max(self._window, _LONGEST_HOLD))
        ends = {
            (edge.preemptor, edge.victim): Nanos(
                (now if times else edge.instants[-self._limit]) + lasts
            )
            for edge in free
        }
        found = Loop(
            tuple(Lineage(name) for name in loop.members),
            now,
            max(ends.values()),
            sum(edge.displacements for edge in loop.edges),
            min(edge.instants[0] for edge in loop.edges),
            sum(edge.lost_device_seconds for edge in loop.edges),
            tuple(sorted((Lineage(one), Lineage(other)) for one, other in ends)),
        )
        self._verdicts = [each for each in self._verdicts if each.loop.until > now]
        self._verdicts.append(_Verdict(found, ends))
        self._holds = {
            known: hold for known, hold in self._holds.items() if now <= hold[0] + self._window
        }
        self._holds[members] = (max(found.until, ended), times)

    def _holds_now(self, edge: tuple[str, str], now: Nanos) -> bool:
        known = self.held(*self._families(edge), now)
        return known is not None and known[0] > now

    def _families(self, edge: tuple[str, str]) -> tuple[int, int]:
        """Return the families that the two of a hold are in now."""
        return self._history.numbered(edge[0]), self._history.numbered(edge[1])
