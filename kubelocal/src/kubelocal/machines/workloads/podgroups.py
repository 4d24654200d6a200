"""Protection of PodGroups: one that is deleted stays until the last of its pods has ended.

The API server sets the finalizer on every new PodGroup; this machine removes it. Source: the
podgroup-protection controller of Kubernetes 1.37.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Final

from kubelocal.machines.informer import Informer, Key, key_of
from kubelocal.machines.objects import Change, Object
from kubeworld.objects.pods import is_over

__all__ = ["PodGroupProtection"]

_GROUPS: Final = "podgroups.scheduling.k8s.io"
_FINALIZER: Final = "scheduling.k8s.io/podgroup-protection"


class PodGroupProtection:
    """Releases deleted PodGroups that no running or waiting pod belongs to."""

    name = "podgroup-protection"

    def __init__(self, informer: Informer) -> None:
        self._informer = informer

    def concerns(self, change: Change, before: Object | None) -> Iterable[Key]:
        if change.resource == _GROUPS:
            return [key_of(_GROUPS, change.object)]
        if change.resource != "pods":
            return []
        # A pod that was replaced under its name has left the group of the one before.
        groups = {_group_of(pod) for pod in (change.object, before) if pod is not None} - {""}
        return [Key(_GROUPS, change.object["metadata"]["namespace"], name) for name in groups]

    async def reconcile(self, key: Key) -> None:
        group = self._informer.at(key)
        if group is None or not group["metadata"].get("deletionTimestamp"):
            return
        finalizers = group["metadata"].get("finalizers") or []
        if _FINALIZER not in finalizers or self._is_used(key):
            return
        freed = copy.deepcopy(group)
        freed["metadata"]["finalizers"] = [one for one in finalizers if one != _FINALIZER]
        await self._informer.update(_GROUPS, freed)

    def _is_used(self, key: Key) -> bool:
        return any(
            pod["metadata"]["namespace"] == key.namespace
            and _group_of(pod) == key.name
            and not is_over(pod)
            for pod in self._informer.all("pods")
        )


def _group_of(pod: Object) -> str:
    return str((pod["spec"].get("schedulingGroup") or {}).get("podGroupName", ""))
