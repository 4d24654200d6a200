"""Leader election on a Lease: at most one process at a time decides.

As client-go does it: a lease that no process holds, or whose holder has not renewed it for its
whole duration, is acquired by an update that names the version read; the holder renews it every
retry period and gives up leading when no renewal succeeded for the renew deadline; on stop it is
released with an empty holder, so that the next process need not wait. How long a foreign lease has
stood still is observed here on the monotonic clock, from when its last change was first seen; the
times that another machine wrote into it are never read.

What the fence of the executor needs: `held_until`, the start of the last successful renewal plus
the lease duration, and `epoch`, the lease's transition counter, which grows with every holder.
Source: client-go's leaderelection; the design's sections "Processes and time" and "Intent log".
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from kubeworld.units.clock import Clock
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos, format_micro
from reprieve.kube.bodies import Json
from reprieve.kube.client import Client
from reprieve.kube.errors import AlreadyExists, ApiError, Conflict, NotFound
from reprieve.kube.resource import LEASES
from reprieve.kube.writes import Priority
from reprieve.units.errors import UsageError

__all__ = ["LeaderElector", "LeaseTimes"]

_JITTER: Final = 1.2  # a candidate waits up to 2.2 retry periods, as in client-go


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """Nanoseconds; each must be shorter than the one before."""

    duration: int = 15 * SECOND
    renew_deadline: int = 10 * SECOND
    retry_period: int = 2 * SECOND

    def __post_init__(self) -> None:
        if not self.duration > self.renew_deadline > self.retry_period > 0:
            raise ValueError("a lease needs duration > renew deadline > retry period > 0")

    @property
    def longest_retry(self) -> int:
        """The longest pause of a candidate, in which it does not see what becomes of the lease."""
        return int(self.retry_period * (1 + _JITTER))


class LeaderElector:
    """Acquires and keeps one lease for this process.

    Args:
        client: for the API server.
        clock: ages are measured on its monotonic time.
        namespace: of the lease.
        name: of the lease.
        identity: of this process, never used by another one: host name and a random part.
        times: durations.
        jitter: spreads the attempts of several candidates; seeded in tests.
        changed: notified with True when this process starts to lead, False when it ceases to.
        report: called once for each distinct trouble with the lease.
        published: called with `held_until` and the epoch whenever they may have changed.
        wanted: whether a process is there to lead; else the lease is neither acquired nor kept.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        *,
        namespace: str,
        name: str,
        identity: str,
        times: LeaseTimes | None = None,
        jitter: Random | None = None,
        changed: Callable[[bool], None] = lambda leading: None,
        report: Callable[[Exception], None] = lambda error: None,
        published: Callable[[Nanos | None, int], None] = lambda held_until, epoch: None,
        wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        self.identity = identity
        self.epoch = 0
        self.times = times or LeaseTimes()
        # A request must not outlast the renewals that could still follow it.
        timeout = max(self.times.renew_deadline // 2, 1)
        self._client = client.at(Priority.LEASE, timeout=timeout)
        self._clock = clock
        self._namespace = namespace
        self._name = name
        self._jitter = jitter or Random()
        self._changed = changed
        self._report = report
        self._published = published
        self._wanted = wanted
        self._noted: dict[str, str] = {}  # annotations of every write
        self._reported = ""
        self._held_until: Nanos | None = None
        self._observed: Json | None = None  # the lease as read or written last
        self._observed_at = 0  # monotonic time at which its spec was first seen as it is
        self._leading = asyncio.Event()
        self._lost = asyncio.Event()
        self._lost.set()
        self._task: asyncio.Task[Any] | None = None

    @property
    def held_until(self) -> Nanos | None:
        """The monotonic end of the lease unless it is renewed; None while it is not held."""
        return self._held_until

    @property
    def leading(self) -> bool:
        """Whether the lease is held right now."""
        return self._held_until is not None and self._clock.monotonic() < self._held_until

    @property
    def holder(self) -> str:
        """Who holds the lease as last observed; empty for none."""
        return str(_spec(self._observed).get("holderIdentity") or "")

    def annotation(self, name: str) -> str | None:
        """Return an annotation of the lease as last observed, None where it has none."""
        found = _annotations(self._observed).get(name)
        return found if isinstance(found, str) else None

    def annotate(self, name: str, value: str) -> None:
        """Write an annotation of the lease with the next write, renewal or release."""
        self._noted[name] = value

    async def renew_now(self) -> bool:
        """Write the lease if it is held; return whether that succeeded."""
        return self._held_until is not None and await self._try()

    async def wait_leading(self) -> None:
        """Return as soon as this process leads."""
        await self._leading.wait()

    async def wait_lost(self) -> None:
        """Return as soon as this process does not lead."""
        await self._lost.wait()

    async def run(self) -> None:
        """Acquire the lease, keep it, acquire it again after losing it, until cancelled."""
        self._task = asyncio.current_task()
        try:
            while True:
                await self._acquire()
                await self._keep()
        finally:
            self._cease()

    async def stop(self) -> None:
        """End `run` and release the lease if it is held; errors of the release are left alone."""
        held = self._held_until is not None
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])
        self._cease()
        if held:
            await self._release()

    async def _acquire(self) -> None:
        while not (self._wanted() and await self._try()):
            spread = 1 + _JITTER * self._jitter.random()
            pause = int(self.times.retry_period * spread)
            await self._clock.sleep(min(pause, self._until_it_runs_out()))
        self._lost.clear()
        self._leading.set()
        self._changed(True)

    async def _keep(self) -> None:
        """Renew until no renewal has succeeded for the renew deadline, or another one leads."""
        renewed = self._clock.monotonic()
        while self._clock.monotonic() - renewed < self.times.renew_deadline:
            await self._clock.sleep(self.times.retry_period)
            started = self._clock.monotonic()
            if not self._wanted():
                continue
            if await self._try():
                renewed = started
            elif self.holder != self.identity:
                break
        self._cease()

    def _cease(self) -> None:
        self._held_until = None
        self._published(None, self.epoch)
        if self._leading.is_set():
            self._leading.clear()
            self._lost.set()
            self._changed(False)

    async def _try(self) -> bool:
        """Acquire or renew the lease if that is possible now; return whether it is held."""
        started = self._clock.monotonic()
        try:
            held = await self._claim()
        except (ApiError, UsageError) as error:
            self._trouble(error)
            return False
        if held:
            self._reported = ""
            self._held_until = Nanos(started + self.times.duration)
            self._published(self._held_until, self.epoch)
        return held

    async def _claim(self) -> bool:
        if self._held_until is not None and self._observed is not None:
            # The lease is most likely still as it was written here: no need to read it first.
            try:
                await self._write(self._observed)
            except (Conflict, NotFound):
                pass
            else:
                return True
        try:
            lease = await self._client.get(LEASES, self._namespace, self._name, dict)
        except NotFound:
            return await self._create()
        self._observe(lease)
        if self._foreign(_spec(lease)):
            return False
        try:
            await self._write(lease)
        except Conflict:
            # Another candidate was faster; the next attempt sees who.
            return False
        return True

    def _foreign(self, spec: Json) -> bool:
        """Return whether another process holds the lease and has renewed it lately."""
        holder = spec.get("holderIdentity") or ""
        return holder not in ("", self.identity) and self._left(spec) > 0

    def _left(self, spec: Json) -> int:
        """Return the nanoseconds after which the lease has stood still for its duration."""
        seconds = spec.get("leaseDurationSeconds")
        theirs = seconds * SECOND if isinstance(seconds, int) else self.times.duration
        return theirs - (self._clock.monotonic() - self._observed_at)

    def _until_it_runs_out(self) -> int:
        """Return when the holder of now would have been silent for too long; nanoseconds."""
        left = self._left(_spec(self._observed))
        return left if self.holder and left > 0 else self.times.longest_retry

    async def _create(self) -> bool:
        # A lease that vanished must not decrease the epoch.
        known = self._observed is not None
        spec = self._renewed_spec({}, self.epoch + 1 if known else 0)
        lease = {"metadata": {"name": self._name, "namespace": self._namespace}, "spec": spec}
        try:
            self._adopt(await self._client.create(LEASES, self._with_notes(lease), dict))
        except AlreadyExists:
            return False
        return True

    async def _write(self, lease: Json) -> None:
        spec = _spec(lease)
        transitions = spec.get("leaseTransitions")
        transitions = transitions if isinstance(transitions, int) else 0
        if spec.get("holderIdentity") != self.identity:
            transitions += 1
        renewed = lease | {"spec": self._renewed_spec(spec, transitions)}
        self._adopt(await self._client.replace(LEASES, self._with_notes(renewed), dict))

    def _renewed_spec(self, spec: Json, transitions: int) -> Json:
        now = format_micro(self._clock.wall())
        ours = spec.get("holderIdentity") == self.identity
        return spec | {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": -(-self.times.duration // SECOND),
            "acquireTime": spec.get("acquireTime") or now if ours else now,
            "renewTime": now,
            "leaseTransitions": transitions,
        }

    def _adopt(self, lease: Json) -> None:
        self._observe(lease)
        self.epoch = _spec(lease).get("leaseTransitions") or 0

    def _observe(self, lease: Json) -> None:
        if self._observed is None or _spec(lease) != _spec(self._observed):
            self._observed_at = self._clock.monotonic()
        self._observed = lease

    async def _release(self) -> None:
        lease = self._observed
        try:
            # A renewal that was cut off may have been stored: then what it made is released.
            for _ in range(2):
                if lease is None or _spec(lease).get("holderIdentity") != self.identity:
                    return
                try:
                    await self._client.replace(LEASES, self._released(lease), dict)
                except Conflict:
                    lease = await self._client.get(LEASES, self._namespace, self._name, dict)
                else:
                    return
        except ApiError as error:
            # It ends by itself when its duration is over.
            self._trouble(error)

    def _released(self, lease: Json) -> Json:
        now = format_micro(self._clock.wall())
        empty = {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": now}
        return self._with_notes(lease | {"spec": _spec(lease) | empty})

    def _with_notes(self, lease: Json) -> Json:
        if not self._noted:
            return lease
        metadata = lease["metadata"] | {"annotations": _annotations(lease) | self._noted}
        return lease | {"metadata": metadata}

    def _trouble(self, error: Exception) -> None:
        key = type(error).__name__
        if key != self._reported:
            self._reported = key
            self._report(error)


def _annotations(lease: Json | None) -> Json:
    found = ((lease or {}).get("metadata") or {}).get("annotations")
    return found if isinstance(found, dict) else {}


def _spec(lease: Json | None) -> Json:
    spec = (lease or {}).get("spec")
    return spec if isinstance(spec, dict) else {}
