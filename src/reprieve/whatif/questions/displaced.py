"""Who was preempted in a run: for what was submitted, and in turn since it came.

1. Victims are those of the plans that were made for what was submitted, and were evicted.
2. A victim that waits again may have others preempted for it, and these again: the cluster was at
   rest before the submission, so that this comes of it, too. It is the same work where it is
   the same object, or has the same one above it, as a pod that is made again.
3. So does what others, who waited before, have had preempted since then: what moved has given them
   capacity, or used it. What the idle plane frees for no work in particular is not named.
4. A pod that was made anew during the run for one that was preempted, and is preempted itself, is
   not named besides: it was no one's work yet, and on the cluster it would have another name.

Source: the design's "Intent log and executor"; specification 12.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set

import msgspec

from kubeworld.objects.paths import Json, first
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import InvalidInstant, Nanos, parse_instant
from reprieve.api.core import ObjectMeta
from reprieve.api.reprieve import (
    IntentPhase,
    ObjectRef,
    Preemption,
    PreemptionPart,
    PreemptionSpec,
    Victim,
)
from reprieve.engine.lost_work import devices_of, is_device, lost_device_seconds
from reprieve.intake.cluster.metadata import checkpoint_of
from reprieve.kube.resource import PREEMPTION_PARTS, PREEMPTIONS
from reprieve.records.plans.parts import PartsMissing, whole
from reprieve.whatif.happened import Run
from reprieve.whatif.questions.answer import Displaced

__all__ = ["displaced"]


def displaced(run: Run, ours: Set[str], above: Callable[[str], Set[str]]) -> Iterator[Displaced]:
    """Yield those that were preempted, first for what was submitted.

    `ours`: uids of that and all that came of it; `above`: those of what stands above an object.
    """
    yield from _Reading(run, ours, above).victims()


class _Reading:
    """The records of a run."""

    def __init__(self, run: Run, ours: Set[str], above: Callable[[str], Set[str]]) -> None:
        self._run = run
        self._overlay = run.overlay
        self._ours = ours
        self._above = above

    def victims(self) -> Iterator[Displaced]:
        """Yield those that were preempted for what was submitted, then those who did in turn."""
        found = (msgspec.convert(e, Preemption, strict=False) for e in self._new_records())
        records = [each for each in found if each.spec.preemptor is not None]
        lines, in_turn = set(self._ours), False
        seen: set[str] = set()
        lost: set[str] = set()  # uids of what stands above those that were preempted
        while records:
            preempting = [each for each in records if self._is_for(each, lines)]
            if not preempting:
                in_turn, preempting = True, records
            records = [each for each in records if each not in preempting]
            lines = set()
            for record in preempting:
                for victim in self._whole(record).victims:
                    lines |= self._lineage(victim.root.uid) | self._lineage(victim.subject.uid)
                    above = set(self._above(victim.root.uid))
                    anew = self._came_since(victim.root.uid) and not lost.isdisjoint(above)
                    lost |= above
                    if victim.root.uid not in seen and not anew:
                        seen.add(victim.root.uid)
                        yield self._displaced(victim, record, in_turn=in_turn)
            in_turn = True

    def _new_records(self) -> Iterator[Json]:
        """Yield the records that were made since the submission, and were not given up."""
        made = {
            change.object["metadata"]["uid"]
            for change in self._run.history
            if change.old is None and change.kind == (PREEMPTIONS.group, PREEMPTIONS.plural)
        }
        for each in self._overlay.all(PREEMPTIONS):
            given_up = first(each, "status.phase") == IntentPhase.ABANDONED.value
            if each["metadata"]["uid"] in made and not given_up:
                yield each

    def _came_since(self, uid: str) -> bool:
        """Return whether a pod was made since the submission."""
        return any(
            change.old is None and change.kind == ("", "pods")
            for change in self._run.history
            if change.object["metadata"]["uid"] == uid
        )

    def _is_for(self, record: Preemption, lines: set[str]) -> bool:
        preemptor = record.spec.preemptor
        if preemptor is None:
            return False
        line = self._lineage(preemptor.uid)
        # A GpuWorkload, in whose name the idle plane decides, states whose it is in a field.
        resource = self._overlay.resource_of(preemptor.api_version, preemptor.kind)
        found = resource and self._overlay.get(resource, preemptor.namespace, preemptor.name)
        if root := first(found or None, "spec.workloadRef.uid"):
            line |= self._lineage(str(root))
        return not lines.isdisjoint(line)

    def _lineage(self, uid: str) -> set[str]:
        """Return an object's uid and those above it: what is made again has the same above it."""
        return {uid, *self._above(uid)}

    def _whole(self, record: Preemption) -> PreemptionSpec:
        parts = [
            msgspec.convert(each, PreemptionPart, strict=False).spec
            for each in self._overlay.all(PREEMPTION_PARTS)
        ]
        try:
            return whole(record.spec, [e for e in parts if e.plan_id == record.spec.plan_id])
        except PartsMissing:
            return record.spec

    def _displaced(self, victim: Victim, record: Preemption, *, in_turn: bool) -> Displaced:
        root = self._owner(victim.root)
        devices = devices_of(victim.amounts.items())
        start, checkpoint = self._started(victim.subject)
        now = self._run.submitted_at // SECOND
        lost, saved = None, None
        if start is not None:
            lost = lost_device_seconds(start // SECOND, checkpoint, devices, now)
            saved = Nanos(checkpoint * SECOND) if start // SECOND < checkpoint <= now else None
        return Displaced(
            root.kind,
            root.namespace,
            root.name,
            root.uid,
            victim.rule,
            devices,
            lost,
            record.spec.plane,
            {name: amount for name, amount in victim.amounts.items() if is_device(name)},
            saved,
            in_turn,
            *_noticed(victim, record),
            self._delay(record),
        )

    def _delay(self, record: Preemption) -> int:
        """Return how long after the submission a plan was decided, 0 where no work has a delay."""
        try:
            waited = parse_instant(record.spec.decided_at) - self._run.submitted_at
        except InvalidInstant:
            return 0
        # Records are dated in whole seconds.
        return -(-waited // SECOND) * SECOND if self._run.delay and waited >= SECOND else 0

    def _owner(self, root: ObjectRef) -> ObjectRef:
        """Return what people know of a victim: the job of a Workload, else the victim itself."""
        for change in self._run.history:
            obj = change.object
            if obj["metadata"]["uid"] != root.uid or root.kind != "Workload":
                continue
            for owner in obj["metadata"].get("ownerReferences") or ():
                # Of a group without anything above it the Workload is named, which has its name.
                if owner.get("controller") or owner["kind"] != "Pod":
                    return ObjectRef(
                        owner["apiVersion"],
                        owner["kind"],
                        owner["name"],
                        owner["uid"],
                        root.namespace,
                    )
        return root

    def _started(self, subject: ObjectRef) -> tuple[Nanos | None, int]:
        """Return since when a victim ran, and its last checkpoint in Unix seconds, 0 for none.

        As it was when the submission came.
        """
        found = next(
            (
                change.old
                for change in self._run.history
                if change.old is not None and change.old["metadata"]["uid"] == subject.uid
            ),
            None,
        )
        text = first(found, "status.startTime")
        for each in first(found, "status.conditions") or ():
            if each["type"] == "Admitted" and each["status"] == "True":
                text = each.get("lastTransitionTime")
        saved = checkpoint_of(ObjectMeta(annotations=first(found, "metadata.annotations")))
        try:
            return parse_instant(text) if text else None, saved
        except InvalidInstant:
            return None, saved


def _noticed(victim: Victim, record: Preemption) -> tuple[Nanos | None, Nanos | None]:
    """Return when a victim gets notice, and when it is evicted at the latest."""
    if victim.notice is None:
        return None, None
    try:
        evicted_by = parse_instant(victim.notice.extend_until or victim.notice.deadline)
        return parse_instant(record.spec.decided_at), evicted_by
    except InvalidInstant:
        return None, None
