"""Who decides in a what-if: the planes of `reprieve run`, by its table, and what they read.

Source: the design's "Processes and time".
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final

from kubeworld.units.instants import Nanos
from reprieve.execution.writes.jobs import resource_of
from reprieve.jobs.table import job_kinds
from reprieve.kube.reader import Reader
from reprieve.kube.resource import (
    DEVICE_CLAIMS,
    DEVICE_CLASSES,
    DEVICE_SLICES,
    DEVICE_TEMPLATES,
    GPU_WORKLOADS,
    HARM_BUDGETS,
    KAIWO_CONFIGS,
    NAMESPACES,
    NODES,
    PODS,
    PREEMPTION_PARTS,
    PREEMPTIONS,
    Resource,
)
from reprieve.planes.common.mirrors.mirror import Mirror
from reprieve.planes.common.process_settings import (
    IDLE,
    QUOTA,
    SCHEDULING,
    OperatorOptions,
    OperatorSettings,
    operator_settings,
)
from reprieve.whatif.controllers.stand_ins import StandIns
from reprieve.whatif.measured import measured_last
from reprieve.whatif.snapshots.snapshot import Snapshot

__all__ = ["Deciders"]

#: What the idle plane reads beside Preemptions and the kinds of the table of jobs.
_OF_IDLE: Final = (
    PODS,
    NODES,
    NAMESPACES,
    GPU_WORKLOADS,
    KAIWO_CONFIGS,
    DEVICE_CLAIMS,
    DEVICE_TEMPLATES,
    DEVICE_CLASSES,
    DEVICE_SLICES,
    Resource("kueue.x-k8s.io", "v1beta2", "workloads", "Workload"),
    Resource("kueue.x-k8s.io", "v1beta1", "workloads", "Workload"),
    Resource("apps", "v1", "replicasets", "ReplicaSet"),
)


@dataclass(frozen=True, slots=True)
class Deciders:
    """The planes that decide, and how they are set."""

    options: OperatorOptions
    settings: OperatorSettings

    @classmethod
    def of(cls, options: OperatorOptions) -> Deciders:
        """Return the planes that an operator with these options would run.

        Raises:
            UsageError: a setting is not accepted.
        """
        options = measured_last(options)
        return cls(options, operator_settings(options))

    def placing(self, names: Collection[str]) -> Deciders:
        """Return the same planes, and the scheduling plane for pods of these schedulers as well."""
        missing = sorted(set(names) - self.scheduler_names)
        if not missing:
            return self
        found, scheduling = self.settings, self.settings.scheduling
        if scheduling is None:
            placing = (SCHEDULING,)
            plain = operator_settings(
                OperatorOptions(placing, self.options.environment, scheduler_names=tuple(missing))
            )
            found = replace(
                found,
                scheduling=plain.scheduling,
                installed=plain.installed,
                plugins=plain.plugins,
                scorers=plain.scorers,
            )
        else:
            usual = scheduling.policy.profiles[0]
            more = (replace(usual, scheduler_name=each) for each in missing)
            profiles = (*scheduling.policy.profiles, *more)
            policy = replace(scheduling.policy, profiles=profiles)
            found = replace(found, scheduling=replace(scheduling, policy=policy))
        controllers = tuple(dict.fromkeys((*self.options.controllers, SCHEDULING)))
        return Deciders(replace(self.options, controllers=controllers), found)

    def without_idle(self) -> Deciders:
        """Return the same planes but the idle one."""
        rest = tuple(each for each in self.options.controllers if each != IDLE)
        return replace(self, options=replace(self.options, controllers=rest))

    @property
    def scheduler_names(self) -> frozenset[str]:
        """Whose pods are placed."""
        if self.settings.scheduling is None:
            return frozenset()
        profiles = self.settings.scheduling.policy.profiles
        return frozenset(profile.scheduler_name for profile in profiles)

    def kinds(self) -> tuple[Resource, ...]:
        """Return the kinds that an answer depends on, as the planes and the stand-ins read them."""
        found: dict[Resource, None] = dict.fromkeys(
            (PREEMPTIONS, PREEMPTION_PARTS, HARM_BUDGETS, NAMESPACES)
        )
        if SCHEDULING in self.options.controllers and self.settings.scheduling is not None:
            from reprieve.planes.scheduling.gangs.watches import RESOURCES
            from reprieve.planes.scheduling.kinds import kinds
            from reprieve.planes.scheduling.served import GROUP_VERSIONS

            watched = kinds(self.settings.scheduling.policy)
            found |= dict.fromkeys(each.resource for each in watched)
            found |= dict.fromkeys(RESOURCES.values())
            for version in GROUP_VERSIONS:
                group, _, number = version.partition("/")
                found[Resource(group, number, "podgroups", "PodGroup")] = None
        if IDLE in self.options.controllers:
            found |= dict.fromkeys(_OF_IDLE)
            found |= dict.fromkeys(resource_of(kind) for kind in job_kinds())
        if QUOTA in self.options.controllers:
            from reprieve.planes.quota.watches import Watches

            nowhere = _Nowhere()
            every = Watches(
                Mirror(Reader(None), nowhere),  # type: ignore[arg-type]
                nowhere,
                job_kinds(),
                report=lambda trouble: None,
                restarted=lambda kind, why: None,
            )
            found |= dict.fromkeys(each.reflector.resource for each in every)
        return (*found, *(each for each in StandIns.KINDS if each not in found))

    def kinds_of_places(self, snapshot: Snapshot) -> tuple[Resource, ...]:
        """Return what the quota plane reads besides where it gives places on nodes, or none."""
        source, planes = self.settings.quota, self.options.controllers
        if source is None or QUOTA not in planes or SCHEDULING in planes:
            return ()
        from reprieve.planes.quota.watches import FLAVORS

        flavors = snapshot.kinds.get((FLAVORS.group, FLAVORS.plural))
        bodies = () if flavors is None else flavors.objects.values()
        placing = any(b'"topologyName"' in body for body in bodies)
        return (NODES, PODS, NAMESPACES) if placing or source.settings().prove_nodes else ()


class _Nowhere:
    """A clock that is never read."""

    def wall(self) -> Nanos:
        return Nanos(0)

    def monotonic(self) -> Nanos:
        return Nanos(0)

    async def sleep(self, nanoseconds: int) -> None:
        raise AssertionError("no plane sleeps")
