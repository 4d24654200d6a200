"""Writes to the status of Workloads: by resourceVersion, and judged again after a conflict.

Every write is fenced: it is not sent once the lease may be another's. Source: the design's "State
that can be trusted".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from reprieve.api.kueue import Workload
from reprieve.kube.errors import NotFound
from reprieve.kube.retry import retried
from reprieve.kube.writes import Priority
from reprieve.planes.quota.context import QuotaContext
from reprieve.planes.quota.state import QuotaState
from reprieve.planes.quota.watches import WORKLOADS

__all__ = ["StatusWriter", "status_patch"]


def status_patch(before: Any, after: Any) -> dict[str, Any]:
    """Return what a merge patch needs to lead from one status to the other."""
    return _difference(msgspec.to_builtins(before), msgspec.to_builtins(after))


def _difference(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    patch: dict[str, Any] = {name: None for name in old if name not in new}
    for name, value in new.items():
        known = old.get(name)
        if isinstance(value, dict) and isinstance(known, dict):
            # A merge patch keeps what it does not name.
            if changed := _difference(known, value):
                patch[name] = changed
        elif known != value:
            patch[name] = value
    return patch


class StatusWriter:
    """Changes the status of Workloads."""

    def __init__(self, context: QuotaContext, state: QuotaState) -> None:
        self._context = context
        self._state = state

    async def change(
        self,
        key: str,
        uid: str,
        change: Callable[[Workload], Workload | None],
        priority: Priority = Priority.STATUS,
    ) -> Workload | None:
        """Write `change` of the Workload as it is now.

        Args:
            key: `namespace/name`.
            uid: of the Workload that is meant.
            change: returns the Workload with its new status, the same for nothing to write, None
                when there is no reason to write any more.
            priority: place in the order of writes.

        Returns:
            The Workload as it is stored; None where it is gone, or `change` returned None.

        Raises:
            Deposed: the fence is closed.
            Conflict: at every attempt somebody else was faster.
            ApiError: the API server refused.
        """
        context, namespace, name = self._context, *key.split("/", 1)
        fence = context.fence
        writer = context.client.at(priority, fence.check, timeout=fence.request_timeout)
        known = self._state.workload(key)

        async def once() -> Workload | None:
            nonlocal known
            current, known = known, None
            if current is None:
                current = await context.client.get(WORKLOADS, namespace, name, Workload)
                self._state.wrote(current)
            if current.metadata.uid != uid:
                return None
            changed = change(current)
            if changed is None:
                return None
            patch = status_patch(current.status, changed.status)
            if not patch:
                return current
            metadata = {"uid": uid, "resourceVersion": current.metadata.resource_version}
            stored: Workload = await writer.patch(
                WORKLOADS,
                namespace,
                name,
                {"metadata": metadata, "status": patch},
                Workload,
                subresource="status",
            )
            self._state.wrote(stored)
            return stored

        try:
            return await retried(once, context.client.transport.pause)
        except NotFound:
            self._state.gone(key)
            return None
