"""Names loops of displacements, and pairs that are held, to those whose work it is.

All planes query one governor, so that a loop may lead through several of them: one place names it,
with all its members, in an event on each, in a metric, and in the conditions of what waits
(`reported_of`, which planes write there). Planes state by which object a lineage is known. In what
tenants read, work of other namespaces has a number. Displacements that are not recorded yet are
withdrawn where that fails, so that a pair is named once its last ones are.

Source: specification of disruptions, sections 4 and 6.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from kubeworld.units.instants import Nanos
from reprieve.engine.disruptions.governor import Governor
from reprieve.engine.disruptions.held_pairs import Families
from reprieve.engine.disruptions.lineage import Lineage, Participant
from reprieve.engine.disruptions.questions import Hold, Loop, Question
from reprieve.execution.fence import Deposed
from reprieve.kube.errors import ApiError
from reprieve.kube.recording.events import EventRecorder
from reprieve.telemetry.metrics import Metrics
from reprieve.units.references import Reference
from reprieve.wording.disruptions import LOOP, PAIR_HELD, loop_text, pair_text

__all__ = ["LoopNotices", "Numbers"]

log: Final = logging.getLogger("reprieve.disruptions")

_CONTROLLER: Final = "reprieve"
_KEPT: Final = 10_000

Pair = tuple[Lineage, Lineage]


class Numbers(Protocol):
    """Who knows what work of other namespaces is called."""

    async def known_as(self, namespace: str, lineage: str) -> str:
        """Return what people of a namespace may know of a lineage of another one."""
        ...


class LoopNotices:
    """What is named at the moment; `show` names what is new and nothing twice.

    `events`: where none are written, None. `changed` is called with members whose loop is another
    one, or none any more.
    """

    def __init__(
        self,
        governor: Governor,
        metrics: Metrics,
        events: EventRecorder | None = None,
        numbers: Numbers | None = None,
        writes: Callable[[], bool] = lambda: True,
    ) -> None:
        """`writes`: whether this process writes events at the moment."""
        self.changed: list[Callable[[Lineage], None]] = []
        self._governor = governor
        self._metrics = metrics
        self._events = events
        self._numbers = numbers
        self._writes = writes
        # The last object of each lineage that was in a displacement.
        self._known: dict[Lineage, Reference] = {}
        self._unwritten: Counter[Pair] = Counter()
        self._pairs: dict[Families, list[str]] = {}  # with their names
        # By names: the end of the hold that was reported last.
        self._reported: dict[tuple[str, ...], Nanos] = {}
        self._loops: dict[tuple[Lineage, ...], Loop] = {}
        self._said: dict[Lineage, str] = {}
        self._busy = False

    # What planes state.

    def remember(self, lineage: Lineage, known: Reference) -> None:
        """Know a lineage that was part of a displacement by this object."""
        self._known[lineage] = known

    def again(self, participant: Participant, known: Reference) -> None:
        """Know a lineage by its new object, if it was part of a displacement."""
        if participant.lineage in self._known:
            self._known[participant.lineage] = known

    @property
    def knows_any(self) -> bool:
        """Whether any lineage was part of a displacement."""
        return bool(self._known)

    def issued(self, pair: Pair) -> None:
        """One displaces the other, which is to be recorded now."""
        self._unwritten[pair] += 1

    def written(self, pair: Pair) -> None:
        """A displacement was recorded, or undone."""
        self._unwritten[pair] -= 1
        if self._unwritten[pair] <= 0:
            del self._unwritten[pair]

    def reported_of(self, lineage: Lineage) -> str:
        """Return the loop that a lineage is in, as its own namespace may know it; empty: none.

        What waits states it in its condition.
        """
        return self._said.get(lineage, "")

    # What is named.

    async def show(self, now: Nanos) -> None:
        """Name which lineages are held and in a loop now, and no other."""
        if self._busy:
            return
        self._busy = True
        try:
            await self._show_pairs(now)
            await self._show_loops(self._governor.loops(now))
        finally:
            self._busy = False
        if len(self._known) > _KEPT:
            concerned = (name for name in self._known if self._governor.concerns(Participant(name)))
            self._known = {name: self._known[name] for name in concerned}

    async def _show_pairs(self, now: Nanos) -> None:
        held = {
            pair: found
            for pair, found in self._governor.held(now).items()
            if pair in self._pairs or not self._is_unwritten(found[0])
        }
        before = Counter(map(self._labels_of, self._pairs.values()))
        for pair in self._pairs.keys() - held.keys():
            del self._pairs[pair]
        for pair in sorted(held.keys() - self._pairs.keys()):
            asked, hold = held[pair]
            names = [self._name(each.lineage) for each in (asked.preemptor, asked.victim)]
            self._pairs[pair] = names
            # A family that grows has another name, and its holds end and begin with it.
            reported = self._reported.pop(tuple(names), Nanos(0))
            if reported < now:
                await self._announce_pair(asked, hold, names, now)
            self._reported[tuple(names)] = max(reported, hold.until)
            while len(self._reported) > _KEPT:
                del self._reported[next(iter(self._reported))]
        self._count_pairs(before)

    def _count_pairs(self, before: Counter[tuple[str, ...]]) -> None:
        gauge, now = self._metrics.held_pairs, Counter(map(self._labels_of, self._pairs.values()))
        for labels in before.keys() - now.keys():
            gauge.remove(*labels)
        for labels, number in now.items():
            gauge.labels(*labels).set(number)

    def _labels_of(self, names: Iterable[str]) -> tuple[str, ...]:
        return tuple(map(self._metrics.names.of, names))

    async def _announce_pair(
        self, asked: Question, hold: Hold, names: list[str], now: Nanos
    ) -> None:
        window = self._governor.policy.loop_window
        first, second = asked.preemptor, asked.victim
        count = self._governor.times
        times = count(first, second, now), count(second, first, now)
        log.warning("%s", pair_text(names[0], names[1], hold, times, window))
        both = [each.lineage for each in (asked.preemptor, asked.victim)]
        for lineage, other in zip(both, reversed(both), strict=True):
            about, related = self._known.get(lineage), self._known.get(other)
            if about is None:
                continue
            called = await self._names_for(about.namespace, both)
            own = related is not None and related.namespace == about.namespace
            note = pair_text(called[0], called[1], hold, times, window)
            self._announce(about, PAIR_HELD, note, related if own else None)

    async def _show_loops(self, loops: Iterable[Loop]) -> None:
        current = {loop.members: loop for loop in loops}
        said: dict[Lineage, str] = {}
        for members, loop in current.items():
            known = self._loops.get(members)
            fresh = known is None or known.found != loop.found
            if fresh:
                log.warning("%s", loop_text(loop, [self._name(each) for each in members]))
            for each in members:
                if not fresh and each in self._said:
                    said[each] = self._said[each]
                elif each in self._known:
                    about = self._known[each]
                    said[each] = loop_text(loop, await self._names_for(about.namespace, members))
                    self._announce(about, LOOP, said[each])
        self._loops = current
        before, self._said = self._said, said
        self._metrics.loop_members.set(len({each for members in current for each in members}))
        for lineage in before.keys() | said.keys():
            if before.get(lineage) != said.get(lineage):
                for tell in self.changed:
                    tell(lineage)

    def _announce(
        self, about: Reference, reason: str, note: str, related: Reference | None = None
    ) -> None:
        if self._events is not None and self._writes():
            self._events.event(
                about, "Warning", reason, reason, note, controller=_CONTROLLER, related=related
            )

    def _is_unwritten(self, asked: Question) -> bool:
        pair = (asked.preemptor.lineage, asked.victim.lineage)
        return pair in self._unwritten or pair[::-1] in self._unwritten

    # Names.

    def _name(self, lineage: Lineage) -> str:
        known = self._known.get(lineage)
        return f"{known.namespace}/{known.name}" if known else lineage

    async def _names_for(self, namespace: str, members: Iterable[Lineage]) -> list[str]:
        """Return the names of lineages as people of a namespace may know them."""
        return [
            self._name(each)
            if each in self._known and self._known[each].namespace == namespace
            else await self._number(namespace, each, place)
            for place, each in enumerate(members, start=1)
        ]

    async def _number(self, namespace: str, lineage: Lineage, place: int) -> str:
        """Return what work of another namespace is called; by its place where it has no number."""
        if self._numbers is not None:
            try:
                return await self._numbers.known_as(namespace, lineage)
            except (ApiError, Deposed) as failure:
                log.warning("workloads of other namespaces have no number yet: %s", failure)
        return f"another tenant's work ({place})"
