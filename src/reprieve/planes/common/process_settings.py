"""Settings of the operator process: its arguments, variables and file, read before it connects."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kubeworld.units.durations import SECOND
from reprieve.engine.disruptions.questions import GovernorPolicy
from reprieve.notifications.settings import NotificationSettings, notification_settings
from reprieve.planes.common.victim_orders import Orders, ranking
from reprieve.settings.fields import read_yaml
from reprieve.settings.governor import governor_policy, read_governor
from reprieve.settings.start_up import StartUp, read_config, start_up
from reprieve.units.errors import UsageError

if TYPE_CHECKING:
    from reprieve.engine.placement.filtering import PlacementScorer
    from reprieve.engine.scheduling.plugins import PostFilter
    from reprieve.planes.common.plugins import Installed
    from reprieve.settings.quota import QuotaSource
    from reprieve.settings.scheduling import SchedulingSettings

__all__ = [
    "IDLE",
    "QUOTA",
    "SCHEDULING",
    "OperatorOptions",
    "OperatorSettings",
    "operator_settings",
]

IDLE: Final = "idle"
SCHEDULING: Final = "scheduling"
QUOTA: Final = "quota"
SCHEDULER_NAME: Final = "reprieve-scheduler"
_SERVICE_ACCOUNT_NAMESPACE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


@dataclass(frozen=True, slots=True)
class OperatorOptions:
    """What `reprieve run` was given; durations in nanoseconds.

    `scheduler_names`: whose pods are scheduled, each with the default profile; without any, those
    of `scheduler_config` or else the one of `SCHEDULER_NAME`. `settings_text`: what a `config_file`
    would hold, in place of it. `decision_log`: a file, or `-`.
    `named_series`: how many names of tenants' work metrics show. `notify`: hosts of webhooks that
    may be called, `notify_key`: a file with what messages are signed with. `notice_port`: where
    pods request notices, None where they cannot, over TLS as the Service `notice_tls` or with the
    files in `notice_certificate`; `notice_files`: pods get notices in files, too;
    `eviction_notice`: the longest notice where others request an eviction, 0: not answered.
    """

    controllers: tuple[str, ...]
    environment: Mapping[str, str]
    kubeconfig: str | None = None
    context: str | None = None
    config_file: Path | None = None
    settings_text: str | None = None
    dry_run: bool = False
    metrics_port: int = 8080
    metrics_host: str | None = "127.0.0.1"
    metrics_auth: bool = False
    named_series: int = 0
    lease_duration: int = 15 * SECOND
    decision_limit: int = 5 * SECOND
    longest_silence: int = 30 * SECOND
    log_format: str = "text"
    feature_gates: str = ""
    scheduling_profile: str = ""
    quota_profile: str = ""
    idle_profile: str = ""
    scheduler_config: Path | None = None
    quota_config: Path | None = None
    scheduler_names: tuple[str, ...] = ()
    verbosity: int = 0
    shared_nodes: bool = False
    watch_others: bool = False
    notify: tuple[str, ...] = ()
    notify_key: Path | None = None
    decision_log: str | None = None
    notice_port: int | None = None
    notice_tls: str = ""
    notice_certificate: Path | None = None
    notice_files: bool = False
    eviction_notice: int = 0


@dataclass(frozen=True, slots=True)
class OperatorSettings:
    """What was read before anything was connected; None for a plane that does not run."""

    start: StartUp
    scheduling: SchedulingSettings | None = None
    installed: Installed | None = None
    plugins: Mapping[str, PostFilter] = field(default_factory=dict)
    quota: QuotaSource | None = None
    scorers: Mapping[str, PlacementScorer] = field(default_factory=dict)
    governor: GovernorPolicy = field(default_factory=GovernorPolicy)
    notify: NotificationSettings | None = None
    orders: Orders = field(default_factory=Orders)


def operator_settings(options: OperatorOptions) -> OperatorSettings:
    """Return all settings of a process; what reads those of a plane is loaded with it.

    Raises:
        UsageError: what is wrong, where, and what is accepted.
    """
    section: Mapping[str, object] = {}
    text, where = "", "--config"
    if options.config_file is not None:
        where = f"--config {options.config_file}"
        text = _text(options.config_file, where)
    elif options.settings_text is not None:
        where, text = "settings", options.settings_text
    if text:
        section = read_config(text, where)
    namespace = ""
    with contextlib.suppress(OSError):
        namespace = _SERVICE_ACCOUNT_NAMESPACE.read_text()
    if options.idle_profile:
        section = {**section, "profile": options.idle_profile}
    start = start_up(options.environment, section, where, namespace)
    notify = notification_settings(options.notify, options.notify_key)
    if IDLE in options.controllers and not start.enabled:
        raise UsageError(
            "--controllers idle needs GPU preemption to be enabled: set the variable "
            "GPU_PREEMPTION_ENABLED to true, or gpuPreemption.enabled: true in --config"
        )
    quota, usual = None, GovernorPolicy()
    limits = usual.loop_limit, usual.loop_window
    if QUOTA in options.controllers:
        from reprieve.settings.quota import QuotaSource

        namespace = start.operator_namespace
        quota = QuotaSource(_quota(options, text, where, namespace), where, namespace)
        said = quota.settings()
        limits = said.loop_limit, said.loop_window
    orders = _orders(start, quota, where)
    governor = governor_policy(read_governor(text, where) if text else {}, where, *limits)
    if SCHEDULING not in options.controllers:
        return OperatorSettings(start, quota=quota, governor=governor, notify=notify, orders=orders)
    from reprieve.planes.common.plugins import installed, load, load_scorers

    offered = installed()
    scheduling = _scheduling(options, text, where, offered)
    policy = scheduling.policy
    plugins, scorers = load(offered, policy), load_scorers(offered, policy)
    return OperatorSettings(
        start, scheduling, offered, plugins, quota, scorers, governor, notify, orders
    )


def _orders(start: StartUp, quota: QuotaSource | None, where: str) -> Orders:
    """Return the orders of victims that are named, each tried on samples."""
    of_quota = quota.settings().victim_order if quota is not None else ""
    if not of_quota and not start.victim_order:
        return Orders()
    from reprieve.planes.common.victim_samples import IDLE_SAMPLES, QUOTA_SAMPLES

    return Orders(
        ranking(of_quota, f"{where}: quota.victimOrder", *QUOTA_SAMPLES),
        ranking(start.victim_order, f"{where}: gpuPreemption.victimOrder", *IDLE_SAMPLES),
    )


def _quota(options: OperatorOptions, text: str, where: str, namespace: str) -> Mapping[str, object]:
    from reprieve.settings.quota import read_quota
    from reprieve.settings.quota_configuration import read_quota_configuration

    section = dict(read_quota(text, where)) if text else {}
    if options.quota_config is not None:
        where = f"--quota-config {options.quota_config}"
        if section.get("configuration") is not None:
            raise UsageError(f"{where}: the --config file has a quota.configuration already")
        content = _text(options.quota_config, where)
        read_quota_configuration(content, where, namespace)
        section["configuration"] = read_yaml(content, where)
    if options.quota_profile:
        section["profile"] = options.quota_profile
    return section


def _scheduling(
    options: OperatorOptions, text: str, where: str, offered: Installed
) -> SchedulingSettings:
    from reprieve.settings.scheduling import read_scheduling, scheduling_settings

    section = dict(read_scheduling(text, where)) if text else {}
    if options.scheduler_config is not None:
        where = f"--scheduler-config {options.scheduler_config}"
        if section.get("configuration") is not None:
            raise UsageError(f"{where}: the --config file has a scheduling.configuration already")
        section["configuration"] = read_yaml(_text(options.scheduler_config, where), where)
        if section["configuration"] is None:
            raise UsageError(f"{where}: it is empty; accepted: a KubeSchedulerConfiguration")
    settings = scheduling_settings(
        section, options.feature_gates, where, offered.points, options.scheduling_profile
    )
    if section.get("configuration") is not None:
        if options.scheduler_names:
            raise UsageError("--scheduler-name: a scheduler configuration names its profiles")
        return settings
    if "" in options.scheduler_names:
        raise UsageError("--scheduler-name: ''; accepted: the name that pods give")
    default = settings.policy.profiles[0]
    profiles = tuple(
        replace(default, scheduler_name=name)
        for name in dict.fromkeys(options.scheduler_names or (SCHEDULER_NAME,))
    )
    return replace(settings, policy=replace(settings.policy, profiles=profiles))


def _text(file: Path, where: str) -> str:
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{where}: cannot be read: {error}") from None
