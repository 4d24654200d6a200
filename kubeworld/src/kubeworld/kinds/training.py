"""The JobSet that the controller of TrainJobs makes of a job and its runtime.

The runtime's template, with what the job states of its trainer on the replicated job of the step
`trainer`: how many nodes there are (the job's number, else that of the runtime's policy), and the
image, command, arguments, variables and resources of the container `node`. Patches of the job are
merged over that. Source: `TrainJob` and `TrainingRuntime` of trainer.kubeflow.org/v1alpha1.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from kubeworld.writes.merging import BY_NAME, strategic_merge

__all__ = ["Read", "job_set_of"]

Object = dict[str, Any]
Read: TypeAlias = Callable[[str, str, str, str], Object | None]

_GROUP: Final = "trainer.kubeflow.org"
_STEP: Final = f"{_GROUP}/trainjob-ancestor-step"
_NAMESPACED: Final = "TrainingRuntime"
_RUNTIME: Final = "ClusterTrainingRuntime"


def job_set_of(job: Object, read: Read) -> Object | None:
    """Return the spec of the JobSet, None where the runtime is not there."""
    said = job["spec"]
    reference = said.get("runtimeRef") or {}
    kind = reference.get("kind") or _RUNTIME
    namespace = job["metadata"].get("namespace", "") if kind == _NAMESPACED else ""
    runtime = read(f"{_GROUP}/v1alpha1", kind, namespace, str(reference.get("name") or ""))
    if runtime is None:
        return None
    policy = runtime["spec"].get("mlPolicy") or {}
    spec: Object = copy.deepcopy((runtime["spec"].get("template") or {}).get("spec") or {})
    spec["suspend"] = said.get("suspend") is True
    trainer = said.get("trainer") or {}
    nodes = trainer.get("numNodes", policy.get("numNodes"))
    for each in spec.get("replicatedJobs") or ():
        template = each.setdefault("template", {})
        if ((template.get("metadata") or {}).get("labels") or {}).get(_STEP) != "trainer":
            continue
        each["replicas"] = 1
        inner = template.setdefault("spec", {})
        if nodes is not None:
            inner["parallelism"] = inner["completions"] = nodes
        for container in inner["template"]["spec"].get("containers") or ():
            if container.get("name") == "node":
                _train(container, trainer)
    for patch in said.get("runtimePatches") or ():
        _patch(spec, patch)
    return spec


def _train(container: Object, trainer: Object) -> None:
    for name in ("image", "command", "args"):
        if trainer.get(name) is not None:
            container[name] = trainer[name]
    if trainer.get("resourcesPerNode"):
        container["resources"] = copy.deepcopy(trainer["resourcesPerNode"])
    known = {each["name"]: each for each in container.get("env") or ()}
    given = {each["name"]: each for each in trainer.get("env") or ()}
    if given:
        container["env"] = list({**known, **given}.values())


def _patch(spec: Object, patch: Object) -> None:
    """Merge a patch of the pods of replicated jobs, which names the jobs."""
    reported = ((patch.get("trainingRuntimeSpec") or {}).get("template") or {}).get("spec") or {}
    jobs = {each.get("name"): each for each in spec.get("replicatedJobs") or ()}
    for each in reported.get("replicatedJobs") or ():
        job = jobs.get(each.get("name"))
        more = ((each.get("template") or {}).get("spec") or {}).get("template")
        if job is not None and isinstance(more, dict):
            inner = job["template"]["spec"]
            inner["template"] = strategic_merge(BY_NAME, inner["template"], more)
