"""How many pods of a job the ResourceQuotas of its namespace let be made.

The API server answers for one pod alone: of a job of eight it takes each, one after the other,
until the quota is used up, and refuses the others. So each pod of what is submitted is counted
against what its namespace has left, in the order of the submission:

1. A quota counts a pod where all its scopes do: Terminating, NotTerminating, BestEffort,
   NotBestEffort, PriorityClass and CrossNamespacePodAffinity, in `scopes` and `scopeSelector`. One
   with a scope that is not known here counts nothing.
2. It counts `pods` and `count/pods`, requests under their own names and as `requests.*`, and limits
   as `limits.*`: of the pod as the API server's admission leaves it, with defaults.
3. What is left is `status.hard` less `status.used`.

Source: the evaluator of pods of Kubernetes' plugin ResourceQuota.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from kubeworld.units.quantities import InvalidQuantity, parse_milli
from reprieve.jobs.paths import Json, first
from reprieve.kube.resource import Resource
from reprieve.whatif.questions.asked import requests_of_spec

__all__ = ["RESOURCE_QUOTAS", "Left", "Quota", "QuotaObject", "Short", "left_of", "taken_by"]

RESOURCE_QUOTAS: Final = Resource("", "v1", "resourcequotas", "ResourceQuota")
_COUNTS: Final = ("pods", "count/pods")
_OF_QUALITY: Final = ("cpu", "memory")


class _Struct(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Common settings: camel case, unknown fields are passed over."""


class _Metadata(_Struct, frozen=True):
    name: str = ""


class _Expression(_Struct, frozen=True):
    scope_name: str = ""
    operator: str = ""
    values: list[str] | None = None


class _Selector(_Struct, frozen=True):
    match_expressions: list[_Expression] | None = None


class _Spec(_Struct, frozen=True):
    scopes: list[str] | None = None
    scope_selector: _Selector | None = None


class _Status(_Struct, frozen=True):
    hard: dict[str, str] | None = None
    used: dict[str, str] | None = None


class QuotaObject(_Struct, frozen=True):
    """A ResourceQuota, as far as it is read."""

    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()
    status: _Status = _Status()


@dataclass(frozen=True, slots=True)
class Quota:
    """One quota: whom it counts, and how much of each name it grants, in thousandths."""

    name: str
    scopes: tuple[_Expression, ...]
    hard: Mapping[str, int]


@dataclass(slots=True)
class Left:
    """What is left of a quota for those that come next, in thousandths, by name."""

    quota: Quota
    amounts: dict[str, int]


@dataclass(frozen=True, slots=True)
class Short:
    """Which quota lets so few be made: `fits` now, `at_most` if nobody else used it."""

    quota: str
    resource: str
    fits: int
    at_most: int


def left_of(objects: Iterable[QuotaObject]) -> list[Left]:
    """Return what quotas have left; those whose amounts cannot be read count nothing."""
    found = []
    for each in sorted(objects, key=lambda one: one.metadata.name):
        said = each.spec.scope_selector
        scopes = [_Expression(name, "Exists") for name in each.spec.scopes or ()]
        scopes += (said.match_expressions or ()) if said is not None else ()
        try:
            hard = {name: parse_milli(text) for name, text in (each.status.hard or {}).items()}
            used = {name: parse_milli(text) for name, text in (each.status.used or {}).items()}
        except InvalidQuantity:
            continue
        quota = Quota(each.metadata.name, tuple(scopes), hard)
        found.append(Left(quota, {name: hard[name] - used.get(name, 0) for name in hard}))
    return found


def taken_by(pod: Json, count: int, quotas: Sequence[Left]) -> Short | None:
    """Take so many pods off what is left, as many as fit; return what lets fewer be made."""
    counting = [each for each in quotas if _counts(each.quota, pod)]
    usage = _usage(pod)
    shorts = [
        Short(
            each.quota.name,
            name,
            max(0, left // usage[name]),
            max(0, each.quota.hard[name] // usage[name]),
        )
        for each in counting
        for name, left in each.amounts.items()
        if usage.get(name)
    ]
    tightest = min(shorts, key=lambda short: short.fits, default=None)
    made = count if tightest is None else min(count, tightest.fits)
    for each in counting:
        for name in each.amounts:
            each.amounts[name] -= made * usage.get(name, 0)
    return tightest if tightest is not None and tightest.fits < count else None


def _usage(pod: Json) -> dict[str, int]:
    """Return what a pod uses of a quota, by the quota's names, in thousandths."""
    spec = pod.get("spec") or {}
    found = dict.fromkeys(_COUNTS, 1_000)
    for name, amount in requests_of_spec(spec).items():
        milli = amount if name == "cpu" else amount * 1_000
        found[name] = found[f"requests.{name}"] = milli
    for name, amount in requests_of_spec(_limited(spec)).items():
        found[f"limits.{name}"] = amount if name == "cpu" else amount * 1_000
    return found


def _limited(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a spec that requests its limits."""

    def limited(part: Mapping[str, Any]) -> dict[str, Any]:
        limits = (part.get("resources") or {}).get("limits") or {}
        return {**part, "resources": {"requests": limits}}

    found = limited(spec) if spec.get("resources") else dict(spec)
    for field in ("containers", "initContainers"):
        if spec.get(field):
            found[field] = [limited(each) for each in spec[field]]
    return found


def _counts(quota: Quota, pod: Json) -> bool:
    return all(_matches(each, pod) for each in quota.scopes)


def _matches(scope: _Expression, pod: Json) -> bool:
    ends = first(pod, "spec.activeDeadlineSeconds") is not None
    match scope.scope_name:
        case "Terminating":
            return ends
        case "NotTerminating":
            return not ends
        case "BestEffort":
            return _is_best_effort(pod)
        case "NotBestEffort":
            return not _is_best_effort(pod)
        case "PriorityClass":
            return _selects(scope, str(first(pod, "spec.priorityClassName") or ""))
        case "CrossNamespacePodAffinity":
            return _looks_elsewhere(pod)
    return False


def _selects(scope: _Expression, name: str) -> bool:
    match scope.operator:
        case "In":
            return name in (scope.values or ())
        case "NotIn":
            return name not in (scope.values or ())
        case "Exists":
            return bool(name)
        case "DoesNotExist":
            return not name
    return False


def _is_best_effort(pod: Json) -> bool:
    spec = pod.get("spec") or {}
    parts = [spec, *(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    return not any(
        name in ((part.get("resources") or {}).get(field) or {})
        for part in parts
        for field in ("requests", "limits")
        for name in _OF_QUALITY
    )


def _looks_elsewhere(pod: Json) -> bool:
    """Tell whether a term of pod affinity names namespaces."""
    for kind in ("podAffinity", "podAntiAffinity"):
        said = first(pod, f"spec.affinity.{kind}") or {}
        terms = list(said.get("requiredDuringSchedulingIgnoredDuringExecution") or ())
        preferred = said.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
        terms += [each.get("podAffinityTerm") or {} for each in preferred]
        if any(
            each.get("namespaces") or each.get("namespaceSelector") is not None for each in terms
        ):
            return True
    return False
