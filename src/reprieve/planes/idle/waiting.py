"""Why no workload is preempted for the demands of the idle plane: counted, in events, answered.

After each evaluation every demand for which nothing is preempted is counted by its reason, found by
sums alone; an event on its GpuWorkload states it when the reason differs from the one reported
last. The engine decides again only for a query. The waiting members of a gang are one demand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from kubeworld.units.instants import Nanos
from reprieve.engine.diagnosis.idle import IdleFacts, counted, counted_reasons, diagnose_demand
from reprieve.engine.diagnosis.model import Diagnosis
from reprieve.engine.diagnosis.reasons import Reason
from reprieve.engine.idle.evaluation import evaluate
from reprieve.engine.idle.model import IdleSnapshot, Phase
from reprieve.engine.idle.outcome import Evaluation
from reprieve.engine.plan import Plane
from reprieve.planes.idle.context import IdleContext, log
from reprieve.planes.idle.ownership import Ownership
from reprieve.planes.idle.workloads import TrackedWorkloads, key_of
from reprieve.records.idle.record import encode
from reprieve.units.ids import GpuWorkloadKey, Uid
from reprieve.units.references import Reference
from reprieve.wording.diagnosis import waiting_event

__all__ = ["Waiting"]


class Waiting:
    """Reasons of the demands that wait; `snapshot` gives the engine's view of now."""

    def __init__(
        self,
        context: IdleContext,
        workloads: TrackedWorkloads,
        ownership: Ownership,
        snapshot: Callable[[], IdleSnapshot],
    ) -> None:
        self._context = context
        self._workloads = workloads
        self._ownership = ownership
        self._snapshot = snapshot
        self._reported: dict[Uid, Reason] = {}

    def record(self, snapshot: IdleSnapshot, evaluation: Evaluation, now: Nanos) -> None:
        """Count and report the demands of an evaluation; it never fails the caller."""
        try:
            self._count(self._facts(snapshot, evaluation, now))
        except Exception:
            log.exception("the reasons of pending workloads are not reported")

    def diagnosis(self, namespace: str, name: str) -> Diagnosis | None:
        """Return why no workload is preempted for a GpuWorkload.

        None: it is not followed, a workload is preempted for it, or what it needs is on its way.
        """
        key = key_of(namespace, name)
        return self._asked([key]).get(key)

    def diagnoses(self) -> dict[GpuWorkloadKey, Diagnosis]:
        """Return why no workload is preempted, by `namespace/name` of each waiting GpuWorkload."""
        waiting = (e.key for e in self._workloads if e.status.phase is Phase.PENDING_GPU)
        return self._asked(sorted(waiting))

    def _asked(self, keys: list[GpuWorkloadKey]) -> dict[GpuWorkloadKey, Diagnosis]:
        snapshot, now = self._snapshot(), self._context.clock.wall()
        evaluation = evaluate(snapshot, self._context.start.policy, now)
        facts, found = self._facts(snapshot, evaluation, now), {}
        for key in keys:
            held = self._workloads.get(key)
            if held is None:
                continue
            pods = {Uid(pod.uid) for pod in self._ownership.pods_of(held.root)}
            said = diagnose_demand(facts, key, pods)
            if said is not None:
                found[key] = said
        return found

    def _facts(self, snapshot: IdleSnapshot, evaluation: Evaluation, now: Nanos) -> IdleFacts:
        waits = any(each.status.phase is Phase.PENDING_GPU for each in snapshot.workloads)
        busy = self._busy() if waits else {}
        return IdleFacts(snapshot, self._context.start.policy, now, evaluation, busy)

    def _busy(self) -> Mapping[Reference, Mapping[str, int]]:
        """Return what work holds that is followed and uses its GPUs."""
        return {
            held.ref: held.object.spec.gpu_resources or {}
            for held in self._workloads
            if held.status.phase is Phase.ACTIVE
        }

    def _count(self, facts: IdleFacts) -> None:
        found = counted_reasons(facts)
        decision_log = self._context.decision_log
        self._context.metrics.show_waiting(Plane.IDLE, Counter(found.values()))
        for ref, reason in found.items():
            if self._reported.get(ref.uid) is not reason:
                self._reported[ref.uid] = reason
                said = counted(facts, ref, reason)
                self._context.announce(ref, waiting_event(said))
                if decision_log is not None:
                    decision_log.waits(ref.uid, ref, said)
            if decision_log is not None and decision_log.samples.is_due():
                recorded = encode(facts.snapshot, facts.policy, facts.now)
                decision_log.decided_on(Plane.IDLE, ref, reason, recorded)
        waiting = {
            each.ref.uid
            for each in facts.snapshot.workloads
            if each.status.phase is Phase.PENDING_GPU
        }
        for uid in self._reported.keys() - waiting:
            del self._reported[uid]
            if decision_log is not None:
                decision_log.waits_no_longer(Plane.IDLE, uid)
