"""The section `quota` of the `--config` file, and the annotations that protect young workloads.

    quota:
      preemptionPolicy: FairSharing   # Classical, or what `configuration` states
      configuration: {apiVersion: config.kueue.x-k8s.io/v1beta2, kind: Configuration, ...}
      configurationMap: ""            # or a ConfigMap of the operator's namespace that has one
      webhooks:
        jobFailurePolicy: Ignore      # of kinds that are not our own
        namespaceSelector: {...}      # where those are called
        service: reprieve-webhook     # by which the API server finds them; without, and without
        url: ""                       # url, none are served: https://HOST:PORT of this process
        port: 9443
        certificateFolder: ""         # files that another tool keeps, such as cert-manager
        annotations: {}               # of the configurations, for its injector
        clientAuthority: ""           # file of authorities: reviews are for holders of their
        clientNames: []               # certificates alone, of these names where there are any
      jobKinds: []                    # rows of the table of kinds beyond the built-in ones

All its keys are rows of `options.QUOTA`. Of the ConfigMap the key `controller_manager_config.yaml`
is read, as Kueue's own is written; it is watched, see `quota_changes`. `preemptionPolicy:
FairSharing` alone means both strategies in the usual order; beside a whole configuration it has to
state the same. Annotations of a ClusterQueue, LocalQueue or WorkloadPriorityClass, as Go durations,
protect workloads for that long after their reservation: `reprieve.dev/preempt-min-runtime` from
preemption within their queue, `reprieve.dev/reclaim-min-runtime` from others; of several the
longest holds. More than 168h counts as 168h, so that no workload is safe for ever; what is no
duration protects none.

Source: the quota plane's own options; specification of the quota plane, section 1.6.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from kubeworld.units.durations import HOUR, SECOND, InvalidDuration, format_duration, parse_duration
from reprieve.api.reprieve import PREEMPT_MIN_RUNTIME
from reprieve.engine.notice.granting import NoticePolicy
from reprieve.engine.quota.model import LabelSelector, Strategy
from reprieve.engine.victim_choice import VictimChoice
from reprieve.settings.fields import (
    choice,
    entries,
    integer,
    mapping,
    refuse,
    section_of,
    text,
)
from reprieve.settings.idle import Notice
from reprieve.settings.notice import notice_policy
from reprieve.settings.option import keys, read
from reprieve.settings.options import QUOTA
from reprieve.settings.preemption_delay import preemption_delay
from reprieve.settings.quota_configuration import (
    CONFIG_MAP_KEY,
    QuotaConfiguration,
    quota_configuration,
    read_quota_configuration,
)
from reprieve.settings.quota_configuration_parts import namespace_selector
from reprieve.units.errors import UsageError

__all__ = [
    "PREEMPT_MIN_RUNTIME",
    "RECLAIM_MIN_RUNTIME",
    "SECTION",
    "MinRuntimes",
    "QuotaSettings",
    "QuotaSource",
    "min_runtimes",
    "quota_settings",
    "read_quota",
]

SECTION: Final = "quota"
RECLAIM_MIN_RUNTIME: Final = "reprieve.dev/reclaim-min-runtime"
LONGEST_RUNTIME: Final = 168 * HOUR

_URL: Final = re.compile(r"https://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+):[0-9]{1,5}", re.ASCII)

CLASSICAL: Final = "Classical"
FAIR_SHARING: Final = "FairSharing"
_BOTH: Final = (Strategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE, Strategy.LESS_THAN_INITIAL_SHARE)
_WEBHOOKS: Final = (
    "jobFailurePolicy",
    "namespaceSelector",
    "service",
    "url",
    "port",
    "certificateFolder",
    "annotations",
    "clientAuthority",
    "clientNames",
)
_KEYS: Final = keys(QUOTA)


@dataclass(frozen=True, slots=True)
class MinRuntimes:
    """Seconds for which work is not preempted in its queue, and not reclaimed by others.

    `problems`: what is wrong with the annotations, and what is accepted.
    """

    preempt_s: int = 0
    reclaim_s: int = 0
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class QuotaSettings:
    """All settings of the quota plane. `loop_window` in nanoseconds; `loop_limit` 0 holds none.

    `delay`: nanoseconds that a workload waits before it preempts. `victim_order`: the name of an
    installed order of victims, empty for none.

    `webhook_selector` chooses the namespaces in which webhooks of jobs are called, as JSON; None is
    that of `configuration`. `serves_webhooks`: it was stated where they are found, by their Service
    or, outside of the cluster, at `webhook_url`. `job_kinds` are rows for the table of kinds,
    undecoded. `notices`: what was stated and changes nothing. `configuration_map` is the name of
    the ConfigMap that the configuration is in, empty without.
    """

    configuration: QuotaConfiguration = field(default_factory=quota_configuration)
    configuration_map: str = ""
    prove_nodes: bool = False
    loop_window: int = HOUR
    loop_limit: int = 2
    notice: NoticePolicy = field(default_factory=NoticePolicy)
    delay: int = 0
    victim_order: str = ""
    job_failure_policy: str = "Ignore"
    serves_webhooks: bool = False
    webhook_service: str = "reprieve-webhook"
    webhook_url: str = ""
    webhook_port: int = 9443
    certificate_folder: str = ""
    webhook_annotations: Mapping[str, str] = field(default_factory=dict)
    webhook_client_authority: str = ""
    webhook_client_names: tuple[str, ...] = ()
    webhook_selector: Mapping[str, Any] | None = None
    job_kinds: tuple[Any, ...] = ()
    notices: tuple[Notice, ...] = ()


def read_quota(content: str, where: str) -> Mapping[str, Any]:
    """Return the section of a `--config` file, see `section_of`."""
    return section_of(content, where, SECTION, _KEYS)


def quota_settings(
    section: Mapping[str, Any] | None = None,
    where: str = "--config",
    namespace: str = "",
    gates: Mapping[str, bool] | None = None,
    content: str | None = None,
) -> QuotaSettings:
    """Return the settings of the section; `namespace` and `gates` as in `quota_configuration`.

    `content` is what the section's ConfigMap has.

    Raises:
        UsageError: what is wrong, where, and what is accepted.
    """
    place = f"{where}: {SECTION}"
    given = mapping(section, place, _KEYS)
    document: object = given.get("configuration")
    named = str(given.get("configurationMap") or "")
    if named and document is not None:
        raise UsageError(f"{place}: accepted: either configuration or configurationMap, not both")
    if named and content is not None:
        document = content
        map_place = f"ConfigMap {namespace}/{named}: {CONFIG_MAP_KEY}"
        found = read_quota_configuration(content, map_place, namespace, gates)
    else:
        found = quota_configuration(document, f"{place}.configuration", namespace, gates)
    decided = found.settings
    policy = given.get("preemptionPolicy")
    if policy is not None:
        policy = choice(policy, f"{place}.preemptionPolicy", (CLASSICAL, FAIR_SHARING))
        shared = CLASSICAL if decided.fair_sharing is None else FAIR_SHARING
        if document is None and not named:
            decided = replace(decided, fair_sharing=_BOTH if policy == FAIR_SHARING else None)
        elif document is not None and policy != shared:
            what = "configurationMap" if named else "configuration"
            refuse(f"{place}.preemptionPolicy", policy, f"{shared}, as quota.{what} says")
    said = read(QUOTA, given, place)
    decided = replace(
        decided, max_save_wait=said["max_save_wait"], **_choice_of_victims(given, said)
    )
    hooks = mapping(given.get("webhooks"), f"{place}.webhooks", _WEBHOOKS)
    failure = hooks.get("jobFailurePolicy", "Ignore")
    url = _url(hooks.get("url"), f"{place}.webhooks.url")
    return QuotaSettings(
        configuration=replace(found, settings=decided),
        configuration_map=named,
        prove_nodes=said["prove_nodes"],
        notice=notice_policy(given.get("notice"), f"{place}.notice"),
        delay=preemption_delay(given.get("preemptionDelay"), place) or 0,
        victim_order=said["victim_order"],
        loop_window=said["loop_window"],
        loop_limit=said["loop_limit"],
        job_failure_policy=choice(
            failure, f"{place}.webhooks.jobFailurePolicy", ("Ignore", "Fail")
        ),
        serves_webhooks=bool(hooks.get("service") or url),
        webhook_url=url,
        webhook_service=text(
            hooks.get("service", found.webhook_service or "reprieve-webhook"),
            f"{place}.webhooks.service",
        ),
        webhook_port=integer(
            hooks.get("port", found.webhook_port), f"{place}.webhooks.port", 1, 65_535
        ),
        certificate_folder=str(hooks.get("certificateFolder") or ""),
        webhook_annotations=_annotations(hooks.get("annotations"), f"{place}.webhooks.annotations"),
        webhook_client_authority=str(hooks.get("clientAuthority") or ""),
        webhook_client_names=_client_names(hooks, f"{place}.webhooks"),
        webhook_selector=_selector(hooks, f"{place}.webhooks", found),
        job_kinds=tuple(row for row, _ in entries(given.get("jobKinds"), f"{place}.jobKinds")),
        notices=found.notices,
    )


@dataclass(frozen=True, slots=True)
class QuotaSource:
    """Where the settings come from, so that they can be read again with another configuration."""

    section: Mapping[str, Any] | None = None
    where: str = "--config"
    namespace: str = ""

    def settings(self, content: str | None = None) -> QuotaSettings:
        """Return the settings, with what the section's ConfigMap has.

        Raises:
            UsageError: what is wrong, where, and what is accepted.
        """
        return quota_settings(self.section, self.where, self.namespace, content=content)


def min_runtimes(annotations: Mapping[str, str] | None) -> MinRuntimes:
    """Return for how long an object's annotations protect, and what of them is not accepted."""
    said = annotations or {}
    preempt_s, wrong = _runtime_s(PREEMPT_MIN_RUNTIME, said.get(PREEMPT_MIN_RUNTIME))
    reclaim_s, odd = _runtime_s(RECLAIM_MIN_RUNTIME, said.get(RECLAIM_MIN_RUNTIME))
    return MinRuntimes(preempt_s, reclaim_s, tuple(filter(None, (wrong, odd))))


def _runtime_s(name: str, given: str | None) -> tuple[int, str]:
    if given is None:
        return 0, ""
    longest = format_duration(LONGEST_RUNTIME)
    accepted = f"accepted: durations from 0s to {longest}, such as 90s, 5m or 1h"
    try:
        found = parse_duration(given)
    except InvalidDuration:
        found = -1
    if found < 0:
        return 0, f"annotation {name} is {given!r} and protects no work; {accepted}"
    if found > LONGEST_RUNTIME:
        return LONGEST_RUNTIME // SECOND, f"annotation {name} is {given!r}, cut; {accepted}"
    return -(-found // SECOND), ""


def _choice_of_victims(given: Mapping[str, Any], said: Mapping[str, Any]) -> dict[str, Any]:
    """Return how victims are chosen; `best` has the other two on where they are not set."""
    profile = VictimChoice(said["profile"])
    best = profile is VictimChoice.BEST
    return {
        "profile": profile,
        "idle_first": said["idle_first"] if given.get("idleFirst") is not None else best,
        "harm_order": said["harm_order"] if given.get("harmOrder") is not None else best,
    }


def _client_names(hooks: Mapping[str, Any], place: str) -> tuple[str, ...]:
    found = entries(hooks.get("clientNames"), f"{place}.clientNames")
    names = tuple(text(name, where) for name, where in found)
    if names and not hooks.get("clientAuthority"):
        refuse(f"{place}.clientNames", list(names), "names, beside a clientAuthority")
    return names


def _url(given: object, place: str) -> str:
    if not given:
        return ""
    if not isinstance(given, str) or _URL.fullmatch(given) is None:
        refuse(place, given, "https://HOST:PORT, where port 0 selects a free one")
    return given


def _annotations(given: object, place: str) -> Mapping[str, str]:
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not all(isinstance(v, str) for v in given.values()):
        refuse(place, given, "a mapping from names to texts")
    return {str(name): value for name, value in given.items()}


def _selector(
    hooks: Mapping[str, Any], place: str, configuration: QuotaConfiguration
) -> Mapping[str, Any] | None:
    given = hooks.get("namespaceSelector")
    if given is None:
        return None
    errors: list[str] = []
    read: LabelSelector | None = namespace_selector(given, configuration.namespace, errors)
    if errors or read is None:
        raise UsageError(f"{place}.namespaceSelector: " + "; ".join(errors))
    return dict(given)
