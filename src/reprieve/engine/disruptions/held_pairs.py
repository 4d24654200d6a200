"""Which pairs of families are held at an instant, for those who name them.

The pairs that are queried are those of which one displaced the other `limit` times within the
window, either of two since it may be the other one that is held, and those of loops, whose holds
may last for longer than the window. A pair is queried as it displaced the other last; it is
forgotten when it is not held and the window has passed. Reading a row costs what happened to its
victim within the window; all rows of the window are visited only when all were read again.
Source: specification of disruptions, section 4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from kubeworld.units.instants import Nanos
from reprieve.engine.disruptions.displacement import Displacement
from reprieve.engine.disruptions.history import History
from reprieve.engine.disruptions.questions import Hold, Loop, Question

__all__ = ["Families", "HeldPairs"]

Families = tuple[str, str]


class HeldPairs:
    """Remembers which pairs may be held, each with the last question that it stands for."""

    def __init__(self, history: History, limit: int, window: int) -> None:
        self._history = history
        self._limit = limit
        self._window = window
        self._revision = -1
        self._anew = True
        self._often: dict[Families, Question] = {}

    def observe(self, row: int, preemptor: int, victim: int) -> None:
        """Record a row of these families; -1 for a preemptor that it is not held against."""
        if self._anew or preemptor < 0 or not self._limit:
            return
        since = Nanos(self._history.at(row) - self._window)
        if self._history.reached(preemptor, victim, since, self._limit):
            self._note(
                (self._history.name(preemptor), self._history.name(victim)), self._history.row(row)
            )

    def look_anew(self) -> None:
        """Look through all rows of the window next time: families may be others."""
        self._anew = True

    def held(
        self, now: Nanos, loops: Iterable[Loop], ask: Callable[[Question], Hold | None]
    ) -> dict[Families, tuple[Question, Hold]]:
        """Return who is held from whom, with the question that states so; `ask` the governor."""
        if not self._limit:
            return {}
        if self._revision != self._history.revision:
            self._revision = self._history.revision
            self._name_anew()
        if self._anew:
            self._anew = False
            self._find_often(now)
        for loop in loops:
            for one, other in loop.held:
                history = self._history
                asked = Question(history.participant(one), history.participant(other), loop.found)
                self._often.setdefault((history.named(one), history.named(other)), asked)
        found = {}
        for pair, question in list(self._often.items()):
            hold = ask(replace(question, now=now))
            if hold is not None:
                found[pair] = (question, hold)
            elif now - question.now >= self._window:
                del self._often[pair]
        return found

    def _name_anew(self) -> None:
        """Know pairs by their families of now, which may have become one since; the last counts."""
        called = self._history.called
        asked = sorted(self._often.values(), key=lambda question: question.now)
        self._often = {(called(each.preemptor), called(each.victim)): each for each in asked}

    def _find_often(self, now: Nanos) -> None:
        often = self._history.often(Nanos(now - self._window), self._limit)
        for pair, row in sorted(often.items(), key=lambda each: each[1].identity):
            self._note(pair, row)

    def _note(self, pair: Families, row: Displacement) -> None:
        one, other = row.preemptor, row.victim
        assert one is not None
        self._often[pair] = Question(one, other, row.at, above=row.above, cause=row.cause)
        turned = Question(other, one, row.at, above=-row.above, cause=row.cause)
        self._often.setdefault(pair[::-1], turned)
