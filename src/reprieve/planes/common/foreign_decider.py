"""Whether another decider is at work: the Lease that it renews while it leads.

Two deciders over the same work would evict twice for one demand. The Lease's age is observed on the
monotonic clock, as every lease's here.
"""

from __future__ import annotations

from reprieve.kube.bodies import Json
from reprieve.kube.client import Client
from reprieve.kube.errors import ApiError, Forbidden
from reprieve.kube.resource import LEASES
from reprieve.units.clock import Clock
from reprieve.units.durations import SECOND
from reprieve.units.instants import Nanos

__all__ = ["ForeignDecider"]


class ForeignDecider:
    """Tells whether the Lease of this name is alive, in whatever namespace; `namespace` is ours."""

    def __init__(self, client: Client, namespace: str, clock: Clock, lease: str) -> None:
        self._lease = lease
        self._client = client
        self._namespace = namespace
        self._clock = clock
        self._renewal: tuple[str, str] = ("", "")
        self._observed: Nanos | None = None
        self._duration = 0
        self.holder = ""

    @property
    def alive(self) -> bool:
        """Whether a renewal was observed less than one lease duration ago."""
        return (
            bool(self.holder)
            and self._observed is not None
            and self._clock.monotonic() - self._observed < self._duration
        )

    async def observe(self) -> None:
        """Read the Lease once, in whatever namespace; one that cannot be read is not held."""
        leases = await self._leases()
        held = [lease for lease in leases if (lease.get("spec") or {}).get("holderIdentity")]
        if not held:
            self.holder = ""
            return
        # Several installations: the one that renewed last speaks for all of them.
        lease = max(held, key=lambda found: str(found["spec"].get("renewTime")))
        spec = lease["spec"]
        self.holder = spec["holderIdentity"]
        self._duration = int(spec.get("leaseDurationSeconds") or 0) * SECOND
        renewal = (self.holder, str(spec.get("renewTime")))
        if renewal != self._renewal:
            # The first sight of a Lease counts as a renewal too: better to wait once too often.
            self._renewal = renewal
            self._observed = self._clock.monotonic()

    async def _leases(self) -> list[Json]:
        selector = f"metadata.name={self._lease}"
        try:
            page = await self._client.list(LEASES, dict, field_selector=selector)
        except Forbidden:
            try:
                return [await self._client.get(LEASES, self._namespace, self._lease, dict)]
            except ApiError:
                return []
        except ApiError:
            return []
        return page.items
