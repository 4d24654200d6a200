"""Kinds that make pods: Jobs, Deployments, StatefulSets and similar ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kubelocal.server import causes
from kubelocal.server.causes import Cause
from kubelocal.server.types import internal_form
from kubelocal.server.validation import jobs
from kubelocal.server.validation.pods import pod_template_spec
from kubelocal.server.validation.policy import share
from kubelocal.server.validation.selectors import label_selector, selects

__all__ = [
    "cron_job",
    "daemon_set",
    "deployment",
    "job",
    "job_update",
    "pod_template",
    "replica_set",
    "replication_controller",
    "selector_update",
    "stateful_set",
    "stateful_set_update",
]

Object = Mapping[str, Any]

# Eleven characters less than a label's value: its Jobs have longer names.
_LONGEST_CRON_JOB: Final = 52
_MISMATCH: Final = "`selector` does not match template `labels`"


def _amounts(spec: Object, words: tuple[str, ...], field: str) -> Iterator[Cause]:
    for word in words:
        value = spec.get(word)
        if value is not None and value < 0:
            yield causes.bad(f"{field}.{word}", value, "must be greater than or equal to 0")


def _selected_template(spec: Object, policies: tuple[str, ...]) -> Iterator[Cause]:
    """Check selector and template; `policies`: the restart policies that its pods may have."""
    selector = spec.get("selector")
    template = spec.get("template") or {}
    labels = (template.get("metadata") or {}).get("labels") or {}
    if selector is None:
        yield causes.required("spec.selector")
    else:
        yield from label_selector(selector, "spec.selector")
        if not selector.get("matchLabels") and not selector.get("matchExpressions"):
            yield causes.bad("spec.selector", selector, "empty selector is invalid for deployment")
    if selector is None or not selects(selector, labels):
        yield causes.bad("spec.template.metadata.labels", labels or None, _MISMATCH)
    yield from pod_template_spec(template, "spec.template")
    policy = (template.get("spec") or {}).get("restartPolicy")
    if policy in ("Always", "OnFailure", "Never") and policy not in policies:
        yield causes.unsupported("spec.template.spec.restartPolicy", policy, policies)


def deployment(obj: Object) -> Iterator[Cause]:
    """Check numbers, selector, template and strategy."""
    spec = obj.get("spec") or {}
    words = ("replicas", "minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds")
    yield from _amounts(spec, words[:1], "spec")
    yield from _selected_template(spec, ("Always",))
    strategy = (spec.get("strategy") or {}).get("type")
    if strategy not in ("Recreate", "RollingUpdate"):
        yield causes.unsupported("spec.strategy.type", strategy, ("Recreate", "RollingUpdate"))
    elif strategy == "Recreate" and spec["strategy"].get("rollingUpdate") is not None:
        yield causes.forbidden(
            "spec.strategy.rollingUpdate",
            "may not be specified when strategy `type` is 'Recreate'",
        )
    elif strategy == "RollingUpdate":
        yield from _rolling(spec["strategy"].get("rollingUpdate") or {}, "spec.strategy")
    yield from _amounts(spec, words[1:], "spec")
    deadline, ready = spec.get("progressDeadlineSeconds"), spec.get("minReadySeconds") or 0
    if deadline is not None and deadline <= ready:
        text = "must be greater than minReadySeconds"
        yield causes.bad("spec.progressDeadlineSeconds", deadline, text)
    if ((spec.get("template") or {}).get("spec") or {}).get("activeDeadlineSeconds") is not None:
        text = "activeDeadlineSeconds in ReplicaSet is not Supported"
        yield causes.forbidden("spec.template.spec.activeDeadlineSeconds", text)


def _rolling(rolling: Object, field: str) -> Iterator[Cause]:
    """Check how many pods a rollout may remove and add."""
    for word in ("maxUnavailable", "maxSurge"):
        value = rolling.get(word)
        if value is not None:
            here = f"{field}.rollingUpdate.{word}"
            yield from share(value, here, at_most=100 if word == "maxUnavailable" else None)
    if all(rolling.get(word) in (0, "0%") for word in ("maxUnavailable", "maxSurge")):
        yield causes.bad(
            f"{field}.rollingUpdate.maxUnavailable",
            rolling["maxUnavailable"],
            "may not be 0 when `maxSurge` is 0",
        )


def replica_set(obj: Object) -> Iterator[Cause]:
    """Check numbers, selector and template."""
    spec = obj.get("spec") or {}
    yield from _amounts(spec, ("replicas", "minReadySeconds"), "spec")
    yield from _selected_template(spec, ("Always",))


def daemon_set(obj: Object) -> Iterator[Cause]:
    """Check selector, template and numbers."""
    spec = obj.get("spec") or {}
    yield from _selected_template(spec, ("Always",))
    yield from _amounts(spec, ("minReadySeconds", "revisionHistoryLimit"), "spec")


def stateful_set(obj: Object) -> Iterator[Cause]:
    """Check pod management, numbers, selector and template."""
    spec = obj.get("spec") or {}
    policy = spec.get("podManagementPolicy")
    if policy not in ("OrderedReady", "Parallel"):
        yield causes.bad("spec.podManagementPolicy", policy, "must be 'OrderedReady' or 'Parallel'")
    yield from _amounts(spec, ("replicas", "minReadySeconds"), "spec")
    yield from _selected_template(spec, ("Always",))


def replication_controller(obj: Object) -> Iterator[Cause]:
    """Check numbers, selector and template."""
    spec = obj.get("spec") or {}
    yield from _amounts(spec, ("replicas", "minReadySeconds"), "spec")
    selector = spec.get("selector") or {}
    template = spec.get("template")
    if not selector:
        yield causes.required("spec.selector")
    if template is None:
        yield causes.required("spec.template")
        return
    labels = (template.get("metadata") or {}).get("labels") or {}
    if selector and not selects({"matchLabels": selector}, labels):
        yield causes.bad("spec.template.metadata.labels", labels or None, _MISMATCH)
    yield from pod_template_spec(template, "spec.template")


def pod_template(obj: Object) -> Iterator[Cause]:
    """Check the template."""
    yield from pod_template_spec(obj.get("template") or {}, "template")


_JOB_AMOUNTS: Final = (
    "parallelism",
    "completions",
    "activeDeadlineSeconds",
    "backoffLimit",
    "ttlSecondsAfterFinished",
    "backoffLimitPerIndex",
    "maxFailedIndexes",
)


def job(obj: Object) -> Iterator[Cause]:
    """Check numbers, selector, template and failure policy."""
    yield from _job_spec(obj.get("spec") or {}, "spec")


def _job_spec(spec: Object, field: str) -> Iterator[Cause]:
    yield from _amounts(spec, _JOB_AMOUNTS, field)
    yield from jobs.managed_by(spec, f"{field}.managedBy")
    mode = spec.get("completionMode")
    if mode is not None and mode not in ("Indexed", "NonIndexed"):
        yield causes.unsupported(f"{field}.completionMode", mode, ("Indexed", "NonIndexed"))
    if mode == "Indexed" and spec.get("completions") is None:
        yield causes.required(f"{field}.completions", "when completion mode is Indexed")
    yield from jobs.indexes(spec, field)
    selector = spec.get("selector")
    if spec.get("manualSelector") and selector is None:
        yield causes.required(f"{field}.selector")
    if selector is not None:
        yield from label_selector(selector, f"{field}.selector")
        labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
        if not selects(selector, labels):
            yield causes.bad(f"{field}.template.metadata.labels", labels, _MISMATCH)
    template = spec.get("template") or {}
    yield from pod_template_spec(template, f"{field}.template")
    if (template.get("spec") or {}).get("restartPolicy") == "Always":
        yield causes.required(
            f"{field}.template.spec.restartPolicy", 'valid values: "OnFailure", "Never"'
        )
    if spec.get("podFailurePolicy") is not None:
        yield from jobs.failure_policy(spec, field)


def cron_job(obj: Object) -> Iterator[Cause]:
    """Check the schedule and the template of Jobs."""
    spec = obj.get("spec") or {}
    schedule = spec.get("schedule") or ""
    if not schedule:
        yield causes.required("spec.schedule")
    else:
        yield from jobs.schedule(schedule, "spec.schedule")
    yield from jobs.time_zone(spec.get("timeZone"), "spec.timeZone")
    name = (obj.get("metadata") or {}).get("name") or ""
    if len(name) > _LONGEST_CRON_JOB:
        text = f"must be no more than {_LONGEST_CRON_JOB} characters"
        yield causes.bad("metadata.name", name, text)
    policy = spec.get("concurrencyPolicy")
    if policy not in ("Allow", "Forbid", "Replace"):
        yield causes.unsupported("spec.concurrencyPolicy", policy, ("Allow", "Forbid", "Replace"))
    words = ("startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit")
    yield from _amounts(spec, words, "spec")
    template = spec.get("jobTemplate") or {}
    yield from _job_spec(template.get("spec") or {}, "spec.jobTemplate.spec")


def selector_update(obj: Object, old: Object) -> Iterator[Cause]:
    """The selector of apps/v1 kinds never changes."""
    new, was = (obj.get("spec") or {}).get("selector"), (old.get("spec") or {}).get("selector")
    if new != was:
        yield causes.bad("spec.selector", new, "field is immutable")


_STATEFUL_CHANGES: Final = (
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
)


def stateful_set_update(obj: Object, old: Object) -> Iterator[Cause]:
    """Only some fields of a StatefulSet change."""
    new, was = obj.get("spec") or {}, old.get("spec") or {}
    fixed = {**new, **dict.fromkeys(_STATEFUL_CHANGES)}
    if fixed != {**was, **dict.fromkeys(_STATEFUL_CHANGES)}:
        yield causes.forbidden(
            "spec",
            "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', "
            "'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and "
            "'minReadySeconds' are forbidden",
        )


_FIXED_OF_JOBS: Final = (
    "selector",
    "template",
    "completionMode",
    "podFailurePolicy",
    "backoffLimitPerIndex",
    "managedBy",
    "successPolicy",
)


def job_update(obj: Object, old: Object) -> Iterator[Cause]:
    """Completions, selector and template stay, but for what a Job that waits may still change."""
    new, was = obj.get("spec") or {}, old.get("spec") or {}
    completions = new.get("completions")
    if completions != was.get("completions") and not (
        new.get("completionMode") == "Indexed" and completions == new.get("parallelism")
    ):
        yield causes.bad("spec.completions", completions, "field is immutable")
    for word in _FIXED_OF_JOBS:
        value, former = new.get(word), was.get(word)
        if word == "template" and _is_startable(old):
            value, former = _placement_free(value or {}), _placement_free(former or {})
        if value != former:
            shown = internal_form.pod_template(new[word]) if word == "template" else new.get(word)
            yield causes.bad(f"spec.{word}", shown, "field is immutable")


def _is_startable(job_object: Object) -> bool:
    """Whether the placement of a Job may still change: suspended and never started."""
    spec, status = job_object.get("spec") or {}, job_object.get("status") or {}
    return bool(spec.get("suspend")) and not status.get("startTime")


_PLACEMENT: Final = ("affinity", "nodeSelector", "tolerations", "schedulingGates")


def _placement_free(template: Object) -> Object:
    spec = template.get("spec") or {}
    metadata = template.get("metadata") or {}
    kept = {name: value for name, value in spec.items() if name not in _PLACEMENT}
    named = {
        name: value for name, value in metadata.items() if name not in ("labels", "annotations")
    }
    return {**template, "metadata": named, "spec": kept}
