"""The governor: which victims are held, from whom and until when. Every plane queries it first.

1. **Cycle.** Of lineages that displaced each other in a circle `loop_limit` times within
   `loop_window`, the displacements that `loops` chooses are held (`cycles` states how long). Two
   count anew when what allowed them to displace each other was changed (`Displacement.cause`).
2. **Repeated displacement.** A lineage displaced `repeated` times within `repeated_window` is
   reported as such. Where that is enforced it is protected for a quantum of running time,
   max(2 min, its start cost) * 2^(n-1) and at most an hour, n being 1 at the first time that is
   reported: from preemptors that have no strictly higher priority, or from all.
3. **Crash loops that evict.** A lineage that failed three times within `repeated_window`, each time
   at most 5 minutes after it had displaced another (`crash_loops`), displaces no work until the
   window has passed.
4. **Without gain.** Who displaced a lineage `loop_limit` times and has none of what it gained is
   held from it: it got nothing since, as others profit each time, or lost it again by being
   displaced itself. With a lower priority a time less is allowed, so that the higher has the last
   turn.

A strictly higher priority is not held, but by 2, 3 and 4 where that protects from all
(`Enforcement.ALL`). What it does in vain (it got nothing since) or fails after is spaced out, as
kubelet does with containers that fail: it tries again after `SHORTEST_PAUSE`, twice that, and so
on, at most `LONGEST_PAUSE`.

Exempt are emergency priorities, and displacements by node failures and drains. A request for
one's own nominal quota waits at most an hour from when a rule began to hold. No work waits longer
than until the instant reported for it: what is held does not happen, so nothing extends it.

Pure, a fold over the records: given the same records in any order it holds the same. A query
costs a few look-ups. Where several threads query it, they give a `guard` that is held meanwhile.
Source: specification of disruptions, sections 4 and 5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import Concatenate, Final, ParamSpec, TypeVar

from kubeworld.units.durations import HOUR, MINUTE, SECOND
from kubeworld.units.instants import Nanos
from reprieve.engine.disruptions.crash_loops import CrashLoops
from reprieve.engine.disruptions.cycles import Cycles
from reprieve.engine.disruptions.displacement import Displacement
from reprieve.engine.disruptions.held_pairs import Families, HeldPairs
from reprieve.engine.disruptions.history import History
from reprieve.engine.disruptions.ledger import KEPT, MOST_ROWS
from reprieve.engine.disruptions.lineage import Lineage, Participant
from reprieve.engine.disruptions.questions import (
    Enforcement,
    GovernorPolicy,
    Hold,
    Loop,
    Question,
    Rule,
)
from reprieve.engine.harm_budgets.accounts import HarmAccounts

__all__ = ["LONGEST_PAUSE", "Governor"]

LONGEST_QUANTUM: Final = HOUR
LONGEST_RECLAIM_DELAY: Final = HOUR
SHORTEST_QUANTUM: Final = 2 * MINUTE
SHORTEST_PAUSE: Final = 10 * SECOND
LONGEST_PAUSE: Final = 5 * MINUTE

_DEFAULT: Final = GovernorPolicy()
_NEVER: Final = Nanos(0)
_NO_NAMES: Final[frozenset[str]] = frozenset()
_MOST_DOUBLED: Final = 16
_FORGET_AFTER: Final = 10_000


P = ParamSpec("P")
T = TypeVar("T")


def _guarded(
    method: Callable[Concatenate[Governor, P], T],
) -> Callable[Concatenate[Governor, P], T]:
    """Hold the governor's guard while this is computed."""

    @wraps(method)
    def guarded(self: Governor, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with self.guard:
            return method(self, *args, **kwargs)

    return guarded


class Governor:
    """Folds displacements, and answers for each victim whether it is held."""

    def __init__(
        self,
        policy: GovernorPolicy = _DEFAULT,
        guard: AbstractContextManager[object] | None = None,
        most: int = MOST_ROWS,
    ) -> None:
        """`guard`: held during each call, which may be made in another one; `most`: rows."""
        self.guard = guard or nullcontext()
        #: What harm budgets allow; planes query and notify it like the rules here, under the guard.
        self.harm = HarmAccounts(lambda: self.policy.emergency_priority)
        self._history = History(max(KEPT, policy.loop_window, policy.repeated_window), most)
        self._go_by(policy)
        self._admitted: dict[Lineage, Nanos] = {}
        self._most_admitted = _FORGET_AFTER
        self._crashes = CrashLoops(self._history)
        # Families from which none was held at an instant, which time alone does not change.
        self._free: dict[int, Nanos] = {}
        self._stale = False

    @_guarded
    def adopt(self, policy: GovernorPolicy) -> None:
        """Use other numbers from now on; what is known is judged anew by them."""
        if policy != self.policy:
            self._go_by(policy)
            self._stale = True

    def _go_by(self, policy: GovernorPolicy) -> None:
        limit, window = policy.loop_limit, policy.loop_window
        self.policy = policy
        self._loops = bool(limit and window)
        self._history.ledger.kept = max(KEPT, window, policy.repeated_window)
        self._cycles = Cycles(self._history, limit, window)
        self._pairs = HeldPairs(self._history, limit, window)

    # What happened

    @_guarded
    def record(self, row: Displacement) -> None:
        """Record a displacement."""
        ledger = self._history.ledger
        last = ledger.last
        number = ledger.record(row)
        if number is None:
            return
        late = last is not None and row.identity < last
        if not self._stale and late and self._history.observe_late(number):
            self._crashes.changed()
            self._free.clear()
        elif self._stale or late:
            self._stale = True
        else:
            self._crashes.changed()
            self._observe(number)
            self._stale = self._history.worn

    @_guarded
    def fold(self, rows: Iterable[Displacement]) -> None:
        """Record many displacements, in whatever order they come."""
        self._history.ledger.fold(rows)
        self._stale = True

    @_guarded
    def undo(self, preemptor: Lineage | None, uid: str) -> None:
        """Forget the last displacement of the object by this lineage: it did not happen."""
        if self._history.ledger.undo(preemptor, uid):
            self._stale = True

    @_guarded
    def admitted(self, participant: Participant, at: Nanos) -> None:
        """Record that work got what it wanted: what it displaced for that was not in vain."""
        if self.concerns(participant):
            self._admitted[participant.lineage] = max(
                at, self._admitted.get(participant.lineage, at)
            )
            self._history.ran(participant.lineage, self._admitted[participant.lineage])
            if len(self._admitted) > self._most_admitted:
                # Earlier displacements are not queried any more (`_without_gain`).
                since = at - self.policy.loop_window
                admitted = self._admitted.items()
                self._admitted = {
                    name: t
                    for name, t in admitted
                    if t > since and self.concerns(Participant(name))
                }
                self._most_admitted = max(_FORGET_AFTER, 2 * len(self._admitted))

    @_guarded
    def failed(self, participant: Participant, at: Nanos) -> None:
        """Record that work failed."""
        if self.concerns(participant):
            self._crashes.failed(participant, at, self.policy.repeated_window)
            self._history.failed(participant.lineage)

    @_guarded
    def ended(self, participant: Participant, at: Nanos) -> None:
        """Record that the last object of a lineage is deleted, or has finished.

        Work that was submitted again may come in its place, unless it ran again meanwhile.
        """
        late = self._history.ended(participant.lineage, at)
        if late is not None:
            self._stale = self._stale or late
            self._crashes.changed()
            self._free.clear()

    # What follows

    @_guarded
    def concerns(self, participant: Participant) -> bool:
        """Return whether a lineage displaced others or was displaced."""
        self._settle()
        return self._concerns(participant)

    def _concerns(self, participant: Participant) -> bool:
        return self._history.concerns(self._history.family(participant))

    @property
    def knows_any(self) -> bool:
        """Whether any work was displaced."""
        return bool(len(self._history.ledger))

    @_guarded
    def may_hold(self, preemptor: Participant) -> bool:
        """Return whether any work could be held from a lineage; certain where the answer is no."""
        if self.policy.enforcement is not Enforcement.TOLD:
            return bool(len(self._history.ledger))
        return self.concerns(preemptor)

    @_guarded
    def known_by(
        self, preemptor: Participant, now: Nanos, *, below: bool = True
    ) -> frozenset[str] | None:
        """Return by what those are known who could be held from a lineage, None: all of them.

        Lineages, labels and weak links: who has none of them in common with these is not held at
        this instant, so that only few of many candidates have to be queried. `below`: whether any
        of them may have a higher priority. Costs what the lineage did within the window, and
        a look-up where none was held from it before and it had no part in a displacement since.
        """
        if self.policy.enforcement is not Enforcement.TOLD:
            return None if len(self._history.ledger) else _NO_NAMES
        self._settle()
        if self._crashes and len(self._crashes.of(preemptor)) >= self.policy.crashes:
            return None
        family = self._history.family(preemptor)
        if family < 0 or not self._loops:
            return _NO_NAMES
        free = self._free.get(family)
        if free is not None and free <= now:
            return _NO_NAMES
        if not self._history.concerns(family):
            return _NO_NAMES
        held = self._cycles.held_from(family, now)
        held |= self._in_vain_with(family, now, below=below)
        if not held and below:
            self._free[family] = now
        return self._history.known_by(held)

    def _in_vain_with(self, family: int, now: Nanos, *, below: bool) -> set[int]:
        """Return which families could be held by `_without_gain`, whatever the cause."""
        limit, window = self.policy.loop_limit, self.policy.loop_window
        if below:
            limit = max(1, limit - 1)
        gained, lost = self._gained(family), self._history.last_displaced(family)
        instants: dict[int, set[Nanos]] = {}
        for other, at in self._history.did_to(family, Nanos(now - window)):
            if at > gained or at < lost:
                instants.setdefault(other, set()).add(at)
        return {other for other, found in instants.items() if len(found) >= limit}

    @_guarded
    def family(self, participant: Participant) -> str:
        """Return the name of a lineage, weak links included."""
        self._settle()
        return self._history.called(participant)

    @_guarded
    def times(self, preemptor: Participant, victim: Participant, now: Nanos) -> int:
        """Return at how many instants of the window one displaced the other."""
        self._settle()
        since = Nanos(now - self.policy.loop_window)
        names = self._history.family(preemptor), self._history.family(victim)
        return self._history.times(*names, since)

    @_guarded
    def hold(self, question: Question) -> Hold | None:
        """Return until when the victim is held, and by which rule; None while it is not."""
        emergency = self.policy.emergency_priority
        if emergency is not None and question.priority >= emergency:
            return None
        self._settle()
        if not self._crashes and not self._concerns(question.victim):
            return None
        asked = (self._cycle, self._repeated, self._crash_loop, self._without_gain)
        found = (hold for rule in asked if (hold := rule(question)) is not None)
        held = (hold for hold in found if hold.until > question.now)
        return max(held, key=lambda hold: hold.until, default=None)

    @property
    def rows(self) -> tuple[Displacement, ...]:
        """All that is in the ledger."""
        with self.guard:
            return tuple(self._history.ledger.rows)

    @property
    def remembers(self) -> tuple[int, int]:
        """How many rows and how many lineages are remembered; for counts of memory."""
        ledger = self._history.ledger
        return len(ledger), len(ledger.columns.participants.lineages)

    @_guarded
    def loops(self, now: Nanos) -> tuple[Loop, ...]:
        """Return the loops in which a lineage is held now, by their members."""
        self._settle()
        return self._cycles.loops(now)

    @_guarded
    def held(self, now: Nanos) -> dict[Families, tuple[Question, Hold]]:
        """Return who is held from whom of those who displaced each other often, by families.

        Each comes with its last displacement as a question.
        """
        self._settle()
        return self._pairs.held(now, self._cycles.loops(now), self.hold)

    @_guarded
    def displaced(self, participant: Participant, now: Nanos) -> int:
        """Return how often a lineage was displaced within the window, by whomever."""
        self._settle()
        return len(self._displaced_at(participant, now))

    @_guarded
    def displacers(self, participant: Participant, now: Nanos) -> list[Lineage]:
        """Return who displaced a lineage last within the window of loops, who that one, and so on.

        Each is named once at the most, so that a circle ends.
        """
        self._settle()
        history, since, found = self._history, Nanos(now - self.policy.loop_window), list[Lineage]()
        seen, family, before = set[int](), history.family(participant), now
        while family >= 0 and family not in seen:
            seen.add(family)
            row = history.displacer(family, since, before)
            if row is None or row.preemptor is None:
                break
            found.append(row.preemptor.lineage)
            family, before = history.family(row.preemptor), row.at
        return found

    @_guarded
    def repeated(self, now: Nanos) -> dict[Lineage, int]:
        """Return the lineages reported as displaced repeatedly, and how often they were."""
        self._settle()
        victims = self._history.victims(Nanos(now - self.policy.repeated_window))
        counts = {
            participant.lineage: len(self._displaced_at(participant, now))
            for participant in victims
        }
        return {name: count for name, count in counts.items() if count >= self.policy.repeated}

    # Rules

    def _cycle(self, question: Question) -> Hold | None:
        if not self._loops or question.above > 0:
            return None
        preemptor, victim = self._pair(question)
        held = self._cycles.held(preemptor, victim, question.now)
        if held is None:
            return None
        dealings = self._history.between(preemptor, victim, _NEVER)
        if not self._history.anew(dealings, question.cause):
            return None
        until, found = held
        return _hold(question, Rule.CYCLE, until, found)

    def _repeated(self, question: Question) -> Hold | None:
        enforcement = self.policy.enforcement
        if enforcement is Enforcement.TOLD:
            return None
        if enforcement is Enforcement.EQUALS and question.above > 0:
            return None
        instants = self._displaced_at(question.victim, question.now)
        number = len(instants) - self.policy.repeated + 1
        if number < 1:
            return None
        quantum = max(SHORTEST_QUANTUM, question.start_cost) << min(number - 1, _MOST_DOUBLED)
        # What does not run yet is protected as if it had run since it was displaced.
        start = instants[-1] if question.running_since is None else question.running_since
        return Hold(Nanos(start + min(quantum, LONGEST_QUANTUM)), Rule.REPEATED)

    def _crash_loop(self, question: Question) -> Hold | None:
        if not self._crashes:
            return None
        window = self.policy.repeated_window
        failures = [at for at in self._crashes.of(question.preemptor) if question.now - at < window]
        if len(failures) < self.policy.crashes:
            return None
        until = Nanos(failures[-self.policy.crashes] + window)
        if self._is_spaced(question):
            until = _next_try(failures[-1], len(failures) - self.policy.crashes)
        return _hold(question, Rule.CRASH_LOOP, until, failures[-1])

    def _without_gain(self, question: Question) -> Hold | None:
        if not self._loops:
            return None
        limit, window = self.policy.loop_limit, self.policy.loop_window
        if question.above < 0:
            limit = max(1, limit - 1)
        preemptor, victim = self._pair(question)
        dealings = self._history.between(preemptor, victim, Nanos(question.now - window))
        if len(dealings) < limit:
            return None
        since = self._gained(preemptor)
        lost = _NEVER if question.above > 0 else self._history.last_displaced(preemptor)
        instants = sorted(
            {
                at
                for row in self._history.anew(dealings, question.cause)
                if (at := self._history.at(row)) > since or at < lost
                if self._history.did(row, preemptor)
            }
        )
        if len(instants) < limit:
            return None
        until = Nanos(instants[-limit] + window)
        if self._is_spaced(question):
            until = min(until, _next_try(instants[-1], len(instants) - limit))
        return _hold(question, Rule.WITHOUT_GAIN, until, instants[-1])

    def _is_spaced(self, question: Question) -> bool:
        """Return whether the preemptor is not held, and its tries are spaced out."""
        return question.above > 0 and self.policy.enforcement is not Enforcement.ALL

    def _gained(self, family: int) -> Nanos:
        """Return when a family got what it wanted last, 0 if it never did."""
        if not self._admitted:
            return _NEVER
        got = (self._admitted.get(Lineage(name), _NEVER) for name in self._history.lineages(family))
        return max(got, default=_NEVER)

    def _displaced_at(self, participant: Participant, now: Nanos) -> list[Nanos]:
        return self._history.displaced(participant, Nanos(now - self.policy.repeated_window))

    def _pair(self, question: Question) -> tuple[int, int]:
        return self._history.family(question.preemptor), self._history.family(question.victim)

    # The fold

    def _settle(self) -> None:
        """Read all rows again, if one came out of order, was undone or has long expired."""
        if self._stale:
            self._stale = False
            self._crashes.changed()
            self._free.clear()
            self._history.clear()
            self._cycles.clear()
            self._pairs.look_anew()
            for row in self._history.ledger.order:
                self._observe(row)

    def _observe(self, row: int) -> None:
        families = self._history.observe(row)
        closed = self._loops and self._cycles.observe(row, *families)
        labelled = self._history.labelled(row)
        if labelled:
            self._pairs.look_anew()
        else:
            self._pairs.observe(row, *families)
        if closed or labelled:
            self._free.clear()
        for family in families:
            self._free.pop(family, None)


def _next_try(last: Nanos, number: int) -> Nanos:
    """Return when a strictly higher priority tries again, after so many pauses."""
    return Nanos(last + min(SHORTEST_PAUSE << min(number, _MOST_DOUBLED), LONGEST_PAUSE))


def _hold(question: Question, rule: Rule, until: Nanos, began: Nanos) -> Hold:
    """Return a hold that keeps no lineage too long from its own quota."""
    if question.reclaims:
        until = min(until, Nanos(began + LONGEST_RECLAIM_DELAY))
    return Hold(until, rule)
