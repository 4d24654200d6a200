"""`KubeSchedulerConfiguration` (kubescheduler.config.k8s.io/v1): profiles and queue settings.

    apiVersion: kubescheduler.config.k8s.io/v1
    kind: KubeSchedulerConfiguration
    percentageOfNodesToScore: 50          # left out: all nodes are examined
    podInitialBackoffSeconds: 1
    podMaxBackoffSeconds: 10              # 0: no backoff
    profiles:
      - schedulerName: default-scheduler
        plugins: {...}                    # scheduler_plugins
        pluginConfig: [...]               # scheduler_arguments

Without profiles there are two, for `default-scheduler` and `reprieve-scheduler`. What concerns the
process and not its decisions (leader election, client, profiling) is accepted and reported;
whatever else is not done here is refused by name. Source: the public documentation of the
configuration; specification of the scheduling plane, 17.1 and 22.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from reprieve.engine.placement.profile import Profile
from reprieve.settings.fields import boolean, entries, integer, mapping, read_yaml, refuse, text
from reprieve.settings.idle import Notice
from reprieve.settings.quota_configuration_process import PROCESS_KEYS
from reprieve.settings.scheduler_arguments import API_VERSION, read_arguments
from reprieve.settings.scheduler_plugins import known_plugins, read_plugins
from reprieve.units.errors import UsageError

__all__ = [
    "DEFAULT_PROFILES",
    "SchedulerConfiguration",
    "read_scheduler_configuration",
    "scheduler_configuration",
]

KIND: Final = "KubeSchedulerConfiguration"
DEFAULT_NAME: Final = "default-scheduler"
DEFAULT_PROFILES: Final = (Profile(), Profile(scheduler_name="reprieve-scheduler"))

_MOST: Final = 2**31 - 1
# What is accepted, and why it changes nothing.
_IGNORED: Final[Mapping[str, str]] = {
    "leaderElection": "the process has one lease for all that it does; see --lease-duration",
    "clientConnection": "the connection is that of the process; see --kubeconfig and --context",
    "parallelism": "decisions are made one after the other, by columns instead of threads",
    "enableProfiling": "there are no profiling handlers",
    "enableContentionProfiling": "there are no profiling handlers",
    "delayCacheUntilActive": "a process without the lease keeps its state up to date",
}
# The keys of those that are mappings.
_IGNORED_PARTS: Final[Mapping[str, tuple[str, ...]]] = {
    "leaderElection": PROCESS_KEYS["leaderElection"],
    "clientConnection": ("kubeconfig", "acceptContentTypes", "contentType", "qps", "burst"),
}
_KEYS: Final = (
    "apiVersion",
    "kind",
    "percentageOfNodesToScore",
    "podInitialBackoffSeconds",
    "podMaxBackoffSeconds",
    "profiles",
    "extenders",
    *_IGNORED,
)


@dataclass(frozen=True, slots=True)
class SchedulerConfiguration:
    """Settings of the scheduler. Seconds; a longest backoff of 0 means none at all."""

    profiles: tuple[Profile, ...] = DEFAULT_PROFILES
    initial_backoff_seconds: int = 1
    max_backoff_seconds: int = 10
    notices: tuple[Notice, ...] = ()


def read_scheduler_configuration(
    content: str, where: str, extra: Mapping[str, Collection[str]] | None = None
) -> SchedulerConfiguration:
    """Return what the text of a file states; `extra` as in `scheduler_configuration`.

    Raises:
        UsageError: what is wrong, where, and what is accepted.
    """
    return scheduler_configuration(read_yaml(content, where), f"{where}: ", extra)


def scheduler_configuration(
    document: object, where: str, extra: Mapping[str, Collection[str]] | None = None
) -> SchedulerConfiguration:
    """Return the settings of a decoded document.

    `where`: what stands before each path. `extra`: installed plugins by name, with the points
    (postFilter, podGroupPostFilter) that they have.

    Raises:
        UsageError: what is wrong, where, and what is accepted.
    """
    given = mapping(document, where.rstrip(": ."), _KEYS)
    for key, expected in (("apiVersion", API_VERSION), ("kind", KIND)):
        if given.get(key) != expected:
            refuse(f"{where}{key}", given.get(key), expected)
    if entries(given.get("extenders"), f"{where}extenders"):
        raise UsageError(
            f"{where}extenders: HTTP extenders are not supported; accepted: an empty list"
        )
    notices = [
        Notice(f"{where}{key}", str(given[key]), why)
        for key, why in _IGNORED.items()
        if given.get(key) is not None
    ]
    _check_ignored(given, where)
    percentage = _percentage(given, where)
    initial = _seconds(given, "podInitialBackoffSeconds", where, 1, 1)
    longest = _seconds(given, "podMaxBackoffSeconds", where, 10, 0)
    if 0 < longest < initial:
        refuse(
            f"{where}podMaxBackoffSeconds",
            longest,
            f"0, or at least podInitialBackoffSeconds, {initial}",
        )
    profiles: list[Profile] = []
    listed = entries(given.get("profiles"), f"{where}profiles")
    for entry, path in listed:
        profile, more = _profile(entry, path, percentage, extra or {}, alone=len(listed) == 1)
        if any(profile.scheduler_name == each.scheduler_name for each in profiles):
            raise UsageError(
                f"{path}.schedulerName: {profile.scheduler_name!r} is given twice; accepted: once"
            )
        profiles.append(profile)
        notices.extend(more)
    return SchedulerConfiguration(
        profiles=tuple(profiles) or _defaults(percentage),
        initial_backoff_seconds=initial,
        max_backoff_seconds=longest,
        notices=tuple(notices),
    )


def _check_ignored(given: Mapping[str, Any], where: str) -> None:
    """Refuse what even kube-scheduler could not read."""
    for key in _IGNORED:
        value, place = given.get(key), f"{where}{key}"
        if value is None:
            continue
        if key == "parallelism":
            integer(value, place, 1, _MOST)
        elif key in _IGNORED_PARTS:
            mapping(value, place, _IGNORED_PARTS[key])
        else:
            boolean(value, place)


def _profile(
    entry: object,
    where: str,
    percentage: int | None,
    extra: Mapping[str, Collection[str]],
    *,
    alone: bool,
) -> tuple[Profile, tuple[Notice, ...]]:
    given = mapping(
        entry, where, ("schedulerName", "percentageOfNodesToScore", "plugins", "pluginConfig")
    )
    name = given.get("schedulerName")
    if name is None and alone:
        name = DEFAULT_NAME
    own = _percentage(given, f"{where}.")
    plugins, reported = read_plugins(given.get("plugins"), f"{where}.plugins", extra)
    values, also = read_arguments(
        given.get("pluginConfig"), f"{where}.pluginConfig", known_plugins(extra)
    )
    profile = Profile(
        scheduler_name=text(name, f"{where}.schedulerName", "the name that pods give"),
        filters=plugins.filters,
        weights=plugins.weights,
        placement_weights=plugins.placement_weights,
        post_filters=plugins.post_filters,
        pod_group_post_filters=plugins.pod_group_post_filters,
        placement_scorers=plugins.placement_scorers,
        percentage_of_nodes=percentage if own is None else own,
        **values,
    )
    return profile, (*reported, *also)


def _defaults(percentage: int | None) -> tuple[Profile, ...]:
    return tuple(
        Profile(scheduler_name=each.scheduler_name, percentage_of_nodes=percentage)
        for each in DEFAULT_PROFILES
    )


def _percentage(given: Mapping[str, Any], where: str) -> int | None:
    value = given.get("percentageOfNodesToScore")
    if value is None:
        return None
    return integer(value, f"{where}percentageOfNodesToScore", 0, 100)


def _seconds(given: Mapping[str, Any], key: str, where: str, default: int, least: int) -> int:
    value = given.get(key)
    return default if value is None else integer(value, f"{where}{key}", least, _MOST)
