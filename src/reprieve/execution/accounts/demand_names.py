"""The name that people have for a demand: that of the object above what a plane's record names.

A demand that several planes decide has a record of each, and each names its own object of it: the
idle plane a GpuWorkload, the quota plane a Workload, the scheduling plane a pod. In what their
tenants read all of them are `Job/train`. Owners are followed by their controller references; an
object that is not there, is another one of that name, or may not be read ends the way. Only kinds
are read that the chart grants to some plane, and one that may not be read is not requested again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from kubeworld.objects.paths import first
from kubeworld.units.clock import Clock
from reprieve.api.reprieve import ObjectRef
from reprieve.kube.client import Client
from reprieve.kube.discovery import NotServed, RestMapper
from reprieve.kube.errors import Forbidden, NotFound

__all__ = ["DemandNames"]

_DEEPEST: Final = 10
_KEPT: Final = 256
_READ: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "": frozenset({"Pod"}),
        "apps": frozenset({"Deployment", "ReplicaSet", "StatefulSet"}),
        "batch": frozenset({"Job"}),
        "jobset.x-k8s.io": frozenset({"JobSet"}),
        "kaiwo.silogen.ai": frozenset({"GpuWorkload", "KaiwoJob", "KaiwoService"}),
        "kubeflow.org": frozenset(
            {"JAXJob", "MPIJob", "PaddleJob", "PyTorchJob", "TFJob", "XGBoostJob"}
        ),
        "kueue.x-k8s.io": frozenset({"Workload"}),
        "leaderworkerset.x-k8s.io": frozenset({"LeaderWorkerSet"}),
        "ray.io": frozenset({"RayCluster", "RayJob", "RayService"}),
        "scheduling.k8s.io": frozenset({"CompositePodGroup", "PodGroup"}),
        "scheduling.x-k8s.io": frozenset({"PodGroup"}),
        "sparkoperator.k8s.io": frozenset({"SparkApplication"}),
        "trainer.kubeflow.org": frozenset({"TrainJob"}),
        "workload.codeflare.dev": frozenset({"AppWrapper"}),
    }
)


class DemandNames:
    """Finds the object above a preemptor, and keeps the names of the last ones."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._mapper = RestMapper(client, clock)
        self._known: OrderedDict[str, str] = OrderedDict()  # by uid of the preemptor
        self._forbidden: set[tuple[str, str]] = set()  # kinds that may not be read

    async def of(self, preemptor: ObjectRef) -> str:
        """Return kind and name of the topmost object that the preemptor is part of.

        Raises:
            ApiError: an object on the way could not be read now.
        """
        known = self._known.get(preemptor.uid)
        if known is None:
            known = await self._found(preemptor)
            self._known[preemptor.uid] = known
            if len(self._known) > _KEPT:
                self._known.popitem(last=False)
        return known

    async def _found(self, preemptor: ObjectRef) -> str:
        topmost = preemptor
        read = await self._read(preemptor)
        for _ in range(_DEEPEST):
            above = None if read is None else _above(read, preemptor.namespace)
            read = None if above is None else await self._read(above)
            if above is None or read is None:
                break
            topmost = above
        return f"{topmost.kind}/{topmost.name}"

    async def _read(self, named: ObjectRef) -> dict[str, Any] | None:
        """Return the object, None where it is not that of this uid, or is out of reach."""
        kind = named.api_version, named.kind
        group = named.api_version.rpartition("/")[0]
        if kind in self._forbidden or named.kind not in _READ.get(group, ()):
            return None
        try:
            resource = await self._mapper.resource_for(*kind)
            namespace = named.namespace if resource.namespaced else ""
            found: dict[str, Any] = await self._client.get(resource, namespace, named.name, dict)
        except Forbidden:
            if len(self._forbidden) < _KEPT:
                self._forbidden.add(kind)
            return None
        except (NotServed, NotFound):
            return None
        return found if named.uid in ("", first(found, "metadata.uid")) else None


def _above(obj: dict[str, Any], namespace: str) -> ObjectRef | None:
    """Return what is named above an object: a GpuWorkload's root, or the controller."""
    named = first(obj, "spec.workloadRef")
    if not isinstance(named, dict):
        owners = first(obj, "metadata.ownerReferences") or ()
        named = next((each for each in owners if each.get("controller")), None)
    if not named:
        return None
    found = (named.get(each) or "" for each in ("apiVersion", "kind", "name", "uid"))
    api_version, kind, name, uid = map(str, found)
    return ObjectRef(api_version, kind, name, uid, namespace)
