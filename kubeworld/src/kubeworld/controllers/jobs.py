"""The Job controller: pods up to parallelism, counts, and the conditions of the end.

Source: the behaviour of `batch/v1` Jobs: completions and work queues, Indexed completion, suspend,
backoffLimit with growing delays, also per index, podFailurePolicy, successPolicy,
activeDeadlineSeconds, ttlSecondsAfterFinished, and KEP-4368: a Job with another `managedBy` is left
to its controller, but for the end of its time to live. Not imitated: the tracking finalizer on pods
(a `Tally` instead), adoption, delays of single indexes.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from kubeworld.controllers.acts import Act, Create, Delete, Event, Object, Outcome, Status, Suffix
from kubeworld.controllers.job_indexes import (
    FAILURES,
    INDEX,
    completed_indexes,
    failed_indexes,
    failures_so_far,
    format_ranges,
    free_indexes,
    met_rule,
)
from kubeworld.controllers.job_tally import Tally
from kubeworld.objects.conditions import condition, set_condition
from kubeworld.objects.owners import child
from kubeworld.objects.pods import is_active, is_over, is_ready
from kubeworld.objects.selectors import matches_labels
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos, format_instant, parse_instant
from kubeworld.writes.changes import grace_of

__all__ = ["is_managed_here", "job_pod", "note_suspension", "selects", "step", "wanted_pods"]

_NAME: Final = "kubernetes.io/job-controller"
_CONTROLLER: Final = "batch.kubernetes.io/controller-uid"
_COMPLETED: Final = ("CompletionsReached", "Reached expected number of succeeded pods")
_LOST: Final = ("FailedIndexes", "Job has failed indexes")
_TIMES: Final = ("lastTransitionTime", "lastProbeTime")
_MOST_CREATED: Final = 500  # at a look, as kube-controller-manager; the new pods request the next

Failure = tuple[str, str]  # reason and message


def step(job: Object, pods: Sequence[Object], tally: Tally, now: Nanos, suffix: Suffix) -> Outcome:
    """Return what a Job does next.

    `pods`: those that it controls and selects. `tally` keeps which of them were counted; it is
    changed in place, and belongs to this Job alone.
    """
    if any(_is_true(job, kind) for kind in ("Complete", "Failed")):
        return _after_the_end(job, now)
    return _Look(job, pods, tally, now).outcome(suffix) if is_managed_here(job) else Outcome([])


def is_managed_here(job: Mapping[str, Any]) -> bool:
    """Return whether this controller makes the pods of a Job."""
    return ((job.get("spec") or {}).get("managedBy") or _NAME) == _NAME


def selects(job: Object, pod: Object) -> bool:
    """Return whether a pod that a Job controls is selected by it."""
    usual = {"matchLabels": {_CONTROLLER: job["metadata"]["uid"]}}
    return matches_labels(job["spec"].get("selector") or usual, pod["metadata"].get("labels"))


def wanted_pods(spec: Mapping[str, Any], succeeded: int, active: int) -> int:
    """Return how many pods a Job that continues may have at a time; `succeeded`: will not run."""
    parallelism = int(spec["parallelism"]) if spec.get("parallelism") is not None else 1
    completions = _completions(spec)
    if completions is None:
        return min(active, parallelism) if succeeded else parallelism
    return max(0, min(parallelism, completions - succeeded))


def job_pod(job: Object, suffix: Suffix, index: int | None = None, failures: str = "") -> Object:
    """Return a new pod of a Job; `failures`: how often its index failed before, if that counts."""
    name, uid = job["metadata"]["name"], job["metadata"]["uid"]
    stem = name if index is None else f"{name}-{index}"
    extra = {} if index is None else {INDEX: str(index)}
    pod = child(
        job,
        "v1",
        "Pod",
        f"{stem}-{suffix(f'{stem}-')}",
        job["spec"]["template"],
        labels={
            _CONTROLLER: uid,
            "batch.kubernetes.io/job-name": name,
            "controller-uid": uid,
            "job-name": name,
            **extra,
        },
        annotations={**extra, **({FAILURES: failures} if failures else {})},
    )
    if index is not None:
        pod["spec"].setdefault("hostname", stem)
    return pod


def note_suspension(job: Object, status: Object, now: str) -> None:
    """Write into a status whether the Job is suspended, and since when it runs."""
    if job["spec"].get("suspend"):
        status.pop("startTime", None)
        text = {"reason": "JobSuspended", "message": "Job suspended"}
        set_condition(status, "Suspended", True, now, times=_TIMES, **text)
        return
    status.setdefault("startTime", now)
    if _is_true(job, "Suspended"):
        status["startTime"] = now
        text = {"reason": "JobResumed", "message": "Job resumed"}
        set_condition(status, "Suspended", False, now, times=_TIMES, **text)


class _Look:
    """One look at a Job that has not ended."""

    def __init__(self, job: Object, pods: Sequence[Object], tally: Tally, now: Nanos) -> None:
        self._job, self._pods, self._tally, self._now = job, pods, tally, now
        self._wall = format_instant(now)
        self._spec: Object = job["spec"]
        tally.count(pods, now, self._spec.get("podFailurePolicy"))
        self._active = [pod for pod in pods if is_active(pod)]
        self._terminating = sum(map(_is_terminating, pods))
        self._made = 0
        self._status: Object = copy.deepcopy(job.get("status") or {})
        self._indexed = self._spec.get("completionMode") == "Indexed"
        self._done = completed_indexes(self._status, pods) if self._indexed else set()
        self._lost = failed_indexes(self._spec, self._status, pods) if self._indexed else set()

    def outcome(self, suffix: Suffix) -> Outcome:
        succeeded, again = self._tally.all_succeeded, None
        note_suspension(self._job, self._status, self._wall)
        success, completions = _success(self._spec, self._done), _completions(self._spec)
        failure = None if success else self._failure()
        lost = len(self._lost)
        if lost and not (success or failure) and succeeded + lost >= (completions or 0):
            failure = _LOST
        enough = succeeded >= completions if completions is not None else succeeded > 0
        acts: list[Act] = []
        if success or failure or (enough and (completions is not None or not self._active)):
            acts += self._remove(len(self._active))
            self._end(failure, success or _COMPLETED)
        else:
            wanted = wanted_pods(self._spec, succeeded + lost, len(self._active))
            surplus = len(self._active) - (0 if self._spec.get("suspend") else wanted)
            if surplus > 0:
                acts += self._remove(surplus)
            elif surplus < 0:
                again = self._tally.backoff(self._now)
                if again is None:
                    acts += self._create(-surplus - self._still_ending(), suffix)
            again = min((w for w in (again, self._deadline()) if w is not None), default=None)
        self._count(succeeded)
        if self._status != self._job.get("status"):
            acts.append(Status(self._status))
        return Outcome(acts, again)

    def _count(self, succeeded: int) -> None:
        status = self._status
        _set(status, "active", len(self._active) + self._made)
        _set(status, "succeeded", succeeded)
        _set(status, "failed", self._tally.all_failed)
        status["ready"] = sum(map(is_ready, self._active))
        status["terminating"] = self._terminating
        if self._indexed:
            _set(status, "completedIndexes", format_ranges(self._done))
        if self._spec.get("backoffLimitPerIndex") is not None:
            status["failedIndexes"] = format_ranges(self._lost)
        status.setdefault("uncountedTerminatedPods", {})

    def _failure(self) -> Failure | None:
        target = condition(self._job, "FailureTarget")
        if target is not None and target["status"] == "True":
            return target.get("reason", ""), target.get("message", "")
        most = self._spec.get("maxFailedIndexes")
        if most is not None and len(self._lost) > most:
            text = "Job has exceeded the specified maximal number of failed indexes"
            return "MaxFailedIndexesExceeded", text
        if self._tally.fatal:
            return "PodFailurePolicy", self._tally.fatal
        limit = self._spec.get("backoffLimit", 6)
        on_failure = self._spec["template"]["spec"].get("restartPolicy") == "OnFailure"
        restarts = sum(map(_restarts, self._pods)) if on_failure else 0
        if self._tally.all_failed > limit or (restarts > 0 and restarts >= limit):
            return "BackoffLimitExceeded", "Job has reached the specified backoff limit"
        deadline = self._deadline()
        if deadline is not None and deadline <= 0:
            return "DeadlineExceeded", "Job was active longer than specified deadline"
        return None

    def _deadline(self) -> int | None:
        """Return the nanoseconds until activeDeadlineSeconds is over, None without one."""
        seconds, start = self._spec.get("activeDeadlineSeconds"), self._status.get("startTime")
        if seconds is None or start is None:
            return None
        return parse_instant(start) + int(seconds) * SECOND - self._now

    def _still_ending(self) -> int:
        usual = "Failed" if self._spec.get("podFailurePolicy") else ""
        replaced_once_failed = self._spec.get("podReplacementPolicy", usual) == "Failed"
        return self._terminating if replaced_once_failed else 0

    def _create(self, count: int, suffix: Suffix) -> Iterator[Act]:
        count = min(max(0, count), _MOST_CREATED)
        numbers: list[int | None] = [None] * count
        if self._indexed:
            known = self._job.get("status") or {}
            numbers = list(free_indexes(self._spec, known, self._pods, count))
        per_index = self._spec.get("backoffLimitPerIndex") is not None
        for index in numbers:
            failures = ""
            if per_index and index is not None:
                failures = str(failures_so_far(index, self._spec, self._pods))
            pod = job_pod(self._job, suffix, index, failures)
            self._made += 1
            yield Create(pod, "Error creating")
            yield Event("SuccessfulCreate", f"Created pod: {pod['metadata']['name']}")

    def _remove(self, count: int) -> Iterator[Act]:
        """Delete that many active pods. Those that do not run are deleted first."""
        order = sorted(
            self._active,
            key=lambda p: (
                (p.get("status") or {}).get("phase") == "Running",
                [-ord(c) for c in p["metadata"].get("creationTimestamp", "")],
                p["metadata"]["name"],
            ),
        )
        for pod in order[:count]:
            self._tally.removed.add(pod["metadata"]["uid"])
            self._terminating += bool(grace_of(pod) or pod["metadata"].get("finalizers"))
            yield Delete(pod)
            yield Event("SuccessfulDelete", f"Deleted pod: {pod['metadata']['name']}")
        self._active = order[count:]

    def _end(self, failure: Failure | None, success: tuple[str, str]) -> None:
        reason, message = failure or success
        target, final = (
            ("FailureTarget", "Failed") if failure else ("SuccessCriteriaMet", "Complete")
        )
        text = {"reason": reason, "message": message}
        set_condition(self._status, target, True, self._wall, times=_TIMES, **text)
        if self._terminating:
            return  # the final condition waits for the last pod
        set_condition(self._status, final, True, self._wall, times=_TIMES, **text)
        if failure is None:
            self._status["completionTime"] = self._wall


def _after_the_end(job: Object, now: Nanos) -> Outcome:
    seconds = job["spec"].get("ttlSecondsAfterFinished")
    if seconds is None:
        return Outcome([])
    ended = condition(job, "Complete") or condition(job, "Failed")
    assert ended is not None
    rest = parse_instant(ended["lastTransitionTime"]) + int(seconds) * SECOND - now
    return Outcome([], rest) if rest > 0 else Outcome([Delete(job)])


def _set(status: Object, name: str, value: int | str) -> None:
    if value:
        status[name] = value
    else:
        status.pop(name, None)


def _completions(spec: Mapping[str, Any]) -> int | None:
    """Return how many pods must succeed; None for a work queue (parallelism alone is given)."""
    if spec.get("completions") is not None:
        return int(spec["completions"])
    return 1 if spec.get("parallelism") is None else None


def _success(spec: Mapping[str, Any], done: set[int]) -> tuple[str, str] | None:
    """Return reason and message when the successPolicy is content with what is done."""
    place = met_rule(spec.get("successPolicy"), done)
    return None if place is None else ("SuccessPolicy", f"Matched rules at index {place}")


def _is_true(job: Object, kind: str) -> bool:
    found = condition(job, kind)
    return found is not None and bool(found["status"] == "True")


def _is_terminating(pod: Object) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp")) and not is_over(pod)


def _restarts(pod: Object) -> int:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return sum(int(container.get("restartCount", 0)) for container in statuses)
