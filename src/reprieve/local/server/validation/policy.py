"""Kinds that rule over others: budgets, priorities, quotas, limits, roles, leases, pod groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from reprieve.local.server import causes
from reprieve.local.server.causes import Cause
from reprieve.local.server.validation.resources import non_negative
from reprieve.local.server.validation.selectors import label_selector

__all__ = [
    "disruption_budget",
    "disruption_budget_update",
    "lease",
    "limit_range",
    "pod_group",
    "priority_class",
    "priority_class_update",
    "resource_quota",
    "role",
    "role_binding",
    "role_binding_update",
]

Object = Mapping[str, Any]

_HIGHEST_USER_PRIORITY: Final = 1_000_000_000


def disruption_budget(obj: Object) -> Iterator[Cause]:
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
            yield from _share(value, f"spec.{word}")
    policy = spec.get("unhealthyPodEvictionPolicy")
    if policy is not None and policy not in ("AlwaysAllow", "IfHealthyBudget"):
        yield causes.unsupported(
            "spec.unhealthyPodEvictionPolicy", policy, ("AlwaysAllow", "IfHealthyBudget")
        )
    yield from label_selector(spec.get("selector") or {}, "spec.selector")


def _share(value: int | str, field: str) -> Iterator[Cause]:
    """Check a number or a percentage."""
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
    elif int(digits) > 100:
        yield causes.bad(field, value, "must not be greater than 100%")


def disruption_budget_update(obj: Object, old: Object) -> Iterator[Cause]:
    """Budgets may change freely."""
    del obj, old
    yield from ()


def priority_class(obj: Object) -> Iterator[Cause]:
    name, value = (obj.get("metadata") or {}).get("name", ""), obj.get("value", 0)
    if name.startswith("system-"):
        if name not in ("system-cluster-critical", "system-node-critical"):
            yield causes.forbidden(
                "metadata.name",
                "priority class names with 'system-' prefix are reserved for system use only. "
                f"error: {name} is not a known system priority class",
            )
    elif value > _HIGHEST_USER_PRIORITY:
        yield causes.forbidden(
            "value", f"maximum allowed value of a user defined priority is {_HIGHEST_USER_PRIORITY}"
        )
    policy = obj.get("preemptionPolicy")
    if policy not in ("Never", "PreemptLowerPriority"):
        yield causes.unsupported("preemptionPolicy", policy, ("Never", "PreemptLowerPriority"))


def priority_class_update(obj: Object, old: Object) -> Iterator[Cause]:
    if obj.get("value") != old.get("value"):
        yield causes.bad("value", obj.get("value"), "field is immutable")
    if obj.get("preemptionPolicy") != old.get("preemptionPolicy"):
        yield causes.bad("preemptionPolicy", obj.get("preemptionPolicy"), "field is immutable")


def resource_quota(obj: Object) -> Iterator[Cause]:
    for name, amount in ((obj.get("spec") or {}).get("hard") or {}).items():
        yield from non_negative(amount, f"spec.hard[{name}]")


def limit_range(obj: Object) -> Iterator[Cause]:
    for index, item in enumerate((obj.get("spec") or {}).get("limits") or ()):
        if not item.get("type"):
            yield causes.required(f"spec.limits[{index}].type")


def lease(obj: Object) -> Iterator[Cause]:
    spec = obj.get("spec") or {}
    for word, limit in (("leaseDurationSeconds", 1), ("leaseTransitions", 0)):
        value = spec.get(word)
        if value is not None and value < limit:
            text = "greater than 0" if limit else "greater than or equal to 0"
            yield causes.bad(f"spec.{word}", value, f"must be {text}")


def role(obj: Object) -> Iterator[Cause]:
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
    if obj.get("roleRef") != old.get("roleRef"):
        yield causes.bad("roleRef", obj.get("roleRef"), "cannot change roleRef")


def pod_group(obj: Object) -> Iterator[Cause]:
    gang = ((obj.get("spec") or {}).get("schedulingPolicy") or {}).get("gang")
    if gang is not None and gang.get("minCount", 0) < 1:
        yield causes.bad(
            "spec.schedulingPolicy.gang.minCount",
            gang.get("minCount", 0),
            "must be greater than or equal to 1",
        )
