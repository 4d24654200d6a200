"""What the idle plane knows to be idle, for the option `idleFirst`.

The facts are the statuses of GpuWorkloads, whichever process keeps them: phase Idle, with metrics
that are at most three minutes old, since silence is not idleness. A GpuWorkload belongs to a
Workload when its root, or something on the way up to it, owns the Workload. A Workload with
several owners is idle when all of their GpuWorkloads are. Source: the quota plane's own options.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from kubeworld.units.durations import MINUTE
from kubeworld.units.instants import Nanos, instant_or_none
from reprieve.api import kueue
from reprieve.api.core import OwnerReference
from reprieve.api.kaiwo import GpuWorkload
from reprieve.engine.idle.model import Phase
from reprieve.kube.cache import Cache
from reprieve.kube.errors import NotFound
from reprieve.kube.objects import version_number
from reprieve.kube.resource import GPU_WORKLOADS
from reprieve.planes.quota.context import QuotaContext, log

__all__ = ["IdleFacts"]

_FRESH: Final = 3 * MINUTE
_BY_OWNER: Final = "owner"
_TRACKED: Final = (Phase.PENDING_OTHER, Phase.PENDING_GPU, Phase.ACTIVE, Phase.IDLE)


@dataclass(frozen=True, slots=True)
class _Tracked:
    """A GpuWorkload: `owners` is its root's uid, and `namespace/Kind/name` on the way up to it."""

    uid: str
    namespace: str
    name: str
    resource_version: int
    owners: tuple[str, ...]
    phase: str
    measured: Nanos

    @property
    def idle(self) -> bool:
        return self.phase == Phase.IDLE

    @property
    def over(self) -> bool:
        """Whether it is the record of a deleted object."""
        return self.phase not in _TRACKED

    @classmethod
    def of(cls, found: GpuWorkload) -> _Tracked:
        metadata, status = found.metadata, found.status
        way_up = filter(None, status.owner_chain.split(" -> "))
        return cls(
            metadata.uid,
            metadata.namespace,
            metadata.name,
            version_number(metadata.resource_version),
            (found.spec.workload_ref.uid, *(f"{metadata.namespace}/{step}" for step in way_up)),
            status.phase,
            (instant_or_none(status.last_metrics_update) or Nanos(0)),
        )


class IdleFacts:
    """Watches GpuWorkloads; `changed` gets Workloads, by key, that are idle or not any more.

    Without the option nothing is watched, and no Workload is idle.
    """

    def __init__(self, context: QuotaContext, changed: Callable[[str], None]) -> None:
        self._context = context
        self._changed = changed
        self._cache: Cache[GpuWorkload, _Tracked] = Cache(
            _Tracked.of, {_BY_OWNER: lambda found: found.owners}
        )
        # Workloads that were queried, by what owns them; those that were idle then.
        self._asked: dict[str, str] = {}
        self._idle: dict[str, Nanos] = {}

    @property
    def wanted(self) -> bool:
        """Whether the option is on."""
        return self._context.options.settings.idle_first

    def start(self, group: asyncio.TaskGroup) -> None:
        """Watch until the group ends."""
        if not self.wanted:
            return

        def report(trouble: Exception) -> None:
            if not isinstance(trouble, NotFound):
                log.warning("idleFirst: %s", trouble)

        context = self._context
        followed = context.mirror.follow(
            GPU_WORKLOADS,
            GpuWorkload,
            self._cache,
            report=report,
            restarted=lambda why: context.metrics.watch_restarts.labels(
                GPU_WORKLOADS.qualified, why
            ).inc(),
        )
        self._cache.subscribe(self._seen)
        group.create_task(followed.run(), name="watch gpuworkloads")

    def of(self, key: str, workload: kueue.Workload) -> bool:
        """Return whether a Workload that holds quota is known to be idle now."""
        if not self.wanted or workload.status.admission is None:
            self._idle.pop(key, None)
            return False
        references = workload.metadata.owner_references or ()
        found: dict[str, _Tracked] = {}
        for name in _names(workload.metadata.namespace, references):
            self._asked[name] = key
            tracked = self._cache.by(_BY_OWNER, name)
            found.update((each.uid, each) for each in tracked if not each.over)
        since = self._context.clock.wall() - _FRESH
        idle = bool(found) and all(e.idle and e.measured > since for e in found.values())
        if idle:
            self._idle[key] = Nanos(min(each.measured for each in found.values()) + _FRESH)
        else:
            self._idle.pop(key, None)
        return idle

    def expire(self) -> None:
        """Check Workloads again whose metrics have become too old by now."""
        now = self._context.clock.wall()
        for key in [key for key, until in self._idle.items() if until <= now]:
            self._changed(key)

    def forget(self, workload: kueue.Workload) -> None:
        """Forget a deleted Workload."""
        metadata = workload.metadata
        for name in _names(metadata.namespace, metadata.owner_references or ()):
            self._asked.pop(name, None)

    def _seen(self, old: _Tracked | None, new: _Tracked | None) -> None:
        states = [None if each is None or each.over else each.idle for each in (old, new)]
        names = {name for each in (old, new) if each is not None for name in each.owners}
        for key in {self._asked[name] for name in names if name in self._asked}:
            if new is not None and new.idle and states[0] is True and key in self._idle:
                # Idle still: good for as long as these metrics are.
                self._idle[key] = Nanos(new.measured + _FRESH)
            elif states[0] != states[1] or states[1]:
                self._changed(key)


def _names(namespace: str, owners: list[OwnerReference] | tuple[()]) -> Iterator[str]:
    for owner in owners:
        yield owner.uid
        yield f"{namespace}/{owner.kind}/{owner.name}"
