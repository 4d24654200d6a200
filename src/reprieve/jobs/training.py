"""The JobSet that a TrainJob's runtime would make, as far as its pods and their requests go.

The runtime's template, then: the trainer's number of nodes (its own, else the runtime's policy),
resources, image, command, arguments and variables on the job of the step `trainer`; then the
patches of all managers but ours. Source: specification of the quota plane, section 10.2; the
trainer's `TrainJob` and `TrainingRuntime`.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Final

from reprieve.jobs.paths import Json, first

__all__ = ["MANAGER", "RUNTIME", "job_set_of", "patch_of"]

#: Where a TrainJob that was read carries its runtime's spec; it is never written.
RUNTIME: Final = "$runtime"
MANAGER: Final = "kueue.x-k8s.io/manager"
_STEP: Final = "trainer.kubeflow.org/trainjob-ancestor-step"
_ALONE: Final = ("trainer", "dataset-initializer", "model-initializer")
_FIELDS: Final = ("image", "command", "args")


def job_set_of(train_job: Json) -> Json | None:
    """Return the JobSet; None where the runtime is not known."""
    runtime = train_job.get(RUNTIME)
    if not isinstance(runtime, Mapping):
        return None
    spec: Json = copy.deepcopy(first(runtime, "template.spec") or {})
    trainer = first(train_job, "spec.trainer") or {}
    nodes = trainer.get("numNodes", first(runtime, "mlPolicy.numNodes"))
    as_node = first(runtime, "mlPolicy.mpi.runLauncherAsNode") is True
    for job in spec.get("replicatedJobs") or ():
        step = (first(job, "template.metadata.labels") or {}).get(_STEP)
        if step in _ALONE:
            job["replicas"] = 1
        if step == "trainer" and nodes is not None:
            inner = job.setdefault("template", {}).setdefault("spec", {})
            inner["parallelism"] = inner["completions"] = nodes
        for container in first(job, "template.spec.template.spec.containers") or ():
            name = container.get("name")
            if name == "node" or (name == "launcher" and as_node):
                _train(container, trainer)
    for patch in first(train_job, "spec.runtimePatches") or ():
        if patch.get("manager") != MANAGER:
            _patch(spec, first(patch, "trainingRuntimeSpec.template.spec.replicatedJobs") or ())
    metadata = {"name": train_job["metadata"]["name"]}
    return {"kind": "JobSet", "metadata": metadata, "spec": spec}


def patch_of(told: Mapping[str, Json]) -> Json:
    """Return our patch: pod template parts by name of the job; empty for none."""
    if not told:
        return {"manager": MANAGER}
    jobs = [
        {"name": name, "template": {"spec": {"template": template}}}
        for name, template in told.items()
    ]
    template = {"spec": {"replicatedJobs": jobs}}
    return {"manager": MANAGER, "trainingRuntimeSpec": {"template": template}}


def _train(container: Json, trainer: Mapping[str, Any]) -> None:
    for name in _FIELDS:
        if trainer.get(name) is not None:
            container[name] = trainer[name]
    resources = trainer.get("resourcesPerNode") or {}
    if resources.get("limits") or resources.get("requests"):
        container["resources"] = {
            name: dict(resources[name]) for name in ("limits", "requests") if resources.get(name)
        }
    if trainer.get("env"):
        known = {each["name"]: each for each in container.get("env") or ()}
        container["env"] = list(
            {**known, **{each["name"]: each for each in trainer["env"]}}.values()
        )


def _patch(spec: Json, patches: Any) -> None:
    """Merge a manager's patches of pod templates."""
    jobs = {job.get("name"): job for job in spec.get("replicatedJobs") or ()}
    for patch in patches:
        job, more = jobs.get(patch.get("name")), first(patch, "template.spec.template")
        if job is None or not isinstance(more, dict):
            continue
        template = job.setdefault("template", {}).setdefault("spec", {}).setdefault("template", {})
        for part in ("metadata", "spec"):
            _merge(template.setdefault(part, {}), more.get(part) or {})


def _merge(into: Json, more: Mapping[str, Any]) -> None:
    """Merge maps, and lists of things with a name by it; other lists are joined."""
    for key, value in more.items():
        have = into.get(key)
        if isinstance(have, dict) and isinstance(value, dict):
            _merge(have, value)
        elif isinstance(have, list) and isinstance(value, list):
            named = {each.get("name"): each for each in have if isinstance(each, dict)}
            for each in copy.deepcopy(value):
                known = named.get(each.get("name")) if isinstance(each, dict) else None
                if known is not None and each.get("name"):
                    _merge(known, each)
                elif each not in have:
                    have.append(each)
        else:
            into[key] = copy.deepcopy(value)
