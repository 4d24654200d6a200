"""The section `scheduling` of the `--config` file, and all settings of the scheduling plane.

    scheduling:
      profile: best                 # or compatible: victims as kube-scheduler 1.37 chooses them
      featureGates: {CompositePodGroup: true}
      configuration: {apiVersion: kubescheduler.config.k8s.io/v1, ...}
      gangs: {placement: search}    # job preemption of older PodGroups, see `coscheduling`

All its keys are rows of `options.SCHEDULING`. `configuration` is a KubeSchedulerConfiguration. The
flag `--feature-gates` beats `featureGates`, `--scheduling-profile` beats `profile`. Source:
specification of the scheduling plane, sections 2.6, 7.7, 15, 18 and 21.8.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kubeworld.units.durations import HOUR, MINUTE, SECOND
from reprieve.engine.notice.granting import NoticePolicy
from reprieve.engine.placement.profile import CompositePriority, Policy, Protection, VictimChoice
from reprieve.settings.coscheduling import (
    CoschedulingSettings,
    gang_options,
    read_arguments,
    without_coscheduling,
)
from reprieve.settings.fields import integer, mapping, refuse, section_of
from reprieve.settings.gates import Wish, gates_of_mapping, gates_of_text, resolve_gates
from reprieve.settings.idle import Notice
from reprieve.settings.notice import notice_policy
from reprieve.settings.option import keys, read
from reprieve.settings.options import SCHEDULING
from reprieve.settings.preemption_delay import preemption_delay
from reprieve.settings.scheduler_configuration import (
    SchedulerConfiguration,
    scheduler_configuration,
)

__all__ = [
    "SECTION",
    "SchedulingSettings",
    "read_scheduling",
    "scheduling_settings",
]

SECTION: Final = "scheduling"
_PRIORITIES: Final = (-(2**31), 10**9)  # values that users' classes may have

_KEYS: Final = keys(SCHEDULING)


@dataclass(frozen=True, slots=True)
class SchedulingSettings:
    """Policy of decisions, and what the plane around them needs.

    `victim_deadline`: nanoseconds past its grace period after which a victim that has not ended is
    planned around. `max_grace`: nanoseconds; a victim with a longer grace period is evicted only
    where no other work can be, and is waited for as if it had this one; 0: without a bound.
    `wishes`: the gates as the user requested them, for other parts that have gates. `delay`:
    nanoseconds that a unit waits before it preempts; None: also no class states it.
    """

    policy: Policy
    initial_backoff_seconds: int = 1
    max_backoff_seconds: int = 10
    victim_deadline: int = 5 * MINUTE
    max_grace: int = HOUR
    wishes: Mapping[str, bool] | None = None
    notices: tuple[Notice, ...] = ()
    coscheduling: CoschedulingSettings = field(default_factory=CoschedulingSettings)
    notice: NoticePolicy = field(default_factory=NoticePolicy)
    delay: int | None = None

    @property
    def reads_classes(self) -> bool:
        """Whether annotations of PriorityClasses state more: a delay, or how much notice."""
        return self.delay is not None or self.notice.most > 0


def read_scheduling(content: str, where: str) -> Mapping[str, Any]:
    """Return the section of a `--config` file, see `section_of`."""
    return section_of(content, where, SECTION, _KEYS)


def scheduling_settings(
    section: Mapping[str, Any] | None = None,
    feature_gates: str = "",
    where: str = "--config",
    extra: Mapping[str, Collection[str]] | None = None,
    profile: str = "",
) -> SchedulingSettings:
    """Return the settings of the section and the flags `--feature-gates`, `--scheduling-profile`.

    `extra`: installed PostFilter and PodGroupPostFilter plugins, see `scheduler_configuration`.

    Raises:
        UsageError: what is wrong, where, and what is accepted.
    """
    place = f"{where}: {SECTION}"
    section = mapping(section, place, _KEYS)
    flag: dict[str, Wish] = gates_of_text(feature_gates)
    file = gates_of_mapping(section.get("featureGates"), f"{place}.featureGates")
    gates, notices = resolve_gates(flag, file)
    configuration = SchedulerConfiguration()
    gangs = gang_options(section.get("gangs"), f"{place}.gangs", CoschedulingSettings())
    if section.get("configuration") is not None:
        document = section["configuration"]
        if isinstance(document, Mapping):
            gangs = read_arguments(document, f"{place}.configuration", gangs)
        configuration = scheduler_configuration(
            without_coscheduling(document), f"{place}.configuration.", extra
        )
    said = read(SCHEDULING, section, place)
    deadline, grace = said.pop("victim_deadline"), said.pop("max_grace")
    said["choice"] = VictimChoice(profile or said["choice"])
    said["composite_priority"] = CompositePriority(said["composite_priority"])
    said["max_lost_work"] //= SECOND
    said["max_min_runtime"] = -(-said["max_min_runtime"] // SECOND)
    return SchedulingSettings(
        policy=Policy(
            profiles=configuration.profiles,
            gates=gates,
            protection=_protection(section.get("preemptionPriority"), place),
            **said,
        ),
        initial_backoff_seconds=configuration.initial_backoff_seconds,
        max_backoff_seconds=configuration.max_backoff_seconds,
        victim_deadline=deadline,
        max_grace=grace,
        wishes={name: wish.on for name, wish in {**file, **flag}.items()},
        notices=(*notices, *configuration.notices),
        coscheduling=gangs,
        notice=notice_policy(section.get("notice"), f"{place}.notice"),
        delay=preemption_delay(section.get("preemptionDelay"), place),
    )


def _protection(value: object, place: str) -> Protection | None:
    """Return the limits of preemption priorities; an empty mapping is none."""
    where = f"{place}.preemptionPriority"
    given = mapping(value, where, ("cap", "namespaces"))
    if not given:
        return None
    namespaces = given.get("namespaces")
    namespaces = {} if namespaces is None else namespaces
    if not isinstance(namespaces, Mapping) or not all(isinstance(n, str) for n in namespaces):
        refuse(f"{where}.namespaces", namespaces, "a mapping of namespaces to limits")
    limits = {
        str(name): integer(limit, f"{where}.namespaces.{name}", *_PRIORITIES)
        for name, limit in namespaces.items()
    }
    cap = integer(given.get("cap", Protection().cap), f"{where}.cap", *_PRIORITIES)
    return Protection(cap, tuple(sorted(limits.items())))
