"""The five settings of the idle plane and the tiers that they come from.

Order: workload annotation > namespace annotation > KaiwoConfig > GPU_PREEMPTION_* variables >
`--config` file > fallback; the first non-empty value wins. The two annotation tiers are written
into the GpuWorkload's spec (`derive`, `follow`), where hand-made edits stay; the others are
resolved each time (`resolve`). A value that is not accepted is named in a `Rejected` and never
hides a good value of a lower tier; with the literal switch `annotationsReadOnce` a bad annotation
of the root hides the namespace's, as in the reference.

Source: the guide's "Configuration Hierarchy"; specification of the idle plane, sections 3 to 5 and
difference D4. Durations are nanoseconds, thresholds percent.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

from kubeworld.units.durations import format_duration, parse_duration
from kubeworld.units.untrusted import Unreadable, read_json
from reprieve.api.kaiwo import ANNOTATION_PREFIX, DERIVED_ANNOTATION, SUFFIXES, GpuWorkloadSpec
from reprieve.engine.idle.literal import LiteralSwitches
from reprieve.engine.idle.model import Aggregation, PreemptionPolicy, Settings
from reprieve.settings.idle_values import (
    NotAccepted,
    read_aggregation,
    read_duration,
    read_policy,
    read_threshold,
)

__all__ = [
    "FALLBACK",
    "Derived",
    "Notice",
    "Overrides",
    "Rejected",
    "Tier",
    "derive",
    "environment_tier",
    "follow",
    "in_force",
    "kaiwo_config_tier",
    "overridden",
    "overrides_of",
    "read_derived",
    "resolve",
    "spec_tier",
    "spec_tier_of",
    "tier_of",
    "tracked",
    "with_overrides",
    "write_derived",
]

FALLBACK: Final = Settings(
    threshold=5.0,
    grace_period=parse_duration("10m"),
    policy=PreemptionPolicy.ON_PRESSURE,
    aggregation=Aggregation.MAX,
    ttl=parse_duration("24h"),
)


@dataclass(frozen=True, slots=True)
class Overrides:
    """Values of one tier; None is unset."""

    threshold: float | None = None
    grace_period: int | None = None
    policy: PreemptionPolicy | None = None
    aggregation: Aggregation | None = None
    ttl: int | None = None


@dataclass(frozen=True, slots=True)
class Rejected:
    """A value that is not accepted. `where`: as the user calls the place, `setting`: its field."""

    where: str
    setting: str
    value: str
    accepted: str


@dataclass(frozen=True, slots=True)
class Notice:
    """A value that is accepted and does not do what its author may expect."""

    where: str
    value: str
    text: str


@dataclass(frozen=True, slots=True)
class Tier:
    """The usable values of one place and what is wrong with the others."""

    name: str
    overrides: Overrides = field(default_factory=Overrides)
    rejected: tuple[Rejected, ...] = ()


@dataclass(frozen=True, slots=True)
class Derived:
    """What the annotations of root and namespace state."""

    tracked: bool
    overrides: Overrides = field(default_factory=Overrides)
    rejected: tuple[Rejected, ...] = ()
    notices: tuple[Notice, ...] = ()


def tracked(*annotations: Mapping[str, str] | None) -> bool:
    """Return whether any key with the prefix opts in; the value does not matter."""
    return any(key.startswith(ANNOTATION_PREFIX) for each in annotations for key in each or ())


def derive(
    root: Mapping[str, str] | None,
    namespace: Mapping[str, str] | None,
    literal: LiteralSwitches,
    root_name: str = "the root owner",
    namespace_name: str = "the namespace",
) -> Derived:
    """Return the two annotation tiers as one, with what is wrong in them.

    `root_name`, `namespace_name`: how messages call the two objects, such as `Job/training`.
    """
    root, namespace = root or {}, namespace or {}
    if not tracked(root, namespace):
        return Derived(tracked=False)
    if literal.annotations_read_once:
        merged = {**namespace, **{key: value for key, value in root.items() if value}}
        tier = _annotation_tier(merged, root_name)
        return Derived(True, tier.overrides, tier.rejected, _notices(merged, root_name))
    upper = _annotation_tier(root, root_name)
    lower = _annotation_tier(namespace, namespace_name)
    return Derived(
        True,
        _over(upper.overrides, lower.overrides),
        (*upper.rejected, *lower.rejected),
        (*_notices(root, root_name), *_notices(namespace, namespace_name)),
    )


def resolve(overrides: Overrides, tiers: Iterable[Tier]) -> Settings:
    """Return the settings in force: the spec's overrides, the tiers in order, then FALLBACK."""
    for tier in tiers:
        overrides = _over(overrides, tier.overrides)
    return Settings(
        **{
            each.name: _or(getattr(overrides, each.name), getattr(FALLBACK, each.name))
            for each in fields(Settings)
        }
    )


def in_force(settings: Settings | Overrides, setting: str) -> str:
    """Return the value in force for a `Rejected.setting`, as a user would write it."""
    value = getattr(settings, setting)
    if setting in ("grace_period", "ttl"):
        return format_duration(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def kaiwo_config_tier(gpu_preemption: Mapping[str, Any] | None) -> Tier:
    """Return the tier of `KaiwoConfig.spec.gpuPreemption`; a bad field costs only itself."""
    return tier_of(gpu_preemption or {}, "KaiwoConfig", "KaiwoConfig/kaiwo spec.gpuPreemption.")


def environment_tier(environ: Mapping[str, str]) -> Tier:
    """Return the tier of the GPU_PREEMPTION_DEFAULT_* variables."""
    return _read("environment", _VARIABLES, environ, "variable ")


def tier_of(values: Mapping[str, Any], name: str, where: str) -> Tier:
    """Return the tier of a mapping with keys `defaultThreshold` to `defaultTTL`."""
    return _read(name, _CONFIG_FIELDS, values, where)


def follow(spec: Overrides, base: Overrides | None, derived: Overrides) -> Overrides:
    """Return the overrides for a spec whose annotations now state `derived`.

    `base`: what they stated when the spec was last written (`read_derived`), None when that is not
    known. A set field that differs from its base was edited by hand and stays; the others follow:
    to remove such a field is to hand it back to the annotations. With no base, set fields count as
    made by hand and unset ones follow.
    """
    base = base or Overrides()
    return Overrides(
        **{
            each.name: (
                getattr(derived, each.name)
                if getattr(spec, each.name) in (None, getattr(base, each.name))
                else getattr(spec, each.name)
            )
            for each in fields(Overrides)
        }
    )


def overrides_of(spec: GpuWorkloadSpec) -> Overrides:
    """Return the overrides in a GpuWorkload's spec; what is not accepted counts as unset."""
    return spec_tier(spec).overrides


def spec_tier(spec: GpuWorkloadSpec) -> Tier:
    """Return the tier of a GpuWorkload's spec, which the annotations or a user's hand wrote."""
    return spec_tier_of(
        {
            "utilizationThreshold": spec.utilization_threshold,
            "gracePeriod": spec.grace_period,
            "preemptionPolicy": spec.preemption_policy,
            "aggregationPolicy": spec.aggregation_policy,
            "ttlAfterFinished": spec.ttl_after_finished,
        }
    )


def spec_tier_of(values: Mapping[str, Any]) -> Tier:
    """Return the tier of the fields of a GpuWorkload's spec."""
    return _read("spec", _SPEC_FIELDS, values, "spec.")


def overridden(edited: Overrides, derived: Overrides) -> tuple[Notice, ...]:
    """Return the annotations whose value a field that was edited by hand overrides.

    `edited`: what the spec states, `derived`: what the annotations do.
    """
    return tuple(
        Notice(
            key,
            in_force(derived, setting),
            f"overridden by spec.{_SPEC_FIELDS[setting]}, which was edited by hand; in force: "
            f"{in_force(edited, setting)}; remove that field to follow the annotation again",
        )
        for setting, key in _ANNOTATIONS.items()
        if None not in (getattr(edited, setting), getattr(derived, setting))
        and getattr(edited, setting) != getattr(derived, setting)
    )


def with_overrides(spec: GpuWorkloadSpec, overrides: Overrides) -> GpuWorkloadSpec:
    """Return the spec with these overrides, durations in the long form of `time.Duration`.

    A field whose value stays the same keeps its text.
    """
    known = overrides_of(spec)
    return GpuWorkloadSpec(
        workload_ref=spec.workload_ref,
        gpu_resources=spec.gpu_resources,
        utilization_threshold=overrides.threshold,
        grace_period=(
            spec.grace_period
            if overrides.grace_period is not None and overrides.grace_period == known.grace_period
            else _go(overrides.grace_period)
        ),
        preemption_policy=_word(overrides.policy),
        aggregation_policy=_word(overrides.aggregation),
        ttl_after_finished=(
            spec.ttl_after_finished
            if overrides.ttl is not None and overrides.ttl == known.ttl
            else _go(overrides.ttl)
        ),
    )


def write_derived(derived: Overrides) -> str:
    """Return the value of the annotation `reprieve.dev/derived`: compact JSON, unset left out."""
    values = {
        "utilizationThreshold": derived.threshold,
        "gracePeriod": _go(derived.grace_period),
        "preemptionPolicy": _word(derived.policy),
        "aggregationPolicy": _word(derived.aggregation),
        "ttlAfterFinished": _go(derived.ttl),
    }
    kept = {key: value for key, value in values.items() if value is not None}
    return json.dumps(kept, separators=(",", ":"))


def read_derived(annotations: Mapping[str, str] | None) -> Overrides | None:
    """Return what `write_derived` wrote; None when it is missing or was spoilt."""
    text = (annotations or {}).get(DERIVED_ANNOTATION)
    if text is None:
        return None
    try:
        values = read_json(text)
    except Unreadable:
        return None
    if not isinstance(values, dict):
        return None
    return _read("derived", _SPEC_FIELDS, values, DERIVED_ANNOTATION).overrides


#: What each setting accepts, in whichever tier it stands.
_ACCEPTED: Final[Mapping[str, Callable[[object], Any]]] = {
    "threshold": read_threshold,
    "grace_period": read_duration,
    "policy": read_policy,
    "aggregation": read_aggregation,
    "ttl": read_duration,
}

#: By setting, its key in one kind of tier.
_Keys = Mapping[str, str]

_ANNOTATIONS: Final[_Keys] = {
    each: f"{ANNOTATION_PREFIX}{each.replace('_', '-')}" for each in _ACCEPTED
}
_SPEC_FIELDS: Final[_Keys] = {
    "threshold": "utilizationThreshold",
    "grace_period": "gracePeriod",
    "policy": "preemptionPolicy",
    "aggregation": "aggregationPolicy",
    "ttl": "ttlAfterFinished",
}
_CONFIG_FIELDS: Final[_Keys] = {
    "threshold": "defaultThreshold",
    "grace_period": "defaultGracePeriod",
    "policy": "defaultPolicy",
    "aggregation": "defaultAggregation",
    "ttl": "defaultTTL",
}
_VARIABLES: Final[_Keys] = {each: f"GPU_PREEMPTION_DEFAULT_{each.upper()}" for each in _ACCEPTED}


def _read(name: str, keys: _Keys, values: Mapping[str, Any], where: str) -> Tier:
    found: dict[str, Any] = {}
    rejected = []
    for setting, reader in _ACCEPTED.items():
        key = keys[setting]
        value = values.get(key)
        if value is None or value == "":
            continue
        try:
            found[setting] = reader(value)
        except NotAccepted as error:
            rejected.append(Rejected(f"{where}{key}", setting, _as_written(value), str(error)))
    return Tier(name, Overrides(**found), tuple(rejected))


def _as_written(value: object) -> str:
    """Return a value as its author wrote it: 150, where it was read as the number 150.0."""
    whole = isinstance(value, float) and value.is_integer()
    return f"{value:.0f}" if whole else str(value)


def _annotation_tier(annotations: Mapping[str, str], owner: str) -> Tier:
    tier = _read(owner, _ANNOTATIONS, annotations, "")
    named = tuple(replace(r, where=f"annotation {r.where} of {owner}") for r in tier.rejected)
    return replace(tier, rejected=named)


def _notices(annotations: Mapping[str, str], owner: str) -> tuple[Notice, ...]:
    notices = []
    enabled = annotations.get(f"{ANNOTATION_PREFIX}enabled")
    if enabled not in (None, "true"):
        notices.append(
            Notice(
                f"annotation {ANNOTATION_PREFIX}enabled of {owner}",
                enabled or "",
                "the workload is tracked all the same: any annotation with this prefix opts in, "
                "and there is no value that opts out; remove the annotations to stop tracking",
            )
        )
    known = {f"{ANNOTATION_PREFIX}{suffix}" for suffix in SUFFIXES}
    notices.extend(
        Notice(
            f"annotation {key} of {owner}",
            annotations[key],
            f"it sets nothing (but opts in); known endings: {', '.join(SUFFIXES)}",
        )
        for key in sorted(annotations)
        if key.startswith(ANNOTATION_PREFIX) and key not in known
    )
    return tuple(notices)


def _over(upper: Overrides, lower: Overrides) -> Overrides:
    return Overrides(
        **{
            each.name: _or(getattr(upper, each.name), getattr(lower, each.name))
            for each in fields(Overrides)
        }
    )


def _or(value: Any, otherwise: Any) -> Any:
    return otherwise if value is None else value


def _go(duration: int | None) -> str | None:
    return None if duration is None else format_duration(duration)


def _word(value: PreemptionPolicy | Aggregation | None) -> str | None:
    return None if value is None else str(value)
