"""Documents that no API server has judged: they are read as it would read them, or refused.

1. What the API server sets itself, and what no client may write at creation, is dropped: the
   status, the uid, versions and times. So is what is null, which is to be absent.
2. Of a kind of the table of jobs every path of its row leads through mappings and lists to what the
   row names: numbers of pods, pod templates, names. What wraps other objects has those read by
   their own rows.
3. Pods, PodGroups and ReplicaSets are read whole.

A document of another kind is read with its metadata alone: of it nothing else is known here.

Source: the API's types; specification of the quota plane, section 10.2; `PrepareForCreate` of the
API server's registries.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any, Final

from kubeworld.objects.paths import Json
from kubeworld.units.untrusted import LONGEST_NAME
from reprieve.api.pod_groups import PodGroup
from reprieve.api.scheduling import LabelSelector
from reprieve.jobs.model import Asked, Components, JobKind, PodSetSource
from reprieve.jobs.training import RUNTIME
from reprieve.whatif.snapshots.partial import Partial
from reprieve.whatif.submitting.fields import (
    Count,
    Field,
    Int32,
    Metadata,
    Variable,
    check_pod,
    part,
)
from reprieve.whatif.submitting.submission import Document, Submitted

__all__ = ["Kinds", "as_stored", "kinds_by_name"]

Kinds = Mapping[tuple[str, str], JobKind]

_SET_BY_SERVER: Final = (
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
    "selfLink",
)
_PATCHED_JOBS: Final = "spec.runtimePatches.*.trainingRuntimeSpec.template.spec.replicatedJobs.*"
_REPLICA_SET: Final = ("apps", "ReplicaSet")
_POD: Final = ("", "Pod")
_GROUP: Final = ("scheduling.k8s.io", "PodGroup")


class _Gang(Partial, frozen=True):
    min_count: Count | None = None


class _Policy(Partial, frozen=True):
    gang: _Gang | None = None


class _GroupSpec(Partial, frozen=True):
    """What is read of a PodGroup as plain mappings, beside the struct of `api`."""

    scheduling_policy: _Policy | None = None
    priority: Int32 | None = None
    priority_class_name: str | None = None


class _Flat(Partial, frozen=True):
    """What stands beside a template, in place of it."""

    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    sidecars: list[dict[str, Any]] | None = None


class _Device(Partial, frozen=True):
    """A device that a container requests."""

    name: str | None = None
    quantity: Count | None = None


class _Named(Partial, frozen=True):
    """Something in a list that is known by its name."""

    name: str | None = None


class _Typed(Partial, frozen=True, rename="camel"):
    """An object that is wrapped."""

    api_version: str | None = None
    kind: str | None = None


class _Trainer(Partial, frozen=True):
    """What a TrainJob states of its nodes."""

    num_nodes: Count | None = None
    image: str | None = None
    command: list[str] | None = None
    args: list[str] | None = None
    env: list[Variable] | None = None


class _Reference(Partial, frozen=True):
    """The runtime of a TrainJob."""

    name: str | None = None
    kind: str | None = None
    api_group: str | None = None


class _Declared(Partial, frozen=True):
    """A declared pod set of an object that is wrapped."""

    path: str | None = None
    replicas: Count | None = None


#: Types of fields beside those of the rows, as far as a plan reads them.
_TYPES: Final[Mapping[str, Any]] = {
    "spec.replicas": Count,
    "spec.ordinals.start": Count,
    "spec.activeDeadlineSeconds": Count,
    "spec.completionMode": str,
    "spec.podManagementPolicy": str,
    "spec.selector": LabelSelector,
    "spec.trainer": _Trainer,
    "spec.runtimeRef": _Reference,
    "spec.runtimePatches.*.manager": str,
}


def kinds_by_name(kinds: tuple[JobKind, ...]) -> Kinds:
    """Return the rows by group and kind."""
    return {(kind.group, kind.kind): kind for kind in kinds}


def as_stored(submitted: Submitted, kinds: Kinds) -> Submitted:
    """Return what is submitted as the API server would read it; what it has judged stays.

    Raises:
        UsageError: the API server could not read it; states which field, and what is accepted.
    """
    if submitted.judged:
        return submitted
    title = Document(submitted.object, submitted.place).title
    document = f"{submitted.place}: {title}" if submitted.place else title
    kept: Json = {
        name: _without_nulls(value)
        for name, value in submitted.object.items()
        if name not in ("status", RUNTIME) and value is not None
    }
    whole = Field(document, "", kept)
    for metadata in part(whole, "metadata"):
        metadata.check(Metadata)
    resource = submitted.resource
    _check(whole, (resource.group, resource.kind), kinds)
    given = {n: v for n, v in kept["metadata"].items() if n not in _SET_BY_SERVER}
    return replace(submitted, object={**kept, "metadata": given})


def _without_nulls(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_nulls(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {name: _without_nulls(each) for name, each in value.items() if each is not None}


def _check(whole: Field, name: tuple[str, str], kinds: Kinds) -> None:
    kind = kinds.get(name)
    if kind is None and name not in (_POD, _GROUP, _REPLICA_SET):
        return
    spec = next(part(whole, "spec"), whole.below("spec", None))
    if not isinstance(spec.value, Mapping):
        raise spec.refused("accepted: a mapping")
    if name == _POD:
        check_pod(whole)
    elif name == _GROUP:
        whole.check(PodGroup)
        spec.check(_GroupSpec)
    else:
        _check_own(whole)
        if name == _REPLICA_SET:
            _check_templates(whole, ["spec.template"])
    if kind is not None:
        _check_row(whole, kind, kinds)


def _check_own(whole: Field) -> None:
    """Look at fields that no row names."""
    for path, type in _TYPES.items():
        for field in part(whole, path):
            field.check(type)
    for name in ("requests", "limits"):
        for amounts in part(whole, f"spec.trainer.resourcesPerNode.{name}"):
            amounts.check_amounts()
    for job in part(whole, _PATCHED_JOBS):
        job.check(_Named)
        _check_templates(job, ["template.spec.template"])


def _check_row(whole: Field, kind: JobKind, kinds: Kinds) -> None:
    for path in kind.priority:
        for name in part(whole, path):
            name.check(str)
    for suspended in part(whole, kind.suspend) if kind.suspend else ():
        suspended.check(bool)
    if kind.passes_on is not None:
        _check_counts(whole, filter(None, (kind.passes_on.total, kind.passes_on.groups)))
        _check_templates(whole, kind.passes_on.templates)
    if kind.components is not None:
        _check_components(whole, kind.components, kinds)
    for source in kind.pod_sets if not kind.gate else ():
        for item in part(whole, f"{source.each}.*" if source.each else ""):
            _check_source(whole, item, source)


def _check_source(whole: Field, item: Field, source: PodSetSource) -> None:
    for name in part(item, source.name_from) if source.name_from else ():
        name.check(str)
    _check_counts(item, chain.from_iterable(source.counts))
    _check_templates(item, [source.template])
    for sidecar in source.sidecars:
        for asks in ("requests", "limits") if sidecar.resources else ():
            for amounts in part(whole, f"{sidecar.resources}.{asks}"):
                amounts.check_amounts()
    for flat in part(item, source.flat) if source.flat else ():
        flat.check(_Flat)
        # Of the pod, though it stands beside the template.
        check_pod(flat, spec="")
        if source.asked is not None:
            _check_asked(flat, source.asked)


def _check_asked(flat: Field, asked: Asked) -> None:
    for path in (*asked.requests.values(), *asked.limits.values()):
        for amount in part(flat, path):
            amount.check(str | int | float)
    for device in part(flat, asked.device) if asked.device else ():
        device.check(_Device)


def _check_components(whole: Field, components: Components, kinds: Kinds) -> None:
    for component in part(whole, f"{components.each}.*"):
        component.check(Json)
        for wrapped in part(component, components.template):
            wrapped.check(_Typed)
            for metadata in part(wrapped, "metadata"):
                metadata.check(Metadata)
            group = str(wrapped.value.get("apiVersion", "")).rpartition("/")[0]
            _check(wrapped, (group, str(wrapped.value.get("kind", ""))), kinds)
        for declared in part(component, f"{components.declared}.*"):
            declared.check(_Declared)
            path = declared.value.get("path") or ""
            if len(path) > LONGEST_NAME or "*" in path:
                continue  # no path: it is not followed
            for template in part(component, path):
                if isinstance(template.value, Mapping):
                    check_pod(template)


def _check_counts(item: Field, paths: Iterable[str]) -> None:
    for path in paths:
        for count in part(item, path):
            count.check(Count)


def _check_templates(item: Field, paths: Iterable[str]) -> None:
    for path in paths:
        for template in part(item, path):
            template.check(Json)
            check_pod(template)
