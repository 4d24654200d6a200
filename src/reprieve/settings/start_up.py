"""Settings read once, at the operator's start: `gpuPreemption` of the file, and the variables.

    gpuPreemption:
      enabled: true
      metricsEndpoint: "http://exporter.gpu:5000/metrics"
      pollingInterval: "15s"
      defaultThreshold: "5"            # and the other four defaults: the last tier but one
      fit: Node                        # or Sum
      irreducible: false
      queuedDemandSum: false
      profile: compatible              # best: the fewest devices, with irreducible
      vendors: [amd]
      literal: {podlessIdleStays: true}

A variable beats the file. The plane runs if and only if `enabled` is exactly `true`. Source: the
guide's "Environment Variables"; specification of the idle plane, section 5 and difference D6.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from kubeworld.units.durations import DurationTooLong, InvalidDuration, parse_duration
from reprieve.engine.idle.literal import SWITCHES, LiteralSwitches
from reprieve.engine.idle.model import Fit, Policy
from reprieve.engine.idle.vendors import Vendor
from reprieve.engine.notice.granting import NoticePolicy
from reprieve.engine.victim_choice import VictimChoice
from reprieve.settings.fields import choice, read_yaml
from reprieve.settings.idle import Notice, Rejected, Tier, environment_tier, tier_of
from reprieve.settings.notice import notice_policy
from reprieve.settings.option import keys, read
from reprieve.settings.options import IDLE
from reprieve.settings.preemption_delay import preemption_delay
from reprieve.settings.queries import pins_exporters
from reprieve.settings.vendors import parse_vendors
from reprieve.units.errors import UsageError

__all__ = ["CHART_ONLY", "DEFAULT_NAMESPACE", "KEYS", "StartUp", "read_config", "start_up"]

DEFAULT_NAMESPACE: Final = "kaiwo-system"
DEFAULT_POLLING_INTERVAL: Final = "15s"

_SECTION: Final = "gpuPreemption"
KEYS: Final = keys(IDLE)
_OTHERS: Final = ("scheduling", "quota", "governor")  # sections with readers of their own
# Sections of the chart's values that have no meaning outside the chart.
CHART_ONLY: Final = (
    "kaiwoConfig",
    "image",
    "replicas",
    "resources",
    "rbac",
    "serviceAccount",
    "crds",
    "admissionPolicy",
    "podDisruptionBudget",
    "imagePullSecrets",
    "metrics",
    "extraEnv",
    "extraArgs",
    "podAnnotations",
    "podLabels",
    "nodeSelector",
    "tolerations",
    "affinity",
    "topologySpreadConstraints",
    "priorityClassName",
    "nameOverride",
    "fullnameOverride",
)
_SCHEMES: Final = ("http", "https", "service", "prometheus+http", "prometheus+https")
_NEXT_URL: Final = re.compile(r",(?=\s*[A-Za-z][A-Za-z0-9+.-]*://)|,\s*$")


@dataclass(frozen=True, slots=True)
class StartUp:
    """Everything fixed at the start.

    `tiers`: variables and file, in this order, for `settings.idle.resolve` after the KaiwoConfig.
    `rejected`: defaults that are not accepted and therefore not in force. `fit_given`: the file
    states which fit check is wanted, so that none other will do.
    """

    enabled: bool
    endpoints: tuple[str, ...]
    policy: Policy
    vendors: tuple[Vendor, ...]
    operator_namespace: str
    tiers: tuple[Tier, ...]
    rejected: tuple[Rejected, ...] = ()
    notices: tuple[Notice, ...] = ()
    fit_given: bool = False
    notice: NoticePolicy = field(default_factory=NoticePolicy)
    delay: int | None = None
    victim_order: str = ""
    queued_demand_sum: bool = False

    @property
    def sums_queued_demands(self) -> bool:
        """Whether what another Kueue keeps waiting is served by the sum of all GPUs."""
        return self.queued_demand_sum or (self.fit_given and self.policy.fit is Fit.SUM)


def read_config(text: str, where: str) -> dict[str, Any]:
    """Return the section `gpuPreemption` of a `--config` file.

    Raises:
        UsageError: not YAML, not a mapping, or a key that is not known, with its place.
    """
    document = read_yaml(text, where)
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise UsageError(f"{where}: accepted: a mapping with the section {_SECTION}")
    if document.pop("dryRun", False):
        raise UsageError(f"{where}: dryRun is the chart's; accepted here: the flag --dry-run")
    for key in document:
        if key != _SECTION and key not in _OTHERS and key not in CHART_ONLY:
            accepted = ", ".join((_SECTION, *_OTHERS))
            raise UsageError(f"{where}: unknown key {key!r}; accepted: {accepted}")
    section = document.get(_SECTION)
    if section is None:
        return {}
    if not isinstance(section, dict):
        raise UsageError(f"{where}: {_SECTION}: accepted: a mapping with {', '.join(KEYS)}")
    for key in section:
        if key not in KEYS:
            raise UsageError(f"{where}: unknown key {_SECTION}.{key}; accepted: {', '.join(KEYS)}")
    return section


def start_up(
    environ: Mapping[str, str],
    section: Mapping[str, Any] | None = None,
    where: str = "--config",
    service_account_namespace: str = "",
) -> StartUp:
    """Return the settings of variables and the file's section.

    `service_account_namespace`: content of the pod's service-account namespace file, if there.

    Raises:
        UsageError: what, where and what is accepted. Endpoint and interval are only judged when
            the plane is enabled.
    """
    section = section or {}
    place = f"{where}: {_SECTION}."
    enabled, notices = _enabled(environ, section, place)
    endpoint, endpoint_place = _either(
        environ, "GPU_PREEMPTION_METRICS_ENDPOINT", section, "metricsEndpoint", place
    )
    interval, interval_place = _either(
        environ, "GPU_PREEMPTION_POLLING_INTERVAL", section, "pollingInterval", place
    )
    tiers = (environment_tier(environ), tier_of(section, where, place))
    policy = Policy(
        polling_interval=(
            _interval(interval or DEFAULT_POLLING_INTERVAL, interval_place)
            if enabled
            else parse_duration(DEFAULT_POLLING_INTERVAL)
        ),
        fit=_fit(section.get("fit"), f"{place}fit"),
        irreducible=_boolean(section.get("irreducible"), f"{place}irreducible"),
        choice=VictimChoice(
            choice(section.get("profile") or "compatible", f"{place}profile", [*VictimChoice])
        ),
        literal=_literal(section.get("literal"), f"{place}literal"),
    )
    endpoints = _endpoints(endpoint, endpoint_place) if enabled else ()
    vendors = parse_vendors(section.get("vendors"), f"{place}vendors")
    return StartUp(
        enabled=enabled,
        endpoints=endpoints,
        policy=policy,
        vendors=vendors,
        operator_namespace=(
            environ.get("GPU_PREEMPTION_OPERATOR_NAMESPACE", "").strip()
            or service_account_namespace.strip()
            or DEFAULT_NAMESPACE
        ),
        tiers=tiers,
        rejected=tuple(rejected for tier in tiers for rejected in tier.rejected),
        fit_given=bool(section.get("fit")),
        notice=notice_policy(section.get("notice"), f"{place}notice", keeps=True),
        delay=preemption_delay(section.get("preemptionDelay"), place.removesuffix(".")),
        queued_demand_sum=_boolean(section.get("queuedDemandSum"), f"{place}queuedDemandSum"),
        victim_order=read(IDLE, section, place.removesuffix("."))["victim_order"],
        notices=(*notices, *_unpinned(endpoints, vendors, endpoint_place)),
    )


def _enabled(
    environ: Mapping[str, str], section: Mapping[str, Any], place: str
) -> tuple[bool, tuple[Notice, ...]]:
    value, where = _either(environ, "GPU_PREEMPTION_ENABLED", section, "enabled", place)
    if value in ("", "true", "false"):
        return value == "true", ()
    return False, (Notice(where, value, "the idle plane stays off: only `true` switches it on"),)


def _either(
    environ: Mapping[str, str], variable: str, section: Mapping[str, Any], key: str, place: str
) -> tuple[str, str]:
    """Return the first non-empty value as text, and where it stands (or would stand)."""
    if environ.get(variable):
        return environ[variable], f"variable {variable}"
    value = section.get(key)
    if value is None or value == "":
        return "", f"variable {variable} or {place}{key}"
    return (str(value).lower() if isinstance(value, bool) else str(value)), f"{place}{key}"


def _interval(text: str, where: str) -> int:
    try:
        interval = parse_duration(text)
    except DurationTooLong as error:
        raise UsageError(f"{where}: {error}") from None
    except InvalidDuration:
        interval = 0
    if interval <= 0:
        raise UsageError(f"{where}: {text!r}; accepted: a Go duration above zero such as 15s or 1m")
    return interval


def _endpoints(text: str, where: str) -> tuple[str, ...]:
    urls = tuple(part.strip() for part in _NEXT_URL.split(text) if part.strip())
    if not urls:
        raise UsageError(
            f"{where}: needed when gpuPreemption is enabled; accepted: {_ENDPOINT_FORMS}"
        )
    for url in urls:
        _check_endpoint(url, where)
    return urls


_ENDPOINT_FORMS: Final = (
    "URLs separated by commas: http(s)://HOST[:PORT]/PATH, service://NAMESPACE/NAME:PORT/PATH, "
    "prometheus+http(s)://HOST[:PORT]?query=QUERY"
)


def _check_endpoint(url: str, where: str) -> None:
    refused = UsageError(f"{where}: {url!r}; accepted: {_ENDPOINT_FORMS}")
    try:
        parts = urlsplit(url)
        _ = parts.port if parts.scheme != "service" else None
    except ValueError:
        raise refused from None
    if parts.scheme not in _SCHEMES or not parts.hostname:
        raise refused
    if parts.scheme == "service" and not re.fullmatch(r"/[^/:]+:[^/:]+(/.*)?", parts.path):
        raise refused
    if parts.scheme.startswith("prometheus+") and not parse_qs(parts.query).get("query"):
        raise refused


def _unpinned(endpoints: Sequence[str], vendors: Sequence[Vendor], where: str) -> Iterator[Notice]:
    """Yield a notice for each query that reads any series as those of the exporters."""
    families = {metric.name for vendor in vendors for metric in vendor.metrics}
    for url in endpoints:
        for query in parse_qs(urlsplit(url).query).get("query", ()):
            if url.startswith("prometheus+") and not pins_exporters(query, families):
                yield Notice(
                    where,
                    query,
                    "the query names neither job nor namespace of the exporters, so that a user "
                    "whose targets are scraped by this server can publish samples of pods of "
                    'others; write for example gpu_gfx_activity{job="amd-gpu-metrics-exporter"}',
                )


def _fit(value: object, where: str) -> Fit:
    if value is None or value == "":
        return Fit.NODE
    try:
        return Fit(str(value))
    except ValueError:
        raise UsageError(f"{where}: {value!r}; accepted: Sum or Node") from None


def _boolean(value: object, where: str) -> bool:
    if value is None or value == "":
        return False
    if isinstance(value, bool):
        return value
    if value in ("true", "false"):
        return value == "true"
    raise UsageError(f"{where}: {value!r}; accepted: true or false")


def _literal(value: object, where: str) -> LiteralSwitches:
    if value is None:
        return LiteralSwitches()
    names = {switch.name: switch.field for switch in SWITCHES}
    if not isinstance(value, Mapping):
        raise UsageError(f"{where}: {value!r}; accepted: a mapping with {', '.join(names)}")
    chosen = {}
    for name, on in value.items():
        if name not in names:
            raise UsageError(f"{where}: unknown switch {name!r}; accepted: {', '.join(names)}")
        chosen[names[name]] = _boolean(on, f"{where}.{name}")
    return LiteralSwitches(**chosen)
