"""Vectors of the idle plane that decide: one evaluation, or passes of the reconciler.

The formats leave out what the cases do not vary. Samples of a stored status count as polled at
their `lastUpdate`. In `decision_evaluate` a workload that is Idle without pods and samples stands
for one whose running pod was measured just now: that is how it came to be Idle.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import msgspec

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos, parse_instant
from reprieve.api.kaiwo import GpuWorkload
from reprieve.engine.idle.check import check_all
from reprieve.engine.idle.evaluation import evaluate
from reprieve.engine.idle.lifecycle import marked, step
from reprieve.engine.idle.lifecycle_facts import (
    DeleteOutcome,
    Facts,
    Missing,
    Present,
    RootState,
    Step,
    Unreadable,
)
from reprieve.engine.idle.literal import LiteralSwitches
from reprieve.engine.idle.model import (
    GpuSample,
    IdleSnapshot,
    Phase,
    PodRow,
    Policy,
    Settings,
    Status,
    TrackedPod,
    Workload,
)
from reprieve.engine.idle.resources import workload_gpus
from reprieve.engine.idle.transitions import Action
from reprieve.engine.plan import Plan
from reprieve.intake.gpuworkloads import status_to_api, workload_row
from reprieve.intake.pods import gpus_of, pod_row, quota_short
from reprieve.settings.idle import environment_tier, kaiwo_config_tier, overrides_of, resolve
from reprieve.units.ids import Uid
from reprieve.wording.kaiwo import (
    conditions_after,
    event_text,
    marked_conditions,
    preemption_started,
    with_reasons,
)
from tests.conformance.world import Json, World


def run_evaluate(given: Json, literal: LiteralSwitches) -> Json:
    """One global evaluation -> `{"preempt": {key: {"for", "reason"}}}`."""
    now = parse_instant(given["now"])
    plans = _plans(evaluated(given, literal), literal, now)
    return {
        "preempt": {
            f"{victim.subject.namespace}/{victim.subject.name}": {
                "for": "" if plan.preemptor is None else plan.preemptor.name,
                "reason": victim.reason,
            }
            for plan in plans
            for victim in plan.victims
        }
    }


def evaluated(given: Json, literal: LiteralSwitches) -> list[Workload]:
    """Return the workloads that a case's evaluation looks at."""
    now = parse_instant(given["now"])
    world = World(given.get("pods") or [])
    return [
        _measured(_row(msgspec.convert(each, GpuWorkload), world, given, literal), literal, now)
        for each in given["workloads"]
    ]


def run_reconcile(given: Json, literal: LiteralSwitches) -> Json:
    """Passes of the reconciler over one workload -> everything that `expect` may hold."""
    reconciler = _Reconciler(given, literal)
    for _ in range(given.get("reconciles", 1)):
        reconciler.reconcile()
    return reconciler.outcome()


class _Reconciler:
    def __init__(self, given: Json, literal: LiteralSwitches) -> None:
        self.given = given
        self.literal = literal
        self.policy = Policy(literal=literal)
        self.now = parse_instant(given["now"])
        self.world = World(given.get("objects") or [], given.get("forbidden") or [])
        self.subject = msgspec.convert(given["workload"], GpuWorkload)
        self.row = _polled(_row(self.subject, self.world, given, literal))
        self.conditions = list(self.subject.status.conditions or [])
        self.others: dict[str, Json] = {}
        self.events: list[str] = []
        self.requeue: int | None = None
        self.removed = False

    def reconcile(self) -> None:
        decided = self._step(None)
        if decided.action is Action.DELETE_ROOT:
            decided = self._step(self._delete_root())
        if decided.action is Action.DELETE_GPU_WORKLOAD:
            self.removed = True
        if decided.action is Action.EVALUATE:
            self._evaluate()

    def outcome(self) -> Json:
        status = msgspec.to_builtins(status_to_api(self.row.status, self.conditions))
        return {
            "status": status,
            "gpuResources": dict(self.row.gpus),
            "conditions": [
                {key: text for key, text in each.items() if key != "lastTransitionTime"}
                for each in status.get("conditions", [])
            ],
            "deleted": self.world.deleted,
            "events": self.events,
            "requeue_after": None if self.requeue is None else self.requeue / SECOND,
            "gpuworkload_deleted": self.removed,
            "other": self.others,
        }

    def _step(self, delete: DeleteOutcome | None) -> Step:
        before = replace(self.row, pods=_pods(self.row, self.world, self.literal))
        facts = Facts(
            root=self._root(),
            quota_short=quota_short(before.root.uid, before.gpus, self.world.kueue_workloads()),
            delete=delete,
        )
        decided = step(before, facts, self.policy, self.now)
        self.events += [str(event_text(event, before)) for event in decided.events]
        self.conditions = conditions_after(self.conditions, decided, before, self.now)
        self.requeue = decided.requeue
        self.row = replace(before, status=decided.status, gpus=decided.gpus)
        return decided

    def _root(self) -> RootState:
        root = self.row.root
        if ("get", root.kind) in self.world.forbidden:
            return Unreadable("forbidden")
        each = self.world.get(root.kind, root.namespace, root.name)
        return Missing() if each is None else Present(Uid(each["metadata"].get("uid", "")))

    def _delete_root(self) -> DeleteOutcome:
        root = self.row.root
        if ("delete", root.kind) in self.world.forbidden:
            return DeleteOutcome.FORBIDDEN
        each = self.world.get(root.kind, root.namespace, root.name)
        if each is None:
            return DeleteOutcome.NOT_FOUND
        if each["metadata"].get("uid") != root.uid and not self.literal.delete_without_uid:
            return DeleteOutcome.UID_CONFLICT
        self.world.delete(each)
        return DeleteOutcome.ACCEPTED

    def _evaluate(self) -> None:
        others = [
            _measured(_row(each, self.world, self.given, self.literal), self.literal, self.now)
            for each in self.world.gpu_workloads()
        ]
        workloads: dict[str, Workload] = {w.key: w for w in (self.row, *others)}
        for plan in _plans(workloads.values(), self.literal, self.now):
            for victim in plan.victims:
                before = workloads[f"{victim.subject.namespace}/{victim.subject.name}"]
                preempted_for = "" if plan.preemptor is None else plan.preemptor.name
                status = marked(before.status, preempted_for, victim.reason)
                started = preemption_started(plan, victim, before, self.now)
                if before.key == self.row.key:
                    self.row = replace(self.row, status=status)
                    self.events.append(str(started))
                    self.conditions = marked_conditions(self.conditions, started, self.now)
                else:
                    self._mark(before, status)

    def _mark(self, before: Workload, status: Status) -> None:
        written = msgspec.to_builtins(status_to_api(status))
        self.others[before.key] = written
        each = self.world.get("GpuWorkload", before.ref.namespace, before.ref.name)
        if each is not None:
            each["status"] = written


def _plans(workloads: Iterable[Workload], literal: LiteralSwitches, now: Nanos) -> list[Plan]:
    rows = tuple(workloads)
    snapshot = IdleSnapshot(revision=1, workloads=rows)
    policy = Policy(literal=literal)
    plans = evaluate(snapshot, policy, now).plans
    assert check_all(plans, snapshot, policy, now) == ()
    return [with_reasons(plan, rows, now) for plan in plans]


def _settings(gpu_workload: GpuWorkload, given: Json) -> Settings:
    return resolve(
        overrides_of(gpu_workload.spec),
        (kaiwo_config_tier(given.get("config")), environment_tier(given.get("env") or {})),
    )


def _row(
    gpu_workload: GpuWorkload, world: World, given: Json, literal: LiteralSwitches
) -> Workload:
    row = workload_row(gpu_workload, _settings(gpu_workload, given))
    return replace(row, pods=_pods(row, world, literal))


def _pods(row: Workload, world: World, literal: LiteralSwitches) -> tuple[PodRow, ...]:
    owned = [(pod, gpus_of(pod)) for pod in world.owned_pods(row.root, literal)]
    tracked = workload_gpus([gpus for _, gpus in owned], row.gpus)
    kueue = world.kueue_workloads()
    return tuple(pod_row(pod, gpus, tracked, kueue) for pod, gpus in owned)


def _polled(row: Workload) -> Workload:
    pods = tuple(
        replace(pod, samples=tuple(replace(s, seen=s.updated) for s in pod.samples))
        for pod in row.status.tracked_pods
    )
    return replace(row, status=replace(row.status, tracked_pods=pods))


def _measured(row: Workload, literal: LiteralSwitches, now: Nanos) -> Workload:
    row = _polled(row)
    if row.status.phase is not Phase.IDLE or literal.missing_metrics_are_zero:
        return row
    pods = row.pods or (PodRow(Uid(f"{row.root.uid}-pod"), "pod", "Running", row.gpus),)
    tracked = row.status.tracked_pods or tuple(
        TrackedPod(pod.name, (GpuSample("0", 0.0, now, now),)) for pod in pods
    )
    if not row.pods and row.status.tracked_pods:
        pods = tuple(
            PodRow(Uid(pod.name), pod.name, "Running", row.gpus) for pod in row.status.tracked_pods
        )
    return replace(row, pods=pods, status=replace(row.status, tracked_pods=tracked))
