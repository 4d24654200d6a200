"""Watches of gangs: PodGroups and ElasticQuotas of both older APIs, and the ConfigMap.

None of them has to be there: a kind that is not served counts as empty, and is looked for again.
One that is served and may not be read stops decisions: an ElasticQuota may protect its pods.
Source: specification of gang jobs, sections 1.1, 1.4 and 11.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from kubeworld.units.clock import Clock
from kubeworld.units.durations import SECOND
from reprieve.api.gangs import DOORS, Door, ElasticQuota, PodGroup
from reprieve.kube.reader import Reader
from reprieve.kube.reflector import Reflector
from reprieve.kube.resource import Resource
from reprieve.planes.common.config_map import ConfigMap, config_map_reflector
from reprieve.planes.common.mirrors.refused_kinds import RefusedKinds
from reprieve.planes.common.mirrors.troubles import Troubles
from reprieve.settings.coscheduling import CONFIG_MAP, CONFIG_NAMESPACE

__all__ = ["RESOURCES", "GangWatches"]

log: Final = logging.getLogger("reprieve.scheduling")


def _resource(door: Door) -> Resource:
    group, _, version = door.api_version.partition("/")
    return Resource(group, version, "podgroups", "PodGroup")


def _quotas(door: Door) -> Resource:
    group, _, version = door.api_version.partition("/")
    return Resource(group, version, "elasticquotas", "ElasticQuota")


RESOURCES: Final = {door.api_version: _resource(door) for door in DOORS}


@dataclass(slots=True)
class _Groups:
    """Hands PodGroups of one door on."""

    door: Door
    apply: Callable[[Door, PodGroup], None]
    remove: Callable[[Door, str], None]
    known: set[str]

    def received(self, objects: list[PodGroup]) -> list[PodGroup]:
        return objects

    def replaced(self, objects: list[PodGroup], resource_version: str) -> None:
        del resource_version
        listed = {_id(group): group for group in objects}
        for id in self.known - listed.keys():
            self.remove(self.door, id)
        self.known = set(listed)
        for group in listed.values():
            self.apply(self.door, group)

    def applied(self, obj: PodGroup) -> None:
        self.known.add(_id(obj))
        self.apply(self.door, obj)

    def deleted(self, obj: PodGroup) -> None:
        self.known.discard(_id(obj))
        self.remove(self.door, _id(obj))


@dataclass(slots=True)
class _Quotas:
    """Hands the ElasticQuotas of one door on, all of them at every change."""

    door: Door
    reported: Callable[[Door, list[ElasticQuota]], None]
    held: dict[str, ElasticQuota]

    def received(self, objects: list[ElasticQuota]) -> list[ElasticQuota]:
        return objects

    def replaced(self, objects: list[ElasticQuota], resource_version: str) -> None:
        del resource_version
        self.held = {each.metadata.uid: each for each in objects}
        self.reported(self.door, [*self.held.values()])

    def applied(self, obj: ElasticQuota) -> None:
        self.held[obj.metadata.uid] = obj
        self.reported(self.door, [*self.held.values()])

    def deleted(self, obj: ElasticQuota) -> None:
        self.held.pop(obj.metadata.uid, None)
        self.reported(self.door, [*self.held.values()])


class GangWatches:
    """The reflectors, apart from those without which nothing is scheduled."""

    def __init__(
        self,
        client: Reader,
        clock: Clock,
        *,
        apply: Callable[[Door, PodGroup], None],
        remove: Callable[[Door, str], None],
        configuration: Callable[[ConfigMap | None], None],
        quotas: Callable[[Door, list[ElasticQuota]], None],
    ) -> None:
        self._clock = clock
        self._troubles = Troubles(clock)
        self._refused = RefusedKinds(client, clock, log, "no pod is scheduled and none preempted")

        def report(trouble: Exception) -> None:
            log.debug("gangs: %s", trouble)
            self._refused.report(trouble)

        self._reflectors: list[Reflector[Any]] = [
            Reflector(
                client,
                RESOURCES[door.api_version],
                PodGroup,
                _Groups(door, apply, remove, set()),
                clock,
                report=report,
            )
            for door in DOORS
        ]
        self._reflectors += [
            Reflector(
                client, _quotas(door), ElasticQuota, _Quotas(door, quotas, {}), clock, report=report
            )
            for door in DOORS
        ]
        self._reflectors.append(
            config_map_reflector(
                client, clock, (CONFIG_NAMESPACE, CONFIG_MAP), configuration, report
            )
        )

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for each in self._reflectors:
                tasks.create_task(each.run(), name=f"watch {each.resource.qualified}")
            tasks.create_task(self._refused.run(self._reflectors), name="look for refused kinds")

    @property
    def ready(self) -> bool:
        """Whether each kind was listed, or is not served."""
        return all(map(self._refused.known, self._reflectors))

    async def synced(self) -> None:
        """Wait until each kind was listed, or is known not to be served."""
        while not self.ready:
            await self._clock.sleep(SECOND // 20)

    def troubles(self) -> list[str]:
        """Return one line for each kind that is served and cannot be read."""
        return self._troubles.lines(self._refused.troubling(self._reflectors))


def _id(group: PodGroup) -> str:
    return f"{group.metadata.namespace}/{group.metadata.name}"
