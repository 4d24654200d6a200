"""The Job controller: pods up to parallelism, counts, and the conditions of the end.

Source: the behaviour of `batch/v1` Jobs: completions and work queues, Indexed completion, suspend,
backoffLimit with growing delays, also per index, podFailurePolicy, successPolicy,
activeDeadlineSeconds, ttlSecondsAfterFinished, and KEP-4368: a Job with another `managedBy` is left
to its controller, but for the end of its time to live. Not imitated: the tracking finalizer on pods
(`tally` instead), adoption, delays of single indexes. A pod counts when the Job is its controller
and its selector matches.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterable
from typing import Any, Final

from kubelocal.machines.events import Recorder
from kubelocal.machines.informer import Informer, Key, key_of
from kubelocal.machines.objects import Change, ChangeType, Object
from kubelocal.machines.workloads.indexes import (
    FAILURES,
    INDEX,
    completed_indexes,
    failed_indexes,
    failures_so_far,
    format_ranges,
    free_indexes,
    met_rule,
)
from kubelocal.machines.workloads.pod_creation import create_pod
from kubelocal.machines.workloads.scheduling_groups import Workloads
from kubelocal.machines.workloads.tally import Tally
from kubeworld.objects.conditions import condition, set_condition
from kubeworld.objects.owners import child, controller_of, suffix
from kubeworld.objects.pods import is_active, is_over, is_ready
from kubeworld.objects.selectors import matches_labels
from kubeworld.units.clock import Clock
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import format_instant, parse_instant

__all__ = ["JobController"]

_JOBS: Final = "jobs.batch"
_NAME: Final = "kubernetes.io/job-controller"
_CONTROLLER: Final = "batch.kubernetes.io/controller-uid"
_COMPLETED: Final = ("CompletionsReached", "Reached expected number of succeeded pods")
_LOST: Final = ("FailedIndexes", "Job has failed indexes")
_TIMES: Final = ("lastTransitionTime", "lastProbeTime")
_MOST_CREATED: Final = 500  # at a look, as kube-controller-manager; the new pods ask for the next


class JobController:
    """Runs Jobs."""

    name = "jobs"

    def __init__(
        self,
        informer: Informer,
        clock: Clock,
        recorder: Recorder,
        generator: random.Random,
        workloads: Workloads,
    ) -> None:
        self._workloads = workloads
        self._informer = informer
        self._clock = clock
        self._recorder = recorder
        self._generator = generator
        self._tallies: dict[str, Tally] = {}

    def concerns(self, change: Change, before: Object | None) -> Iterable[Key]:
        if change.resource == _JOBS:
            if change.type is ChangeType.DELETED:
                self._tallies.pop(change.object["metadata"]["uid"], None)
                return []
            return [key_of(_JOBS, change.object)]
        if change.resource == "pods":
            owner = controller_of(change.object)
            if owner is not None and owner["kind"] == "Job":
                key = Key(_JOBS, change.object["metadata"].get("namespace", ""), owner["name"])
                if change.type is ChangeType.DELETED:
                    self._count_last(key, change.object)
                return [key]
        return []

    def _count_last(self, key: Key, pod: Object) -> None:
        """Count a pod that may have gone before anybody looked at its Job."""
        job, owner = self._informer.at(key), controller_of(pod)
        if job is None or owner is None or owner["uid"] != job["metadata"]["uid"]:
            return  # of an earlier Job of that name
        tally = self._tallies.get(job["metadata"]["uid"])
        if tally is not None:
            tally.count([pod], self._clock.monotonic(), job["spec"].get("podFailurePolicy"))

    async def reconcile(self, key: Key) -> int | None:
        job = self._informer.at(key)
        if job is None or job["metadata"].get("deletionTimestamp"):
            return None
        pods = self._pods(job)
        for kind in ("Complete", "Failed"):
            ended = condition(job, kind)
            if ended is not None and ended["status"] == "True":
                return await self._after_the_end(job, pods)
        if job["spec"].get("managedBy", _NAME) != _NAME:
            return None
        return await self._sync(job, pods)

    def _pods(self, job: Object) -> list[Object]:
        uid = job["metadata"]["uid"]
        selector = job["spec"].get("selector") or {"matchLabels": {_CONTROLLER: uid}}
        return [
            pod
            for pod in self._informer.controlled(uid, "pods")
            if matches_labels(selector, pod["metadata"].get("labels"))
        ]

    async def _sync(self, job: Object, pods: list[Object]) -> int | None:
        spec, now = job["spec"], self._clock.monotonic()
        uid, old = job["metadata"]["uid"], job.get("status") or {}
        tally, policy = self._tallies.get(uid), spec.get("podFailurePolicy")
        if tally is None:
            tally = self._tallies[uid] = Tally.started(old, pods, now, policy)
        tally.count(pods, now, policy)
        active = [p for p in pods if is_active(p)]
        status: dict[str, Any] = copy.deepcopy(job.get("status") or {})
        succeeded, failed = tally.all_succeeded, tally.all_failed
        suspended = bool(spec.get("suspend"))
        self._note_suspension(job, status, suspended)
        again: int | None = None

        indexed = spec.get("completionMode") == "Indexed"
        done = completed_indexes(status, pods) if indexed else set()
        lost = failed_indexes(spec, status, pods) if indexed else set()
        success = _success(spec, done)
        failure = None if success else self._failure(job, status, pods, tally, lost)
        completions = _completions(spec)
        enough = succeeded >= completions if completions is not None else succeeded > 0
        if lost and not (success or failure) and succeeded + len(lost) >= (completions or 0):
            failure = _LOST
        if not (success or failure or (enough and (completions is not None or not active))):
            wanted = 0 if suspended else _wanted(spec, succeeded + len(lost), enough, len(active))
            if wanted < len(active):
                active = await self._remove(job, tally, active, len(active) - wanted)
            elif wanted > len(active):
                again = tally.backoff(now)
                if again is None:
                    missing = wanted - len(active) - self._still_ending(spec, pods)
                    active = active + await self._create(job, pods, missing)
            deadline = self._deadline(job, status)
            again = min((w for w in (again, deadline) if w is not None), default=None)
        else:
            active = await self._remove(job, tally, active, len(active))
            self._end(job, status, failure, success or _COMPLETED)

        self._put(status, "active", len(active))
        self._put(status, "succeeded", succeeded)
        self._put(status, "failed", failed)
        status["ready"] = sum(map(is_ready, active))
        status["terminating"] = len([p for p in self._pods(job) if _is_terminating(p)])
        if indexed:
            self._put(status, "completedIndexes", format_ranges(done))
        if spec.get("backoffLimitPerIndex") is not None:
            status["failedIndexes"] = format_ranges(lost)
        status.setdefault("uncountedTerminatedPods", {})
        if status != job.get("status"):
            fresh = self._informer.at(key_of(_JOBS, job)) or job
            await self._informer.update(_JOBS, {**fresh, "status": status}, subresource="status")
        return again

    def _note_suspension(self, job: Object, status: dict[str, Any], suspended: bool) -> None:
        now, present = self._now(), condition(job, "Suspended")
        if suspended:
            status.pop("startTime", None)
            text = {"reason": "JobSuspended", "message": "Job suspended"}
            set_condition(status, "Suspended", True, now, times=_TIMES, **text)
            return
        status.setdefault("startTime", now)
        if present is not None and present["status"] == "True":
            status["startTime"] = now
            text = {"reason": "JobResumed", "message": "Job resumed"}
            set_condition(status, "Suspended", False, now, times=_TIMES, **text)

    def _failure(
        self,
        job: Object,
        status: dict[str, Any],
        pods: list[Object],
        tally: Tally,
        lost: set[int],
    ) -> tuple[str, str] | None:
        target = condition(job, "FailureTarget")
        if target is not None and target["status"] == "True":
            return target.get("reason", ""), target.get("message", "")
        most = job["spec"].get("maxFailedIndexes")
        if most is not None and len(lost) > most:
            text = "Job has exceeded the specified maximal number of failed indexes"
            return "MaxFailedIndexesExceeded", text
        if tally.fatal:
            return "PodFailurePolicy", tally.fatal
        spec = job["spec"]
        limit = spec.get("backoffLimit", 6)
        on_failure = spec["template"]["spec"].get("restartPolicy") == "OnFailure"
        restarts = sum(map(_restarts, pods)) if on_failure else 0
        if tally.all_failed > limit or (restarts > 0 and restarts >= limit):
            return "BackoffLimitExceeded", "Job has reached the specified backoff limit"
        deadline = self._deadline(job, status)
        if deadline is not None and deadline <= 0:
            return "DeadlineExceeded", "Job was active longer than specified deadline"
        return None

    def _deadline(self, job: Object, status: dict[str, Any]) -> int | None:
        """Return the nanoseconds until activeDeadlineSeconds is over, None without one."""
        seconds, start = job["spec"].get("activeDeadlineSeconds"), status.get("startTime")
        if seconds is None or start is None:
            return None
        return parse_instant(start) + int(seconds) * SECOND - self._clock.wall()

    def _still_ending(self, spec: dict[str, Any], pods: list[Object]) -> int:
        usual = "Failed" if spec.get("podFailurePolicy") else ""
        if spec.get("podReplacementPolicy", usual) != "Failed":
            return 0
        return sum(map(_is_terminating, pods))

    async def _create(self, job: Object, pods: list[Object], count: int) -> list[Object]:
        name, uid = job["metadata"]["name"], job["metadata"]["uid"]
        labels = {
            _CONTROLLER: uid,
            "batch.kubernetes.io/job-name": name,
            "controller-uid": uid,
            "job-name": name,
        }
        created: list[Object] = []
        indexed = job["spec"].get("completionMode") == "Indexed"
        count = min(max(0, count), _MOST_CREATED)
        status = job.get("status") or {}
        free = free_indexes(job["spec"], status, pods, count) if indexed else []
        for number in range(count):
            extra: dict[str, str] = {}
            stem, notes = name, {}
            if indexed:
                if number >= len(free):
                    break
                stem, extra = f"{name}-{free[number]}", {INDEX: str(free[number])}
                if job["spec"].get("backoffLimitPerIndex") is not None:
                    notes = {FAILURES: str(failures_so_far(free[number], job["spec"], pods))}
            pod = child(
                job,
                "v1",
                "Pod",
                f"{stem}-{suffix(self._generator)}",
                job["spec"]["template"],
                labels={**labels, **extra},
                annotations={**extra, **notes},
            )
            if indexed:
                pod["spec"].setdefault("hostname", stem)
            self._workloads.join(pod, job)
            created.append(await create_pod(self._informer, self._recorder, job, pod))
            text = f"Created pod: {pod['metadata']['name']}"
            self._recorder.normal(job, "SuccessfulCreate", text)
        return created

    async def _remove(
        self, job: Object, tally: Tally, active: list[Object], count: int
    ) -> list[Object]:
        """Delete that many active pods, return the rest. Pods that do not run go first."""
        order = sorted(
            active,
            key=lambda p: (
                (p.get("status") or {}).get("phase") == "Running",
                [-ord(c) for c in p["metadata"].get("creationTimestamp", "")],
                p["metadata"]["name"],
            ),
        )
        for pod in order[:count]:
            tally.removed.add(pod["metadata"]["uid"])
            await self._informer.delete("pods", pod)
            text = f"Deleted pod: {pod['metadata']['name']}"
            self._recorder.normal(job, "SuccessfulDelete", text)
        return order[count:]

    def _end(
        self,
        job: Object,
        status: dict[str, Any],
        failure: tuple[str, str] | None,
        success: tuple[str, str],
    ) -> None:
        now = self._now()
        reason, message = failure or success
        target, final = (
            ("FailureTarget", "Failed") if failure else ("SuccessCriteriaMet", "Complete")
        )
        set_condition(status, target, True, now, reason=reason, message=message, times=_TIMES)
        if any(is_active(p) or _is_terminating(p) for p in self._pods(job)):
            return  # the final condition waits for the last pod
        set_condition(status, final, True, now, reason=reason, message=message, times=_TIMES)
        if failure is None:
            status["completionTime"] = now

    async def _after_the_end(self, job: Object, pods: list[Object]) -> int | None:
        seconds = job["spec"].get("ttlSecondsAfterFinished")
        if seconds is None:
            return None
        ended = condition(job, "Complete") or condition(job, "Failed")
        assert ended is not None
        finish = parse_instant(ended["lastTransitionTime"]) + int(seconds) * SECOND
        rest = finish - self._clock.wall()
        if rest > 0:
            return rest
        await self._informer.delete(_JOBS, job)
        return None

    def _put(self, status: dict[str, Any], name: str, value: int | str) -> None:
        if value:
            status[name] = value
        else:
            status.pop(name, None)

    def _now(self) -> str:
        return format_instant(self._clock.wall())


def _completions(spec: dict[str, Any]) -> int | None:
    """Return how many pods must succeed; None for a work queue (parallelism alone is given)."""
    if spec.get("completions") is not None:
        return int(spec["completions"])
    return 1 if spec.get("parallelism") is None else None


def _wanted(spec: dict[str, Any], succeeded: int, enough: bool, active: int) -> int:
    parallelism = int(spec["parallelism"]) if spec.get("parallelism") is not None else 1
    completions = _completions(spec)
    if completions is None:
        return min(active, parallelism) if enough else parallelism
    return min(parallelism, completions - succeeded)


def _success(spec: dict[str, Any], done: set[int]) -> tuple[str, str] | None:
    """Return reason and message when the successPolicy is content with what is done."""
    place = met_rule(spec.get("successPolicy"), done)
    return None if place is None else ("SuccessPolicy", f"Matched rules at index {place}")


def _is_terminating(pod: Object) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp")) and not is_over(pod)


def _restarts(pod: Object) -> int:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return sum(int(container.get("restartCount", 0)) for container in statuses)
