"""Writes of objects: create, replace, patch, apply, delete, evict, bind, scale; reads as `reader`.

Every method accepts the `Resource` and, where it reads an answer, the type to decode it into.
Bodies are dicts or Structs; `apiVersion` and `kind` are filled in where a dict leaves them out. All
writes pass through the priority gate and carry the field manager. A partial Struct must not be sent
with `replace`, which would drop the fields it does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any, TypeVar

import msgspec

from kubeworld.units.clock import Clock
from reprieve.kube.bodies import (
    NO_ANNOTATIONS,
    Json,
    PatchType,
    Propagation,
    binding,
    delete_options,
    encoded,
    eviction,
)
from reprieve.kube.credentials import Connection
from reprieve.kube.decoding import decode_object
from reprieve.kube.errors import Call, Conflict
from reprieve.kube.objects import identity_of
from reprieve.kube.own_writer import WRITE_TIMEOUT, OwnWriter
from reprieve.kube.resource import PODS, Resource
from reprieve.kube.retry import ATTEMPTS, retried
from reprieve.kube.transport import HttpWire, Request, Transport, Wire
from reprieve.kube.writes import Priority, WriteGate

__all__ = ["Client", "connect"]

T = TypeVar("T")


def connect(
    connection: Connection,
    clock: Clock,
    *,
    field_manager: str = "reprieve",
    jitter: Random | None = None,
    wire: Wire | None = None,
) -> Client:
    """Return a client for the API server of a loaded connection; `wire` None uses HTTP."""
    transport = Transport(wire or HttpWire(connection), clock, jitter=jitter)
    return Client(transport, field_manager=field_manager)


class Client(OwnWriter):
    """Reads and writes objects of any kind.

    Args:
        transport: to one API server.
        gate: orders the writes; shared by all views of this client.
        field_manager: names the author of every write.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        gate: WriteGate | None = None,
        field_manager: str = "reprieve",
    ) -> None:
        super().__init__(transport)
        self._gate = gate or WriteGate()
        self._field_manager = field_manager
        self._priority = Priority.STATUS
        self._fence: Callable[[], None] | None = None
        self._timeout = WRITE_TIMEOUT

    def at(
        self,
        priority: Priority,
        fence: Callable[[], None] | None = None,
        *,
        timeout: int = WRITE_TIMEOUT,
        field_manager: str = "",
    ) -> Client:
        """Return a view of this client whose writes have that priority.

        Args:
            priority: place in the order of writes.
            fence: called right before each attempt of each write, after the wait at the gate; what
                it raises keeps the write from being sent.
            timeout: nanoseconds after which a write without an answer is given up.
            field_manager: names the author of the writes, where it is another than this client's.
        """
        manager = field_manager or self._field_manager
        view = Client(self.transport, gate=self._gate, field_manager=manager)
        view._priority = priority
        view._fence = fence
        view._timeout = timeout
        return view

    def passed_before(self, priority: Priority) -> int:
        """Return how many writes before this priority have been sent; leases apart."""
        return self._gate.passed_before(priority)

    async def close(self) -> None:
        """Close all connections."""
        await self.transport.close()

    # Writing

    async def create(self, resource: Resource, obj: Any, type: type[T]) -> T:
        """Create an object; its namespace is the one in its metadata.

        Raises:
            AlreadyExists: an object with the name exists.
        """
        namespace = identity_of(obj).namespace
        call = Call.on("create", resource, namespace)
        return await self._write(
            "POST",
            resource.path(namespace),
            encoded(resource, obj),
            call,
            type,
            query=self._author(),
        )

    async def replace(
        self, resource: Resource, obj: Any, type: type[T], *, subresource: str = ""
    ) -> T:
        """Replace an object by its whole new content (PUT).

        Raises:
            Conflict: `metadata.resourceVersion` is not the stored one any more.
        """
        identity = identity_of(obj)
        call = Call.on("update", resource, identity.namespace, identity.name, subresource)
        path = resource.path(identity.namespace, identity.name, subresource)
        return await self._write(
            "PUT", path, encoded(resource, obj), call, type, query=self._author()
        )

    async def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        patch: Any,
        type: type[T],
        /,
        *,
        patch_type: PatchType = PatchType.MERGE,
        subresource: str = "",
        force: bool = False,
        retry: bool = False,
    ) -> T:
        """Patch an object or its subresource.

        Args:
            resource: the kind.
            namespace: empty for cluster-wide kinds.
            name: the object.
            patch: a mapping, or a list of operations for JSON patches. A merge patch with
                `metadata.uid` or `metadata.resourceVersion` is refused where they differ.
            type: what the answer is decoded into.
            patch_type: how the server reads the patch.
            subresource: such as `status`.
            force: acquires fields from other managers; for `APPLY` only.
            retry: sending twice does no harm, so answers that do not come are retried.
        """
        call = Call.on("patch", resource, namespace, name, subresource)
        query = self._author()
        if force:
            query["force"] = "true"
        return await self._write(
            "PATCH",
            resource.path(namespace, name, subresource),
            msgspec.json.encode(patch),
            call,
            type,
            query=query,
            content_type=patch_type.value,
            retry=retry,
        )

    async def patch_status(
        self, resource: Resource, namespace: str, name: str, status: Any, type: type[T], **rest: Any
    ) -> T:
        """Merge `status` into the object's status; `rest` as for `patch`."""
        patch = {"status": status}
        return await self.patch(
            resource, namespace, name, patch, type, subresource="status", **rest
        )

    async def update_status(self, resource: Resource, obj: Any, type: type[T]) -> T:
        """Replace the status; a stale resourceVersion is a `Conflict`."""
        return await self.replace(resource, obj, type, subresource="status")

    async def apply(
        self,
        resource: Resource,
        obj: Any,
        type: type[T],
        *,
        force: bool = False,
        subresource: str = "",
    ) -> T:
        """Server-side apply; repeating it is harmless, so it is retried.

        Raises:
            Conflict: another manager owns a field and `force` is off.
        """
        identity = identity_of(obj)
        return await self.patch(
            resource,
            identity.namespace,
            identity.name,
            msgspec.Raw(encoded(resource, obj)),
            type,
            patch_type=PatchType.APPLY,
            subresource=subresource,
            force=force,
            retry=True,
        )

    async def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        uid: str = "",
        resource_version: str = "",
        propagation: Propagation | None = None,
        grace_seconds: int | None = None,
        retry: bool = False,
    ) -> None:
        """Delete an object, under the preconditions that are given.

        Raises:
            NotFound: it does not exist.
            Conflict: it has another uid or resourceVersion.
        """
        body = delete_options(uid, resource_version, propagation, grace_seconds)
        call = Call.on("delete", resource, namespace, name)
        path = resource.path(namespace, name)
        await self._send("DELETE", path, body, call, retry=retry)

    async def evict(
        self, namespace: str, pod: str, *, uid: str = "", grace_seconds: int | None = None
    ) -> None:
        """Evict a pod through the Eviction API, which honours disruption budgets.

        Raises:
            TooManyRequests: a PodDisruptionBudget does not allow it now.
            Conflict: the pod has another uid.
        """
        body = eviction(namespace, pod, uid, grace_seconds)
        call = Call.on("create", PODS, namespace, pod, "eviction")
        path = PODS.path(namespace, pod, "eviction")
        await self._send("POST", path, body, call)

    async def bind(
        self,
        namespace: str,
        pod: str,
        node: str,
        *,
        uid: str = "",
        annotations: Mapping[str, str] = NO_ANNOTATIONS,
    ) -> None:
        """Bind a pod to a node; it gets the annotations with the binding.

        Raises:
            Conflict: it is bound already, is being deleted or has another uid.
        """
        body = binding(namespace, pod, node, uid, annotations)
        call = Call.on("create", PODS, namespace, pod, "binding")
        path = PODS.path(namespace, pod, "binding")
        await self._send("POST", path, body, call, query=self._author())

    async def get_scale(self, resource: Resource, namespace: str, name: str) -> Json:
        """Return the `autoscaling/v1` Scale of a kind with that subresource."""
        scale: Json = await self.get(resource, namespace, name, dict, subresource="scale")
        return scale

    async def patch_scale(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        replicas: int,
        *,
        resource_version: str = "",
    ) -> Json:
        """Set the replica count; `resource_version` is a precondition where given."""
        patch: Json = {"spec": {"replicas": replicas}}
        if resource_version:
            patch["metadata"] = {"resourceVersion": resource_version}
        scale: Json = await self.patch(resource, namespace, name, patch, dict, subresource="scale")
        return scale

    async def modify(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        change: Callable[[Json], Json | None],
        *,
        subresource: str = "",
        attempts: int = ATTEMPTS,
    ) -> Json | None:
        """Read, change and replace an object; after a conflict read and judge again.

        Args:
            resource: the kind.
            namespace: empty for cluster-wide kinds.
            name: the object.
            change: returns what to write, or None to leave the object as it is.
            subresource: what to write, such as `status`.
            attempts: conflicts that are tolerated, plus one.

        Returns:
            The stored object, or None where `change` wanted nothing.

        Raises:
            Conflict: at every attempt another client was faster.
        """

        async def once() -> Json | None:
            changed = change(await self.get(resource, namespace, name, dict))
            if changed is None:
                return None
            stored: Json = await self.replace(resource, changed, dict, subresource=subresource)
            return stored

        return await retried(once, self.transport.pause, (Conflict,), attempts)

    # The way out

    async def _write(
        self, method: str, path: str, body: bytes, call: Call, type: type[T], **rest: Any
    ) -> T:
        return decode_object(await self._send(method, path, body, call, **rest), type, call)

    async def _send(
        self,
        method: str,
        path: str,
        body: bytes,
        call: Call,
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        retry: bool = False,
    ) -> bytes:
        request = Request(method, path, query or {}, body, content_type, timeout=self._timeout)
        return await self.transport.request(
            request,
            call,
            retry=retry,
            turn=lambda: self._gate.turn(self._priority),
            before_send=self._fence,
        )

    def _author(self) -> dict[str, str]:
        return {"fieldManager": self._field_manager}
