"""Priorities, pod groups and workloads.

Source: `scheduling.k8s.io` v1 and v1beta1; texts of a 1.37 server.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from kubelocal.server import causes
from kubelocal.server.causes import Cause
from kubelocal.server.types.metadata import (
    label_problem,
    qualified_name_problems,
    subdomain_problem,
)

__all__ = [
    "pod_group",
    "pod_group_update",
    "priority_class",
    "priority_class_update",
    "workload",
    "workload_update",
]

Object = Mapping[str, Any]

_HIGHEST_USER_PRIORITY: Final = 1_000_000_000
_SYSTEM_CLASSES: Final = ("system-cluster-critical", "system-node-critical")
_IMMUTABLE: Final = "field is immutable"
_TEMPLATES: Final = ("podGroupTemplates", "compositePodGroupTemplates")
_MOST_TEMPLATES: Final = 8
_MOST_CLAIMS: Final = 4
_DEEPEST: Final = 4
# The field with the least number of members, for groups of pods and for groups of groups.
_LEAST: Final = {"gang": "minCount", "composite": "minGroupCount"}
# Fields of groups and templates that stay as they were created.
_FIXED: Final = (
    "schedulingConstraints",
    "resourceClaims",
    "disruptionMode",
    "priorityClassName",
    "priority",
    "preemptionPolicy",
)


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
    """Check a pod group's policy, constraints, mode and the conditions in its status.

    Composite groups have the same fields with other policies.
    """
    spec = obj.get("spec") or {}
    reference, parent = spec.get("workloadRef"), spec.get("parentCompositePodGroupName")
    if parent is not None:
        yield from causes.named(parent, "spec.parentCompositePodGroupName", subdomain_problem)
        if reference is None:
            text = "must be set when parentCompositePodGroupName is set"
            yield causes.required("spec.workloadRef", text)
    if reference is not None:
        field = "spec.workloadRef"
        yield from causes.named(
            reference.get("workloadName"), f"{field}.workloadName", subdomain_problem
        )
        yield from causes.named(
            reference.get("templateName"), f"{field}.templateName", label_problem
        )
    yield from _group(spec, "spec", "gang" if obj.get("kind") == "PodGroup" else "composite")
    for index, condition in enumerate((obj.get("status") or {}).get("conditions") or ()):
        field = f"status.conditions[{index}]"
        if condition.get("status") not in ("True", "False", "Unknown"):
            yield causes.unsupported(
                f"{field}.status", condition.get("status", ""), ("False", "True", "Unknown")
            )
        if not condition.get("reason"):
            yield causes.required(f"{field}.reason")


def _group(spec: Object, field: str, form: str) -> Iterator[Cause]:
    """Check what pod groups and their templates, also composite ones, have in common."""
    policy, least_word = spec.get("schedulingPolicy") or {}, _LEAST[form]
    yield from _one_of(policy, ("basic", "gang"), f"{field}.schedulingPolicy")
    gang = policy.get("gang")
    if gang is not None:
        least, here = gang.get(least_word, 0), f"{field}.schedulingPolicy.gang.{least_word}"
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
    yield from _resource_claims(spec.get("resourceClaims") or (), f"{field}.resourceClaims")
    mode = spec.get("disruptionMode")
    if mode is not None:
        yield from _one_of(mode, ("single", "all"), f"{field}.disruptionMode")
    if spec.get("priorityClassName"):
        name = spec["priorityClassName"]
        yield from causes.named(name, f"{field}.priorityClassName", subdomain_problem)
    policies, policy = ("Never", "PreemptLowerPriority"), spec.get("preemptionPolicy")
    if policy is not None and policy not in policies:
        yield causes.unsupported(f"{field}.preemptionPolicy", policy, policies)


def _resource_claims(claims: Sequence[Object], field: str) -> Iterator[Cause]:
    if len(claims) > _MOST_CLAIMS:
        yield causes.too_many(field, len(claims), _MOST_CLAIMS)
        return
    seen: set[str] = set()
    for index, claim in enumerate(claims):
        here, name = f"{field}[{index}]", claim.get("name") or ""
        if name and name in seen:
            yield causes.duplicate(here, claim)
        seen.add(name)
        yield from causes.named(name, f"{here}.name", label_problem)
        words = ("resourceClaimName", "resourceClaimTemplateName")
        yield from _one_of(claim, words, here)
        for word in words:
            if word in claim:
                yield from causes.named(claim[word], f"{here}.{word}", subdomain_problem)


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
    yield from _policy_update(new, was, "spec")
    for word in ("parentCompositePodGroupName", "workloadRef", *_FIXED):
        if was.get(word) != new.get(word):
            yield causes.bad(f"spec.{word}", None, _IMMUTABLE)


def _policy_update(new: Object, was: Object, field: str) -> Iterator[Cause]:
    policy, former = new.get("schedulingPolicy") or {}, was.get("schedulingPolicy") or {}
    if ("basic" in policy) != ("basic" in former):
        yield causes.bad(f"{field}.schedulingPolicy.basic", None, _IMMUTABLE)
    if ("gang" in policy) != ("gang" in former):
        text = "set once created" if "gang" in policy else "cleared once set"
        yield causes.bad(f"{field}.schedulingPolicy.gang", None, f"field cannot be {text}")


def workload(obj: Object) -> Iterator[Cause]:
    """Check the templates of pod groups."""
    spec = obj.get("spec") or {}
    controller = spec.get("controllerRef")
    if controller is not None:
        if controller.get("apiGroup"):
            group = controller["apiGroup"]
            yield from causes.named(group, "spec.controllerRef.apiGroup", subdomain_problem)
        for word in ("kind", "name"):
            yield from causes.named(
                controller.get(word), f"spec.controllerRef.{word}", _path_problem
            )
    yield from _one_of({word: True for word in _TEMPLATES if spec.get(word)}, _TEMPLATES, "spec")
    yield from _templates(spec, "spec")
    wanted = {
        (template.get("priorityClassName"), template.get("priority"))
        for _, template in _all_templates(spec, "")
    }
    if len(wanted) > 1:
        flat = "detected multiple priority configurations"
        deep = (
            "all priority and priorityClassName values must be identical, detected multiple values"
        )
        yield causes.bad("spec", None, deep if spec.get(_TEMPLATES[1]) else flat)
    for field, template in _all_templates(spec, "spec"):
        depth = field.count("emplates[")
        if depth == _DEEPEST and template.get(_TEMPLATES[1]):
            text = f"maximum template hierarchy depth is {_DEEPEST}"
            yield causes.bad(f"{field}.{_TEMPLATES[1]}", None, text)


def workload_update(obj: Object, old: Object) -> Iterator[Cause]:
    """The controller, and which templates there are with what in them, stay as they are."""
    new, was = obj.get("spec") or {}, old.get("spec") or {}
    if "controllerRef" in was and new.get("controllerRef") != was["controllerRef"]:
        yield causes.bad("spec.controllerRef", None, _IMMUTABLE)
    yield from _templates_update(new, was, "spec")


def _templates_update(new: Object, was: Object, field: str) -> Iterator[Cause]:
    for word in _TEMPLATES:
        here = f"{field}.{word}"
        before = {one.get("name"): one for one in was.get(word) or ()}
        names = [one.get("name") for one in new.get(word) or ()]
        for index, template in enumerate(new.get(word) or ()):
            former, path = before.get(names[index]), f"{here}[{index}]"
            if former is None:
                yield causes.forbidden(path, "item may not be added")
                continue
            yield from _policy_update(template, former, path)
            for fixed in _FIXED:
                if template.get(fixed) != former.get(fixed):
                    yield causes.bad(f"{path}.{fixed}", None, _IMMUTABLE)
            yield from _templates_update(template, former, path)
        for name in before:
            if name not in names:
                yield causes.forbidden(here, "item may not be removed")


def _templates(holder: Object, field: str) -> Iterator[Cause]:
    for word, form in zip(_TEMPLATES, ("gang", "composite"), strict=True):
        templates, here = holder.get(word) or (), f"{field}.{word}"
        if len(templates) > _MOST_TEMPLATES:
            yield causes.too_many(here, len(templates), _MOST_TEMPLATES)
            continue
        seen: set[str] = set()
        for index, template in enumerate(templates):
            path, name = f"{here}[{index}]", template.get("name") or ""
            if name and name in seen:
                yield causes.duplicate(path, template)
            seen.add(name)
            yield from causes.named(name, f"{path}.name", label_problem)
            yield from _group(template, path, form)
            priority = template.get("priority")
            if priority is not None and priority > _HIGHEST_USER_PRIORITY:
                text = f"must be less than or equal to {_HIGHEST_USER_PRIORITY}"
                yield causes.bad(f"{path}.priority", priority, text)
            if form == "composite":
                if not any(template.get(inner) for inner in _TEMPLATES):
                    text = (
                        "must have at least one child PodGroupTemplate or CompositePodGroupTemplate"
                    )
                    yield causes.bad(path, name, text)
                yield from _templates(template, path)


def _all_templates(holder: Object, field: str) -> Iterator[tuple[str, Object]]:
    for word in _TEMPLATES:
        for index, template in enumerate(holder.get(word) or ()):
            path = f"{field}.{word}[{index}]"
            yield path, template
            yield from _all_templates(template, path)


def _path_problem(name: str) -> str | None:
    if name in (".", ".."):
        return f"may not be '{name}'"
    return next((f"may not contain '{part}'" for part in "/%" if part in name), None)
