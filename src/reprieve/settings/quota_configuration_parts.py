"""The sections of Kueue's `Configuration`, one function each; see `quota_configuration`.

Every function adds what is wrong to `errors`, in the reference's words and with its path, and
returns what is usable, so that all mistakes are reported to the user at once.

Source: specification of the quota plane, section 1.6.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kubeworld.units.durations import (
    LONGEST,
    MINUTE,
    SECOND,
    DurationTooLong,
    InvalidDuration,
    parse_duration,
)
from kubeworld.units.quantities import InvalidQuantity, parse_exact
from reprieve.api import field_errors as wrong
from reprieve.engine.quota.assigning.request_rules import RequestRules, Transformation
from reprieve.engine.quota.holdings.usage_based import UsageBased
from reprieve.engine.quota.model import LabelSelector, NodeExpression, Strategy
from reprieve.engine.quota.waiting.requeuing import Backoff
from reprieve.jobs.table import BUILT_IN

__all__ = [
    "FRAMEWORKS",
    "Errors",
    "PodsReady",
    "admission_fair_sharing",
    "boolean",
    "fair_sharing",
    "frameworks",
    "namespace_selector",
    "ports",
    "request_rules",
    "retention",
    "section",
    "texts",
    "undeclared_is_ignored",
    "unknown_keys",
    "wait_for_pods_ready",
]

Errors = list[str]

NEGATIVE: Final = "must be greater than or equal to 0"
POSITIVE: Final = "must be greater than 0"
# Names of integrations, sorted as the reference lists them.
FRAMEWORKS: Final = tuple(sorted({kind.framework for kind in BUILT_IN}))
_BOTH: Final = (Strategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE, Strategy.LESS_THAN_INITIAL_SHARE)
_LISTS: Final = (_BOTH[:1], _BOTH[1:], _BOTH)


@dataclass(frozen=True, slots=True)
class PodsReady:
    """How long admitted workloads may need until their pods are ready, in seconds.

    `recovery_s` None waits forever for pods that were ready once.
    """

    timeout_s: float
    recovery_s: float | None
    block_admission: bool
    eviction_timestamp: bool = True
    backoff: Backoff = field(default_factory=Backoff)


def unknown_keys(given: Mapping[str, Any], known: Mapping[str, Any], path: str = "") -> list[str]:
    """Return the paths of keys that are none of the tree `known`, None having anything below."""
    found = []
    for key, value in given.items():
        here = f"{path}.{key}" if path else str(key)
        if key not in known:
            found.append(here)
            continue
        below = known[key]
        if below is None:
            continue
        items = [(here, value)]
        if isinstance(value, list):
            items = [(f"{here}[{index}]", each) for index, each in enumerate(value)]
        for where, each in items:
            if isinstance(each, Mapping):
                found += unknown_keys(each, below, where)
    return found


def section(given: Mapping[str, Any], key: str, errors: Errors, at: str = "") -> Mapping[str, Any]:
    """Return a mapping below `key`; absent is empty."""
    value = given.get(key)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        errors.append(wrong.invalid(f"{at}{key}", value, "must be an object"))
        return {}
    return value


def boolean(given: Mapping[str, Any], key: str, path: str, default: bool, errors: Errors) -> bool:
    """Return true or false."""
    value = given.get(key)
    if value is None:
        return default
    if not isinstance(value, bool):
        errors.append(wrong.invalid(path, value, "must be true or false"))
        return default
    return value


def texts(given: Mapping[str, Any], key: str, path: str, errors: Errors) -> tuple[str, ...]:
    """Return a list of texts; absent is empty."""
    value = given.get(key)
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        errors.append(wrong.invalid(path, value, "must be a list of texts"))
        return ()
    return tuple(value)


def ports(given: Mapping[str, Any], key: str, path: str, default: int, errors: Errors) -> int:
    """Return a port."""
    value = given.get(key)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 65_535:
        errors.append(wrong.invalid(path, value, "must be a valid port number (1-65535)"))
        return default
    return value


def fair_sharing(
    given: Mapping[str, Any], old: bool, errors: Errors
) -> tuple[Strategy, ...] | None:
    """Return the strategies in force; None is the classical algorithm."""
    if given.get("fairSharing") is None:
        return None
    sharing = section(given, "fairSharing", errors)
    path = "fairSharing.preemptionStrategies"
    if old and not boolean(sharing, "enable", "fairSharing.enable", False, errors):
        return None
    listed = texts(sharing, "preemptionStrategies", path, errors)
    if not listed:
        if not old:
            errors.append(wrong.required(path, "must be specified"))
        return _BOTH
    for accepted in _LISTS:
        if listed == tuple(each.value for each in accepted):
            return accepted
    supported = [",".join(each.value for each in accepted) for accepted in _LISTS]
    errors.append(wrong.unsupported(path, list(listed), supported))
    return _BOTH


def wait_for_pods_ready(
    given: Mapping[str, Any], old: bool, gates: Mapping[str, bool], errors: Errors
) -> PodsReady | None:
    """Return how pods are waited for, None not at all."""
    path = "waitForPodsReady"
    waiting = section(given, path, errors)
    if old:
        if not boolean(waiting, "enable", f"{path}.enable", False, errors):
            return None
    elif gates.get("DisableWaitForPodsReady", False):
        return None
    default = 5 * MINUTE if old else 30 * MINUTE
    timeout = _duration(waiting, "timeout", f"{path}.timeout", default, errors)
    recovery = _duration(waiting, "recoveryTimeout", f"{path}.recoveryTimeout", timeout, errors)
    at = f"{path}.requeuingStrategy"
    strategy = section(waiting, "requeuingStrategy", errors, f"{path}.")
    timestamp = strategy.get("timestamp", "Eviction")
    if timestamp not in ("Creation", "Eviction"):
        errors.append(wrong.unsupported(f"{at}.timestamp", timestamp, ("Creation", "Eviction")))
    limit = _count(strategy, "backoffLimitCount", at, None, errors)
    base = _count(strategy, "backoffBaseSeconds", at, 60, errors)
    most = _count(strategy, "backoffMaxSeconds", at, 3_600, errors)
    return PodsReady(
        timeout / SECOND,
        recovery / SECOND,
        boolean(waiting, "blockAdmission", f"{path}.blockAdmission", old, errors),
        timestamp == "Eviction",
        Backoff(60 if base is None else base, 3_600 if most is None else most, limit),
    )


def admission_fair_sharing(given: Mapping[str, Any], errors: Errors) -> UsageBased | None:
    """Return the rules of usage-based admission, None where they are not named."""
    if given.get("admissionFairSharing") is None:
        return None
    path = "admissionFairSharing"
    sharing = section(given, path, errors)
    half_life = _duration(sharing, "usageHalfLifeTime", f"{path}.usageHalfLifeTime", 0, errors)
    at = f"{path}.usageSamplingInterval"
    sampling = _duration(sharing, "usageSamplingInterval", at, 5 * MINUTE, errors, POSITIVE)
    weights = {}
    for name, weight in section(sharing, "resourceWeights", errors, f"{path}.").items():
        if isinstance(weight, bool) or not isinstance(weight, int | float) or weight < 0:
            errors.append(wrong.invalid(f"{path}.resourceWeights[{name}]", weight, NEGATIVE))
            continue
        weights[str(name)] = float(weight)
    return UsageBased(half_life / SECOND, sampling / SECOND, weights)


def frameworks(
    integrations: Mapping[str, Any], errors: Errors
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the integrations in force and the external kinds, `Kind.version.group`."""
    path = "integrations.frameworks"
    listed = texts(integrations, "frameworks", path, errors) or ("batch/job",)
    for index, name in enumerate(listed):
        if name not in FRAMEWORKS:
            errors.append(wrong.unsupported(f"{path}[{index}]", name, FRAMEWORKS))
        elif name in listed[:index]:
            errors.append(wrong.duplicate(f"{path}[{index}]", name))
    path = "integrations.externalFrameworks"
    external = texts(integrations, "externalFrameworks", path, errors)
    for index, name in enumerate(external):
        if len([part for part in name.split(".", 2) if part]) < 3:
            why = "must be format, 'Kind.version.group.com'"
            errors.append(wrong.invalid(f"{path}[{index}]", name, why))
        elif name in external[:index]:
            errors.append(wrong.duplicate(f"{path}[{index}]", name))
    return listed, external


def namespace_selector(given: object, namespace: str, errors: Errors) -> LabelSelector | None:
    """Return the selector of namespaces whose jobs are managed, None where it cannot be used."""
    path = "managedJobsNamespaceSelector"
    if not isinstance(given, Mapping):
        errors.append(wrong.invalid(path, given, "must be a label selector"))
        return None
    found = list(wrong.label_selector(given, path))
    errors += found
    if found:
        return None
    expressions = [
        NodeExpression(key, "In", (str(value),))
        for key, value in (given.get("matchLabels") or {}).items()
    ] + [
        NodeExpression(each["key"], each["operator"], tuple(each.get("values") or ()))
        for each in given.get("matchExpressions") or ()
    ]
    selector = LabelSelector(tuple(expressions))
    for name in ("kube-system", namespace):
        if selector.matches({"kubernetes.io/metadata.name": name}):
            why = f'should not match the "{name}" namespace'
            errors.append(wrong.invalid(path, given, why))
    return selector


def request_rules(resources: Mapping[str, Any], errors: Errors) -> RequestRules:
    """Return what requests become before they are counted."""
    path = "resources.transformations"
    found: dict[str, Transformation] = {}
    listed = resources.get("transformations") or []
    if not isinstance(listed, list):
        errors.append(wrong.invalid(path, listed, "must be a list"))
        listed = []
    for index, each in enumerate(listed):
        at = f"{path}[{index}]"
        if not isinstance(each, Mapping) or not isinstance(each.get("input"), str):
            errors.append(wrong.required(f"{at}.input"))
            continue
        strategy = each.get("strategy") or "Retain"
        if strategy not in ("Retain", "Replace"):
            errors.append(wrong.unsupported(f"{at}.strategy", strategy, ("Retain", "Replace")))
        if each["input"] in found:
            errors.append(wrong.duplicate(f"{at}.input", each["input"]))
        outputs = {}
        for name, factor in section(each, "outputs", errors, f"{at}.").items():
            try:
                outputs[str(name)] = parse_exact(factor)
            except InvalidQuantity as error:
                errors.append(wrong.invalid(f"{at}.outputs[{name}]", factor, str(error)))
        found[each["input"]] = Transformation(
            outputs, str(each.get("multiplyBy") or ""), strategy == "Retain"
        )
    path = "resources.excludeResourcePrefixes"
    return RequestRules(texts(resources, "excludeResourcePrefixes", path, errors), found)


def undeclared_is_ignored(
    resources: Mapping[str, Any], gates: Mapping[str, bool], errors: Errors
) -> bool:
    """Return whether resources without quota are ignored instead of blocking."""
    words = ("BlockUndeclared", "IgnoreUndeclared")
    strategy = resources.get("quotaCheckStrategy") or words[0]
    if strategy not in words:
        errors.append(wrong.unsupported("resources.quotaCheckStrategy", strategy, words))
    ignored = strategy == words[1] and gates.get("QuotaCheckStrategy", True)
    if ignored and resources.get("excludeResourcePrefixes"):
        why = "excludeResourcePrefixes is not allowed when quotaCheckStrategy is IgnoreUndeclared"
        path = "resources.excludeResourcePrefixes"
        errors.append(wrong.invalid(path, resources["excludeResourcePrefixes"], why))
    return bool(ignored)


def retention(given: Mapping[str, Any], errors: Errors) -> tuple[float | None, float | None]:
    """Return how long finished and deactivated Workloads are kept, in seconds; None is forever."""
    policies = section(given, "objectRetentionPolicies", errors)
    workloads = section(policies, "workloads", errors, "objectRetentionPolicies.")
    found: list[float | None] = []
    for name in ("afterFinished", "afterDeactivatedByKueue"):
        path = f"objectRetentionPolicies.workloads.{name}"
        kept = workloads.get(name) is not None
        found.append(_duration(workloads, name, path, 0, errors) / SECOND if kept else None)
    return found[0], found[1]


def _duration(
    given: Mapping[str, Any],
    key: str,
    path: str,
    default: int,
    errors: Errors,
    bound: str = NEGATIVE,
) -> int:
    """Return nanoseconds of a Go duration; `bound` states whether it may be zero."""
    value = given.get(key)
    if value is None:
        return default
    accepted = "must be a duration such as 30s or 5m"
    try:
        found = parse_duration(value) if isinstance(value, str) else None
    except DurationTooLong:
        found, accepted = None, f"must be a duration of {LONGEST} at most"
    except InvalidDuration:
        found = None
    if found is None:
        errors.append(wrong.invalid(path, value, accepted))
        return default
    if found < 0 or (not found and bound == POSITIVE):
        errors.append(wrong.invalid(path, value, bound))
        return default
    return found


def _count(
    given: Mapping[str, Any], key: str, at: str, default: int | None, errors: Errors
) -> int | None:
    value = given.get(key)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int):
        errors.append(wrong.invalid(f"{at}.{key}", value, "must be a whole number"))
        return default
    if value < 0:
        errors.append(wrong.invalid(f"{at}.{key}", value, NEGATIVE))
        return default
    return value
