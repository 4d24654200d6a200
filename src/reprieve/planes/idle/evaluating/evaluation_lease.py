"""The Lease `gpu-preemption-eval`: one evaluation at a time, shared with Kaiwo's own operators.

It is acquired inside the process lease, only when there is something to evict, and released at
once, so that an instance of the reference waits no longer than it must. Unlike the process lease,
its age is judged by the times written in it, because that is how the reference judges ours. Source:
specification of the idle plane, section 15.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kubeworld.units.clock import Clock
from kubeworld.units.instants import format_micro, parse_instant
from reprieve.engine.idle.evaluation_lease import DURATION_SECONDS, NAME, LeaseState, may_acquire
from reprieve.kube.bodies import Json
from reprieve.kube.errors import AlreadyExists, ApiError, Conflict, NotFound
from reprieve.kube.own_writer import OwnWriter
from reprieve.kube.resource import LEASES
from reprieve.kube.writes import Priority

__all__ = ["evaluation_lease"]


@asynccontextmanager
async def evaluation_lease(
    client: OwnWriter, namespace: str, holder: str, clock: Clock
) -> AsyncIterator[bool]:
    """Hold the Lease for the block; the value states whether it was obtained.

    Raises:
        ApiError: the Lease cannot be read or written for another reason than another holder.
    """
    writer = client.at(Priority.LEASE)
    chosen = await _acquire(writer, namespace, holder, clock)
    try:
        yield chosen is not None
    finally:
        if chosen is not None:
            await _release(writer, chosen)


async def _acquire(client: OwnWriter, namespace: str, holder: str, clock: Clock) -> Json | None:
    now = clock.wall()
    spec = {
        "holderIdentity": holder,
        "leaseDurationSeconds": DURATION_SECONDS,
        "acquireTime": format_micro(now),
        "renewTime": format_micro(now),
    }
    try:
        lease: Json = await client.get(LEASES, namespace, NAME, dict)
    except NotFound:
        metadata = {"name": NAME, "namespace": namespace}
        try:
            return await client.create(LEASES, {"metadata": metadata, "spec": spec}, dict)
        except AlreadyExists:
            return None
    if not may_acquire(_state(lease.get("spec") or {}), holder, now):
        return None
    try:
        return await client.replace(LEASES, {**lease, "spec": spec}, dict)
    except Conflict:
        return None


async def _release(client: OwnWriter, lease: Json) -> None:
    try:
        await client.replace(
            LEASES, {**lease, "spec": {**lease["spec"], "holderIdentity": ""}}, dict
        )
    except ApiError:
        # Not ours any more, or no answer: it ends by itself when its duration is over.
        return


def _state(spec: Json) -> LeaseState:
    renewed = spec.get("renewTime")
    return LeaseState(
        holder=spec.get("holderIdentity") or "",
        renewed=parse_instant(renewed) if renewed else None,
        duration_seconds=int(spec.get("leaseDurationSeconds") or 0),
    )
