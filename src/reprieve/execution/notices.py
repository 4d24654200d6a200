"""Units that got notice before their eviction: what they reported, and which plans wait.

A plan whose record is `Noticed` starts here. From then on its units are notified, and their
statements are accepted until they are released or pardoned. The deadline outlasts this process,
since it stands in the record. So does which pods have saved, while others of their plan still save:
that is recorded before they are answered. How earlier notices of a lineage ended is read from
records.

Source: the contract of notices in `docs/notice-reference.md`.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from kubeworld.units.clock import Clock
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos, format_instant, instant_or_none, parse_instant
from reprieve.api.reprieve import Preemption, Victim
from reprieve.engine.lost_work import devices_of
from reprieve.engine.notice.credit import History
from reprieve.engine.notice.expected import AtStake, Terms, with_notice
from reprieve.engine.notice.granting import Grant, NoticePolicy, Withheld, granted
from reprieve.engine.notice.states import Notice, State
from reprieve.execution.histories import Histories
from reprieve.execution.notified import NO_WORD, Asking, Member, Members, Notified, Word
from reprieve.execution.waiters import Waiters
from reprieve.telemetry.metrics import Metrics

__all__ = ["Asking", "Member", "Notices", "Notified", "Word", "is_notified"]

_NOT_WORTH_IT: Final = Grant(0, 0, Withheld.NOT_WORTH_IT)
_LATEST: Final = 600  # notices that ended, which are still answered for


def is_notified(intent: Preemption) -> bool:
    """Whether a victim of the plan gets notice before its eviction."""
    return any(victim.notice is not None for victim in intent.spec.victims)


class Notices:
    """All notices of a process."""

    def __init__(self, clock: Clock, metrics: Metrics) -> None:
        self._clock = clock
        self._metrics = metrics
        self._notified: dict[str, Notified] = {}  # by id; those that ended come first
        self._by_pod: dict[str, list[str]] = defaultdict(list)
        self._by_plan: dict[str, list[str]] = {}  # open plans alone
        self.waiters = Waiters(clock)
        self._planes: dict[str, bool] = {}  # whether each has adopted its records
        self._lost: dict[str, dict[str, int]] = {}  # by plan and root, of those that had saved
        self.histories = Histories()
        #: Called with each unit that is notified, or whose state has changed.
        self.observers: list[Callable[[Notified], None]] = []

    # The planes.

    def expect(self, plane: str) -> None:
        """Answer no request before this plane has adopted the notices of former processes."""
        self._planes.setdefault(plane, False)

    def inherited(self, plane: str) -> None:
        """A plane knows the notices of former processes, or has to do with none of them."""
        self._planes[plane] = True

    @property
    def ready(self) -> bool:
        """Whether all notices are known that former processes gave."""
        return bool(self._planes) and all(self._planes.values())

    # The plan.

    def grants(
        self,
        policy: NoticePolicy,
        victims: Sequence[Asking],
        *,
        hurried: bool,
        devices: int | None = None,
    ) -> Sequence[Grant]:
        """Return the notice of each victim of a plan, empty where there is none.

        `devices` of the preemptor, where only the victims with the least loss and delay are
        notified; None: all victims that request notice.

        All victims of a unit get the same notice, and none gets less than another plan has granted
        it, unless the preemptor has emergency priority (`hurried`).
        """
        asked: dict[str, list[Asking]] = {}
        for each in victims:
            asked.setdefault(each.unit, []).append(each)
        given, weighed = {}, dict[str, AtStake]()
        for unit, members in asked.items():
            allowed = min(each.allowed for each in members)
            times = (time for each in members for time in each.asked)
            grant = granted(policy, times, emergency=hurried, allowed=allowed)
            left = 0 if hurried else self._left(pod for each in members for pod in each.pods)
            if not left and grant.time and devices is not None:
                weighed[unit] = self._at_stake(members, grant)
            time = max(grant.time, left)
            extension = grant.extension if grant.time else 0
            given[unit] = Grant(time, extension, None if time else grant.withheld)
        if devices is not None:
            tells = with_notice(tuple(weighed.values()), devices)
            for unit, is_notified in zip(weighed, tells, strict=True):
                given[unit] = given[unit] if is_notified else _NOT_WORTH_IT
        found = [given[each.unit] for each in victims]
        return found if any(each.time or each.withheld for each in found) else ()

    def _at_stake(self, members: Sequence[Asking], grant: Grant) -> AtStake:
        devices = sum(each.devices for each in members)
        undone = sum(each.undone * each.devices for each in members)
        save = max(each.save for each in members)
        terms = Terms(grant.time, save, credit=self.credit(members[0].lineage))
        return AtStake(undone // devices if devices else 0, devices, terms)

    def credit(self, lineage: str) -> int:
        """Return how likely work of a lineage is to save on notice, in thousandths."""
        return self.histories.of(lineage).credit(self._clock.wall())

    def _left(self, pods: Iterable[str]) -> int:
        """Return how long other plans that gave these pods notice still wait for them."""
        longest = 0
        for uid in pods:
            notified = self.of_pod(uid)
            if notified is not None and not notified.notice.may_go:
                longest = max(longest, notified.notice.due - self._now(notified))
        return longest

    def begin(self, intent: Preemption, members: Members, *, keeps: bool = False) -> None:
        """Notify the units of a plan that is recorded; a second call changes nothing.

        `keeps`: its victims may state that they are needed.
        """
        name = intent.metadata.name
        if name in self._by_plan:
            return
        self._by_plan[name] = self._all_opened(intent)
        self.follow(intent, members)
        for id in self._by_plan[name]:
            self._notified[id].keeps = keeps
            self._observe(self._notified[id])

    def released_before(self, intent: Preemption, members: Members) -> None:
        """Answer pods for units that a former process released: they are evicted, not pardoned."""
        for notified in [self._notified[id] for id in self._all_opened(intent)]:
            notified.notice = notified.notice.ended(self._now(notified)).released()
            for pod in (pod for victim in notified.victims for pod in members(victim) or ()):
                notified.pods.add(pod.uid)
                self._by_pod[pod.uid].append(notified.id)

    def _all_opened(self, intent: Preemption) -> list[str]:
        units: dict[str, list[Victim]] = {}
        for victim in intent.spec.victims:
            if victim.notice is not None:
                units.setdefault(victim.unit or victim.root.uid, []).append(victim)
        return [self._opened(intent, *each) for each in units.items()]

    def _opened(self, intent: Preemption, unit: str, victims: list[Victim]) -> str:
        said, plan = victims[0].notice, intent.metadata.name
        assert said is not None, "only units with a notice are notified"
        # The preemptor is not disclosed: its uid is part of the record's name, so that is hashed.
        id = hashlib.sha256(f"{plan}/{unit}".encode()).hexdigest()[:32]
        deadline, until = parse_instant(said.deadline), parse_instant(said.extend_until)
        notice, known = Notice(deadline, until, frozenset()), intent.status.lost_after_save
        said_before = [intent.status.extended.get(victim.root.uid, "") for victim in victims]
        extended = max(instant_or_none(each) or 0 for each in said_before)
        now = self._clock.wall()
        notice = notice.notified_before(extended, now)
        if all(victim.root.uid in known for victim in victims):
            # A former process has heard that they saved, and was about to evict them.
            notice = notice.ended(min(now, deadline - 1))
        history = self.histories.of(victims[0].lineage)
        ahead = now - self._clock.monotonic()
        notified = Notified(id, intent, victims, notice, now, ahead, history=history)
        notified.recorded.update(intent.status.saved_pods)
        notified.said.update(notified.recorded)
        self._notified[id] = notified
        return id

    def follow(self, intent: Preemption, members: Members) -> None:
        """Adopt which pods the units of a plan have by now."""
        for notified in self._of_plan(intent):
            found = [members(victim) for victim in notified.victims]
            pods = [pod for each in found for pod in each or ()]
            for pod in pods:
                if pod.uid not in notified.pods:
                    notified.pods.add(pod.uid)
                    self._by_pod[pod.uid].append(notified.id)
                    self.waiters.wake(pod.uid)
            notified.speaks.update(pod.uid for pod in pods if pod.speaks)
            joined = {pod.uid: pod.name for pod in pods if pod.name and not pod.ended}
            if not joined.keys() <= notified.names.keys():
                notified.names |= joined
                self._observe(notified)
            if all(each is None for each in found):
                self._stated(notified, notified.notice.ended(self._now(notified)))
                continue
            said = notified.said
            there = frozenset(pod.uid for pod in pods if not pod.ended and pod.uid not in said)
            notified.heard = notified.heard or not said.isdisjoint(notified.pods)
            speakers = frozenset(notified.speaks or notified.pods)
            self._stated(notified, notified.notice.spoken_for(speakers, there, self._now(notified)))

    def waits(self, intent: Preemption) -> int:
        """Return for how long a plan waits for its units at most, 0 where all may be evicted."""
        longest = 0
        for notified in self._of_plan(intent):
            now = self._now(notified)
            self._stated(notified, notified.notice.at(now))
            if not notified.notice.may_go:
                longest = max(longest, notified.notice.ends - now)
        return longest

    def ready_of(self, intent: Preemption) -> list[Notified]:
        """Return the units of a plan that may be evicted and are not released yet."""
        notified = self._of_plan(intent)
        return [each for each in notified if each.notice.may_go and not each.notice.final]

    def release(self, intent: Preemption, only: Notified | None = None) -> None:
        """The units of a plan are evicted now, those that were not before; or this one of it."""
        for notified in self._of_plan(intent) if only is None else [only]:
            if notified.notice.final:
                continue
            saved = notified.notice.state is State.SAVED
            notified.unheard = not saved and not notified.heard
            if saved:
                self._metrics.saved_device_seconds.labels(intent.spec.plane).inc(notified.at_stake)
                self._lost.setdefault(notified.plan, {}).update(self._losses(notified, intent))
            notified.notice = notified.notice.released()
            self._remember(notified, notified.history.ended(saved=saved, step=notified.word.step))
            self._ended(
                notified, "saved" if saved else "unheard" if notified.unheard else "overdue"
            )
        if only is None:
            self._by_plan.pop(intent.metadata.name, None)

    def _remember(self, notified: Notified, history: History) -> None:
        notified.history = history
        self.histories.keep(notified.lineage, history)

    def _losses(self, notified: Notified, intent: Preemption) -> dict[str, int]:
        """Return what a unit that has saved loses; what its record states of it counts."""
        seconds, found = (self._now(notified) - notified.saved_at) // SECOND, dict[str, int]()
        for victim in notified.victims:
            spent = seconds * devices_of(victim.amounts.items())
            found[victim.root.uid] = found.get(victim.root.uid, 0) + spent
        known = intent.status.lost_after_save
        return {uid: known.get(uid, spent) for uid, spent in found.items()}

    def losses(self, intent: Preemption) -> dict[str, int]:
        """Return the device seconds that victims lose who have saved, by the uids of their roots.

        Of those who are evicted now, and of those of the plan who were before.
        """
        found = dict(self._lost.get(intent.metadata.name, {}))
        for notified in self._of_plan(intent):
            if notified.notice.state is State.SAVED:
                found |= self._losses(notified, intent)
        return found

    def lost(self, intent: Preemption) -> dict[str, int]:
        """Return once what victims of a plan lost that had saved; what its record states counts."""
        return self._lost.pop(intent.metadata.name, {}) | intent.status.lost_after_save

    def pardon(self, intent: Preemption) -> None:
        """The units of a plan stay."""
        for notified in self._of_plan(intent):
            if not notified.notice.final:
                notified.notice = notified.notice.pardoned()
                self._ended(notified, "pardoned")
        self._by_plan.pop(intent.metadata.name, None)

    def _ended(self, notified: Notified, end: str) -> None:
        plane = notified.intent.spec.plane
        self._metrics.notices.labels(plane, end).inc()
        seconds = (self._now(notified) - notified.since) / SECOND
        self._metrics.notice_seconds.labels(plane, end).observe(seconds)
        self._observe(notified)
        for name in (notified.id, *notified.pods):
            self.waiters.wake(name)
        self._notified[notified.id] = self._notified.pop(notified.id)
        over = [each for each in self._notified.values() if each.plan not in self._by_plan]
        for each in over[: max(0, len(over) - _LATEST)]:
            self._forget(each)

    def _observe(self, notified: Notified) -> None:
        for observer in self.observers:
            observer(notified)

    def _forget(self, notified: Notified) -> None:
        del self._notified[notified.id]
        for pod in notified.pods:
            left = [id for id in self._by_pod[pod] if id != notified.id]
            if left:
                self._by_pod[pod] = left
            else:
                del self._by_pod[pod]

    # The pods.

    def of_pod(self, uid: str) -> Notified | None:
        """Return the notice that a pod has to heed: of several the first to be due."""
        found = (self._notified[id] for id in self._by_pod.get(uid, ()))
        heeded = [each for each in found if each.notice.state is not State.PARDONED]
        return min(heeded, key=lambda each: (each.notice.due, each.id), default=None)

    def find(self, id: str, uid: str) -> Notified | None:
        """Return a notice by its id, None where there is none or the pod is not of its unit."""
        notified = self._notified.get(id)
        return notified if notified is not None and uid in notified.pods else None

    def saving(self, notified: Notified, uid: str, expected: int = 0, word: Word = NO_WORD) -> None:
        """A pod of the unit reports that it saves."""
        self._hear(notified, uid, word)
        said = notified.notice.saving(uid, self._now(notified), expected)
        if said.extended and not notified.notice.extended:
            # No pod is notified of an extension before it is recorded, so that the next leader
            # knows.
            notified.wished = said.extended
            said = said.being_recorded(self._now(notified))
            self.waiters.wake(notified.plan)
        self._stated(notified, said)

    def wishes(self, intent: Preemption) -> dict[str, str]:
        """Return to when deadlines are to be extended, by the uids of roots."""
        return {
            victim.root.uid: format_instant(Nanos(notified.wished))
            for notified in self._of_plan(intent)
            if notified.wished and notified.notice.at(self._now(notified)).waits
            for victim in notified.victims
        }

    def extend(self, intent: Preemption) -> None:
        """Extend deadlines as the record of the plan states."""
        for notified in self._of_plan(intent):
            recorded = [intent.status.extended.get(each.root.uid, "") for each in notified.victims]
            if notified.wished and all(recorded):
                until, notified.wished = max(instant_or_none(each) or 0 for each in recorded), 0
                self._stated(notified, notified.notice.extended_to(until, self._now(notified)))
                self.waiters.wake(notified.id)

    def unrecorded(self, intent: Preemption) -> list[str]:
        """Return the pods whose saves are to be recorded, since their plan still waits."""
        notified = self._of_plan(intent)
        if all(each.notice.may_go for each in notified):
            return []
        return sorted(set[str]().union(*(each.said - each.recorded for each in notified)))

    def recorded(self, intent: Preemption, pods: Sequence[str]) -> None:
        """The saves of these pods are recorded."""
        for notified in self._of_plan(intent):
            notified.recorded.update(notified.said.intersection(pods))
            self.waiters.wake(notified.id)

    async def settled(self, notified: Notified, uid: str, nanoseconds: int) -> None:
        """Return when what a pod reported is recorded, or after so long."""
        until = self._clock.monotonic() + nanoseconds
        while notified.wished or uid in self.unrecorded(notified.intent):
            left = until - self._clock.monotonic()
            if left <= 0:
                return
            await self.waiters.wait(notified.id, left)

    def saved(self, notified: Notified, uid: str, word: Word = NO_WORD) -> None:
        """A pod of the unit reports that it has saved."""
        self._hear(notified, uid, word)
        if uid in notified.notice.speakers and notified.notice.waits and uid not in notified.said:
            notified.said.add(uid)
            self.waiters.wake(notified.plan)
        self._stated(notified, notified.notice.has_saved(uid, self._now(notified)))

    def keep(self, notified: Notified, uid: str) -> None:
        """A pod of the unit reports that it is needed."""
        self._hear(notified, uid, NO_WORD)
        if notified.keeps and uid in notified.notice.speakers and not notified.notice.final:
            notified.kept = True
            self.waiters.wake(notified.plan)

    def kept(self, intent: Preemption) -> list[Victim]:
        """Return the victims of a plan that were reported as needed."""
        return [
            victim
            for notified in self._of_plan(intent)
            if notified.kept
            for victim in notified.victims
        ]

    def _hear(self, notified: Notified, uid: str, word: Word) -> None:
        if uid in notified.notice.speakers and not notified.notice.final:
            notified.heard, notified.word = True, word if word != NO_WORD else notified.word
            now = self._clock.wall()
            distrusted = notified.history.reports(word.step, now) if word.step >= 0 else None
            if distrusted is not None and distrusted != notified.history:
                self._remember(notified, distrusted)

    def _stated(self, notified: Notified, notice: Notice) -> None:
        changed = notified.notice != notice
        notified.notice = notice
        if notice.state is State.SAVED and not notified.saved_at:
            notified.saved_at = self._now(notified)
        if changed:
            self._observe(notified)
        if notice.may_go:
            self.waiters.wake(notified.plan)
            self.waiters.wake(notified.id)

    def _of_plan(self, intent: Preemption) -> list[Notified]:
        return [self._notified[id] for id in self._by_plan.get(intent.metadata.name, ())]

    def _now(self, notified: Notified) -> int:
        """Return the time by the wall clock of the notice's start: no later step changes it."""
        return self._clock.monotonic() + notified.ahead
