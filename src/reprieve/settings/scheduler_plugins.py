"""`plugins` of a scheduler profile: which plugin runs at which extension point, in what order.

The defaults are enabled at `multiPoint`, which stands for every point that a plugin has; what a
point itself enables or disables comes before that, and `*` disables all defaults. The order at a
point: plugins that the point names and multiPoint has too, the rest of multiPoint, the rest of the
point. A score plugin's weight is the point's, else multiPoint's; none or 0 counts as 1. Source: the
public documentation of KubeSchedulerConfiguration v1; specification of the scheduling plane, 17.1.

What works in parts in kube-scheduler only by accident is refused here: a filter without its
preFilter, or binding without the filter that it completes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from reprieve.engine.placement.profile import (
    DEFAULT_WEIGHTS,
    FilterName,
    PlacementScoreName,
    ScoreName,
)
from reprieve.settings.fields import entries, integer, mapping, text
from reprieve.settings.idle import Notice
from reprieve.units.errors import UsageError

__all__ = ["POINTS", "Plugins", "known_plugins", "read_plugins"]

N = TypeVar("N", ScoreName, PlacementScoreName)

MULTI_POINT: Final = "multiPoint"
POINTS: Final = (
    "preEnqueue",
    "queueSort",
    "preFilter",
    "filter",
    "postFilter",
    "podGroupPostFilter",
    "preScore",
    "score",
    "placementGenerate",
    "placementScore",
    "reserve",
    "permit",
    "preBind",
    "bind",
    "postBind",
)
_MOST_WEIGHT: Final = 2**31 - 1
_INSTALLED: Final = ("postFilter", "podGroupPostFilter", "placementScore")
_SCORED: Final = ("score", "placementScore", MULTI_POINT)

# Every plugin in the order of the defaults, and the points that it has.
_PLUGINS: Final[Mapping[str, tuple[str, ...]]] = {
    "SchedulingGates": ("preEnqueue",),
    "PrioritySort": ("queueSort",),
    "NodeName": ("preFilter", "filter"),
    "NodeUnschedulable": ("filter",),
    "TaintToleration": ("filter", "preScore", "score"),
    "NodeAffinity": ("preFilter", "filter", "preScore", "score"),
    "NodePorts": ("preFilter", "filter"),
    "NodeResourcesFit": ("preFilter", "filter", "preScore", "score", "placementScore"),
    "VolumeRestrictions": ("preFilter", "filter"),
    "NodeVolumeLimits": ("preFilter", "filter"),
    "VolumeBinding": ("preFilter", "filter", "preScore", "score", "reserve", "preBind"),
    "VolumeZone": ("preFilter", "filter"),
    "PodTopologySpread": ("preFilter", "filter", "preScore", "score"),
    "InterPodAffinity": ("preFilter", "filter", "preScore", "score"),
    "DynamicResources": (
        "preEnqueue",
        "preFilter",
        "filter",
        "postFilter",
        "podGroupPostFilter",
        "preScore",
        "score",
        "reserve",
        "preBind",
    ),
    "DefaultPreemption": ("preEnqueue", "postFilter", "podGroupPostFilter"),
    "NodeResourcesBalancedAllocation": ("preScore", "score"),
    "ImageLocality": ("score",),
    "NodeDeclaredFeatures": ("preFilter", "filter"),
    "GangScheduling": ("preEnqueue", "reserve", "permit"),
    "TopologyPlacementGenerator": ("placementGenerate",),
    "PodGroupPodsCount": ("placementScore",),
    "DefaultBinder": ("bind",),
}
# What no profile can do without, and what to use instead where there is something.
_REQUIRED: Final[Mapping[str, str]] = {
    "SchedulingGates": "",
    "PrioritySort": "",
    "GangScheduling": "; the feature gate GenericWorkload=false switches groups off",
    "TopologyPlacementGenerator": (
        "; the feature gate TopologyAwareWorkloadScheduling=false switches placements off"
    ),
    "DefaultBinder": "",
}
# Points that a plugin has all of or none of.
_TOGETHER: Final = ("preFilter", "filter", "reserve", "preBind")


@dataclass(frozen=True, slots=True)
class Plugins:
    """The plugins of one profile, as far as a profile may choose."""

    filters: tuple[FilterName, ...]
    weights: tuple[tuple[ScoreName, int], ...]
    placement_weights: tuple[tuple[PlacementScoreName, int], ...]
    post_filters: tuple[str, ...]
    pod_group_post_filters: tuple[str, ...]
    placement_scorers: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class _Set:
    """What one point requests: plugins with weights (0 where none is given), and names."""

    enabled: tuple[tuple[str, int], ...] = ()
    disabled: frozenset[str] = frozenset()


def known_plugins(extra: Mapping[str, Collection[str]]) -> dict[str, tuple[str, ...]]:
    """Return all plugins with their points. `extra`: installed ones, see `read_plugins`."""
    found = {
        name: tuple(point for point in _INSTALLED if point in points)
        for name, points in extra.items()
    }
    return {**_PLUGINS, **{name: at for name, at in found.items() if name not in _PLUGINS}}


def read_plugins(
    value: object, where: str, extra: Mapping[str, Collection[str]]
) -> tuple[Plugins, tuple[Notice, ...]]:
    """Return a profile's plugins and what does not do as its author may expect.

    `extra`: installed plugins by name, with those points of postFilter, podGroupPostFilter
    and placementScore that they have; none of them is enabled unless it is named.

    Raises:
        UsageError: an unknown point, plugin or key, a plugin at a point that it has not, one that
            is named twice, required ones that are missing, and parts without each other.
    """
    known = known_plugins(extra)
    sets, notices = _read_sets(value, where, known)
    multi = _merged_defaults(sets[MULTI_POINT])
    at = {point: _at_point(point, sets[point], multi, known) for point in POINTS}
    _check_required(at, where)
    for name in known:
        _check_parts(name, known[name], at, where)
    order = tuple(FilterName(name) for name, _ in at["filter"])
    filters = tuple(name for name in FilterName if name in order)
    if order != filters:
        notices.append(
            Notice(
                f"{where}.filter",
                ", ".join(order),
                "filters always look at a node in the order of the default profile",
            )
        )
    plugins = Plugins(
        filters=filters,
        weights=_weights(ScoreName, at["score"]),
        placement_weights=_weights(PlacementScoreName, at["placementScore"]),
        post_filters=tuple(name for name, _ in at["postFilter"]),
        pod_group_post_filters=tuple(name for name, _ in at["podGroupPostFilter"]),
        placement_scorers=tuple(
            (name, weight or 1) for name, weight in at["placementScore"] if name not in _PLUGINS
        ),
    )
    return plugins, tuple(notices)


def _weights(names: type[N], enabled: tuple[tuple[str, int], ...]) -> tuple[tuple[N, int], ...]:
    """Return the weights in the order of the names, which is no matter: totals are sums."""
    found = dict(enabled)
    return tuple((name, found[name] or 1) for name in names if name in found)


def _read_sets(
    value: object, where: str, known: Mapping[str, tuple[str, ...]]
) -> tuple[dict[str, _Set], list[Notice]]:
    points = mapping(value, where, (*POINTS, MULTI_POINT))
    notices: list[Notice] = []
    sets = {}
    for point in (*POINTS, MULTI_POINT):
        place = f"{where}.{point}"
        given = mapping(points.get(point), place, ("enabled", "disabled"))
        enabled: dict[str, int] = {}
        for entry, path in entries(given.get("enabled"), f"{place}.enabled"):
            name, weight = _plugin(entry, path, point, known)
            if name in enabled:
                raise UsageError(f"{path}: {name} is given twice; accepted: once")
            if weight and point not in _SCORED:
                notices.append(
                    Notice(f"{path}.weight", str(weight), f"plugins at {point} have no weight")
                )
            enabled[name] = weight
        disabled = set()
        for entry, path in entries(given.get("disabled"), f"{place}.disabled"):
            name = text(mapping(entry, path, ("name", "weight")).get("name"), f"{path}.name")
            if name != "*":
                _check_known(name, f"{path}.name", known)
            disabled.add(name)
        sets[point] = _Set(tuple(enabled.items()), frozenset(disabled))
    return sets, notices


def _plugin(
    entry: object, path: str, point: str, known: Mapping[str, tuple[str, ...]]
) -> tuple[str, int]:
    given = mapping(entry, path, ("name", "weight"))
    name = text(given.get("name"), f"{path}.name", "the name of a plugin")
    _check_known(name, f"{path}.name", known)
    if point != MULTI_POINT and point not in known[name]:
        raise UsageError(
            f"{path}.name: {name} has no {point}; accepted there: "
            f"{', '.join(each for each, points in known.items() if point in points) or 'nothing'}"
        )
    weight = given.get("weight")
    return name, 0 if weight is None else integer(weight, f"{path}.weight", 0, _MOST_WEIGHT)


def _check_known(name: str, where: str, known: Mapping[str, tuple[str, ...]]) -> None:
    if name not in known:
        raise UsageError(f"{where}: unknown plugin {name!r}; accepted: {', '.join(known)}")


def _merged_defaults(custom: _Set) -> tuple[tuple[str, int], ...]:
    """Return multiPoint: the defaults that stay, in their order, then what is added."""
    given = dict(custom.enabled)
    weights: Mapping[str, int] = {str(name): weight for name, weight in DEFAULT_WEIGHTS}
    kept = {
        name: given.get(name, weights.get(name, 0))
        for name in _PLUGINS
        if "*" not in custom.disabled and name not in custom.disabled
    }
    return tuple({**kept, **{n: w for n, w in given.items() if n not in kept}}.items())


def _at_point(
    point: str,
    own: _Set,
    multi: tuple[tuple[str, int], ...],
    known: Mapping[str, tuple[str, ...]],
) -> tuple[tuple[str, int], ...]:
    if "*" in own.disabled:
        return own.enabled
    named = dict(own.enabled)
    there = {name: weight for name, weight in multi if point in known[name]}
    first = [(name, weight) for name, weight in own.enabled if name in there]
    rest = [
        (name, weight)
        for name, weight in there.items()
        if name not in named and name not in own.disabled
    ]
    last = [(name, weight) for name, weight in own.enabled if name not in there]
    return (*first, *rest, *last)


def _check_required(at: Mapping[str, tuple[tuple[str, int], ...]], where: str) -> None:
    for name, instead in _REQUIRED.items():
        for point in _PLUGINS[name]:
            if name not in dict(at[point]):
                raise UsageError(
                    f"{where}.{point}: {name} is disabled, without which no pod is scheduled here; "
                    f"accepted: {name} enabled{instead}"
                )


def _check_parts(
    name: str,
    points: tuple[str, ...],
    at: Mapping[str, tuple[tuple[str, int], ...]],
    where: str,
) -> None:
    on = {point for point in points if name in dict(at[point])}
    together = [point for point in points if point in _TOGETHER]
    if "filter" in points and on.intersection(together) not in (set(), set(together)):
        off = ", ".join(point for point in together if point not in on)
        raise UsageError(
            f"{where}: {name} is disabled at {off} only; accepted: {', '.join(together)} all "
            "enabled or all disabled"
        )
    if "score" in on and "preScore" in points and "preScore" not in on:
        raise UsageError(
            f"{where}.preScore: {name} is disabled, which its score needs; accepted: {name} "
            "enabled, or disabled at score too"
        )
    needs_enqueue = on.intersection(("filter", "postFilter", "podGroupPostFilter"))
    if needs_enqueue and "preEnqueue" in points and "preEnqueue" not in on:
        raise UsageError(
            f"{where}.preEnqueue: {name} is disabled, which its "
            f"{', '.join(sorted(needs_enqueue))} needs; accepted: {name} enabled, or disabled "
            "there too"
        )
