"""Kinds that rule over others: budgets, quotas, limits, roles, leases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kubelocal.server import causes
from kubelocal.server.causes import Cause
from kubelocal.server.validation.resources import non_negative
from kubelocal.server.validation.selectors import label_selector
from kubeworld.units.quantities import parse_milli

__all__ = [
    "disruption_budget",
    "lease",
    "limit_range",
    "resource_quota",
    "role",
    "role_binding",
    "role_binding_update",
    "share",
]

Object = Mapping[str, Any]
_POD_AMOUNTS: Final = frozenset(
    {
        "pods",
        *("cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"),
    }
)
_QUOTA_NAMES: Final = _POD_AMOUNTS | {
    *("ephemeral-storage", "requests.ephemeral-storage", "limits.ephemeral-storage"),
    *("requests.storage", "persistentvolumeclaims", "services", "services.nodeports"),
    *("services.loadbalancers", "replicationcontrollers", "resourcequotas"),
    *("secrets", "configmaps"),
}
_LIMITED: Final = ("Pod", "Container", "PersistentVolumeClaim")
#: Which bound may not be above which, the one that is named for it, and what both are called.
_ORDERED: Final = (
    ("min", "max", "min", ("min", "max")),
    ("min", "defaultRequest", "defaultRequest", ("min", "default request")),
    ("defaultRequest", "max", "defaultRequest", ("default request", "max")),
    ("defaultRequest", "default", "defaultRequest", ("default request", "default limit")),
    ("min", "default", "default", ("min", "default")),
    ("default", "max", "default", ("default", "max")),
)
#: What a quota of each scope may limit.
_SCOPES: Final[Mapping[str, frozenset[str]]] = {
    "BestEffort": frozenset({"pods"}),
    "NotBestEffort": _POD_AMOUNTS,
    "Terminating": _POD_AMOUNTS,
    "NotTerminating": _POD_AMOUNTS,
    "PriorityClass": _POD_AMOUNTS,
    "CrossNamespacePodAffinity": _POD_AMOUNTS,
    "VolumeAttributesClass": frozenset({"persistentvolumeclaims", "requests.storage"}),
}


def disruption_budget(obj: Object) -> Iterator[Cause]:
    """Check the numbers and the selector of a budget."""
    spec = obj.get("spec") or {}
    least, most = spec.get("minAvailable"), spec.get("maxUnavailable")
    if least is not None and most is not None:
        shown = {
            "MinAvailable": least,
            "Selector": spec.get("selector"),
            "MaxUnavailable": most,
            "UnhealthyPodEvictionPolicy": spec.get("unhealthyPodEvictionPolicy"),
        }
        yield causes.bad("spec", shown, "minAvailable and maxUnavailable cannot be both set")
    for word, value in (("minAvailable", least), ("maxUnavailable", most)):
        if value is not None:
            yield from share(value, f"spec.{word}", at_most=100)
    policy = spec.get("unhealthyPodEvictionPolicy")
    if policy is not None and policy not in ("AlwaysAllow", "IfHealthyBudget"):
        yield causes.unsupported(
            "spec.unhealthyPodEvictionPolicy", policy, ("AlwaysAllow", "IfHealthyBudget")
        )
    yield from label_selector(spec.get("selector") or {}, "spec.selector")


def share(value: int | str, field: str, at_most: int | None) -> Iterator[Cause]:
    """Check a number or a percentage of at most `at_most`, where that is given."""
    if isinstance(value, int):
        if value < 0:
            yield causes.bad(field, value, "must be greater than or equal to 0")
        return
    digits = value.removesuffix("%")
    if digits == value or not digits.isdigit():
        yield causes.bad(
            field,
            value,
            "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',"
            "  or '93%', regex used for validation is '[0-9]+%')",
        )
    elif at_most is not None and int(digits) > at_most:
        yield causes.bad(field, value, "must not be greater than 100%")


def resource_quota(obj: Object) -> Iterator[Cause]:
    """Check names, amounts and scopes."""
    spec = obj.get("spec") or {}
    hard, scopes = spec.get("hard") or {}, spec.get("scopes") or ()
    for name, amount in hard.items():
        here = f"spec.hard[{name}]"
        if "/" not in name and not _is_quota_name(name):
            if name != "storage":
                why = "must be a standard resource type or fully qualified"
                yield causes.bad(here, name, why)
            yield causes.bad(here, name, "must be a standard resource for quota")
        yield from non_negative(amount, here)
    for scope in scopes:
        if scope not in _SCOPES:
            yield causes.bad("spec.scopes", scopes, "unsupported scope")
            continue
        for name in sorted(hard):
            if _is_quota_name(name) and name not in _SCOPES[scope]:
                yield causes.bad("spec.scopes", scopes, "unsupported scope applied to resource")
    for pair in ({"BestEffort", "NotBestEffort"}, {"Terminating", "NotTerminating"}):
        if pair <= set(scopes):
            yield causes.bad("spec.scopes", scopes, "conflicting scopes")


def _is_quota_name(name: str) -> bool:
    return name in _QUOTA_NAMES or name.startswith(("hugepages-", "requests.hugepages-"))


def limit_range(obj: Object) -> Iterator[Cause]:
    """Check that each item states what it limits, and that its bounds agree."""
    seen: set[str] = set()
    for index, item in enumerate((obj.get("spec") or {}).get("limits") or ()):
        here, kind = f"spec.limits[{index}]", item.get("type") or ""
        if not kind:
            yield causes.required(f"{here}.type")
        elif "/" not in kind and kind not in _LIMITED:
            text = "must be a standard limit type or fully qualified"
            yield causes.bad(f"{here}.type", kind, text)
        if kind in seen:
            yield causes.duplicate(f"{here}.type", kind)
        seen.add(kind)
        if kind == "Pod":
            for word in ("default", "defaultRequest"):
                if item.get(word):
                    text = "may not be specified when `type` is 'Pod'"
                    yield causes.forbidden(f"{here}.{word}", text)
        yield from _bounds(item, here)


def _bounds(item: Object, field: str) -> Iterator[Cause]:
    words = ("min", "max", "default", "defaultRequest", "maxLimitRequestRatio")
    bounds = {word: item.get(word) or {} for word in words}
    for name in sorted({name for amounts in bounds.values() for name in amounts}):
        said = {word: amounts[name] for word, amounts in bounds.items() if name in amounts}
        for low, high, word, texts in _ORDERED:
            if low in said and high in said and parse_milli(said[low]) > parse_milli(said[high]):
                text = f"{texts[0]} value {said[low]} is greater than {texts[1]} value {said[high]}"
                yield causes.bad(f"{field}.{word}[{name}]", said[word], text)
        ratio = said.get("maxLimitRequestRatio")
        if ratio is not None and parse_milli(ratio) < 1000:
            text = f"ratio {ratio} is less than 1"
            yield causes.bad(f"{field}.maxLimitRequestRatio[{name}]", ratio, text)


def lease(obj: Object) -> Iterator[Cause]:
    """Check a lease's numbers."""
    spec = obj.get("spec") or {}
    for word, limit in (("leaseDurationSeconds", 1), ("leaseTransitions", 0)):
        value = spec.get(word)
        if value is not None and value < limit:
            text = "greater than 0" if limit else "greater than or equal to 0"
            yield causes.bad(f"spec.{word}", value, f"must be {text}")


def role(obj: Object) -> Iterator[Cause]:
    """Check that each rule is complete."""
    for index, rule in enumerate(obj.get("rules") or ()):
        here = f"rules[{index}]"
        if not rule.get("verbs"):
            yield causes.required(f"{here}.verbs", "verbs must contain at least one value")
        if rule.get("nonResourceURLs"):
            continue
        if not rule.get("apiGroups"):
            yield causes.required(
                f"{here}.apiGroups", "resource rules must supply at least one api group"
            )
        if not rule.get("resources"):
            yield causes.required(
                f"{here}.resources", "resource rules must supply at least one resource"
            )


def role_binding(obj: Object) -> Iterator[Cause]:
    """Check the role and the subjects."""
    reference = obj.get("roleRef") or {}
    if not reference.get("name"):
        yield causes.required("roleRef.name")
    kinds = ("ClusterRole",) if obj.get("kind") == "ClusterRoleBinding" else ("Role", "ClusterRole")
    if reference.get("kind") not in kinds:
        yield causes.unsupported("roleRef.kind", reference.get("kind", ""), kinds)
    for index, subject in enumerate(obj.get("subjects") or ()):
        here = f"subjects[{index}]"
        if not subject.get("name"):
            yield causes.required(f"{here}.name")
        if subject.get("kind") not in ("ServiceAccount", "User", "Group"):
            yield causes.unsupported(
                f"{here}.kind", subject.get("kind", ""), ("ServiceAccount", "User", "Group")
            )
        elif subject["kind"] == "ServiceAccount" and not subject.get("namespace"):
            yield causes.required(f"{here}.namespace")


def role_binding_update(obj: Object, old: Object) -> Iterator[Cause]:
    """The role of a binding stays."""
    if obj.get("roleRef") != old.get("roleRef"):
        yield causes.bad("roleRef", obj.get("roleRef"), "cannot change roleRef")
