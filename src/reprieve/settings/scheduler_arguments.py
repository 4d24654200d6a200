"""`pluginConfig` of a scheduler profile: the arguments of plugins, one reader per kind.

Each reader returns the fields of `Profile` that its arguments set; what is left out keeps the
profile's default. Source: the public documentation of KubeSchedulerConfiguration v1; specification
of the scheduling plane, 17.2 and 21.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, TypeAlias

from reprieve.engine.cluster.rows import NodeTerm, Operator, Requirement, SpreadConstraint, Weighted
from reprieve.engine.placement.profile import ScoringStrategy, ScoringType
from reprieve.settings.fields import (
    boolean,
    choice,
    duration,
    entries,
    integer,
    mapping,
    refuse,
    text,
    texts,
)
from reprieve.settings.idle import Notice
from reprieve.units.errors import UsageError

__all__ = ["API_VERSION", "ARGUMENTS", "read_arguments"]

API_VERSION: Final = "kubescheduler.config.k8s.io/v1"

Values: TypeAlias = dict[str, Any]  # fields of Profile
Notices: TypeAlias = list[Notice]

_MOST: Final = 2**31 - 1


def read_arguments(
    value: object, where: str, known: Collection[str]
) -> tuple[Values, tuple[Notice, ...]]:
    """Return the fields of `Profile` that `pluginConfig` sets, and what is without effect.

    `known`: names of plugins.

    Raises:
        UsageError: an unknown plugin or field, one without arguments, one that is given twice, or a
            value that is not accepted.
    """
    values: Values = {}
    notices: Notices = []
    seen = set()
    for entry, path in entries(value, where):
        given = mapping(entry, path, ("name", "args"))
        name = text(given.get("name"), f"{path}.name", "the name of a plugin")
        if name not in known:
            raise UsageError(f"{path}.name: unknown plugin {name!r}; accepted: {_accepted()}")
        if name not in _READERS:
            raise UsageError(f"{path}.name: {name} has no arguments; accepted: {_accepted()}")
        if name in seen:
            raise UsageError(f"{path}.name: {name} is given twice; accepted: once")
        seen.add(name)
        keys, reader = _READERS[name]
        args = mapping(given.get("args"), f"{path}.args", ("apiVersion", "kind", *keys))
        for key, expected in (("apiVersion", API_VERSION), ("kind", f"{name}Args")):
            if args.get(key, expected) != expected:
                refuse(f"{path}.args.{key}", args[key], expected)
        values.update(reader(args, f"{path}.args", notices))
    return values, tuple(notices)


def _fit(args: Mapping[str, Any], where: str, notices: Notices) -> Values:
    values: Values = {}
    groups = texts(args.get("ignoredResourceGroups"), f"{where}.ignoredResourceGroups")
    for index, group in enumerate(groups):
        if "/" in group:
            refuse(f"{where}.ignoredResourceGroups[{index}]", group, "a group without /NAME")
    ignored = texts(args.get("ignoredResources"), f"{where}.ignoredResources")
    for index, resource in enumerate(ignored):
        if "/" not in resource or resource.partition("/")[0].endswith("kubernetes.io"):
            accepted = "an extended resource such as example.com/device"
            refuse(f"{where}.ignoredResources[{index}]", resource, accepted)
    values["ignored_resources"] = frozenset(ignored)
    values["ignored_resource_groups"] = frozenset(groups)
    if args.get("scoringStrategy") is not None:
        place = f"{where}.scoringStrategy"
        values["strategy"] = _strategy(args["scoringStrategy"], place, notices)
    return values


def _strategy(value: object, where: str, notices: Notices) -> ScoringStrategy:
    given = mapping(value, where, ("type", "resources", "requestedToCapacityRatio"))
    kind = ScoringType(
        choice(given.get("type", ScoringType.LEAST_ALLOCATED), f"{where}.type", [*ScoringType])
    )
    resources = _resources(given.get("resources"), f"{where}.resources", most=100)
    ratio = given.get("requestedToCapacityRatio")
    place = f"{where}.requestedToCapacityRatio"
    shape: tuple[tuple[int, int], ...] = ()
    if kind is ScoringType.REQUESTED_TO_CAPACITY_RATIO:
        shape = _shape(mapping(ratio, place, ("shape",)).get("shape"), f"{place}.shape")
    elif ratio is not None:
        notices.append(Notice(place, str(ratio), f"it is not read with type {kind}"))
    return ScoringStrategy(kind, resources or ScoringStrategy().resources, shape)


def _resources(value: object, where: str, most: int) -> tuple[tuple[str, int], ...]:
    found: list[tuple[str, int]] = []
    for entry, path in entries(value, where):
        given = mapping(entry, path, ("name", "weight"))
        name = text(given.get("name"), f"{path}.name", "the name of a resource")
        if name in dict(found):
            raise UsageError(f"{path}.name: {name} is given twice; accepted: once")
        weight = given.get("weight")
        if weight is None or (weight == 0 and not isinstance(weight, bool)):
            weight = 1  # as kube-scheduler's defaults have it
        found.append((name, integer(weight, f"{path}.weight", 1, most)))
    return tuple(found)


def _shape(value: object, where: str) -> tuple[tuple[int, int], ...]:
    points: list[tuple[int, int]] = []
    for entry, path in entries(value, where):
        given = mapping(entry, path, ("utilization", "score"))
        at = integer(given.get("utilization"), f"{path}.utilization", 0, 100)
        if points and at <= points[-1][0]:
            refuse(f"{path}.utilization", at, f"more than the point before, {points[-1][0]}")
        points.append((at, integer(given.get("score"), f"{path}.score", 0, 10)))
    if not points:
        refuse(where, value, "a list of at least one {utilization, score}")
    return tuple(points)


def _balanced(args: Mapping[str, Any], where: str, notices: Notices) -> Values:
    resources = _resources(args.get("resources"), f"{where}.resources", most=1)
    return {"balanced_resources": tuple(name for name, _ in resources)} if resources else {}


def _inter_pod_affinity(args: Mapping[str, Any], where: str, notices: Notices) -> Values:
    values: Values = {}
    if "hardPodAffinityWeight" in args:
        values["hard_pod_affinity_weight"] = integer(
            args["hardPodAffinityWeight"], f"{where}.hardPodAffinityWeight", 0, 100
        )
    key = "ignorePreferredTermsOfExistingPods"
    if key in args:
        values["ignore_preferred_terms_of_existing_pods"] = boolean(args[key], f"{where}.{key}")
    return values


def _spread(args: Mapping[str, Any], where: str, notices: Notices) -> Values:
    place = f"{where}.defaultConstraints"
    kind = choice(args.get("defaultingType", "System"), f"{where}.defaultingType", _DEFAULTING)
    constraints = tuple(
        _constraint(*each) for each in entries(args.get("defaultConstraints"), place)
    )
    if kind == "List":
        seen = set()
        for index, each in enumerate(constraints):
            if (each.topology_key, each.hard) in seen:
                raise UsageError(
                    f"{place}[{index}]: {each.topology_key} with the same whenUnsatisfiable is "
                    "given twice; accepted: once"
                )
            seen.add((each.topology_key, each.hard))
        return {"default_spread": constraints}
    if constraints:
        raise UsageError(f"{place}: accepted only with defaultingType: List")
    return {"default_spread": None}


_DEFAULTING: Final = ("System", "List")
_WHEN: Final = ("DoNotSchedule", "ScheduleAnyway")
_HONOR: Final = ("Honor", "Ignore")


def _constraint(entry: object, path: str) -> SpreadConstraint:
    given = mapping(
        entry,
        path,
        (
            "maxSkew",
            "topologyKey",
            "whenUnsatisfiable",
            "minDomains",
            "nodeAffinityPolicy",
            "nodeTaintsPolicy",
        ),
    )
    hard = choice(given.get("whenUnsatisfiable"), f"{path}.whenUnsatisfiable", _WHEN) == _WHEN[0]
    least = given.get("minDomains")
    if least is not None and not hard:
        refuse(f"{path}.minDomains", least, f"none with whenUnsatisfiable: {_WHEN[1]}")
    return SpreadConstraint(
        topology_key=text(given.get("topologyKey"), f"{path}.topologyKey", "a label of nodes"),
        max_skew=integer(given.get("maxSkew"), f"{path}.maxSkew", 1, _MOST),
        hard=hard,
        selector=None,
        min_domains=1 if least is None else integer(least, f"{path}.minDomains", 1, _MOST),
        honor_affinity=_policy(given.get("nodeAffinityPolicy"), f"{path}.nodeAffinityPolicy", True),
        honor_taints=_policy(given.get("nodeTaintsPolicy"), f"{path}.nodeTaintsPolicy", False),
    )


def _policy(value: object, where: str, default: bool) -> bool:
    return default if value is None else choice(value, where, _HONOR) == "Honor"


_REQUIRED_TERMS: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED_TERMS: Final = "preferredDuringSchedulingIgnoredDuringExecution"


def _node_affinity(args: Mapping[str, Any], where: str, notices: Notices) -> Values:
    place = f"{where}.addedAffinity"
    given = mapping(args.get("addedAffinity"), place, (_REQUIRED_TERMS, _PREFERRED_TERMS))
    values: Values = {}
    if given.get(_REQUIRED_TERMS) is not None:
        path = f"{place}.{_REQUIRED_TERMS}"
        terms = mapping(given[_REQUIRED_TERMS], path, ("nodeSelectorTerms",))
        found = entries(terms.get("nodeSelectorTerms"), f"{path}.nodeSelectorTerms")
        if not found:
            refuse(f"{path}.nodeSelectorTerms", terms.get("nodeSelectorTerms"), "at least one term")
        values["added_affinity"] = tuple(_term(*each) for each in found)
    preferred = []
    for entry, path in entries(given.get(_PREFERRED_TERMS), f"{place}.{_PREFERRED_TERMS}"):
        each = mapping(entry, path, ("weight", "preference"))
        weight = integer(each.get("weight"), f"{path}.weight", 1, 100)
        preferred.append(Weighted(weight, _term(each.get("preference"), f"{path}.preference")))
    values["added_preferred_affinity"] = tuple(preferred)
    return values


def _term(value: object, where: str) -> NodeTerm:
    given = mapping(value, where, ("matchExpressions", "matchFields"))
    expressions = entries(given.get("matchExpressions"), f"{where}.matchExpressions")
    fields = entries(given.get("matchFields"), f"{where}.matchFields")
    return NodeTerm(
        tuple(_requirement(*each) for each in expressions),
        tuple(_field(*each) for each in fields),
    )


def _field(value: object, where: str) -> Requirement:
    found = _requirement(value, where)
    if found.key != "metadata.name":
        refuse(f"{where}.key", found.key, "metadata.name")
    if found.operator not in (Operator.IN, Operator.NOT_IN):
        refuse(f"{where}.operator", str(found.operator), "In, NotIn")
    if len(found.values) != 1:
        refuse(f"{where}.values", list(found.values), "one name")
    return found


def _requirement(value: object, where: str) -> Requirement:
    given = mapping(value, where, ("key", "operator", "values"))
    key = text(given.get("key"), f"{where}.key", "a label of nodes")
    operator = Operator(choice(given.get("operator"), f"{where}.operator", [*Operator]))
    values = tuple(
        each if isinstance(each, str) else refuse(path, each, "text")
        for each, path in entries(given.get("values"), f"{where}.values")
    )
    place = f"{where}.values"
    if operator in (Operator.IN, Operator.NOT_IN) and not values:
        refuse(place, list(values), f"at least one with {operator}")
    if operator in (Operator.EXISTS, Operator.DOES_NOT_EXIST) and values:
        refuse(place, list(values), f"none with {operator}")
    if operator in (Operator.GT, Operator.LT):
        number = values[0].removeprefix("-") if len(values) == 1 else ""
        if not (number.isascii() and number.isdigit()):
            refuse(place, list(values), f"one integer with {operator}")
    return Requirement(key, operator, values)


def _preemption(args: Mapping[str, Any], where: str, notices: Notices) -> Values:
    values: Values = {}
    for key, field, most in (
        ("minCandidateNodesPercentage", "min_candidate_nodes_percentage", 100),
        ("minCandidateNodesAbsolute", "min_candidate_nodes_absolute", _MOST),
    ):
        if args.get(key) is not None:
            values[field] = integer(args[key], f"{where}.{key}", 0, most)
    if len(values) == 2 and not any(values.values()):
        raise UsageError(
            f"{where}: minCandidateNodesPercentage and minCandidateNodesAbsolute are both 0; "
            "accepted: at least one above 0"
        )
    return values


def _volume_binding(args: Mapping[str, Any], where: str, notices: Notices) -> Values:
    values: Values = {}
    if args.get("bindTimeoutSeconds") is not None:
        values["volume_bind_seconds"] = integer(
            args["bindTimeoutSeconds"], f"{where}.bindTimeoutSeconds", 0, _MOST
        )
    if args.get("shape") is not None:
        values["volume_shape"] = _shape(args["shape"], f"{where}.shape")
    return values


def _dynamic_resources(args: Mapping[str, Any], where: str, notices: Notices) -> Values:
    for key in ("filterTimeout", "bindingTimeout"):
        if args.get(key) is not None:
            duration(args[key], f"{where}.{key}")
            notices.append(
                Notice(
                    f"{where}.{key}",
                    str(args[key]),
                    "decisions here do not depend on their duration; there is no such limit",
                )
            )
    return {}


Reader: TypeAlias = Callable[[Mapping[str, Any], str, Notices], Values]

# A plugin's arguments: the keys, and who reads them. CoschedulingArgs have their place here.
_READERS: Final[Mapping[str, tuple[tuple[str, ...], Reader]]] = {
    "NodeResourcesFit": (("ignoredResources", "ignoredResourceGroups", "scoringStrategy"), _fit),
    "NodeResourcesBalancedAllocation": (("resources",), _balanced),
    "InterPodAffinity": (
        ("hardPodAffinityWeight", "ignorePreferredTermsOfExistingPods"),
        _inter_pod_affinity,
    ),
    "PodTopologySpread": (("defaultConstraints", "defaultingType"), _spread),
    "NodeAffinity": (("addedAffinity",), _node_affinity),
    "DefaultPreemption": (
        ("minCandidateNodesPercentage", "minCandidateNodesAbsolute"),
        _preemption,
    ),
    "VolumeBinding": (("bindTimeoutSeconds", "shape"), _volume_binding),
    "DynamicResources": (("filterTimeout", "bindingTimeout"), _dynamic_resources),
}

ARGUMENTS: Final = {name: keys for name, (keys, _) in _READERS.items()}
"""The fields of each plugin's arguments."""


def _accepted() -> str:
    return ", ".join(_READERS)
