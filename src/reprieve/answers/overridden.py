"""Which of two places counts, where both set the same thing.

1. Priority of queued work: a WorkloadPriorityClass before the PriorityClass of its pods.
2. Priority of a gang: what its PodGroup states before what its pods state.
3. Size of a gang: the PodGroup's before the annotations of its pods.
4. Settings of idle work: a field of the GpuWorkload's spec that was edited by hand before the
   annotations of its root owner and namespace.
"""

from __future__ import annotations

from collections.abc import Iterator

from reprieve.answers.conditions import minimum_of
from reprieve.answers.quantities import listed
from reprieve.answers.sources import Json
from reprieve.answers.unit import Unit
from reprieve.intake.gangs import KOORDINATOR_MINIMUM
from reprieve.settings.idle import Overrides, overridden, read_derived, spec_tier_of

__all__ = ["overridden_of"]


def overridden_of(unit: Unit) -> str:
    """Return what was stated of this work in a place that does not count, empty without any."""
    return "; ".join((*_queued(unit.workload), *_gang(unit), *_idle(unit.gpu_workload)))


def _queued(workload: Json | None) -> Iterator[str]:
    spec = {} if workload is None else workload["spec"]
    reference = spec.get("priorityClassRef") or {}
    if reference.get("kind") != "WorkloadPriorityClass":
        return
    templates = (each["template"].get("spec") or {} for each in spec.get("podSets") or ())
    classes = {each["priorityClassName"] for each in templates if each.get("priorityClassName")}
    if classes:
        yield (
            f"PriorityClass {listed(classes)} of its pods by WorkloadPriorityClass "
            f"{reference['name']}, priority {spec.get('priority', 0)}"
        )


def _gang(unit: Unit) -> Iterator[str]:
    if unit.group is None:
        return
    priority, minimum = (unit.group.get("spec") or {}).get("priority"), minimum_of(unit.group)
    others = {pod["spec"].get("priority", 0) for pod in unit.pods} - {priority}
    if priority is not None and others:
        texts = listed(map(str, sorted(others)))
        yield f"priority {texts} of its pods by PodGroup {unit.group_name}, priority {priority}"
    said = {
        annotations[KOORDINATOR_MINIMUM]
        for pod in unit.pods
        if KOORDINATOR_MINIMUM in (annotations := pod["metadata"].get("annotations") or {})
    } - {str(minimum)}
    if minimum is not None and said:
        yield (
            f"annotation {KOORDINATOR_MINIMUM} {listed(said)} of its pods by PodGroup "
            f"{unit.group_name}, minimum {minimum}"
        )


def _idle(gpu_workload: Json | None) -> Iterator[str]:
    if gpu_workload is None:
        return
    derived: Overrides | None = read_derived(gpu_workload["metadata"].get("annotations"))
    if derived is None:
        return
    edited = spec_tier_of(gpu_workload.get("spec") or {}).overrides
    for one in overridden(edited, derived):
        yield f"annotation {one.where}, {one.value}, is {one.text}"
