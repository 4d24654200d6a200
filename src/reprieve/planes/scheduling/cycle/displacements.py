"""The scheduling plane and the governor of disruptions: what a unit needs of it, and its reports.

Before a unit is decided about, the lineages that are held from it are looked up, and enter the
decision as a fact. Reported are plans, pods that get a node (nothing was preempted for them in
vain) and pods that fail: a container that ended with an error, or one that cannot be started. Pods
whose failure is part of their eviction do not count.

With `--watch-others` what others evict counts for the protection of that work, as pods state it in
their condition `DisruptionTarget`; nothing of it is held against any lineage. An eviction by a
node's failure or a drain (an eviction from a node that accepts no pods) protects no work. Source:
specification of disruptions, sections 3 and 4.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from kubeworld.units.clock import Clock
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.api.reprieve import ObjectRef, Preemption
from reprieve.engine.cluster.rows import PodRow
from reprieve.engine.disruptions.governor import Governor
from reprieve.engine.disruptions.ledger import Actor, Displacement, Exemption
from reprieve.engine.disruptions.lineage import Lineage, Participant
from reprieve.engine.disruptions.questions import Enforcement, Hold, Question
from reprieve.engine.plan import Plan
from reprieve.engine.scheduling.outcome import Unit
from reprieve.execution.accounts.returns import Returns
from reprieve.execution.not_evictable import NotEvictable
from reprieve.intake.lineage import pod_lineage, pod_participant, unlinked_participant
from reprieve.planes.common.disruptions.displacements import Issued, PlaneDisplacements, Side
from reprieve.planes.common.disruptions.loop_notices import LoopNotices
from reprieve.planes.scheduling.context import log
from reprieve.planes.scheduling.cycle.harm import SchedulingHarm
from reprieve.planes.scheduling.references import pod_reference
from reprieve.planes.scheduling.state import ClusterState
from reprieve.units.ids import Uid

__all__ = ["SchedulingDisplacements"]

_BY_API: Final = "EvictionByEvictionAPI"
_EXEMPT: Final[Mapping[str, Exemption]] = {
    "DeletionByTaintManager": Exemption.NODE_FAILURE,
    "DeletionByPodGC": Exemption.NODE_FAILURE,
    "TerminationByKubelet": Exemption.NODE_FAILURE,
}
_STRICTLY: Final = 1  # no victim of this plane has a priority that is not lower


class SchedulingDisplacements:
    """Follows which pods are which lineage.

    `others` is called with what other actors displaced; without it that is not followed. `loops`:
    names loops; `returns`: reports when displaced work runs again.
    """

    def __init__(
        self,
        governor: Governor,
        state: ClusterState,
        clock: Clock,
        others: Callable[[Displacement], bool] | None = None,
        loops: LoopNotices | None = None,
        returns: Returns | None = None,
        *,
        restores: bool = False,
    ) -> None:
        """`restores`: `restore` is still to come, and states which evictions were our own."""
        self._others = others
        # Pods that were seen to be evicted before it was known by which actor.
        self._early: list[PodRow] | None = [] if restores else None
        self._returns = returns
        self._loops = loops
        self.reported = PlaneDisplacements(
            governor, Actor.SCHEDULING, self._waits, loops, self._is_there
        )
        self.not_evictable = NotEvictable()
        self.harm = SchedulingHarm(governor, state, clock)
        self._governor = governor
        self._state = state
        self._clock = clock
        # Pods with a node, by lineage, each known by the pod that was seen last.
        self._placed: dict[Lineage, set[Uid]] = {}
        # What more is known of a lineage is read once a lineage is held from others.
        self._participants: dict[Lineage, PodRow | Participant] = {}
        self._lineages: dict[Uid, Lineage] = {}
        # Pods that have not finished, by lineage, of those that have an owner or a gang.
        self._unfinished: Counter[Lineage] = Counter()
        state.observers.append(self._seen)

    def holds(self, units: Iterable[Unit]) -> dict[Unit, Mapping[Uid, Hold]]:
        """Return what is held from each of these units, as far as any is."""
        found: dict[Unit, Mapping[Uid, Hold]] = {}
        refused = self.not_evictable.held(self._clock.wall())
        if refused:
            units = list(units)
            found.update(dict.fromkeys(units, refused))
        for unit in units:
            rows = [row for uid in unit.pods if (row := self._state.pod(uid)) is not None]
            held: dict[Uid, Hold] = {}
            if rows and self._governor.may_hold(participant := pod_participant(rows[0])):
                held = self._held_from(participant, self._priority(unit, rows))
            if rows and self.harm:
                held = self.harm.held(unit, rows, self._lineages) | held
            if held:
                found[unit] = {**held, **refused}
        return found

    def issue(self, plan: Plan, pods: Sequence[Uid], lost: Sequence[int]) -> Issued:
        """Record a plan for these pods; `lost`: with each of its victims."""
        rows = [row for uid in pods if (row := self._state.pod(uid)) is not None]
        sides = self.harm.sides(plan)
        return self.reported.issue(
            plan,
            self._clock.wall(),
            pod_participant(rows[0]) if rows else None,
            [
                Side(
                    self._participant(Uid(victim.root.uid)),
                    seconds,
                    _STRICTLY,
                    sides.get(str(victim.root.uid)),
                )
                for victim, seconds in zip(plan.victims, lost, strict=True)
            ],
            priority=max((row.priority for row in rows), default=0),
            asks=self.harm.asks(rows) if rows else None,
        )

    def loop_of(self, unit: Unit) -> str:
        """Return the loop that a unit is in, in words for its namespace; empty where in none."""
        if self._loops is None or not self._loops.knows_any:
            return ""
        row = next((row for uid in unit.pods if (row := self._state.pod(uid)) is not None), None)
        return "" if row is None else self._loops.reported_of(pod_participant(row).lineage)

    def restore(self, intents: Iterable[Preemption], interrupted: Collection[str] = ()) -> None:
        """Adopt what former processes did, and what pods still state of how they failed."""
        self.reported.restore(intents, interrupted)
        early, self._early = self._early, None
        for row in early or ():
            self._note_other(row)
        for row in self._state.pods():
            if row.failed:  # of most pods nothing is to be stated
                self._note_failure(None, row)

    def _held_from(self, participant: Participant, priority: int) -> dict[Uid, Hold]:
        now, found = self._clock.wall(), dict[Uid, Hold]()
        by_pod = self._governor.policy.enforcement is not Enforcement.TOLD
        known = self._governor.known_by(participant, now, below=False)
        if known is not None and not known:
            return found
        for lineage, uids in self._placed.items():
            victim = self._participant_of(lineage)
            if known is not None and known.isdisjoint(victim.names):
                continue
            asked = Question(participant, victim, now, priority, above=_STRICTLY)
            if not by_pod:
                hold = self._governor.hold(asked)
                found.update(dict.fromkeys(uids, hold) if hold is not None else {})
            elif self._governor.may_hold(participant) or self._governor.concerns(victim):
                for uid in uids:
                    hold = self._governor.hold(self._since_start(asked, uid))
                    if hold is not None:
                        found[uid] = hold
        return found

    def _since_start(self, asked: Question, uid: Uid) -> Question:
        row = self._state.pod(uid)
        start = None if row is None or row.start is None else Nanos(row.start * SECOND)
        return Question(
            asked.preemptor,
            asked.victim,
            asked.now,
            asked.priority,
            above=asked.above,
            running_since=start,
        )

    def _priority(self, unit: Unit, rows: Sequence[PodRow]) -> int:
        group = self._state.group(unit.group) if unit.group else None
        return rows[0].priority if group is None else group.priority

    def _participant_of(self, lineage: Lineage) -> Participant:
        found = self._participants[lineage]
        if not isinstance(found, Participant):
            found = self._participants[lineage] = pod_participant(found)
        return found

    def _participant(self, uid: Uid) -> Participant:
        row = self._state.pod(uid)
        return Participant(Lineage(f"object/{uid}")) if row is None else pod_participant(row)

    def _waits(self, ref: ObjectRef) -> bool:
        """Whether a pod waits for a node; of groups, one of their pods."""
        if ref.kind == "Pod":
            row = self._state.pod(Uid(ref.uid))
            return row is not None and self._state.ours(row)
        return any(
            self._state.ours(row) for row in self._state.members(f"{ref.namespace}/{ref.name}")
        )

    # What pods do.

    def _seen(self, old: PodRow | None, row: PodRow | None) -> None:
        if row is None:
            if old is not None:
                self._forget(old.uid)
                self._count(old, None)
            return
        self._count(old, row)
        if old is None and self._loops is not None and self._loops.knows_any:
            self._loops.again(pod_participant(row), pod_reference(row))
        if not row.node or row.finished:
            self._forget(row.uid)
        elif row.uid not in self._lineages:
            self._place(old, row)
        elif old is not None and old.labels != row.labels:
            self._forget(row.uid)
            self._place(old, row)
        elif old != row:
            self.harm.placed(row)
        if self._returns is not None:
            self._note_running(self._returns, old, row)
        if row.failed or row.stuck:
            self._note_failure(old, row)
        if self._others is not None and row.disrupted and (old is None or not old.disrupted):
            self._note_other(row)

    def _note_other(self, row: PodRow) -> None:
        """Record a pod that another actor evicts."""
        if self._others is None or not row.node:
            return
        if self._early is not None:
            self._early.append(row)
            return
        if self.reported.evicts(row.uid):
            return
        exempt = _EXEMPT.get(row.disrupted, Exemption.NONE)
        if row.disrupted == _BY_API and self._state.is_cordoned(row.node):
            exempt = Exemption.DRAIN
        found = Displacement(
            self._clock.wall(), Actor.OTHER, None, pod_participant(row), row.uid, exempt=exempt
        )
        if self._others(found):
            log.info(
                "pod %s/%s was evicted by another component: %s",
                row.namespace,
                row.name,
                row.disrupted,
            )

    def _place(self, old: PodRow | None, row: PodRow) -> None:
        lineage = pod_lineage(row)
        self._lineages[row.uid] = lineage
        uids = self._placed.get(lineage)
        if uids is None:
            uids = self._placed[lineage] = set()
        uids.add(row.uid)
        self._participants[lineage] = row
        self.harm.placed(row)
        if old is not None and not old.node:
            self._governor.admitted(pod_participant(row), self._clock.wall())

    def _note_running(self, returns: Returns, old: PodRow | None, row: PodRow) -> None:
        """Report a pod that got a node, or was there with one already when it was first seen."""
        if not row.node or row.finished or row.deleting:
            return
        if old is None and row.start is not None:
            returns.runs(unlinked_participant(row), row.uid, Nanos(row.start * SECOND))
        elif old is None or not old.node:
            returns.runs(unlinked_participant(row), row.uid, self._clock.wall())

    def _note_failure(self, old: PodRow | None, row: PodRow) -> None:
        if row.deleting or row.disrupted:
            return
        if row.failed > (0 if old is None else old.failed):
            # Such instants have whole seconds: the end of that second is no earlier.
            self._governor.failed(pod_participant(row), Nanos(row.failed * SECOND + SECOND - 1))
        elif row.stuck and old is not None and not old.stuck:
            self._governor.failed(pod_participant(row), self._clock.wall())

    def _count(self, old: PodRow | None, row: PodRow | None) -> None:
        """Count the pods of a lineage, and report when its last one is deleted or has finished."""
        before = old is not None and not old.finished
        after = row is not None and not row.finished
        known = row or old
        if before == after or known is None:
            return
        several = bool(known.controller or known.group or known.gang)
        if several:
            lineage = pod_lineage(known)
            self._unfinished[lineage] += 1 if after else -1
            if self._unfinished[lineage] > 0:
                return
            del self._unfinished[lineage]
        if before and self._governor.knows_any:
            self._governor.ended(pod_participant(known), self._clock.wall())

    def _is_there(self, lineage: Lineage) -> bool:
        return lineage in self._unfinished

    def _forget(self, uid: Uid) -> None:
        lineage = self._lineages.pop(uid, None)
        if lineage is None:
            return
        self.harm.gone(uid)
        uids = self._placed[lineage]
        uids.discard(uid)
        if not uids:
            del self._placed[lineage]
            del self._participants[lineage]
