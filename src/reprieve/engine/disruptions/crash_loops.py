"""Work that fails soon after its preemptions, again and again: a crash loop that evicts.

A failure counts where its lineage had displaced another at most 5 minutes before, each
displacement for one of them. Who was submitted again after a failure is of the same family, and so
its failures are added up; work of the same template that runs beside it is not. What is known of a
lineage's failures is those of the window.
Source: specification of disruptions, section 4.3.
"""

from __future__ import annotations

from typing import Final

from kubeworld.units.durations import MINUTE
from kubeworld.units.instants import Nanos
from reprieve.engine.disruptions.history import History
from reprieve.engine.disruptions.lineage import Lineage, Participant

__all__ = ["CRASH_AFTER", "CrashLoops"]

CRASH_AFTER: Final = 5 * MINUTE

_FORGET_AFTER: Final = 10_000
_NEVER: Final = Nanos(0)


class CrashLoops:
    """Failures by lineage; false while there are none."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._failed: dict[Lineage, tuple[Participant, set[Nanos]]] = {}
        self._most = _FORGET_AFTER
        self._crashed: dict[str, list[Nanos]] = {}  # by family, of what is known now

    def __bool__(self) -> bool:
        return bool(self._failed)

    def failed(self, participant: Participant, at: Nanos, window: int) -> None:
        """Record that work failed."""
        since = at - window
        _, known = self._failed.get(participant.lineage, (participant, set[Nanos]()))
        self._failed[participant.lineage] = (participant, {at, *(t for t in known if t > since)})
        self.changed()
        if len(self._failed) > self._most:
            recent = {name: each for name, each in self._failed.items() if max(each[1]) > since}
            self._failed = recent
            self._most = max(_FORGET_AFTER, 2 * len(recent))

    def changed(self) -> None:
        """Look anew at who displaced whom: something of that has changed."""
        self._crashed.clear()

    def of(self, preemptor: Participant) -> list[Nanos]:
        """Return when work failed soon after it had displaced other work, once for each time."""
        called = self._history.called
        key = called(preemptor)
        if key in self._crashed:
            return self._crashed[key]
        families, failures = {self._history.family(preemptor)}, list[Nanos]()
        for participant, instants in self._failed.values():
            if called(participant) == key:
                families.add(self._history.family(participant))
                failures += instants
        displaced = [at for family in families for at in self._history.did_at(family)]
        found = self._crashed[key] = list[Nanos]()
        for at in sorted(failures):
            last = found[-1] if found else _NEVER
            if any(last < each <= at <= each + CRASH_AFTER for each in displaced):
                found.append(at)
        return found
