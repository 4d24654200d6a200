"""The pods that an object describes, by its row of the table.

Templates are read where they stand, so that what admission injects into the pods can be written
there. A kind that wraps others is described by their rows, one with a runtime by the JobSet that
would come of it. Source: specification of the quota plane, section 10.2.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from kubeworld.kinds.spark import spark_requests
from kubeworld.objects.paths import Json, first, indexed, values
from kubeworld.units.untrusted import Form, integer_or_none
from reprieve.api.kueue_topology import topology_request
from reprieve.jobs.evaluation import holds
from reprieve.jobs.model import Asked, Components, JobKind, PodSetSource
from reprieve.jobs.suspendable_rows import JOB_SET
from reprieve.jobs.table import BUILT_IN
from reprieve.jobs.training import job_set_of

__all__ = ["Found", "found_pod_sets", "pod_count", "pod_sets_of"]

_MOST: Final = 18  # pod sets of a Workload
_JAVA: Final = Form(r"([0-9]++)([kmgtpKMGTP]?+)[bB]?+")
#: By which training jobs name their templates, in a map.
_ROLES: Final = ("Chief", "Evaluator", "Launcher", "Master", "PS", "Scheduler", "Server", "Worker")
#: Annotations of a pod set that an AppWrapper declares: labels that number its pods.
_INDEX: Final = "workload.codeflare.dev.appwrapper/tas-pod-index-label"
_REPLICA: Final = "workload.codeflare.dev.appwrapper/tas-sub-group-index-label"
_REPLICAS: Final = "workload.codeflare.dev.appwrapper/tas-sub-group-count"
_BY_KIND: Final = {(kind.group, kind.kind): kind for kind in BUILT_IN}


@dataclass(frozen=True, slots=True)
class Found:
    """Pods of one shape.

    `template` is the one in the object itself, not a copy, unless `flat` is given: then that is
    where labels, annotations, node selector and tolerations stand, in the object. `each` is the
    number of pods of one replica, `added` are containers that the kind's controller adds, and
    `alone` those that it runs when no other does. `at` is the path of the metadata of `template`,
    or of `flat`, in the object; empty for what a job wraps. `index` is the label that numbers its
    pods, those of each of `replicas` (0: not known) that are numbered by `replica` where that is
    given.
    """

    name: str
    count: int
    template: Json
    min_count: int | None = None
    each: int = 1
    flat: Json | None = None
    added: tuple[Json, ...] = ()
    alone: tuple[Json, ...] = ()
    at: str = ""
    index: str = ""
    replica: str = ""
    replicas: int = 1


def found_pod_sets(kind: JobKind, job: Json) -> list[Found]:
    """Return the pods that a job describes; none where its runtime is not known."""
    if kind.components is not None:
        return list(_of_components(kind.components, job))
    if kind.runtime is not None:
        whole = job_set_of(job)
        return [] if whole is None else found_pod_sets(JOB_SET, whole)
    found = [
        one
        for source in kind.pod_sets
        if source.when is None or holds(source.when, job)
        for number, item in enumerate(values(job, f"{source.each}.*") if source.each else (job,))
        for one in _of_source(source, item, job, number)
    ]
    annotations = first(job, "metadata.annotations") or {}
    least = integer_or_none(annotations.get(kind.min_count, "")) if kind.min_count else None
    if least is not None and found and 0 <= least < found[0].count:
        whole_set = found[0]
        found[0] = Found(whole_set.name, whole_set.count, whole_set.template, least)
    return found


def pod_count(kind: JobKind, job: Json) -> int:
    """Return the number of pods that a job describes."""
    return sum(each.count for each in found_pod_sets(kind, job))


def pod_sets_of(kind: JobKind, job: Json) -> list[Json]:
    """Return the pod sets of the Workload that a job should have, as JSON of their own.

    Of a job that has more than a Workload may have they are one too many, which the API server
    refuses: a tenant can list one template a thousand times as a pod set.
    """
    return [_pod_set(kind, found) for found in found_pod_sets(kind, job)[: _MOST + 1]]


def _pod_set(kind: JobKind, found: Found) -> Json:
    annotations = first(found.template, "metadata.annotations")
    request = topology_request(annotations if isinstance(annotations, dict) else {})
    if found.index:
        request["podIndexLabel"] = found.index
    if found.replica:
        request["subGroupIndexLabel"] = found.replica
        request |= {"subGroupCount": found.replicas} if found.replicas else {}
    return {
        "name": found.name,
        "count": found.count,
        "template": _plain(kind, found),
        **({} if found.min_count is None else {"minCount": found.min_count}),
        **({"topologyRequest": request} if request else {}),
    }


def _of_source(source: PodSetSource, item: Json, job: Json, number: int) -> Iterator[Found]:
    flat = first(item, source.flat) if source.flat else None
    if source.flat and not isinstance(flat, dict):
        return
    template = first(item, source.template)
    if not isinstance(template, dict):
        if not source.otherwise and source.asked is None:
            return
        template = copy.deepcopy(source.otherwise)
    if flat is not None and source.asked is not None:
        template = _composed(source.asked, template, flat, job)
    name = first(item, source.name_from) if source.name_from else source.name
    counts = [_factor(source, paths, item) for paths in source.counts]
    if counts:
        counts[0] = _bounded(source, counts[0], item)
    count = math.prod(counts)
    if source.beside is not None and first(item, source.beside.path) is not None:
        name, count = source.beside.name, count - source.beside.fewer
    added: dict[bool, list[Json]] = {False: [], True: []}
    for sidecar in source.sidecars:
        if holds(sidecar.when, job):
            resources = first(job, sidecar.resources) if sidecar.resources else None
            asks = resources or {"requests": dict(sidecar.requests)}
            added[sidecar.alone].append({"name": sidecar.name, "resources": asks})
    yield Found(
        str(name or source.name).lower(),
        count,
        template,
        each=math.prod(counts[1:]),
        flat=flat,
        added=tuple(added[False]),
        alone=tuple(added[True]),
        at=_place_of(source, number),
        index=source.index,
        replica=source.replica,
        replicas=counts[0] if counts else 1,
    )


def _place_of(source: PodSetSource, number: int) -> str:
    """Return the path of the metadata of a pod set's pods, as the API names places."""
    if source.flat:
        return source.flat
    where = f"{source.each}[{number}].{source.template}" if source.each else source.template
    for role in _ROLES:
        where = where.replace(f"ReplicaSpecs.{role}.", f"ReplicaSpecs[{role}].")
    return f"{where}.metadata"


def _factor(source: PodSetSource, paths: list[str], item: Json) -> int:
    given = [value for path in paths if isinstance(value := first(item, path), int)]
    return min(given, default=source.default)


def _bounded(source: PodSetSource, number: int, item: Json) -> int:
    """Return the factor as its controller reads it: raised to one bound, else lowered."""
    least = first(item, source.least) if source.least else None
    most = first(item, source.most) if source.most else None
    if isinstance(least, int) and number < least:
        return least
    return min(number, most) if isinstance(most, int) and most >= 0 else number


def _of_components(components: Components, job: Json) -> Iterator[Found]:
    stem, number = job["metadata"]["name"], 0
    for component in values(job, f"{components.each}.*"):
        for found in _of_component(components, component):
            yield replace(found, name=f"{stem}-{number}".lower())
            number += 1


def _of_component(components: Components, component: Json) -> Iterator[Found]:
    """Yield the pods of one component, without their name."""
    declared = component.get(components.declared)
    if declared:
        for each in declared:
            template = indexed(component, str(each.get("path", "")))
            if isinstance(template, dict):
                replicas = each.get("replicas", 1)
                yield _numbered(
                    Found("", replicas if isinstance(replicas, int) else 1, template),
                    each.get("annotations"),
                )
        return
    wrapped = component.get(components.template) or {}
    group = str(wrapped.get("apiVersion", "")).rpartition("/")[0]
    kind = _BY_KIND.get((group, str(wrapped.get("kind", ""))))
    for found in found_pod_sets(kind, wrapped) if kind is not None else ():
        yield Found(
            "",
            found.count,
            found.template,
            index=found.index,
            replica=found.replica,
            replicas=found.replicas,
        )


def _numbered(found: Found, annotations: object) -> Found:
    """Return declared pods with the labels that number them, as their annotations name these."""
    notes = annotations if isinstance(annotations, dict) else {}
    index, replica = notes.get(_INDEX), notes.get(_REPLICA)
    count = notes.get(_REPLICAS)
    return replace(
        found,
        index=index if isinstance(index, str) else "",
        replica=replica if isinstance(replica, str) else "",
        replicas=(integer_or_none(count, 0) or 0) if isinstance(count, str) else 0,
    )


def _composed(asked: Asked, template: Json, flat: Json, job: Json) -> Json:
    """Return the template of pods whose container is described by fields of the job."""
    made = copy.deepcopy(template)
    spec, metadata = made.setdefault("spec", {}), made.setdefault("metadata", {})
    containers = spec.setdefault("containers", []) or [{"name": asked.container}]
    spec["containers"] = containers
    main = next((c for c in containers if c.get("name") == asked.container), containers[0])
    resources: dict[str, Any] = main.setdefault("resources", {})
    if asked.spark:
        worked_out = spark_requests(asked.spark, job.get("spec") or {})
        resources.setdefault("requests", {}).update(worked_out)
    for field, paths in (("requests", asked.requests), ("limits", asked.limits)):
        for resource, path in paths.items():
            amount = first(flat, path)
            if amount is not None:
                text = _java(str(amount)) if resource in asked.java else str(amount)
                resources.setdefault(field, {})[resource] = text
    device = first(flat, asked.device) if asked.device else None
    if isinstance(device, dict) and device.get("name") and device.get("quantity"):
        resources.setdefault("limits", {})[device["name"]] = str(device["quantity"])
    for name in ("labels", "annotations"):
        if flat.get(name):
            metadata[name] = {**(metadata.get(name) or {}), **flat[name]}
    for name in ("nodeSelector", "tolerations"):
        if flat.get(name):
            spec[name] = copy.deepcopy(flat[name])
    if flat.get("priorityClassName"):
        spec["priorityClassName"] = flat["priorityClassName"]
    spec["containers"] = [*containers, *copy.deepcopy(flat.get("sidecars") or [])]
    if flat.get("initContainers"):
        spec["initContainers"] = copy.deepcopy(flat["initContainers"])
    return made


def _java(text: str) -> str:
    """Return an amount of memory as Kubernetes writes it."""
    found = _JAVA.fullmatch(text.strip())
    if found is None:
        return text
    number, unit = found.groups()
    return f"{number}{unit.upper()}i" if unit else number


def _plain(kind: JobKind, found: Found) -> Json:
    """Return a template as a Workload has it.

    Without labels of the kind's own controller; each container names a variable once, the last.
    """
    if kind.gate:
        return {"spec": _named_once(copy.deepcopy(found.template.get("spec") or {}))}
    kept = copy.deepcopy(found.template)
    metadata, spec = kept.get("metadata") or {}, kept.setdefault("spec", {})
    metadata.pop("creationTimestamp", None)
    labels = metadata.get("labels")
    for name in kind.dropped_labels:
        if labels is not None:
            labels.pop(name, None)
    if labels is not None and not labels:
        del metadata["labels"]
    for field, more in (("containers", found.added), ("initContainers", found.alone)):
        if more:
            spec[field] = [*(spec.get(field) or ()), *copy.deepcopy(more)]
    _named_once(spec)
    return kept


def _named_once(spec: Json) -> Json:
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        if container.get("env"):
            container["env"] = list({each["name"]: each for each in container["env"]}.values())
    return spec
