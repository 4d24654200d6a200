"""What a cycle's entries write: statuses of workloads as the API would hold them, and events."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

from kubeworld.units.instants import parse_instant
from reprieve.engine.quota.assigning.requests import pod_set_requests
from reprieve.engine.quota.entries import Entry, Outcome
from reprieve.engine.quota.holdings.amounts import text
from reprieve.engine.quota.holdings.tree import Tree
from reprieve.engine.quota.model import Admission, Configuration, Settings, Workload
from reprieve.engine.quota.targets.candidates import Target
from reprieve.engine.quota.waiting.timing import queue_timestamp
from reprieve.engine.topology.encoding import encoded
from reprieve.wording import kueue
from reprieve.wording.events import EventText

Json = dict[str, Any]


class Statuses:
    """Workload objects by key, written to as the reference does."""

    def __init__(self, workloads: Iterable[Json], now: str) -> None:
        self.objects = {self._key(each): copy.deepcopy(each) for each in workloads}
        self.now = now
        self.events: list[Json] = []

    @staticmethod
    def _key(each: Json) -> str:
        metadata = each.get("metadata") or {}
        return f"{metadata.get('namespace') or ''}/{metadata.get('name') or ''}"

    def emit(self, subject: str, *events: EventText) -> None:
        self.events += [
            {"object": subject, "type": e.type, "reason": e.reason, "message": e.message}
            for e in events
        ]

    def set(self, key: str, kind: str, status: bool, reason: str, message: str) -> None:
        each = self.objects[key]
        conditions = each.setdefault("status", {}).setdefault("conditions", [])
        found = next((c for c in conditions if c["type"] == kind), None)
        if found is None:
            found = {"type": kind, "status": ""}
            conditions.append(found)
        if found["status"] != str(status):
            found["lastTransitionTime"] = self.now
        found.update(status=str(status), reason=reason, message=message)
        generation = each["metadata"].get("generation")
        if generation:
            found["observedGeneration"] = generation

    def is_true(self, key: str, kind: str) -> Json | None:
        conditions = (self.objects[key].get("status") or {}).get("conditions") or ()
        return next((c for c in conditions if c["type"] == kind and c["status"] == "True"), None)

    def preempt(
        self, tree: Tree, preemptor: Workload, queue: int, target: Target, boosted: bool = False
    ) -> None:
        key, victim = target.holder.key, target.holder.workload
        message = kueue.preemption_message(
            preemptor, target.reason, tree.cohort_path(queue), tree.cohort_path(target.holder.queue)
        )
        self.set(key, "Evicted", True, "Preempted", message)
        self.set(key, "Preempted", True, str(target.reason), message)
        status = self.objects[key]["status"]
        for check in status.get("admissionChecks") or ():
            check.update(
                message=f"Reset to Pending after eviction. Previously: {check['state']}",
                state="Pending",
                lastTransitionTime=self.now,
            )
        if self.is_true(key, "BlockedOnPreemptionGates"):
            self.set(key, "BlockedOnPreemptionGates", False, "Preempted", message)
        evictions = status.setdefault("schedulingStats", {}).setdefault("evictions", [])
        known = next((e for e in evictions if e["reason"] == "Preempted"), None)
        if known is None:
            evictions.append({"reason": "Preempted", "underlyingCause": "", "count": 1})
        else:
            known["count"] += 1
        name = tree.names[target.holder.queue]
        self.emit(victim.key, *kueue.eviction_events(preemptor, victim, message, boosted))
        self.emit(preemptor.key, kueue.preempted_workload_event(preemptor, victim, name, boosted))

    def apply(self, entry: Entry, tree: Tree, configuration: Configuration) -> None:
        key, settings = entry.workload.key, configuration.settings
        if entry.outcome in (Outcome.NODE_FAILED, Outcome.UNPLACED):
            return
        if entry.outcome in (Outcome.NODE_REPLACED, Outcome.PLACED):
            assert entry.admission is not None
            self.objects[key]["status"]["admission"] = admission_json(entry.admission)
            return
        for target in entry.issued:
            self.preempt(tree, entry.workload, entry.queue, target, settings.gates.priority_boost)
        if entry.outcome is Outcome.ADMITTED:
            self._reserve(entry, configuration)
            return
        self.set(key, "QuotaReserved", False, entry.reason, entry.message)
        if entry.outcome is Outcome.GATED:
            self.set(key, "BlockedOnPreemptionGates", True, "PreemptionGated", entry.message)
        self.set(key, "Admitted", False, "NoReservation", "The workload has no reservation")
        self.objects[key]["status"]["resourceRequests"] = resource_requests(
            entry.workload, settings, configuration
        )
        self.emit(key, kueue.pending_event(entry.workload, entry.reason, entry.message))

    def _reserve(self, entry: Entry, configuration: Configuration) -> None:
        key, name = entry.workload.key, entry.cluster_queue
        assert entry.admission is not None and entry.assignment is not None
        status = self.objects[key].setdefault("status", {})
        status["admission"] = admission_json(entry.admission)
        status.pop("resourceRequests", None)
        self.set(key, "QuotaReserved", True, "QuotaReserved", kueue.quota_reserved_message(name))
        for kind in ("Evicted", "Preempted", "BlockedOnPreemptionGates"):
            found = self.is_true(key, kind)
            if found:
                self.set(key, kind, False, "QuotaReserved", f"Previously: {found['message']}")
        queued = queue_timestamp(entry.workload, configuration.settings)
        now = parse_instant(self.now)
        text = kueue.quota_reserved_event(entry.workload, name, queued, now, entry.assignment)
        self.emit(key, text)
        checks = {c["name"]: c["state"] for c in status.get("admissionChecks") or ()}
        for check in status.get("admissionChecks") or ():
            check.setdefault("lastTransitionTime", self.now)
        required = configuration.cluster_queues[name].checks
        if not set(required) <= set(checks) or any(s != "Ready" for s in checks.values()):
            message = "The workload has not all checks ready"
            self.set(key, "Admitted", False, "UnsatisfiedAdmissionChecks", message)
        else:
            self.set(key, "Admitted", True, "Admitted", "The workload is admitted")
            self.emit(key, kueue.admitted_event(entry.workload, name))
        if entry.replaced is not None:
            message = kueue.slice_replaced_message(entry.workload)
            old = entry.replaced.key
            self.set(old, "Finished", True, "WorkloadSliceReplaced", message)
            self.emit(old, EventText("Normal", "WorkloadSliceReplaced", message))


def resource_requests(
    workload: Workload, settings: Settings, configuration: Configuration
) -> list[Json]:
    return [
        {
            "name": each.pod_set.name,
            "resources": {name: text(name, value) for name, value in each.amounts.items()},
        }
        for each in pod_set_requests(workload, settings)
    ]


def admission_json(admission: Admission) -> Json:
    pod_sets = []
    for each in admission.pod_sets:
        pod_set: Json = {"name": each.name, "count": each.count}
        if each.flavors:
            pod_set["flavors"] = dict(each.flavors)
        if each.usage:
            pod_set["resourceUsage"] = {n: text(n, value) for n, value in each.usage.items()}
        if each.topology is not None:
            pod_set["topologyAssignment"] = encoded(each.topology)
        if each.delayed:
            pod_set["delayedTopologyRequest"] = "Pending"
        pod_sets.append(pod_set)
    return {"clusterQueue": admission.cluster_queue, "podSetAssignments": pod_sets}
