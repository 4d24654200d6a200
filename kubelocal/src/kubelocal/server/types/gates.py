"""Feature gates of the API server: what is served, and which fields exist, by the user's choice.

A gate that is off removes its kinds, and its fields from what is written; fields that an object
already has stay. Names, defaults and what needs what: workload-aware scheduling of Kubernetes 1.37
(KEP-4671, KEP-5710). The first three are on here, of which a 1.37 server has only one on. What
Jobs state under `scheduling` belongs to a gate that is not imitated (WorkloadWithJob), and is left
out as a 1.37 server leaves it out by default.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from kubelocal.errors import UsageError
from kubelocal.server import causes

if TYPE_CHECKING:
    from kubelocal.server.types.kinds import Kind

__all__ = [
    "DEFAULTS",
    "STRICT_DISRUPTION_MODE",
    "drop_disabled",
    "enabled",
    "problems",
    "serves",
]

_EVICTIONS: Final = "EvictionRequestAPI"
DEFAULTS: Final[Mapping[str, bool]] = MappingProxyType(
    {
        "GenericWorkload": True,
        "TopologyAwareWorkloadScheduling": True,
        "SchedulerAsyncPreemption": True,
        "DRAWorkloadResourceClaims": True,
        "PodGroupPreemptionPolicy": False,
        "CompositePodGroup": False,
        _EVICTIONS: False,
        # Only schedulers look at these.
        "DRANodeAllocatableResources": False,
        "PreemptionPolicyTransformer": False,
        "TaintTolerationComparisonOperators": False,
        "SchedulerAsyncAPICalls": False,
        # Alpha gates of 1.35 and 1.36, part of GenericWorkload since: accepted, without effect.
        "WorkloadAwarePreemption": True,
        "GangScheduling": True,
    }
)
"""Every gate and whether it is on by default."""

STRICT_DISRUPTION_MODE: Final = "strictDisruptionMode"
"""An option that stands among the gates that are on: mode `all` needs the gang policy."""

_NEEDS: Final[Mapping[str, tuple[str, ...]]] = {
    "PodGroupPreemptionPolicy": ("GenericWorkload",),
    "TopologyAwareWorkloadScheduling": ("GenericWorkload",),
    "DRAWorkloadResourceClaims": ("GenericWorkload",),
    "WorkloadAwarePreemption": ("GenericWorkload",),
    "GangScheduling": ("GenericWorkload",),
    "CompositePodGroup": ("GenericWorkload", "TopologyAwareWorkloadScheduling"),
}
_KINDS: Final = {
    "podgroups.scheduling.k8s.io": "GenericWorkload",
    "workloads.scheduling.k8s.io": "GenericWorkload",
    "compositepodgroups.scheduling.k8s.io": "CompositePodGroup",
    "evictionrequests.lifecycle.k8s.io": _EVICTIONS,
    "evictions.lifecycle.k8s.io": _EVICTIONS,
}
# Fields of groups and of their templates that are left out while their gate is off.
_DROPPED: Final = {
    "schedulingConstraints": "TopologyAwareWorkloadScheduling",
    "resourceClaims": "DRAWorkloadResourceClaims",
    "preemptionPolicy": "PodGroupPreemptionPolicy",
}
_FORBIDDEN: Final = ("parentCompositePodGroupName", "compositePodGroupTemplates")
_TEMPLATES: Final = ("podGroupTemplates", "compositePodGroupTemplates")


def enabled(asked: Mapping[str, bool] | None = None) -> frozenset[str]:
    """Return the gates that are on when these are requested.

    Raises:
        UsageError: a name that is no gate, or a gate without the one that it needs.
    """
    asked = asked or {}
    unknown = sorted(asked.keys() - DEFAULTS.keys())
    if unknown:
        raise UsageError(f"feature gate {', '.join(unknown)}; accepted: {', '.join(DEFAULTS)}")
    wanted = {**DEFAULTS, **asked}
    on: set[str] = set()
    for name, is_on in wanted.items():
        missing = [needed for needed in _NEEDS.get(name, ()) if not wanted[needed]]
        if missing and asked.get(name):
            raise UsageError(f"feature gate {name} needs {', '.join(missing)}, which is off")
        if is_on and not missing:
            on.add(name)
    return frozenset(on)


def serves(features: frozenset[str], resource: str) -> bool:
    """Return whether kinds of `resource` are served."""
    gate = _KINDS.get(resource)
    return gate is None or gate in features


def drop_disabled(kind: Kind, obj: dict[str, Any], old: Mapping[str, Any] | None) -> None:
    """Remove from a decoded `obj` what its gate switches off, unless `old` has it."""
    if kind.resource == "pods":
        if "GenericWorkload" not in kind.features and "schedulingGroup" not in _spec(old):
            obj.get("spec", {}).pop("schedulingGroup", None)
        if _EVICTIONS not in kind.features and "evictionResponders" not in _spec(old):
            obj.get("spec", {}).pop("evictionResponders", None)
    elif kind.resource in ("jobs.batch", "cronjobs.batch"):
        if "scheduling" not in _job_spec(kind, old):
            _job_spec(kind, obj).pop("scheduling", None)
    elif kind.group == "scheduling.k8s.io" and kind.resource in _KINDS:
        for name, gate in _DROPPED.items():
            if gate in kind.features or any(one.get(name) for one in _holders(_spec(old))):
                continue
            for holder in _holders(obj.get("spec") or {}):
                if holder.pop(name, None) is None or "name" not in holder:
                    continue
                if name == "schedulingConstraints":
                    holder[name] = None  # templates show it even where it is absent


def problems(
    kind: Kind, obj: Mapping[str, Any], old: Mapping[str, Any] | None
) -> Iterator[causes.Cause]:
    """Yield the fields of a pod group or workload that are refused as the gates stand."""
    if kind.group != "scheduling.k8s.io" or kind.resource not in _KINDS:
        return
    spec = obj.get("spec") or {}
    if "CompositePodGroup" not in kind.features:
        for name in _FORBIDDEN:
            if spec.get(name) and not _spec(old).get(name):
                yield causes.forbidden(f"spec.{name}", "")
    if STRICT_DISRUPTION_MODE in kind.features and old is None:
        holders = {"spec": spec}
        for index, template in enumerate(spec.get("podGroupTemplates") or ()):
            holders[f"spec.podGroupTemplates[{index}]"] = template
        for path, holder in holders.items():
            mode, policy = holder.get("disruptionMode"), holder.get("schedulingPolicy") or {}
            whole = mode == "PodGroup" or (isinstance(mode, Mapping) and "all" in mode)
            if whole and "basic" in policy:
                yield causes.forbidden(
                    f"{path}.disruptionMode",
                    "disruption mode all requires the gang scheduling policy",
                )


def _job_spec(kind: Kind, obj: Mapping[str, Any] | None) -> dict[str, Any]:
    spec: Any = _spec(obj)
    if kind.resource == "cronjobs.batch":
        spec = _spec(spec.get("jobTemplate"))
    return spec if isinstance(spec, dict) else {}


def _spec(obj: Mapping[str, Any] | None) -> Mapping[str, Any]:
    return (obj or {}).get("spec") or {}


def _holders(spec: Any) -> Iterator[Any]:
    """Yield a group's spec, or a workload's with all templates in it."""
    yield spec
    for name in _TEMPLATES:
        for template in spec.get(name) or ():
            yield from _holders(template)
