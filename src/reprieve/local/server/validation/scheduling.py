"""Priorities, pod groups and workloads.

Source: `scheduling.k8s.io` v1 and v1beta1; texts of a 1.37 server.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from reprieve.local.server import causes
from reprieve.local.server.causes import Cause
from reprieve.local.server.metadata import qualified_name_problems, subdomain_problem

__all__ = [
    "pod_group",
    "pod_group_update",
    "priority_class",
    "priority_class_update",
    "workload",
]

Object = Mapping[str, Any]

_HIGHEST_USER_PRIORITY: Final = 1_000_000_000
_SYSTEM_CLASSES: Final = ("system-cluster-critical", "system-node-critical")
_IMMUTABLE: Final = "field is immutable"


def priority_class(obj: Object) -> Iterator[Cause]:
    """Check a priority's name, value and preemption policy."""
    name, value = (obj.get("metadata") or {}).get("name", ""), obj.get("value", 0)
    if name.startswith("system-"):
        if name not in _SYSTEM_CLASSES:
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
        yield causes.unsupported("preemptionPolicy", policy, ("PreemptLowerPriority", "Never"))


def priority_class_update(obj: Object, old: Object) -> Iterator[Cause]:
    """Value and preemption policy stay as they are."""
    if obj.get("value", 0) != old.get("value", 0):
        yield causes.forbidden("value", "may not be changed in an update.")
    if obj.get("preemptionPolicy") != old.get("preemptionPolicy"):
        yield causes.bad("preemptionPolicy", obj.get("preemptionPolicy"), _IMMUTABLE)


def pod_group(obj: Object) -> Iterator[Cause]:
    """Check a pod group's policy, constraints, mode and the conditions in its status."""
    spec = obj.get("spec") or {}
    reference = spec.get("workloadRef")
    if reference is not None:
        field = "spec.workloadRef"
        for word in ("workloadName", "templateName"):
            name = reference.get(word) or ""
            if not name:
                yield causes.required(f"{field}.{word}")
            elif (problem := subdomain_problem(name)) is not None:
                yield causes.bad(f"{field}.{word}", name, problem)
    yield from _group(spec, "spec")
    for index, condition in enumerate((obj.get("status") or {}).get("conditions") or ()):
        field = f"status.conditions[{index}]"
        if condition.get("status") not in ("True", "False", "Unknown"):
            yield causes.unsupported(
                f"{field}.status", condition.get("status", ""), ("False", "True", "Unknown")
            )
        if not condition.get("reason"):
            yield causes.required(f"{field}.reason")


def _group(spec: Object, field: str) -> Iterator[Cause]:
    policy = spec.get("schedulingPolicy") or {}
    yield from _one_of(policy, ("basic", "gang"), f"{field}.schedulingPolicy")
    gang = policy.get("gang")
    if gang is not None:
        least, here = gang.get("minCount", 0), f"{field}.schedulingPolicy.gang.minCount"
        if least == 0:
            yield causes.required(here)
        elif least < 0:
            yield causes.bad(here, least, "must be greater than or equal to 1")
    topology = (spec.get("schedulingConstraints") or {}).get("topology") or ()
    here = f"{field}.schedulingConstraints.topology"
    if len(topology) > 1:
        yield causes.too_many(here, len(topology), 1)
    else:
        for index, constraint in enumerate(topology):
            key = constraint.get("key") or ""
            for problem in qualified_name_problems(key):
                yield causes.bad(f"{here}[{index}].key", key, problem)
    mode = spec.get("disruptionMode")
    if mode is not None:
        yield from _one_of(mode, ("single", "all"), f"{field}.disruptionMode")


def _one_of(union: Object, words: Sequence[str], field: str) -> Iterator[Cause]:
    given = [word for word in words if word in union]
    choices = ", ".join(f"`{word}`" for word in words)
    if not given:
        yield causes.bad(field, "", f"must specify one of: {choices}")
    elif len(given) > 1:
        shown = f"{{{', '.join(given)}}}"
        yield causes.bad(field, shown, f"must specify exactly one of: {choices}")


def pod_group_update(obj: Object, old: Object) -> Iterator[Cause]:
    """All of a pod group's spec but the gang's minimum stays as it is."""
    new, was = obj.get("spec") or {}, old.get("spec") or {}
    policy, former = new.get("schedulingPolicy") or {}, was.get("schedulingPolicy") or {}
    for word in ("basic", "gang"):
        if word in policy and word not in former:
            yield causes.bad(f"spec.schedulingPolicy.{word}", None, _IMMUTABLE)
        elif word in former and word not in policy:
            yield causes.bad(
                f"spec.schedulingPolicy.{word}", None, "field cannot be cleared once set"
            )
    for word in (
        "workloadRef",
        "schedulingConstraints",
        "disruptionMode",
        "priorityClassName",
        "priority",
        "preemptionPolicy",
    ):
        if was.get(word) != new.get(word):
            yield causes.bad(f"spec.{word}", None, _IMMUTABLE)


def workload(obj: Object) -> Iterator[Cause]:
    """Check the templates of pod groups."""
    spec = obj.get("spec") or {}
    words = ("podGroupTemplates", "compositePodGroupTemplates")
    yield from _one_of({word: True for word in words if spec.get(word)}, words, "spec")
    seen: set[str] = set()
    for index, template in enumerate(spec.get("podGroupTemplates") or ()):
        field, name = f"spec.podGroupTemplates[{index}]", template.get("name") or ""
        if not name:
            yield causes.required(f"{field}.name")
        elif name in seen:
            yield causes.duplicate(field, template)
        seen.add(name)
        yield from _group(template, field)
