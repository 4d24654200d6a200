"""Plugins of others, found among the installed packages.

A package offers them as entry points: `reprieve.pod_group_post_filters` names functions of the
type `PostFilter` for pod groups, `reprieve.post_filters` such for plain pods, and
`reprieve.placement_scorers` functions of the type `PlacementScorer`. A profile enables them by
name, the first in its own order, the last with weights. Source: specification of the scheduling
plane, sections 6 and 17.5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType
from typing import Final

from reprieve.engine.placement.filtering import PlacementScorer
from reprieve.engine.placement.profile import Policy
from reprieve.engine.scheduling.plugins import PostFilter
from reprieve.engine.scheduling.session import GROUP_POST_FILTERS
from reprieve.planes.common.victim_orders import function_of
from reprieve.settings.scheduler_plugins import known_plugins
from reprieve.units.errors import UsageError

__all__ = [
    "GROUP_ENTRY_POINTS",
    "POD_ENTRY_POINTS",
    "SCORER_ENTRY_POINTS",
    "Installed",
    "installed",
    "load",
    "load_scorers",
    "one_sided",
]

GROUP_ENTRY_POINTS: Final = "reprieve.pod_group_post_filters"
POD_ENTRY_POINTS: Final = "reprieve.post_filters"
SCORER_ENTRY_POINTS: Final = "reprieve.placement_scorers"
_POINTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        POD_ENTRY_POINTS: "postFilter",
        GROUP_ENTRY_POINTS: "podGroupPostFilter",
        SCORER_ENTRY_POINTS: "placementScore",
    }
)


@dataclass(frozen=True, slots=True)
class Installed:
    """What packages offer, not loaded yet. `points`: the extension points of each plugin."""

    groups: Mapping[str, EntryPoint] = field(default_factory=dict)
    points: Mapping[str, Sequence[str]] = field(default_factory=dict)
    scorers: Mapping[str, EntryPoint] = field(default_factory=dict)


def installed() -> Installed:
    """Return the plugins that the installed packages offer.

    Raises:
        UsageError: two packages offer the same name, or one offers the name of ours.
    """
    found: dict[str, dict[str, EntryPoint]] = {}
    points: dict[str, list[str]] = {}
    ours = known_plugins({})
    for group, point in _POINTS.items():
        named: dict[str, EntryPoint] = found.setdefault(group, {})
        for entry in entry_points(group=group):
            other = named.get(entry.name)
            if entry.name in ours:
                raise UsageError(f"entry point {group}: {entry.name} is a plugin of Reprieve's own")
            if other is not None and other.value != entry.value:
                raise UsageError(
                    f"entry point {group}: {entry.name} is both {other.value} and {entry.value}; "
                    "accepted: one"
                )
            named[entry.name] = entry
            if other is None:
                points.setdefault(entry.name, []).append(point)
    return Installed(found[GROUP_ENTRY_POINTS], points, found[SCORER_ENTRY_POINTS])


def load(offered: Installed, policy: Policy) -> Mapping[str, PostFilter]:
    """Return our own plugins and those of others that a profile enables.

    Raises:
        UsageError: a plugin cannot be imported, or is nothing that can be called.
    """
    plugins = dict(GROUP_POST_FILTERS)
    for name in _enabled(policy):
        entry = offered.groups.get(name)
        if entry is not None:
            plugins[name] = function_of(entry)
    return MappingProxyType(plugins)


def load_scorers(offered: Installed, policy: Policy) -> Mapping[str, PlacementScorer]:
    """Return the placement scorers of others that a profile enables.

    Raises:
        UsageError: a plugin cannot be imported, or is nothing that can be called.
    """
    named = [name for profile in policy.profiles for name, _ in profile.placement_scorers]
    return MappingProxyType(
        {
            name: function_of(offered.scorers[name])
            for name in dict.fromkeys(named)
            if name in offered.scorers
        }
    )


def one_sided(offered: Installed, policy: Policy) -> list[tuple[str, str]]:
    """Return (scheduler name, plugin) of each enabled plugin without PodGroupPostFilter.

    With groups switched off there is nothing to report.
    """
    if not policy.gates.generic_workload:
        return []
    known = known_plugins(offered.points)
    return [
        (profile.scheduler_name, name)
        for profile in policy.profiles
        for name in profile.post_filters
        if "podGroupPostFilter" not in known[name]
    ]


def _enabled(policy: Policy) -> list[str]:
    names = (name for profile in policy.profiles for name in profile.pod_group_post_filters)
    return list(dict.fromkeys(names))
