"""The JobSet that a TrainJob's runtime would make, as far as its pods and their requests.

The runtime's template, then: the trainer's number of nodes (its own, else the runtime's policy),
resources, image, command, arguments and variables on the job of the step `trainer`; then the
patches of all managers but ours. Source: specification of the quota plane, section 10.2; the
trainer's `TrainJob` and `TrainingRuntime`.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any, Final

from kubeworld.objects.paths import Json, first

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
    jobs = {job.get("name"): job for job in spec.get("replicatedJobs") or ()}
    lists: dict[int, _Listed] = {}
    for patch in first(train_job, "spec.runtimePatches") or ():
        if patch.get("manager") != MANAGER:
            injected = first(patch, "trainingRuntimeSpec.template.spec.replicatedJobs") or ()
            _patch(jobs, injected, lists)
    metadata = {"name": train_job["metadata"]["name"]}
    return {"kind": "JobSet", "metadata": metadata, "spec": spec}


def patch_of(injected: Mapping[str, Json]) -> Json:
    """Return our patch: pod template parts by name of the job; empty for none."""
    if not injected:
        return {"manager": MANAGER}
    jobs = [
        {"name": name, "template": {"spec": {"template": template}}}
        for name, template in injected.items()
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


def _patch(jobs: Mapping[Any, Json], patches: Any, lists: dict[int, _Listed]) -> None:
    """Merge a manager's patches of pod templates into the jobs of these names."""
    for patch in patches:
        job, more = jobs.get(patch.get("name")), first(patch, "template.spec.template")
        if job is None or not isinstance(more, dict):
            continue
        template = job.setdefault("template", {}).setdefault("spec", {}).setdefault("template", {})
        for part in ("metadata", "spec"):
            _merge(template.setdefault(part, {}), more.get(part) or {}, lists)


class _Listed:
    """What a list holds, so that each thing that is joined to it is looked up rather than sought.

    Named things are found by their name, others by their text.
    """

    def __init__(self, have: list[Any]) -> None:
        self._have = have
        self._named: dict[str, Json] = {}
        self._said: set[str] = set()
        for each in have:
            self._note(each)

    def join(self, more: Any, lists: dict[int, _Listed]) -> None:
        """Merge a thing with that of its name, or append it unless it is there."""
        known = self._named.get(_name_of(more))
        if known is not None:
            _merge(known, more, lists)
        elif _name_of(more) or _text(more) not in self._said:
            mine = copy.deepcopy(more)
            self._have.append(mine)
            self._note(mine)

    def _note(self, each: Any) -> None:
        name = _name_of(each)
        if name:
            self._named[name] = each
        else:
            self._said.add(_text(each))


def _name_of(thing: Any) -> str:
    return str(thing.get("name") or "") if isinstance(thing, dict) else ""


def _text(thing: Any) -> str:
    return json.dumps(thing, sort_keys=True)


def _merge(into: Json, more: Mapping[str, Any], lists: dict[int, _Listed]) -> None:
    """Merge maps, and lists of things with a name by it; other lists are joined.

    `lists`: by the id of each list of the template that was looked at.
    """
    for key, value in more.items():
        have = into.get(key)
        if isinstance(have, dict) and isinstance(value, dict):
            _merge(have, value, lists)
        elif isinstance(have, list) and isinstance(value, list):
            known = lists.get(id(have))
            if known is None:
                known = lists[id(have)] = _Listed(have)
            for each in value:
                known.join(each, lists)
        else:
            into[key] = copy.deepcopy(value)
