"""What is written for a pod before its binding (PreBind): claims of volumes and of devices.

A volume that was found gets the claim as its claimRef, a claim that is to be provisioned gets the
annotation `selected-node`; the provisioner of volumes does the rest. A device claim gets its
allocation and its user; one for extended resources is made first, and named in the pod's status.
What an earlier binding in a gang has left on a pod that is bound alone is removed. All writes of
claims name the resourceVersion; writing what stands there already changes nothing. Source:
specification 21.5 and 21.9; kube-scheduler's VolumeBinding and DynamicResources, PreBind; gang
jobs, 1.2.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec

from reprieve.engine.cluster.devices import AllocatedDevice, Allocation
from reprieve.engine.cluster.rows import NodeTerm, PodRow, Requirement, Toleration
from reprieve.engine.placement.filters.dynamic.device_state import ClaimAllocation
from reprieve.engine.placement.filters.volume_ledger import VolumeAssignment
from reprieve.engine.scheduling.outcome import Deallocation
from reprieve.execution.fence import Fence
from reprieve.execution.writes.statuses import StatusChange, write_status
from reprieve.kube.bodies import Json, PatchType
from reprieve.kube.client import Client
from reprieve.kube.errors import AlreadyExists, Conflict, Invalid, NotFound
from reprieve.kube.resource import DEVICE_CLAIMS, PODS, Resource
from reprieve.kube.retry import retried
from reprieve.kube.writes import Priority
from reprieve.units.errors import ClusterError

__all__ = ["VOLUMES", "VOLUME_CLAIMS", "Refused", "Reservations"]

VOLUME_CLAIMS: Final = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
VOLUMES: Final = Resource("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False)

_SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
_BOUND_BY: Final = "pv.kubernetes.io/bound-by-controller"
_EXTENDED: Final = "resource.kubernetes.io/extended-resource-claim"
_FINALIZER: Final = "resource.kubernetes.io/delete-protection"


class Refused(ClusterError):
    """What was to be reserved has been given to another meanwhile."""


class Reservations:
    """Writes what members of an attempt have reserved."""

    def __init__(self, client: Client, fence: Fence) -> None:
        self._client = client
        self._writer = client.at(Priority.EVICT, fence.check, timeout=fence.request_timeout)

    async def volumes(self, assignments: Sequence[VolumeAssignment]) -> None:
        """Point volumes at their claims, and claims at their node.

        Raises:
            Refused: a volume was bound to another claim.
            ApiError: the API server refused or failed.
        """
        for each in assignments:
            claim: Json = await self._client.get(VOLUME_CLAIMS, each.namespace, each.claim, dict)
            if each.volume:
                await self._point(each.volume, claim)
            else:
                annotations = {_SELECTED_NODE: each.node}
                await self._patch(VOLUME_CLAIMS, claim, {"metadata": {"annotations": annotations}})

    async def claims(
        self,
        pod: PodRow,
        allocations: Sequence[ClaimAllocation],
        class_of: Callable[[str], str],
    ) -> None:
        """Write allocations and users of device claims.

        `class_of`: name of the DeviceClass that stands for an extended resource.

        Raises:
            Refused: a claim was allocated otherwise meanwhile.
            ApiError: the API server refused or failed.
        """
        for each in allocations:
            if each.extended:
                await self._make(pod, each, class_of)
            await self._allocate(each)

    async def strip(self, pod: PodRow, annotations: Iterable[str]) -> None:
        """Remove annotations of a pod; one that is deleted or replaced is left to its binding.

        Raises:
            ApiError: the API server refused or failed.
        """
        notes = dict.fromkeys(annotations)
        patch = {"metadata": {"uid": pod.uid, "annotations": notes}}
        # A uid is immutable: of a pod that was replaced the patch is invalid.
        with contextlib.suppress(Conflict, Invalid, NotFound):
            # By way of the status, which needs no right to change what the pod runs.
            _: Json = await self._writer.patch(
                PODS, pod.namespace, pod.name, patch, dict, subresource="status"
            )

    async def deallocate(self, given_up: Sequence[Deallocation]) -> None:
        """Clear allocations that keep a unit from every node, delete claims made for it in vain.

        A claim that another pod uses by now is left alone.

        Raises:
            ApiError: the API server refused or failed.
        """
        for each in given_up:
            try:
                claim: Json = await self._client.get(DEVICE_CLAIMS, each.namespace, each.name, dict)
                if claim["metadata"]["uid"] != each.uid:
                    continue
                if each.delete:
                    await self._writer.delete(
                        DEVICE_CLAIMS, each.namespace, each.name, uid=each.uid
                    )
                    continue
                status = dict(claim.get("status") or {})
                if len(status.get("reservedFor") or ()) > 1:
                    continue
                status.pop("allocation", None)
                status.pop("reservedFor", None)
                _: Json = await self._writer.update_status(
                    DEVICE_CLAIMS, {**claim, "status": status}, dict
                )
            except (Conflict, NotFound):
                continue  # another client writes it: the next attempt sees the result

    async def _point(self, volume: str, claim: Json) -> None:
        found: Json = await self._client.get(VOLUMES, "", volume, dict)
        metadata = claim["metadata"]
        reference = found["spec"].get("claimRef") or {}
        uid = reference.get("uid")
        same = (reference.get("namespace"), reference.get("name")) == (
            metadata["namespace"],
            metadata["name"],
        )
        if reference and (not same or (uid and uid != metadata["uid"])):
            raise Refused(f"volume {volume} belongs to another claim")
        if uid:
            return
        patch = {
            "metadata": {"annotations": {_BOUND_BY: "yes"}},
            "spec": {
                "claimRef": {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "namespace": metadata["namespace"],
                    "name": metadata["name"],
                    "uid": metadata["uid"],
                }
            },
        }
        await self._patch(VOLUMES, found, patch)

    async def _make(
        self, pod: PodRow, allocation: ClaimAllocation, class_of: Callable[[str], str]
    ) -> None:
        """Make the claim for a pod's extended resources, and name it in the pod's status."""
        requests = [
            {
                "name": each.name,
                "exactly": {
                    "deviceClassName": class_of(each.resource),
                    "allocationMode": "ExactCount",
                    "count": each.count,
                },
            }
            for each in allocation.extended
        ]
        claim = {
            "metadata": {
                "name": allocation.name,
                "namespace": allocation.namespace,
                "annotations": {_EXTENDED: "true"},
                "ownerReferences": [
                    {
                        "apiVersion": "v1",
                        "kind": "Pod",
                        "name": pod.name,
                        "uid": pod.uid,
                        "controller": True,
                        "blockOwnerDeletion": True,
                    }
                ],
            },
            "spec": {"devices": {"requests": requests}},
        }
        with contextlib.suppress(AlreadyExists):  # by an earlier try of ours
            _: Json = await self._writer.create(DEVICE_CLAIMS, claim, dict)
        mappings = [
            {"containerName": container, "resourceName": each.resource, "requestName": each.name}
            for each in allocation.extended
            for container in each.containers
        ]
        status = {
            "extendedResourceClaimStatus": {
                "resourceClaimName": allocation.name,
                "requestMappings": mappings,
            }
        }
        change = StatusChange(
            PODS, pod.namespace, pod.name, pod.uid, status, patch_type=PatchType.STRATEGIC
        )
        await write_status(self._writer, change, dict)

    async def _allocate(self, wanted: ClaimAllocation) -> None:
        async def once() -> None:
            claim: Json = await self._client.get(DEVICE_CLAIMS, wanted.namespace, wanted.name, dict)
            status = dict(claim.get("status") or {})
            changed = False
            if wanted.allocation is not None:
                allocation = _allocation(wanted.allocation)
                if status.get("allocation") is None:
                    status["allocation"] = allocation
                    changed = True
                elif status["allocation"].get("devices") != allocation["devices"]:
                    raise Refused(f"claim {wanted.namespace}/{wanted.name} was allocated otherwise")
            users = list(status.get("reservedFor") or ())
            if all(user["uid"] != wanted.consumer.uid for user in users):
                consumer = wanted.consumer
                group = {"apiGroup": "scheduling.k8s.io"} if consumer.resource != "pods" else {}
                users.append(
                    {
                        **group,
                        "resource": consumer.resource,
                        "name": consumer.name,
                        "uid": consumer.uid,
                    }
                )
                changed = True
            if not changed:
                return
            if _FINALIZER not in (claim["metadata"].get("finalizers") or ()):
                finalizers = [*(claim["metadata"].get("finalizers") or ()), _FINALIZER]
                claim = await self._patch(
                    DEVICE_CLAIMS, claim, {"metadata": {"finalizers": finalizers}}
                )
            claim = {**claim, "status": {**status, "reservedFor": users}}
            _answer: Json = await self._writer.update_status(DEVICE_CLAIMS, claim, dict)

        await retried(once, self._client.transport.pause, (Conflict,))

    async def _patch(self, resource: Resource, found: Json, patch: Json) -> Json:
        metadata = found["metadata"]
        guards = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
        body = {**patch, "metadata": {**patch.get("metadata", {}), **guards}}
        answer: Json = await self._writer.patch(
            resource, metadata.get("namespace", ""), metadata["name"], body, dict
        )
        return answer


def _allocation(allocation: Allocation) -> Json:
    devices: Json = {"results": [_result(each) for each in allocation.devices]}
    if allocation.configuration:
        devices["config"] = [
            {
                "source": source,
                **({"requests": list(each.requests)} if each.requests else {}),
                "opaque": {
                    "driver": each.driver,
                    "parameters": msgspec.Raw(each.parameters.encode()),
                },
            }
            for source, each in allocation.configuration
        ]
    found: Json = {"devices": devices}
    if allocation.terms is not None:
        found["nodeSelector"] = {"nodeSelectorTerms": [_term(each) for each in allocation.terms]}
    return found


def _result(device: AllocatedDevice) -> Json:
    driver, pool, name = device.id
    found: Json = {"request": device.request, "driver": driver, "pool": pool, "device": name}
    if device.admin:
        found["adminAccess"] = True
    if device.share:
        found["shareID"] = device.share
    if device.consumed:
        found["consumedCapacity"] = {key: f"{amount}m" for key, amount in device.consumed}
    if device.tolerations:
        found["tolerations"] = [_toleration(each) for each in device.tolerations]
    if device.binding_conditions:
        found["bindingConditions"] = list(device.binding_conditions)
        found["bindingFailureConditions"] = list(device.binding_failures)
    return found


def _toleration(toleration: Toleration) -> Json:
    fields = {
        "key": toleration.key,
        "operator": toleration.operator,
        "value": toleration.value,
        "effect": toleration.effect,
    }
    return {key: value for key, value in fields.items() if value}


def _term(term: NodeTerm) -> Json:
    found: dict[str, Any] = {}
    if term.expressions:
        found["matchExpressions"] = [_requirement(each) for each in term.expressions]
    if term.fields:
        found["matchFields"] = [_requirement(each) for each in term.fields]
    return found


def _requirement(requirement: Requirement) -> Json:
    found: Json = {"key": requirement.key, "operator": requirement.operator.value}
    if requirement.values:
        found["values"] = list(requirement.values)
    return found
