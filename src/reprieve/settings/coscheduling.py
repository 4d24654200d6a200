"""`CoschedulingArgs`: gangs and job preemption, from the ConfigMap of Koordinator or from a file.

    profiles:
    - schedulerName: koord-scheduler
      pluginConfig:
      - name: Coscheduling
        args:
          apiVersion: kubescheduler.config.k8s.io/v1
          kind: CoschedulingArgs
          enablePreemption: true        # default: true
          defaultTimeout: 600s
          defaultMatchPolicy: once-satisfied

The section `scheduling.gangs` of the `--config` file has what those arguments do not know:

    placement: search | first-fit
    podDisruptionBudgets: Prefer | Require | Ignore
    victimGangs: Pod | All
    triggerPodSpelling: guide | code
    protectedQuotas: [NAME, ...]        # ElasticQuotas whose pods are no victims
    protectedNamespaces: [NAME, ...]
    elasticQuotas: Labels | Min | Ignore  # which ElasticQuotas protect their pods by themselves

In a ConfigMap all other plugins and settings are left to their own readers. Source: specification
of gang jobs, sections 1.4, 10 and 11.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

from kubeworld.units.durations import SECOND, format_duration
from reprieve.engine.scheduling.gangs.job import (
    Budgets,
    JobOptions,
    JobPolicy,
    Placement,
    QuotaProtection,
    TriggerSpelling,
    VictimGangs,
)
from reprieve.engine.scheduling.gangs.records import Defaults, MatchPolicy
from reprieve.settings.fields import (
    boolean,
    choice,
    duration,
    entries,
    integer,
    mapping,
    read_yaml,
    refuse,
    texts,
)
from reprieve.units.errors import UsageError

__all__ = [
    "CONFIG_MAP",
    "CONFIG_NAMESPACE",
    "CoschedulingSettings",
    "changes",
    "gang_options",
    "read_arguments",
    "read_config_map",
    "without_coscheduling",
]

CONFIG_NAMESPACE: Final = "koordinator-system"
CONFIG_MAP: Final = "koord-scheduler-config"  # its name, and the key of its data
PLUGIN: Final = "Coscheduling"
KOORDINATOR: Final = "koord-scheduler"

_API_VERSIONS: Final = ("kubescheduler.config.k8s.io/v1", "kubescheduler.config.k8s.io/v1beta3")
_MOST: Final = 2**31 - 1
_KEYS: Final = (
    "apiVersion",
    "kind",
    "enablePreemption",
    "defaultTimeout",
    "defaultMatchPolicy",
    "controllerWorkers",
    "skipCheckScheduleCycle",
    "awareNetworkTopology",
    "permitWaitingTimeSeconds",
    "podGroupBackoffSeconds",
    "podGroupRejectPercentage",
)
_SECTION: Final = (
    "placement",
    "podDisruptionBudgets",
    "victimGangs",
    "triggerPodSpelling",
    "protectedQuotas",
    "protectedNamespaces",
    "elasticQuotas",
)


@dataclass(frozen=True, slots=True)
class CoschedulingSettings:
    """Arguments in force. `default_timeout`: nanoseconds; seconds where a name states so.

    `names`: scheduler names whose plain pods preempt as jobs of one, if they are served.
    """

    enable_preemption: bool = True
    default_timeout: int = 600 * SECOND
    default_match_policy: str = MatchPolicy.ONCE_SATISFIED
    controller_workers: int = 1
    skip_check_schedule_cycle: bool = False
    aware_network_topology: bool = False
    permit_waiting_time_seconds: int = 60
    pod_group_backoff_seconds: int = 0
    pod_group_reject_percentage: int = 10
    names: frozenset[str] = field(default_factory=lambda: frozenset({KOORDINATOR}))
    policy: JobPolicy = field(default_factory=JobPolicy)
    spelling: TriggerSpelling = TriggerSpelling.GUIDE

    @property
    def defaults(self) -> Defaults:
        """Return what fills in gangs of Koordinator."""
        return Defaults(self.default_timeout, self.default_match_policy)

    @property
    def plain_defaults(self) -> Defaults:
        """Return what fills in gangs of scheduler-plugins."""
        return Defaults(self.permit_waiting_time_seconds * SECOND, self.default_match_policy)

    @property
    def options(self) -> JobOptions:
        """Return when and how jobs preempt."""
        return JobOptions(self.policy, self.enable_preemption, self.names)


def read_config_map(
    data: Mapping[str, str], where: str, base: CoschedulingSettings
) -> CoschedulingSettings:
    """Return the settings of the ConfigMap, on top of `base`.

    Raises:
        UsageError: what is wrong, where, and what is accepted.
    """
    content = data.get(CONFIG_MAP)
    if content is None:
        return base
    document = read_yaml(content, where)
    if not isinstance(document, Mapping):
        refuse(where, document, "a KubeSchedulerConfiguration")
    return read_arguments(document, where, base)


def read_arguments(
    document: Mapping[str, Any], where: str, base: CoschedulingSettings
) -> CoschedulingSettings:
    """Return the settings of the Coscheduling arguments of a KubeSchedulerConfiguration.

    Of several profiles with such arguments the one named koord-scheduler counts, else the first.

    Raises:
        UsageError: what is wrong, where, and what is accepted.
    """
    found: list[tuple[str, Mapping[str, Any], str]] = []
    seen: set[str] = set()
    for profile, path in entries(document.get("profiles"), f"{where}: profiles"):
        if not isinstance(profile, Mapping):
            refuse(path, profile, "a mapping")
        name = str(profile.get("schedulerName") or "default-scheduler")
        for entry, own in entries(profile.get("pluginConfig"), f"{path}.pluginConfig"):
            if isinstance(entry, Mapping) and entry.get("name") == PLUGIN:
                mapping(entry, own, ("name", "args"))
                if path in seen:
                    raise UsageError(f"{own}.name: {PLUGIN} is given twice; accepted: once")
                seen.add(path)
                arguments = mapping(entry.get("args"), f"{own}.args", _KEYS)
                found.append((name, arguments, f"{own}.args"))
    if not found:
        return base
    chosen = next((each for each in found if each[0] == KOORDINATOR), found[0])
    names = base.names | {name for name, _, _ in found}
    return replace(_settings(chosen[1], chosen[2], base), names=names)


def _settings(
    given: Mapping[str, Any], where: str, base: CoschedulingSettings
) -> CoschedulingSettings:
    if given.get("apiVersion") is not None:
        choice(given["apiVersion"], f"{where}.apiVersion", _API_VERSIONS)
    if given.get("kind") is not None:
        choice(given["kind"], f"{where}.kind", ("CoschedulingArgs",))
    values: dict[str, Any] = {}
    for key, name in (
        ("enablePreemption", "enable_preemption"),
        ("skipCheckScheduleCycle", "skip_check_schedule_cycle"),
        ("awareNetworkTopology", "aware_network_topology"),
    ):
        if given.get(key) is not None:
            values[name] = boolean(given[key], f"{where}.{key}")
    for key, name, least, most in (
        ("controllerWorkers", "controller_workers", 1, _MOST),
        ("permitWaitingTimeSeconds", "permit_waiting_time_seconds", 0, _MOST),
        ("podGroupBackoffSeconds", "pod_group_backoff_seconds", 0, _MOST),
        ("podGroupRejectPercentage", "pod_group_reject_percentage", 0, 100),
    ):
        if given.get(key) is not None:
            values[name] = integer(given[key], f"{where}.{key}", least, most)
    if given.get("defaultTimeout") is not None:
        values["default_timeout"] = duration(given["defaultTimeout"], f"{where}.defaultTimeout")
    policy = given.get("defaultMatchPolicy")
    if policy is not None:
        # The reference does not look at the word; any other behaves like once-satisfied.
        if not isinstance(policy, str):
            refuse(f"{where}.defaultMatchPolicy", policy, ", ".join(MatchPolicy))
        known = policy if policy in set(MatchPolicy) else MatchPolicy.ONCE_SATISFIED
        values["default_match_policy"] = str(known)
    return replace(base, **values)


def gang_options(section: object, where: str, base: CoschedulingSettings) -> CoschedulingSettings:
    """Return the settings of the section `scheduling.gangs`, on top of `base`.

    Raises:
        UsageError: what is wrong, where, and what is accepted.
    """
    given = mapping(section, where, _SECTION)
    policy, spelling = base.policy, base.spelling

    def word(key: str, accepted: type[Any], default: Any) -> Any:
        value = given.get(key)
        if value is None:
            return default
        return accepted(choice(value, f"{where}.{key}", [str(each) for each in accepted]))

    policy = JobPolicy(
        word("placement", Placement, policy.placement),
        word("podDisruptionBudgets", Budgets, policy.budgets),
        word("victimGangs", VictimGangs, policy.victim_gangs),
        frozenset(texts(given.get("protectedQuotas"), f"{where}.protectedQuotas")),
        frozenset(texts(given.get("protectedNamespaces"), f"{where}.protectedNamespaces")),
        word("elasticQuotas", QuotaProtection, policy.quotas),
    )
    spelling = word("triggerPodSpelling", TriggerSpelling, spelling)
    return replace(base, policy=policy, spelling=spelling)


def without_coscheduling(document: object) -> object:
    """Return a KubeSchedulerConfiguration without the plugin, for readers that do not know it."""
    if not isinstance(document, Mapping) or not isinstance(document.get("profiles"), list):
        return document
    profiles = []
    for profile in document["profiles"]:
        if not isinstance(profile, Mapping):
            profiles.append(profile)
            continue
        kept = dict(profile)
        if isinstance(kept.get("pluginConfig"), list):
            kept["pluginConfig"] = [
                entry
                for entry in kept["pluginConfig"]
                if not (isinstance(entry, Mapping) and entry.get("name") == PLUGIN)
            ]
        if isinstance(kept.get("plugins"), Mapping):
            kept["plugins"] = {
                point: _without_plugin(sets) for point, sets in kept["plugins"].items()
            }
        profiles.append(kept)
    return {**document, "profiles": profiles}


def _without_plugin(sets: object) -> object:
    if not isinstance(sets, Mapping):
        return sets
    return {
        way: [
            each
            for each in listed
            if not (isinstance(each, Mapping) and each.get("name") == PLUGIN)
        ]
        if isinstance(listed, list)
        else listed
        for way, listed in sets.items()
    }


def changes(before: CoschedulingSettings, after: CoschedulingSettings) -> list[str]:
    """Return what differs, one text per argument: `enablePreemption: true -> false`."""
    found = []
    for each in fields(CoschedulingSettings):
        old, new = getattr(before, each.name), getattr(after, each.name)
        if old == new or each.name in ("policy", "names", "spelling"):
            continue
        head, *rest = each.name.split("_")
        key = head + "".join(word.title() for word in rest)
        found.append(f"{key}: {_shown(each.name, old)} -> {_shown(each.name, new)}")
    return found


def _shown(name: str, value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if name == "default_timeout" and isinstance(value, int):
        return format_duration(value)
    return str(value)
