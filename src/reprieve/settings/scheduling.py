"""The section `scheduling` of the `--config` file, and all that the scheduling plane is told.

    scheduling:
      profile: best                 # or compatible: victims as kube-scheduler 1.37 chooses them
      secondReprievePass: true      # victims refused for a spread constraint go back together
      kepMessages: false            # conditions in the words of KEP-5710
      simulateClaims: false         # devices and attachments of victims count as free
      binarySearchPriority: false   # no victim of a higher priority than one is needed
      maxPlacements: 1              # for how many placements of a group victims are compared
      topologyPreemption: false     # compare victims across all domains of a constraint
      cascadeAware: false           # of equal victims those that find another node
      preemptionPriority: {}        # how far a class of its own counts for work as a victim
      harmOrder: false              # of equal victims idle ones, then those that lose least
      nonUniformGroups: false       # annotations say which pods of a group go only with others
      maxMinRuntime: 0s             # for how long just-started work may be no victim; 0s: it may be
      maxLostWork: 1h               # what a victim without a checkpoint counts as losing at most
      compositePriority: Root       # or Nearest: whose priority counts in trees of groups
      victimDeadline: 5m            # how long past its grace period a victim may take to end
      maxGrace: 1h                  # victims with more go only where nobody else can; 0s: all
      notice: {max: 0s}             # for how long victims that ask for it may save, see `notice`
      preemptionDelay: 0s           # how long a unit waits before it preempts
      featureGates: {CompositePodGroup: true}
      configuration: {apiVersion: kubescheduler.config.k8s.io/v1, ...}
      gangs: {placement: search}    # job preemption of older PodGroups, see `coscheduling`

`configuration` is a KubeSchedulerConfiguration. The flag `--feature-gates` beats `featureGates`,
`--scheduling-profile` beats `profile`.
Source: specification of the scheduling plane, sections 2.6, 7.7, 15, 18 and 21.8.
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
from reprieve.settings.fields import boolean, choice, duration, integer, mapping, read_yaml, refuse
from reprieve.settings.gates import Wish, gates_of_mapping, gates_of_text, resolve_gates
from reprieve.settings.idle import Notice
from reprieve.settings.notice import notice_policy
from reprieve.settings.preemption_delay import preemption_delay
from reprieve.settings.scheduler_configuration import (
    SchedulerConfiguration,
    scheduler_configuration,
)

__all__ = [
    "POLICY_FIELDS",
    "SECTION",
    "SchedulingSettings",
    "read_scheduling",
    "scheduling_settings",
]

SECTION: Final = "scheduling"
_LONGEST: Final = 168 * HOUR  # more would make work immune
_PRIORITIES: Final = (-(2**31), 10**9)  # values that users' classes may have

_SWITCHES: Final[Mapping[str, str]] = {
    "secondReprievePass": "second_reprieve_pass",
    "kepMessages": "kep_messages",
    "simulateClaims": "simulate_claims",
    "binarySearchPriority": "binary_search_priority",
    "topologyPreemption": "topology_preemption",
    "cascadeAware": "cascade_aware",
    "harmOrder": "harm_order",
    "nonUniformGroups": "non_uniform_groups",
}
#: By key of the section, the field of the policy that it decides.
POLICY_FIELDS: Final[Mapping[str, str]] = {
    "profile": "choice",
    **_SWITCHES,
    "maxPlacements": "max_placements",
    "maxMinRuntime": "max_min_runtime",
    "maxLostWork": "max_lost_work",
    "preemptionPriority": "protection",
    "compositePriority": "composite_priority",
    "featureGates": "gates",
    "configuration": "profiles",
}
_KEYS: Final = (
    "profile",
    *_SWITCHES,
    "maxPlacements",
    "maxMinRuntime",
    "maxLostWork",
    "preemptionPriority",
    "compositePriority",
    "victimDeadline",
    "maxGrace",
    "notice",
    "preemptionDelay",
    "featureGates",
    "configuration",
    "gangs",
)


@dataclass(frozen=True, slots=True)
class SchedulingSettings:
    """Policy of decisions, and what the plane around them needs.

    `victim_deadline`: nanoseconds past its grace period after which a victim that has not ended is
    planned around. `max_grace`: nanoseconds; a victim with a longer grace period goes only where
    nobody else does, and is waited for as if it had this one; 0: without a bound. `wishes`: the
    gates as somebody asked for them, for whoever else has gates. `delay`: nanoseconds that a unit
    waits before it preempts; None: also no class says so.
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


def read_scheduling(content: str, where: str) -> Mapping[str, Any]:
    """Return the section `scheduling` of a `--config` file; empty where it has none.

    Raises:
        UsageError: not YAML, or the section is not a mapping of known keys.
    """
    document = read_yaml(content, where)
    section = document.get(SECTION) if isinstance(document, Mapping) else None
    return mapping(section, f"{where}: {SECTION}", _KEYS)


def scheduling_settings(
    section: Mapping[str, Any] | None = None,
    feature_gates: str = "",
    where: str = "--config",
    extra: Mapping[str, Collection[str]] | None = None,
    profile: str = "",
) -> SchedulingSettings:
    """Return what the section and the flags `--feature-gates` and `--scheduling-profile` say.

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
    switches: dict[str, Any] = {
        field: boolean(section[key], f"{place}.{key}")
        for key, field in _SWITCHES.items()
        if section.get(key) is not None
    }
    chosen = VictimChoice.BEST
    if section.get("profile") is not None:
        chosen = VictimChoice(choice(section["profile"], f"{place}.profile", [*VictimChoice]))
    placements = 1
    if section.get("maxPlacements") is not None:
        placements = integer(section["maxPlacements"], f"{place}.maxPlacements", 1, 64)
    most_lost = Policy().max_lost_work
    if section.get("maxLostWork") is not None:
        most_lost = duration(section["maxLostWork"], f"{place}.maxLostWork") // SECOND
    runtime = 0
    if section.get("maxMinRuntime") is not None:
        runtime = duration(section["maxMinRuntime"], f"{place}.maxMinRuntime")
        if runtime > _LONGEST:
            refuse(f"{place}.maxMinRuntime", section["maxMinRuntime"], "durations from 0s to 168h")
    priority = CompositePriority.ROOT
    if section.get("compositePriority") is not None:
        where_priority = f"{place}.compositePriority"
        priority = CompositePriority(
            choice(section["compositePriority"], where_priority, [*CompositePriority])
        )
    deadline = 5 * MINUTE
    if section.get("victimDeadline") is not None:
        deadline = duration(section["victimDeadline"], f"{place}.victimDeadline")
        if not deadline:
            refuse(f"{place}.victimDeadline", section["victimDeadline"], "a duration above zero")
    grace = HOUR
    if section.get("maxGrace") is not None:
        grace = duration(section["maxGrace"], f"{place}.maxGrace")
    return SchedulingSettings(
        policy=Policy(
            profiles=configuration.profiles,
            gates=gates,
            composite_priority=priority,
            choice=VictimChoice(profile) if profile else chosen,
            max_placements=placements,
            max_lost_work=most_lost,
            max_min_runtime=-(-runtime // SECOND),
            protection=_protection(section.get("preemptionPriority"), place),
            **switches,
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
