"""Pairs of workloads that took turns too often: held by the engine, named here.

The ledger is the engine's. It is filled again from the Preemptions that a former process has left,
so that a restart lets no pair go. They do not say who got quota then: of a plan that was completed
its preemptor is taken to have got it, so that a strictly higher priority is not held for turns that
were not in vain. When a pair becomes held, both workloads get an event; while it
is, the metric names it. Source: the design's "Where the planes meet".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from reprieve.api.kueue import API_VERSION
from reprieve.api.reprieve import IntentPhase, ObjectRef, Preemption, VictimState
from reprieve.controllers.quota.context import QuotaContext, log
from reprieve.engine.quota.protection import Ledger, Pair
from reprieve.kube.series_events import Reference
from reprieve.telemetry.victim_states import victim_states
from reprieve.units.durations import format_duration
from reprieve.units.instants import Nanos, format_instant, parse_instant
from reprieve.wording.kueue import Event

__all__ = ["HeldPairs"]

_REASON: Final = "PreemptionPairHeld"
_KEPT: Final = 10_000
_NOT_EVICTED: Final = (VictimState.SPARED, VictimState.FAILED)


class HeldPairs:
    """Fills the ledger and says which pairs it holds; without a limit there is no ledger."""

    def __init__(self, context: QuotaContext) -> None:
        options = context.options
        self._context = context
        self.ledger = (
            Ledger(options.loop_limit, options.loop_window) if options.loop_limit else None
        )
        # Workloads by uid, of everything that the ledger remembers.
        self._known: dict[str, ObjectRef] = {}
        self._held: dict[Pair, Nanos] = {}
        self._unwritten: Counter[Pair] = Counter()

    def restore(self, intents: Iterable[Preemption]) -> None:
        """Take over what former processes did; victims that were spared do not count."""
        if self.ledger is None:
            return
        since = self._context.clock.wall() - self.ledger.window
        for intent in intents:
            preemptor, at = intent.spec.preemptor, _instant(intent.spec.decided_at)
            if preemptor is None or at <= since:
                continue
            states = victim_states(intent)
            spared = {uid for uid, each in states.items() if each.state in _NOT_EVICTED}
            for victim in intent.spec.victims:
                if victim.subject.uid not in spared:
                    self.ledger.record(preemptor.uid, victim.subject.uid, at)
                    self._known[preemptor.uid] = preemptor
                    self._known[victim.subject.uid] = victim.subject
            if intent.status.phase is IntentPhase.COMPLETED:
                self.ledger.admitted(preemptor.uid, at)

    def issued(self, preemptor: ObjectRef, victim: ObjectRef) -> None:
        """The engine has preempted one by the other, which is to be written now."""
        if self.ledger is not None:
            self._known[preemptor.uid], self._known[victim.uid] = preemptor, victim
            self._unwritten[frozenset((preemptor.uid, victim.uid))] += 1

    def failed(self, preemptor: str, victims: Iterable[str]) -> None:
        """Preemptions, by uids, did not happen: the ledger forgets them."""
        for victim in victims:
            if self.ledger is not None:
                self.ledger.undo(preemptor, victim)

    def written(self, preemptor: str, victims: Iterable[str]) -> None:
        """Preemptions, by uids, were written, or have failed."""
        for victim in victims:
            pair = frozenset((preemptor, victim))
            self._unwritten[pair] -= 1
            if self._unwritten[pair] <= 0:
                del self._unwritten[pair]

    def show(self, now: Nanos) -> None:
        """Name the pairs that are held now, and no others."""
        if self.ledger is None:
            return
        held = {
            pair: end
            for pair, end in self.ledger.held(now).items()
            if pair in self._held or pair not in self._unwritten
        }
        gauge = self._context.metrics.held_pairs
        for pair in self._held.keys() - held.keys():
            gauge.remove(*self._names(pair))
        for pair in held.keys() - self._held.keys():
            gauge.labels(*self._names(pair)).set(1)
            self._announce(pair, held[pair])
        self._held = held
        if len(self._known) > _KEPT:
            concerned = (uid for uid in self._known if self.ledger.concerns(uid))
            self._known = {uid: self._known[uid] for uid in concerned}

    def _names(self, pair: Pair) -> list[str]:
        return sorted(
            f"{known.namespace}/{known.name}" if (known := self._known.get(uid)) else uid
            for uid in pair
        )

    def _announce(self, pair: Pair, end: Nanos) -> None:
        options, (first, second) = self._context.options, self._names(pair)
        note = (
            f"{first} and {second} preempted each other {options.loop_limit} times within "
            f"{format_duration(options.loop_window)}: neither preempts the other before "
            f"{format_instant(end)}, but with a strictly higher priority, or once a priority, "
            "weight or quota of theirs was changed"
        )
        log.warning("%s", note)
        both = [
            Reference(API_VERSION, "Workload", each.namespace, each.name, uid)
            for uid in pair
            if (each := self._known.get(uid)) is not None
        ]
        for about, other in zip(both, reversed(both), strict=True):
            self._context.announce(about, Event("", "Warning", _REASON, note), related=other)


def _instant(text: str) -> Nanos:
    try:
        return parse_instant(text)
    except ValueError:
        return Nanos(0)
