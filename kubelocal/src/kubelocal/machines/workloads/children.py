"""Children from templates: keeps below an object what `families` states belongs there.

Children with a fixed name are made when they are missing, those that wait for others once all pods
of these run, and follow the number of replicas and the
suspension in their template. A Job that resumes after a suspension gets what its template states by
then of where pods may run, as from the JobSet controller; nothing else is carried down. Pods of a
group are created and deleted by count; one that has succeeded still counts. A suspended object has
no children.
The status of an object with a template follows its pods (`progress`).
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterable
from typing import Any, Final

from kubelocal.machines.informer import Informer, Key, key_of
from kubelocal.machines.objects import Change, ChangeType, Object
from kubelocal.machines.workloads.driver import Stage, create
from kubeworld.controllers.acts import Create
from kubeworld.controllers.replicas import in_order_of_removal
from kubeworld.kinds.families import FAMILIES, Child, Pods, children
from kubeworld.kinds.progress import COUNTS, STATUSES, State, state_of
from kubeworld.objects.owners import child, controller_of, suffix
from kubeworld.objects.pods import is_active, is_over
from kubeworld.objects.selectors import matches_labels
from kubeworld.units.instants import format_instant

__all__ = ["ChildrenController"]

_MAXIMUM_DEPTH: Final = 10
_FOLLOWED: Final = ("replicas", "suspend")


class ChildrenController:
    """Stands for the controllers of all kinds in the table."""

    name = "children"

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._informer = stage.informer
        self._clock = stage.clock
        self._recorder = stage.recorder

    def concerns(self, change: Change, before: Object | None) -> Iterable[Key]:
        if change.resource in FAMILIES and change.type is not ChangeType.DELETED:
            yield key_of(change.resource, change.object)
        # An owner in the table may be several steps up, as a RayJob is from its pods.
        obj: Object | None = change.object
        for _ in range(_MAXIMUM_DEPTH):
            owner = controller_of(obj) if obj is not None else None
            if owner is None:
                return
            resource = self._informer.objects.resource_of(owner["apiVersion"], owner["kind"])
            if resource is not None and resource in FAMILIES:
                yield Key(resource, change.object["metadata"].get("namespace", ""), owner["name"])
            found = self._informer.by_uid(owner["uid"])
            obj = found[1] if found is not None else None

    async def reconcile(self, key: Key) -> None:
        owner = self._informer.at(key)
        if owner is None or owner["metadata"].get("deletionTimestamp"):
            return
        wanted, suspended = children(FAMILIES[key.resource], owner, self._read)
        waits = not suspended and self._waits(owner, wanted)
        for one in wanted:
            if waits and one.follows:
                continue
            if isinstance(one, Pods):
                await self._group(owner, one, 0 if suspended else one.count)
            else:
                await self._single(owner, one, suspended)
        if wanted and FAMILIES[key.resource].prunes:
            await self._prune(owner, [one for one in wanted if isinstance(one, Child)])
        if wanted:
            await self._report(key, suspended, waits)

    def _read(self, api_version: str, kind: str, namespace: str, name: str) -> Object | None:
        resource = self._informer.objects.resource_of(api_version, kind)
        return None if resource is None else self._informer.get(resource, namespace, name)

    def _waits(self, owner: Object, wanted: list[Child | Pods]) -> bool:
        """Return whether what follows others is still to be made, as not all of these run."""
        last = [one for one in wanted if one.follows]
        if not last or all(self._is_there(owner, one) for one in last):
            return False
        return not all(self._runs(owner, one) for one in wanted if not one.follows)

    def _is_there(self, owner: Object, wanted: Child | Pods) -> bool:
        if isinstance(wanted, Pods):
            return bool(self._pods(owner, wanted)) or not wanted.count
        return self._present(owner, wanted) is not None

    def _runs(self, owner: Object, wanted: Child | Pods) -> bool:
        if isinstance(wanted, Pods):
            return state_of(self._pods(owner, wanted), suspended=False) is State.RUNNING
        present = self._present(owner, wanted)
        return present is not None and self._all_run(present)

    def _pods(self, owner: Object, wanted: Pods) -> list[Object]:
        selector = {"matchLabels": wanted.labels}
        return [
            pod
            for pod in self._informer.controlled(owner["metadata"]["uid"], "pods")
            if matches_labels(selector, pod["metadata"].get("labels"))
        ]

    def _all_run(self, obj: Object) -> bool:
        pods = pods_below(self._informer, obj["metadata"]["uid"])
        return state_of(pods, suspended=False) is State.RUNNING

    def _present(self, owner: Object, wanted: Child) -> Object | None:
        resource = self._informer.objects.resource_of(wanted.api_version, wanted.kind)
        if resource is None:
            return None
        return self._informer.get(resource, owner["metadata"].get("namespace", ""), wanted.name)

    async def _report(self, key: Key, suspended: bool, waits: bool) -> None:
        owner = self._informer.at(key)
        if owner is None:
            return
        pods = pods_below(self._informer, owner["metadata"]["uid"])
        if suspended and any(is_active(pod) or _ends(pod) for pod in pods):
            # Reported when they are deleted, as the controllers of these kinds do.
            return
        state = State.PENDING if waits else state_of(pods, suspended)
        status: dict[str, Any] = copy.deepcopy(owner.get("status") or {})
        if key.resource in COUNTS:
            COUNTS[key.resource](owner, pods, status)
        STATUSES[key.resource](status, state, format_instant(self._clock.wall()))
        if status != (owner.get("status") or {}):
            await self._informer.update(
                key.resource, {**owner, "status": status}, subresource="status"
            )

    async def _single(self, owner: Object, wanted: Child, suspended: bool) -> None:
        resource = self._informer.objects.resource_of(wanted.api_version, wanted.kind)
        if resource is None:
            text = f"no kind {wanted.kind} of {wanted.api_version} is served"
            self._recorder.warning(owner, "UnknownKind", text)
            return
        namespace = owner["metadata"].get("namespace", "")
        present = self._informer.get(resource, namespace, wanted.name)
        if suspended:
            if present is not None and _is_below(present, owner) and not _leaves(present):
                await self._informer.delete(resource, present)
            return
        if present is None:
            made = child(owner, wanted.api_version, wanted.kind, wanted.name, wanted.body)
            await self._informer.create(resource, made)
            self._recorder.normal(owner, "Created", f"Created {wanted.kind}: {wanted.name}")
            return
        if not _is_below(present, owner) or _leaves(present):
            return
        said, found = wanted.body.get("spec") or {}, present.get("spec") or {}
        changed = {f: said[f] for f in _FOLLOWED if f in said and said[f] != found.get(f)}
        if wanted.kind == "Job" and changed.get("suspend") is False:
            changed["template"] = _directed(found["template"], said["template"])
        if wanted.kind == "RayCluster" and changed.get("suspend") is False:
            changed = said
        if changed:
            await self._informer.update(resource, {**present, "spec": {**found, **changed}})

    async def _prune(self, owner: Object, wanted: list[Child]) -> None:
        kept = {(one.api_version, one.kind, one.name) for one in wanted}
        kinds = {(api_version, kind) for api_version, kind, _ in kept}
        for key, obj in self._informer.dependents(owner["metadata"]["uid"]):
            kind = (obj["apiVersion"], obj["kind"])
            if kind in kinds and (*kind, key.name) not in kept and not _leaves(obj):
                await self._informer.delete(key.resource, obj)

    async def _group(self, owner: Object, wanted: Pods, count: int) -> None:
        held = self._pods(owner, wanted)
        if wanted.numbered:
            for pod in held:
                if (pod.get("status") or {}).get("phase") == "Failed" and not _leaves(pod):
                    await self._informer.delete("pods", pod)
        active = [pod for pod in held if is_active(pod)]
        done = [pod for pod in held if (pod.get("status") or {}).get("phase") == "Succeeded"]
        surplus = len(active) + len(done) - count
        for pod in in_order_of_removal(active)[: max(0, surplus)]:
            await self._informer.delete("pods", pod)
        names = {pod["metadata"]["name"] for pod in [*active, *done]}
        free = (n for i in itertools.count() if (n := f"{wanted.stem}-{i}") not in names)
        for _ in range(-surplus):
            name = (
                next(free) if wanted.numbered else f"{wanted.stem}-{suffix(self._stage.generator)}"
            )
            pod = child(owner, "v1", "Pod", name, wanted.template, labels=wanted.labels)
            await create(self._stage, "pods", owner, Create(pod, "Error creating"))
            self._recorder.normal(owner, "CreatedPod", f"Created pod: {name}")


def pods_below(informer: Informer, uid: str) -> list[Object]:
    """Return the pods at the lower ends of the chains below this object."""
    pods: list[Object] = []
    level = [uid]
    for _ in range(_MAXIMUM_DEPTH):
        below = [found for owner in level for found in informer.dependents(owner)]
        pods += [obj for key, obj in below if key.resource == "pods"]
        level = [obj["metadata"]["uid"] for key, obj in below if key.resource != "pods"]
    return pods


def _is_below(obj: Object, owner: Object) -> bool:
    reference = controller_of(obj)
    return reference is not None and reference["uid"] == owner["metadata"]["uid"]


def _directed(template: Object, wanted: Object) -> Object:
    """Return a pod template with what another one states of where its pods may run."""
    directed = copy.deepcopy(template)
    metadata, asked = directed.setdefault("metadata", {}), wanted.get("metadata") or {}
    for field in ("labels", "annotations"):
        if asked.get(field):
            metadata[field] = {**(metadata.get(field) or {}), **asked[field]}
    spec, said = directed["spec"], wanted["spec"]
    if said.get("nodeSelector"):
        spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), **said["nodeSelector"]}
    for field in ("tolerations", "schedulingGates"):
        known = spec.get(field) or []
        if new := [each for each in said.get(field) or () if each not in known]:
            spec[field] = [*known, *new]
    return directed


def _ends(pod: Object) -> bool:
    return _leaves(pod) and not is_over(pod)


def _leaves(obj: Object) -> bool:
    return bool(obj["metadata"].get("deletionTimestamp"))
