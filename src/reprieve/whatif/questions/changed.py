"""Writes a change that a plan names into the queried manifests, as a person would.

Of a job the paths within its Workload mean the job's own fields, and what is stated of a pod is
meant for the pods of its templates; a priority class of a gang is that of the group and of all its
pods. What the API server has filled in because of a class that is no longer named is evicted with
it. Not everything can be written: of some kinds the pods are described by another object, or in
fields of their own.

Source: `Fix` of the engine's diagnosis; specification of the quota plane, sections 10.1 and 10.2.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from kubeworld.objects.paths import Json, first, set_at
from kubeworld.units.untrusted import read_integer
from reprieve.engine.diagnosis.model import Change, Fix
from reprieve.jobs.model import JobKind, PodSetSource
from reprieve.jobs.pod_sets import found_pod_sets
from reprieve.jobs.pods import group_of
from reprieve.jobs.table import job_kinds

__all__ = ["Unwritable", "changed_by"]

_QUEUE: Final = "kueue.x-k8s.io/queue-name"
_POD_SET: Final = "spec.podSets["
_ANY: Final = ("", "*")
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
#: What admission copies from the priority class.
_OF_CLASS: Final = ("priority", "preemptionPolicy")


class Unwritable(ValueError):
    """It is not known how to write this change into these manifests."""


def changed_by(fix: Fix, submitted: Sequence[Json]) -> list[Json]:
    """Return copies of the manifests of one thing, with the change in them.

    Args:
        fix: what is changed; nothing is where it is to wait.
        submitted: a pod, a job, or a group with its pods.

    Raises:
        Unwritable: it is not known how to write this change.
    """
    objects = [_copied(each) for each in submitted]
    if fix.change is Change.WAIT:
        return objects
    try:
        _write(fix, objects)
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise Unwritable(f"no way is known to write {fix}: {error}") from None
    if objects == list(submitted):
        raise Unwritable(f"{fix} changes nothing that is written")
    return objects


def _copied(part: Any) -> Any:
    """Return a copy in which no two places are one, as aliases of YAML make them."""
    if isinstance(part, dict):
        return {name: _copied(each) for name, each in part.items()}
    return [_copied(each) for each in part] if isinstance(part, list) else part


def _write(fix: Fix, objects: Sequence[Json]) -> None:
    pod_set, field = _parted(fix.field)
    if any(each["kind"] == "Pod" and group_of(each) for each in objects):
        raise Unwritable("the pods of a queued group have a Workload together")
    if fix.change is Change.HIGHER_PRIORITY:
        _prioritise(fix, objects)
    elif pod_set and field == "count":
        (job,) = objects
        _set_count(job, pod_set, read_integer(fix.after, 0))
    elif fix.change is Change.WIDER_LEVEL:
        for template in _pods(objects, pod_set):
            template["metadata"]["annotations"][_keyed(field)[1]] = fix.after
    elif field == "spec.queueName":
        for each in objects:
            each["metadata"].setdefault("labels", {})[_QUEUE] = fix.after
    elif field == "spec.schedulingPolicy.gang.minCount":
        (group,) = (each for each in objects if each["kind"] == "PodGroup")
        group["spec"]["schedulingPolicy"]["gang"]["minCount"] = read_integer(fix.after, 0)
    elif field == "spec.schedulingConstraints.topology":
        for each in objects:
            each["spec"].pop("schedulingConstraints", None)
    else:
        _change_pods(fix, objects)


def _parted(field: str) -> tuple[str, str]:
    """Return the pod set that a path leads through, empty for none, and the path below it."""
    if not field.startswith(_POD_SET):
        return "", field
    name, _, rest = field.removeprefix(_POD_SET).partition("].")
    return name, rest.removeprefix("template.")


def _prioritise(fix: Fix, objects: Sequence[Json]) -> None:
    name, label = _keyed(fix.field)
    if name == "labels":
        for each in objects:
            each["metadata"].setdefault("labels", {})[label] = fix.after
        return
    groups = [each["spec"] for each in objects if each["kind"] == "PodGroup"]
    for spec in (*groups, *_pod_specs(objects, "")):
        spec["priorityClassName"] = fix.after
        for admitted in _OF_CLASS:
            spec.pop(admitted, None)


def _kind_of(obj: Json) -> JobKind | None:
    group = str(obj["apiVersion"]).rpartition("/")[0]
    return next((k for k in job_kinds() if (k.group, k.kind) == (group, obj["kind"])), None)


def _set_count(job: Json, pod_set: str, count: int) -> None:
    kind = _kind_of(job)
    for source in kind.pod_sets if kind is not None else ():
        paths = _count_paths(source, job)
        if source.name.lower() == pod_set and paths:
            for path in paths:
                set_at(job, path, count)
            return
    raise Unwritable(f"the number of pods of {pod_set} stands nowhere by itself")


def _count_paths(source: PodSetSource, job: Json) -> list[str]:
    """Return where the number of pods stands, if it is no product and no difference.

    Of several numbers the smallest counts: a Job of more completions keeps those.
    """
    if source.each or source.beside is not None or len(source.counts) != 1:
        return []
    given = {path: first(job, path) for path in source.counts[0]}
    known = {path: number for path, number in given.items() if isinstance(number, int)}
    return [path for path, number in known.items() if number == min(known.values())]


def _pod_specs(objects: Sequence[Json], pod_set: str) -> Iterator[Json]:
    """Yield the specs of pods and templates, of one pod set where it is named."""
    return (each["spec"] for each in _pods(objects, pod_set))


def _pods(objects: Sequence[Json], pod_set: str) -> Iterator[Json]:
    """Yield pods and templates, of one pod set where it is named.

    Raises:
        Unwritable: they do not stand in the object.
    """
    for each in objects:
        kind = _kind_of(each)
        if each["kind"] == "Pod":
            yield each
        elif kind is not None and (kind.pod_sets or kind.components or kind.runtime):
            yield from _templates_of_job(kind, each, pod_set)
        elif "template" in each["spec"]:
            yield each["spec"]["template"]


def _templates_of_job(kind: JobKind, job: Json, pod_set: str) -> Iterator[Json]:
    found = [each for each in found_pod_sets(kind, job) if pod_set in (*_ANY, each.name)]
    if not found or kind.runtime is not None or any(each.flat is not None for each in found):
        raise Unwritable("its pods are described elsewhere")
    for each in found:
        yield each.template


def _change_pods(fix: Fix, objects: Sequence[Json]) -> None:
    taints = iter(fix.after.split(" and "))
    fields = [
        (*_parted(each), next(taints) if each.endswith("tolerations") else "")
        for each in fix.field.split(" and ")
    ]
    # Places in lists count from the front.
    for pod_set, field, taint in reversed(fields):
        for spec in _pod_specs(objects, pod_set):
            _change_pod(spec, field, fix, taint)


def _change_pod(spec: Json, field: str, fix: Fix, taint: str) -> None:
    name, key = _keyed(field)
    if fix.change is Change.FEWER_DEVICES:
        _ask_for(spec, key or field.rpartition("requests of ")[2], fix.after)
    elif name == "tolerations":
        spec["tolerations"] = [*(spec.get("tolerations") or ()), _tolerating(taint)]
    elif name == "nodeAffinity":
        del spec["affinity"]["nodeAffinity"]
    elif name == "nodeName":
        del spec["nodeName"]
    elif name == "nodeSelector" and fix.change is Change.OTHER_FLAVOR:
        spec["nodeSelector"][key] = fix.after
    elif name == "nodeSelector":
        del spec["nodeSelector"][key]
    elif name == "topologySpreadConstraints":
        del spec[name][read_integer(key, 0)]
    elif name in ("podAffinity", "podAntiAffinity"):
        del spec["affinity"][name][_REQUIRED][read_integer(key, 0)]
    else:
        raise Unwritable(field)


def _keyed(field: str) -> tuple[str, str]:
    """Return the last name of a path, and the key or place in brackets behind it."""
    path, _, rest = field.partition("[")
    return path.rpartition(".")[2], rest.removesuffix("]")


def _ask_for(spec: Json, resource: str, amount: str) -> None:
    """Have the one container that requests a device request so many."""
    (asking,) = (
        container
        for container in (*spec["containers"], *(spec.get("initContainers") or ()))
        if any(resource in (each or {}) for each in (container.get("resources") or {}).values())
    )
    for amounts in asking["resources"].values():
        if resource in (amounts or {}):
            amounts[resource] = amount


def _tolerating(taint: str) -> Json:
    """Return the toleration of a taint as it is written: `key=value:effect`."""
    named, _, effect = taint.rpartition(":")
    key, _, value = named.partition("=")
    if not value:
        return {"key": key, "operator": "Exists", "effect": effect}
    return {"key": key, "operator": "Equal", "value": value, "effect": effect}
