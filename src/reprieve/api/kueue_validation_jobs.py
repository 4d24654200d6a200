"""What Kueue's webhooks state of jobs and pods that it manages, in the reference's words.

Rules of labels and annotations hold for every kind; `Kind` states what a kind supports. A caller
knows whether the object is suspended, and whether the namespace has a LocalQueue `default`.

Source: specification of the quota plane, sections 10.3, 10.4 and 12.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kubeworld.units.untrusted import Form, cut, integer_or_none
from reprieve.api import field_errors as wrong

__all__ = [
    "ADMISSION_GATED_BY",
    "ELASTIC_JOB",
    "MAX_EXEC_TIME",
    "PREBUILT_WORKLOAD",
    "PRIORITY_CLASS",
    "QUEUE_NAME",
    "Kind",
    "Suspension",
    "batch_job_errors",
    "batch_job_update_errors",
    "job_errors",
    "job_update_errors",
    "pod_errors",
    "pod_update_errors",
]

Json = Mapping[str, Any]

QUEUE_NAME: Final = "kueue.x-k8s.io/queue-name"
PRIORITY_CLASS: Final = "kueue.x-k8s.io/priority-class"
MAX_EXEC_TIME: Final = "kueue.x-k8s.io/max-exec-time-seconds"
PREBUILT_WORKLOAD: Final = "kueue.x-k8s.io/prebuilt-workload-name"
ADMISSION_GATED_BY: Final = "kueue.x-k8s.io/admission-gated-by"
ELASTIC_JOB: Final = "kueue.x-k8s.io/elastic-job"
MIN_PARALLELISM: Final = "kueue.x-k8s.io/job-min-parallelism"
EQUAL_COMPLETIONS: Final = "kueue.x-k8s.io/job-completions-equal-parallelism"
MANAGED: Final = "kueue.x-k8s.io/managed"
GROUP_NAME: Final = "kueue.x-k8s.io/pod-group-name"
GROUP_TOTAL: Final = "kueue.x-k8s.io/pod-group-total-count"
RETRIABLE: Final = "kueue.x-k8s.io/retriable-in-group"

_INTEGER: Final = Form(r"[+-]?+[0-9]++", 4_096)
_PREFIXED: Final = 'must be a domain-prefixed path (such as "acme.io/foo")'


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of job: `text` such as `batch/v1, Kind=Job`, and what of Kueue it supports."""

    text: str
    prebuilt: bool = True
    elastic: bool = False


@dataclass(frozen=True, slots=True)
class Suspension:
    """Whether the object was suspended before a change and is so after it."""

    before: bool
    after: bool


def job_errors(job: Json, kind: Kind) -> Iterator[str]:
    """Yield what is wrong with the labels and annotations of a job."""
    labels, notes = _labels(job), _annotations(job)
    queue = labels.get(QUEUE_NAME)
    if queue is not None:
        yield from (wrong.invalid(_label(QUEUE_NAME), queue, w) for w in wrong.subdomain(queue))
    seconds = labels.get(MAX_EXEC_TIME)
    if seconds is not None:
        yield from _seconds(seconds)
    for at, value in _prebuilt(job):
        if not kind.prebuilt:
            yield wrong.invalid(at, value, f'Is not supported for "{kind.text}"')
        else:
            yield from (wrong.invalid(at, value, why) for why in wrong.subdomain(value))
    if notes.get(ELASTIC_JOB) == "true" and not kind.elastic:
        why = f'elastic job is not supported for "{kind.text}"'
        yield wrong.invalid(_annotation(ELASTIC_JOB), "true", why)
    yield from _gates(notes.get(ADMISSION_GATED_BY))


def job_update_errors(
    job: Json, old: Json, kind: Kind, suspension: Suspension, *, default_queue: bool = False
) -> Iterator[str]:
    """Yield what is wrong with a job's labels and annotations after a change."""
    yield from job_errors(job, kind)
    labels, before = _labels(job), _labels(old)
    queue, former = labels.get(QUEUE_NAME, ""), before.get(QUEUE_NAME, "")
    if not suspension.after and queue != former:
        yield wrong.immutable(_label(QUEUE_NAME), queue)
    if former and not queue and default_queue:
        why = "queue-name must not be empty in namespace with default queue"
        yield wrong.invalid(_label(QUEUE_NAME), queue, why)
    chosen, was = labels.get(PRIORITY_CLASS, ""), before.get(PRIORITY_CLASS, "")
    if chosen and not was and not suspension.after:
        why = "WorkloadPriorityClass cannot be added to a non-suspended workload"
        yield wrong.invalid(_label(PRIORITY_CLASS), chosen, why)
    if was and not chosen:
        why = "WorkloadPriorityClass cannot be removed from a workload"
        yield wrong.invalid(_label(PRIORITY_CLASS), chosen, why)
    both = suspension.before and suspension.after
    if not both and labels.get(MAX_EXEC_TIME) != before.get(MAX_EXEC_TIME):
        yield wrong.immutable(_label(MAX_EXEC_TIME), labels.get(MAX_EXEC_TIME, ""))
    if not suspension.after:
        for at, given, past in (
            (_label(PREBUILT_WORKLOAD), labels, before),
            (_annotation(PREBUILT_WORKLOAD), _annotations(job), _annotations(old)),
        ):
            if given.get(PREBUILT_WORKLOAD) != past.get(PREBUILT_WORKLOAD):
                yield wrong.immutable(at, given.get(PREBUILT_WORKLOAD, ""))
    elastic = _annotations(job).get(ELASTIC_JOB, "")
    if elastic != _annotations(old).get(ELASTIC_JOB, ""):
        yield wrong.immutable(_annotation(ELASTIC_JOB), elastic)
    yield from _gates_changed(job, old)


def batch_job_errors(job: Json) -> Iterator[str]:
    """Yield what is wrong with a batch Job's partial admission."""
    yield from _least_errors(job)
    yield from _equal_errors(job)


def batch_job_update_errors(job: Json, old: Json) -> Iterator[str]:
    """Yield what is wrong with a batch Job's partial admission after a change."""
    if _annotations(job).get(MIN_PARALLELISM) != _annotations(old).get(MIN_PARALLELISM):
        # Not otherwise: a job may run with as few pods as that.
        yield from _least_errors(job)
    yield from _equal_errors(job)
    spec, before = job.get("spec") or {}, old.get("spec") or {}
    if spec.get("suspend"):
        return
    notes, past = _annotations(job), _annotations(old)
    partial = MIN_PARALLELISM in notes and not before.get("suspend")
    if partial and _parallelism(spec) != _parallelism(before):
        why = "cannot change when partial admission is enabled and the job is not suspended"
        yield wrong.forbidden("spec.parallelism", why)
    for name in (MIN_PARALLELISM, EQUAL_COMPLETIONS):
        if notes.get(name) != past.get(name):
            why = "field is immutable while the job is not suspended"
            yield wrong.forbidden(_annotation(name), why)


def pod_errors(pod: Json) -> Iterator[str]:
    """Yield what is wrong with the labels and annotations of a pod."""
    labels, notes = _labels(pod), _annotations(pod)
    managed = labels.get(MANAGED)
    if managed is not None and managed != "true":
        why = "managed label value can only be 'true'"
        yield wrong.forbidden(_label(MANAGED), why)
    group, where = _group(pod)
    total = notes.get(GROUP_TOTAL)
    if (group == "") != (total is None):
        kind = "annotation" if where == _annotation(GROUP_NAME) else "label"
        why = f"both the '{GROUP_TOTAL}' annotation and the '{GROUP_NAME}' {kind} should be set"
        yield wrong.required(_annotation(GROUP_TOTAL) if group else where, why)
    if group:
        yield from (wrong.invalid(where, group, why) for why in wrong.subdomain(group))
        prebuilt = notes.get(PREBUILT_WORKLOAD) or labels.get(PREBUILT_WORKLOAD)
        if prebuilt and prebuilt != group:
            yield wrong.invalid(where, group, "prebuilt workload and pod group should be equal")
    if total is not None and (integer_or_none(total) or 0) <= 0:
        why = (
            f"incorrect annotation value '{GROUP_TOTAL}={total}': group total count should be "
            "greater than zero"
        )
        yield wrong.invalid(_annotation(GROUP_TOTAL), total, why)


def pod_update_errors(pod: Json, old: Json) -> Iterator[str]:
    """Yield what is wrong with a pod after a change."""
    yield from pod_errors(pod)
    group, where = _group(pod)
    if _group(old)[0] not in ("", group):
        yield wrong.immutable(where, group)
    final = _annotations(old).get(RETRIABLE) == "false"
    if final and _annotations(pod).get(RETRIABLE) != "false":
        at, why = _annotation(RETRIABLE), "unretriable pod group can't be converted to retriable"
        yield wrong.forbidden(at, why)


def _least_errors(job: Json) -> Iterator[str]:
    spec, notes = job.get("spec") or {}, _annotations(job)
    parallelism = _parallelism(spec)
    least = notes.get(MIN_PARALLELISM)
    if least is not None:
        at = _annotation(MIN_PARALLELISM)
        count = integer_or_none(least)
        if count is None:
            yield wrong.invalid(at, least, _not_a_number(least))
        elif not 0 < count < parallelism:
            yield wrong.invalid(at, count, f"should be between 0 and {parallelism - 1}")
        if notes.get(ELASTIC_JOB) == "true":
            why = "partial admission and elastic job cannot be used together"
            yield wrong.invalid(at, least, why)


def _equal_errors(job: Json) -> Iterator[str]:
    spec, notes = job.get("spec") or {}, _annotations(job)
    equal = notes.get(EQUAL_COMPLETIONS)
    if equal is None:
        return
    parallelism, at = _parallelism(spec), _annotation(EQUAL_COMPLETIONS)
    if equal not in ("true", "false"):
        yield wrong.invalid(at, equal, f'strconv.ParseBool: parsing "{equal}": invalid syntax')
    elif equal == "true":
        if spec.get("completionMode", "NonIndexed") != "Indexed":
            yield wrong.invalid(at, equal, "should not be enabled for NonIndexed jobs")
        completions = spec.get("completions")
        if completions != parallelism:
            why = f"should be equal to parallelism when {EQUAL_COMPLETIONS} annotation is true"
            yield wrong.invalid("spec.completions", completions, why)


def _labels(obj: Json) -> Mapping[str, str]:
    return (obj.get("metadata") or {}).get("labels") or {}


def _annotations(obj: Json) -> Mapping[str, str]:
    return (obj.get("metadata") or {}).get("annotations") or {}


def _label(name: str) -> str:
    return f"metadata.labels[{name}]"


def _annotation(name: str) -> str:
    return f"metadata.annotations[{name}]"


def _prebuilt(job: Json) -> Iterator[tuple[str, str]]:
    for at, given in (
        (_label(PREBUILT_WORKLOAD), _labels(job)),
        (_annotation(PREBUILT_WORKLOAD), _annotations(job)),
    ):
        if PREBUILT_WORKLOAD in given:
            yield at, given[PREBUILT_WORKLOAD]


def _seconds(text: str) -> Iterator[str]:
    at = _label(MAX_EXEC_TIME)
    seconds = integer_or_none(text)
    if seconds is None:
        yield wrong.invalid(at, text, _not_a_number(text))
    elif seconds <= 0:
        yield wrong.invalid(at, seconds, "should be greater than 0")


def _not_a_number(text: str) -> str:
    why = "value out of range" if _INTEGER.fullmatch(text) else "invalid syntax"
    return f'strconv.Atoi: parsing "{cut(text)}": {why}'


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")] if text else []


def _gates(text: str | None) -> Iterator[str]:
    at, seen = _annotation(ADMISSION_GATED_BY), set[str]()
    for name in _names(text or ""):
        if not name:
            yield wrong.invalid(at, text, "cannot contain empty gate names")
            continue
        if name in seen:
            yield wrong.invalid(at, text, f"duplicate gate name: {name}")
        seen.add(name)
        if len(name) > 63:
            yield wrong.invalid(at, name, "must be no more than 63 bytes")
        domain, _, path = name.partition("/")
        if not domain or not path:
            yield wrong.invalid(at, name, _PREFIXED)
        else:
            yield from (wrong.invalid(at, name, why) for why in wrong.subdomain(domain))


def _gates_changed(job: Json, old: Json) -> Iterator[str]:
    text = _annotations(job).get(ADMISSION_GATED_BY, "")
    after, before = set(_names(text)), set(_names(_annotations(old).get(ADMISSION_GATED_BY, "")))
    if after and not before:
        why = "cannot add admission gate after creation"
        yield wrong.forbidden(_annotation(ADMISSION_GATED_BY), why)
    elif not after <= before:
        why = "can only remove gates, not add new ones"
        yield wrong.forbidden(_annotation(ADMISSION_GATED_BY), why)


def _parallelism(spec: Json) -> int:
    """Return how many pods run at once, as the reference counts them."""
    parallelism = spec.get("parallelism", 1)
    completions = spec.get("completions")
    return int(parallelism if completions is None else min(parallelism, completions))


def _group(pod: Json) -> tuple[str, str]:
    """Return the pod's group and where it is named; the annotation beats the label."""
    notes = _annotations(pod)
    if notes.get(GROUP_NAME):
        return notes[GROUP_NAME], _annotation(GROUP_NAME)
    return _labels(pod).get(GROUP_NAME, ""), _label(GROUP_NAME)
