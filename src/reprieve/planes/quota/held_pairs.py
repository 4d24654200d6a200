"""Work that took turns too often: held by the governor, named here.

What is remembered is the engine's. It is filled again from the Preemptions that a former process
has left, so that a restart lets nobody go. They do not say who got quota then: of a plan that was
completed its preemptor is taken to have got it unless it waits since before, so that a strictly
higher priority is not held for turns that were not in vain. When one is held back from another,
both get an event; while it is, the metric names them. A loop is named with all its members, on each
of them. In events, which tenants read, work of other namespaces has a number. Source: specification
of disruptions, sections 4 and 6; the design's "Where the planes meet".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from reprieve.api import kueue
from reprieve.api.kueue import API_VERSION
from reprieve.api.reprieve import IntentPhase, ObjectRef, Preemption
from reprieve.engine.disruptions.governor import Governor
from reprieve.engine.disruptions.lineage import Lineage, Party
from reprieve.engine.disruptions.questions import Hold, Loop, Question
from reprieve.engine.quota.displacements import Displacements, party_of
from reprieve.engine.quota.model import Workload
from reprieve.execution.fence import Deposed
from reprieve.intake.quota_workloads import condition_of, is_true
from reprieve.kube.errors import ApiError
from reprieve.kube.references import Reference
from reprieve.planes.quota.context import QuotaContext, log
from reprieve.planes.quota.watches import Held
from reprieve.telemetry.displacements import displacements_of
from reprieve.units.instants import Nanos, parse_instant
from reprieve.wording.disruptions import loop_text, pair_text
from reprieve.wording.kueue import Event

__all__ = ["HeldPairs"]

_PAIR_HELD: Final = "PreemptionPairHeld"
_LOOP: Final = "PreemptionLoop"
_KEPT: Final = 10_000
#: Conditions of a Workload that has failed, with their reasons.
_FAILURES: Final = (("Finished", "Failed"), ("Evicted", "PodsReadyTimeout"))

Families = tuple[str, str]
Lineages = tuple[Lineage, Lineage]


def _nobody(ref: ObjectRef) -> Party | None:
    return None


def _unknown(ref: ObjectRef, since: Nanos) -> bool:
    return False


class HeldPairs:
    """Fills the memory and says whom it holds; without a limit there is none."""

    def __init__(
        self,
        context: QuotaContext,
        there: Callable[[ObjectRef], Party | None] = _nobody,
        waits: Callable[[ObjectRef, Nanos], bool] = _unknown,
        governor: Governor | None = None,
    ) -> None:
        """`there`: the line of work of a Workload that exists; `waits`: one waits since then.

        `governor`: that of all planes; without it, and without a limit, nobody is held.
        """
        options = context.options
        self._context = context
        self._there = there
        self._waits = waits
        self.ledger = (
            Displacements(options.loop_limit, options.loop_window, governor)
            if options.loop_limit or governor is not None
            else None
        )
        # The last object of each lineage that is remembered.
        self._known: dict[Lineage, ObjectRef] = {}
        self._held: dict[Families, list[str]] = {}
        self._loops: dict[tuple[Lineage, ...], Loop] = {}
        self._unwritten: Counter[Lineages] = Counter()

    def restore(self, intents: Iterable[Preemption]) -> None:
        """Take over what former processes did; victims that were spared do not count."""
        ledger = self.ledger
        if ledger is None:
            return
        rows, got = [], list[tuple[Party, Nanos]]()
        for intent in intents:
            preemptor = intent.spec.preemptor
            subjects = {victim.subject.uid: victim.subject for victim in intent.spec.victims}
            for row in displacements_of(intent, self._there):
                rows.append(row)
                self._known[row.victim.lineage] = subjects[row.uid]
                if row.preemptor is not None and preemptor is not None:
                    self._known[row.preemptor.lineage] = preemptor
                    completed = intent.status.phase is IntentPhase.COMPLETED
                    if completed and not self._waits(preemptor, row.at):
                        got.append((row.preemptor, row.at))
        ledger.fold(rows)
        for party, at in got:
            ledger.governor.admitted(party, at)

    def issued(self, preemptor: Workload, victim: Workload) -> None:
        """The engine has preempted one by the other, which is to be written now."""
        if self.ledger is not None:
            for each in (preemptor, victim):
                self._known[party_of(each).lineage] = _reference(each)
            self._unwritten[_lineages(preemptor, victim)] += 1

    def failed(self, preemptor: Workload, victims: Iterable[str]) -> None:
        """Preemptions, of victims by uids, did not happen: they are forgotten."""
        for victim in victims:
            if self.ledger is not None:
                self.ledger.undo(preemptor, victim)

    def written(self, preemptor: Workload, victims: Iterable[Workload]) -> None:
        """Preemptions were written, or have failed."""
        for victim in victims:
            pair = _lineages(preemptor, victim)
            self._unwritten[pair] -= 1
            if self._unwritten[pair] <= 0:
                del self._unwritten[pair]

    def changed(self, old: Held[kueue.Workload] | None, new: Held[kueue.Workload] | None) -> None:
        """Take note of a Workload that fails: its job did, or its pods did not start in time.

        Those have failed from when it was admitted on.
        """
        if self.ledger is None or old is None or new is None or old.uid != new.uid:
            return
        before, after = old.object.status.conditions, new.object.status.conditions
        if before == after:
            return
        for kind, reason in _FAILURES:
            condition = condition_of(after, kind)
            now_true = is_true(condition) and not is_true(condition_of(before, kind))
            if now_true and condition is not None and condition.reason == reason:
                admitted = condition_of(before, "Admitted")
                started = kind == "Evicted" and admitted is not None
                at = parse_instant(admitted.last_transition_time) if started and admitted else None
                party = self._there(_reference_of(new.object))
                if party is not None:
                    clock = self._context.clock
                    self.ledger.governor.failed(party, clock.wall() if at is None else at)

    async def show(self, now: Nanos) -> None:
        """Name whom is held now, and nobody else."""
        if self.ledger is None:
            return
        held = {
            pair: found
            for pair, found in self.ledger.held(now).items()
            if pair in self._held or not self._is_unwritten(found[0])
        }
        gauge = self._context.metrics.held_pairs
        for pair in self._held.keys() - held.keys():
            gauge.remove(*self._held.pop(pair))
        for pair in sorted(held.keys() - self._held.keys()):
            asked, hold = held[pair]
            names = [self._name(each.lineage) for each in (asked.preemptor, asked.victim)]
            self._held[pair] = names
            gauge.labels(*names).set(1)
            await self._announce(asked, hold, names)
        await self._tell_loops(self.ledger.loops(now))
        if len(self._known) > _KEPT:
            concerned = (name for name in self._known if self._concerns(name))
            self._known = {name: self._known[name] for name in concerned}

    def _concerns(self, name: Lineage) -> bool:
        return self.ledger is not None and self.ledger.governor.concerns(Party(name))

    def _is_unwritten(self, asked: Question) -> bool:
        pair = (asked.preemptor.lineage, asked.victim.lineage)
        return pair in self._unwritten or pair[::-1] in self._unwritten

    def _name(self, lineage: Lineage) -> str:
        known = self._known.get(lineage)
        return f"{known.namespace}/{known.name}" if known else lineage

    async def _names_for(self, namespace: str, members: Iterable[Lineage]) -> list[str]:
        """Return the names of lines of work as people of a namespace may know them."""
        return [
            self._name(each)
            if each in self._known and self._known[each].namespace == namespace
            else await self._number(namespace, each, place)
            for place, each in enumerate(members, start=1)
        ]

    async def _number(self, namespace: str, lineage: Lineage, place: int) -> str:
        """Return what work of another namespace is called; by its place where it has no number."""
        disruptions = self._context.disruptions
        if disruptions is not None:
            try:
                return await disruptions.known_as(namespace, lineage)
            except (ApiError, Deposed) as failure:
                log.warning("work of other namespaces has no number for now: %s", failure)
        return f"another tenant's work ({place})"

    async def _announce(self, asked: Question, hold: Hold, names: list[str]) -> None:
        options = self._context.options
        log.warning(
            "%s", pair_text(names[0], names[1], hold, options.loop_limit, options.loop_window)
        )
        both = [each.lineage for each in (asked.preemptor, asked.victim)]
        for lineage, other in zip(both, reversed(both), strict=True):
            about, related = self._known.get(lineage), self._known.get(other)
            if about is None:
                continue
            one, another = await self._names_for(about.namespace, both)
            note = pair_text(one, another, hold, options.loop_limit, options.loop_window)
            own = related is not None and related.namespace == about.namespace
            self._context.announce(
                _about(about),
                Event("", "Warning", _PAIR_HELD, note),
                related=_about(related) if related is not None and own else None,
            )

    async def _tell_loops(self, loops: Iterable[Loop]) -> None:
        current = {loop.members: loop for loop in loops}
        for members, loop in current.items():
            known = self._loops.get(members)
            if known is None or known.found != loop.found:
                log.warning("%s", loop_text(loop, [self._name(each) for each in members]))
                for each in members:
                    if each in self._known:
                        about = self._known[each]
                        names = await self._names_for(about.namespace, members)
                        note = loop_text(loop, names)
                        self._context.announce(_about(about), Event("", "Warning", _LOOP, note))
        self._loops = current
        members_now = {member for members in current for member in members}
        self._context.metrics.loop_members.set(len(members_now))


def _lineages(preemptor: Workload, victim: Workload) -> Lineages:
    return party_of(preemptor).lineage, party_of(victim).lineage


def _reference(workload: Workload) -> ObjectRef:
    return ObjectRef(API_VERSION, "Workload", workload.name, workload.uid, workload.namespace)


def _reference_of(workload: kueue.Workload) -> ObjectRef:
    metadata = workload.metadata
    return ObjectRef(API_VERSION, "Workload", metadata.name, metadata.uid, metadata.namespace)


def _about(ref: ObjectRef) -> Reference:
    return Reference(API_VERSION, "Workload", ref.namespace, ref.name, ref.uid)
