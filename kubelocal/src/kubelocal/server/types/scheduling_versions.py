"""PodGroup and Workload of `scheduling.k8s.io` v1alpha2, as another view of v1beta1.

v1beta1 is what is kept; v1alpha3 has the same fields. What v1alpha2 cannot state (preemption
policies, parents, composite templates) is read from the kept object when it is written to. The
map of fields is that between the releases 1.36 and 1.37; no real server serves both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kubelocal.server.causes import Cause, unsupported
from kubelocal.server.types.kinds import Kind

__all__ = ["as_newer", "as_older", "as_older_cause", "is_older", "mode_problems"]

Object = dict[str, Any]

_MODES: Final = {"Pod": "single", "PodGroup": "all"}
_MODES_BACK: Final = {newer: older for older, newer in _MODES.items()}
_CONDITIONS: Final = {"PodGroupScheduled": "PodGroupInitiallyScheduled"}
_CONDITIONS_BACK: Final = {newer: older for older, newer in _CONDITIONS.items()}
_ONLY_NEWER: Final = (
    "parentCompositePodGroupName",
    "preemptionPolicy",
    "compositePodGroupTemplates",
)
# Paths of v1beta1 as v1alpha2 calls them, the longer ones first.
_PATHS: Final = {
    "spec.workloadRef.templateName": "spec.podGroupTemplateRef.workload.podGroupTemplateName",
    "spec.workloadRef.workloadName": "spec.podGroupTemplateRef.workload.workloadName",
    "spec.workloadRef": "spec.podGroupTemplateRef",
}


def is_older(kind: Kind) -> bool:
    """Return whether `kind` is one that differs from what is kept."""
    return (kind.group, kind.version) == ("scheduling.k8s.io", "v1alpha2")


def as_newer(obj: Object, kept: Mapping[str, Any] | None) -> Object:
    """Return a v1alpha2 object with the fields of v1beta1; `kept`: the object that it replaces."""
    spec = _newer(obj.get("spec") or {}, (kept or {}).get("spec") or {})
    reference = spec.pop("podGroupTemplateRef", None)
    if reference is not None:
        workload = reference.get("workload") or {}
        spec["workloadRef"] = {
            "workloadName": workload.get("workloadName", ""),
            "templateName": workload.get("podGroupTemplateName", ""),
        }
    return _with_conditions({**obj, "spec": spec}, _CONDITIONS)


def as_older(obj: Object) -> Object:
    """Return a v1beta1 object with the fields of v1alpha2."""
    spec = _older(obj.get("spec") or {})
    reference = spec.pop("workloadRef", None)
    if reference is not None:
        workload = {
            "workloadName": reference.get("workloadName", ""),
            "podGroupTemplateName": reference.get("templateName", ""),
        }
        spec["podGroupTemplateRef"] = {"workload": workload}
    return _with_conditions({**obj, "spec": spec}, _CONDITIONS_BACK)


def as_older_cause(cause: Cause) -> Cause:
    """Return what is wrong with an object under the names of v1alpha2."""
    for newer, older in _PATHS.items():
        if cause.field.startswith(newer):
            return Cause(cause.reason, cause.message, older + cause.field.removeprefix(newer))
    return cause


def mode_problems(obj: Mapping[str, Any]) -> Iterator[Cause]:
    """Yield disruption modes that v1alpha2 does not have."""
    spec = obj.get("spec") or {}
    holders = {"spec": spec}
    for index, template in enumerate(spec.get("podGroupTemplates") or ()):
        holders[f"spec.podGroupTemplates[{index}]"] = template
    for path, holder in holders.items():
        mode = holder.get("disruptionMode")
        if mode is not None and mode not in _MODES:
            yield unsupported(f"{path}.disruptionMode", mode, _MODES)


def _newer(holder: Mapping[str, Any], kept: Mapping[str, Any]) -> Object:
    """Return a spec or template of v1alpha2 in the form of v1beta1."""
    made = dict(holder)
    mode = made.get("disruptionMode")
    if isinstance(mode, str):
        made["disruptionMode"] = {_MODES.get(mode, "single"): {}}
    made |= {name: kept[name] for name in _ONLY_NEWER if name in kept and name not in made}
    if made.get("podGroupTemplates"):
        before = {one.get("name"): one for one in kept.get("podGroupTemplates") or ()}
        made["podGroupTemplates"] = [
            _newer(one, before.get(one.get("name"), {})) for one in made["podGroupTemplates"]
        ]
    return made


def _older(holder: Mapping[str, Any]) -> Object:
    made = {name: value for name, value in holder.items() if name not in _ONLY_NEWER}
    mode = made.get("disruptionMode")
    if isinstance(mode, Mapping) and mode:
        made["disruptionMode"] = _MODES_BACK[next(iter(mode))]
    if made.get("podGroupTemplates"):
        made["podGroupTemplates"] = [_older(one) for one in made["podGroupTemplates"]]
    return made


def _with_conditions(obj: Object, names: Mapping[str, str]) -> Object:
    status = obj.get("status") or {}
    conditions = status.get("conditions")
    if not conditions:
        return obj
    # One that already has the new name was set there by a client that mixes versions.
    given = {names.get(one["type"]) for one in conditions}
    kept = [
        {**one, "type": names.get(one["type"], one["type"])}
        for one in conditions
        if one["type"] not in given
    ]
    return {**obj, "status": {**status, "conditions": kept}}
