"""Pod groups of workloads: made from the templates of the Workload that names their controller.

A Job has one group for its pods, from the first template. A JobSet has one per template that is
named after one of its replicated Jobs, else one for all. A LeaderWorkerSet has one per replica, its
leader among them. What a template states counts when its group is made. Pods that are made while
their Workload exists name their group; one that stands in the pod template wins. Source: KEP-4671
and KEP-5547; names are the Workload's, the template's and, for a LeaderWorkerSet, the replica's
number.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from typing import Any, Final

from kubelocal.machines.informer import Informer, Key, key_of
from kubelocal.machines.objects import Change, ChangeType, Object
from kubeworld.objects.owners import child, controller_of

__all__ = ["PodGroupMaker", "Workloads"]

_WORKLOADS: Final = "workloads.scheduling.k8s.io"
_GROUPS: Final = "podgroups.scheduling.k8s.io"
_CONTROLLERS: Final = {
    ("batch", "Job"): "jobs.batch",
    ("jobset.x-k8s.io", "JobSet"): "jobsets.jobset.x-k8s.io",
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): "leaderworkersets.leaderworkerset.x-k8s.io",
}
_NOT_COPIED: Final = ("name", "schedulingConstraints")
_REPLICATED_JOB: Final = "jobset.sigs.k8s.io/replicatedjob-name"
_REPLICA: Final = "leaderworkerset.sigs.k8s.io/group-index"
_MAXIMUM_DEPTH: Final = 3


class Workloads:
    """Which Workload names which controller. Listener of the informer."""

    def __init__(self, informer: Informer) -> None:
        self._informer = informer
        self._of: dict[Key, Key] = {}

    def notice(self, change: Change, before: Object | None) -> None:
        if change.resource != _WORKLOADS:
            return
        for obj in (before, change.object):
            target = None if obj is None else _controller(obj)
            if target is not None and self._of.get(target) == key_of(_WORKLOADS, change.object):
                del self._of[target]
        target = _controller(change.object)
        if target is not None and change.type is not ChangeType.DELETED:
            self._of.setdefault(target, key_of(_WORKLOADS, change.object))

    def of(self, controller: Key) -> Object | None:
        key = self._of.get(controller)
        return None if key is None else self._informer.at(key)

    def join(self, pod: Object, owner: Object) -> None:
        """Place a new pod of `owner` into its group, if it has one and names none itself."""
        if not self._of or pod["spec"].get("schedulingGroup"):
            return
        labels = pod["metadata"].get("labels") or {}
        obj: Object | None = owner
        for _ in range(_MAXIMUM_DEPTH):
            if obj is None:
                return
            resource = _CONTROLLERS.get((obj["apiVersion"].rpartition("/")[0], obj["kind"]))
            workload = None if resource is None else self.of(key_of(resource, obj))
            if workload is not None:
                name = _group_of(workload, obj, pod["metadata"]["name"], labels)
                if name is not None:
                    pod["spec"]["schedulingGroup"] = {"podGroupName": name}
                return
            reference = controller_of(obj)
            found = None if reference is None else self._informer.by_uid(reference["uid"])
            obj = None if found is None else found[1]


class PodGroupMaker:
    """Keeps the groups of every controller that a Workload names."""

    name = "pod-groups"

    def __init__(self, informer: Informer, workloads: Workloads) -> None:
        self._informer = informer
        self._workloads = workloads

    def concerns(self, change: Change, before: Object | None) -> Iterable[Key]:
        if change.resource == _WORKLOADS:
            target = _controller(change.object)
            return [] if target is None else [target]
        if change.resource in _CONTROLLERS.values():
            return [key_of(change.resource, change.object)]
        return []

    async def reconcile(self, key: Key) -> None:
        controller, workload = self._informer.at(key), self._workloads.of(key)
        if controller is None or workload is None or _leaves(controller) or _leaves(workload):
            return
        wanted = dict(_groups(workload, controller))
        for name, template in wanted.items():
            if self._informer.get(_GROUPS, key.namespace, name) is None:
                body, api_version = {"spec": _spec(workload, template)}, workload["apiVersion"]
                made = child(controller, api_version, "PodGroup", name, body)
                await self._informer.create(_GROUPS, made)
        for held in list(self._informer.controlled(controller["metadata"]["uid"], _GROUPS)):
            if held["metadata"]["name"] not in wanted and not _leaves(held):
                await self._informer.delete(_GROUPS, held)


def _controller(workload: Object) -> Key | None:
    """Return where the object is that the workload describes, None for one that makes no groups."""
    reference = workload["spec"].get("controllerRef") or {}
    resource = _CONTROLLERS.get((reference.get("apiGroup", ""), reference.get("kind", "")))
    if resource is None:
        return None
    return Key(resource, workload["metadata"]["namespace"], reference["name"])


def _groups(workload: Object, controller: Object) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield names of groups and the templates that they are made from."""
    for template in _used(workload, controller):
        stem = f"{workload['metadata']['name']}-{template['name']}"
        if controller["kind"] == "LeaderWorkerSet":
            replicas = controller["spec"].get("replicas", 1)
            yield from ((f"{stem}-{number}", template) for number in range(replicas))
        else:
            yield stem, template


def _used(workload: Object, controller: Object) -> list[dict[str, Any]]:
    templates: list[dict[str, Any]] = workload["spec"].get("podGroupTemplates") or []
    jobs = {job.get("name") for job in controller["spec"].get("replicatedJobs") or ()}
    return [one for one in templates if one["name"] in jobs] or templates[:1]


def _group_of(workload: Object, controller: Object, pod: str, labels: dict[str, str]) -> str | None:
    """Return the group for a new pod below `controller`, None where no template is for it."""
    names = {template["name"] for template in _used(workload, controller)}
    job = labels.get(_REPLICATED_JOB)
    jobs = {one.get("name") for one in controller["spec"].get("replicatedJobs") or ()}
    if names & jobs:
        if job not in names:
            return None
        title = job
    else:
        title = next(iter(names), "")
    stem = f"{workload['metadata']['name']}-{title}"
    if controller["kind"] != "LeaderWorkerSet":
        return stem
    number = labels.get(_REPLICA) or pod.rpartition("-")[2]
    return f"{stem}-{number}"


def _spec(workload: Object, template: dict[str, Any]) -> dict[str, Any]:
    spec = {name: value for name, value in template.items() if name not in _NOT_COPIED}
    if template.get("schedulingConstraints"):
        spec["schedulingConstraints"] = template["schedulingConstraints"]
    name = workload["metadata"]["name"]
    spec["workloadRef"] = {"workloadName": name, "templateName": template["name"]}
    return copy.deepcopy(spec)


def _leaves(obj: Object) -> bool:
    return bool(obj["metadata"].get("deletionTimestamp"))
