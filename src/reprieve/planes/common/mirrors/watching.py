"""Watches of kinds that are held in caches, as the idle and the quota plane have them.

A kind that a plane can do without (`required` off) may be one that is not served: that is not
reported and counts as none being there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from kubeworld.units.clock import Clock
from kubeworld.units.durations import SECOND
from reprieve.kube.cache import Cache, Record
from reprieve.kube.errors import NotFound
from reprieve.kube.reflector import Health
from reprieve.kube.resource import Resource
from reprieve.planes.common.mirrors.mirror import Followed, Mirror

__all__ = ["Watch", "Watcher", "settled", "start"]

W = TypeVar("W")
R = TypeVar("R", bound=Record)

_LOOK: Final = SECOND // 10


@dataclass(slots=True)
class Watch(Generic[W, R]):
    """One kind: its cache and what keeps it up to date. `required`: nothing is done without it."""

    cache: Cache[W, R]
    reflector: Followed[W]
    required: bool = True

    @property
    def absent(self) -> bool:
        """Whether the plane does without it, since it is not served."""
        return not self.required and self.reflector.health is Health.NOT_SERVED


@dataclass(frozen=True, slots=True)
class Watcher:
    """Makes the watches of one plane.

    `report` is called once with each trouble, `restarted` with the kind and why whenever listing or
    watching starts anew.
    """

    mirror: Mirror
    report: Callable[[Exception], None]
    restarted: Callable[[str, str], None]

    def watch(
        self,
        resource: Resource,
        wire: type[W],
        convert: Callable[[W], R],
        indexes: Mapping[str, Callable[[R], Iterable[Any]]] | None = None,
        *,
        required: bool = True,
        whole: Callable[[W], bool] | None = None,
    ) -> Watch[W, R]:
        """Return the watch of a kind, not started.

        The arguments are those of `Cache`, and of `Mirror.follow`.
        """

        def report(trouble: Exception) -> None:
            if required or not isinstance(trouble, NotFound):
                self.report(trouble)

        cache: Cache[W, R] = Cache(convert, indexes)
        reflector = self.mirror.follow(
            resource,
            wire,
            cache,
            whole=whole,
            report=report,
            restarted=lambda why: self.restarted(resource.qualified, why),
        )
        return Watch(cache, reflector, required)


async def settled(watches: Iterable[Watch[Any, Any]], clock: Clock) -> None:
    """Wait until each kind has been listed, or it is known why it is not."""
    for watch in watches:
        while not watch.reflector.synced.is_set() and watch.reflector.health in (
            Health.STARTING,
            Health.WATCHING,
        ):
            await clock.sleep(_LOOK)


def start(watches: Iterable[Watch[Any, Any]], group: asyncio.TaskGroup) -> None:
    """Start all reflectors in the group."""
    for watch in watches:
        group.create_task(watch.reflector.run(), name=f"watch {watch.reflector.resource}")
