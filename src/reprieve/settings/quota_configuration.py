"""Kueue's `Configuration` (config.kueue.x-k8s.io), v1beta1 and v1beta2.

    apiVersion: config.kueue.x-k8s.io/v1beta2
    kind: Configuration
    fairSharing: {preemptionStrategies: [LessThanOrEqualToFinalShare, LessThanInitialShare]}
    waitForPodsReady: {timeout: 10m, requeuingStrategy: {backoffBaseSeconds: 30}}
    integrations: {frameworks: [batch/job, pod]}
    managedJobsNamespaceSelector: {matchLabels: {team: a}}
    resources: {excludeResourcePrefixes: [networking.example.com/], transformations: [...]}

What the versions mean otherwise by the same key: in v1beta1 fair sharing is on with `enable: true`
alone and waiting for ready pods too; in v1beta2 the key itself switches fair sharing on, and pods
are always waited for. A key that no version has ends the start and is named by its path, all of
them at once. Keys that concern the reference's process and not what it decides are accepted and
reported. Without a file v1beta2's defaults hold.

Source: specification of the quota plane, section 1.6.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from reprieve.engine.quota.assigning.request_rules import NO_RULES, RequestRules
from reprieve.engine.quota.holdings.usage_based import UsageBased
from reprieve.engine.quota.model import LabelSelector, NodeExpression, Settings, Strategy
from reprieve.engine.quota.waiting.requeuing import Backoff
from reprieve.settings.fields import read_yaml
from reprieve.settings.idle import Notice
from reprieve.settings.quota_configuration_parts import (
    Errors,
    PodsReady,
    admission_fair_sharing,
    boolean,
    fair_sharing,
    frameworks,
    namespace_selector,
    ports,
    request_rules,
    retention,
    section,
    texts,
    undeclared_is_ignored,
    unknown_keys,
    wait_for_pods_ready,
)
from reprieve.settings.quota_configuration_process import (
    PROCESS_KEYS,
    certificate_names,
    tls,
    visibility_server,
)
from reprieve.settings.quota_device_classes import device_class_mappings
from reprieve.settings.quota_gates import gates_of
from reprieve.units.errors import UsageError

__all__ = [
    "CONFIG_MAP_KEY",
    "NEW",
    "OLD",
    "QuotaConfiguration",
    "quota_configuration",
    "read_quota_configuration",
]

NEW: Final = "config.kueue.x-k8s.io/v1beta2"
OLD: Final = "config.kueue.x-k8s.io/v1beta1"
KIND: Final = "Configuration"
CONFIG_MAP_KEY: Final = "controller_manager_config.yaml"
OWN_NAMESPACE: Final = "kueue-system"

# What is accepted, and why it changes nothing.
_PROCESS: Final[Mapping[str, str]] = {
    "leaderElection": "the process has one lease for all that it does; see --lease-duration",
    "clientConnection": "the connection is that of the process; see --kubeconfig and --context",
    "controller": "one loop reconciles everything; there are no workers to count",
    "health": "probes are served beside the metrics; see --metrics-port",
    "pprofBindAddress": "there are no profiling handlers",
    "tls": "webhooks speak TLS 1.2 and newer",
    "multiKueue": "workloads stay in this cluster",
    "visibilityServer": "pending workloads are reported in statuses and metrics",
}


@dataclass(frozen=True, slots=True)
class QuotaConfiguration:
    """What the file states. `settings` are the engine's; durations in seconds, None is never.

    `selector` is managedJobsNamespaceSelector. `pods_ready` None waits for no pods. Webhooks:
    certificates of our own authority unless `own_certificates` is off.
    """

    settings: Settings = field(default_factory=Settings)
    pods_ready: PodsReady | None = None
    usage_based: UsageBased | None = None
    rules: RequestRules = NO_RULES
    frameworks: tuple[str, ...] = ("batch/job",)
    external_frameworks: tuple[str, ...] = ()
    label_keys_to_copy: tuple[str, ...] = ()
    manage_jobs_without_queue_name: bool = False
    selector: LabelSelector = field(default_factory=LabelSelector)
    namespace: str = OWN_NAMESPACE
    queue_metrics: bool = False
    local_queue_metrics: bool = True
    after_finished_s: float | None = None
    after_deactivated_s: float | None = None
    own_certificates: bool = True
    webhook_port: int = 9443
    webhook_service: str = ""
    webhook_secret: str = ""
    certificate_folder: str = ""
    gates: Mapping[str, bool] = field(default_factory=dict)
    notices: tuple[Notice, ...] = ()

    @property
    def backoff(self) -> Backoff:
        """Return the waiting after evictions for pods that were not ready or by a check."""
        return self.pods_ready.backoff if self.pods_ready is not None else Backoff()


_CERTIFICATES: Final = ("enable", "webhookServiceName", "webhookSecretName")
_METRICS: Final = (
    "bindAddress",
    "enableClusterQueueResources",
    "localQueueMetrics",
    "customLabels",
)
_INTEGRATIONS: Final = ("frameworks", "externalFrameworks", "labelKeysToCopy", "podOptions")
_KEYS: Final = (
    "apiVersion",
    "kind",
    "namespace",
    "fairSharing",
    "waitForPodsReady",
    "integrations",
    "manageJobsWithoutQueueName",
    "managedJobsNamespaceSelector",
    "resources",
    "admissionFairSharing",
    "internalCertManagement",
    "webhook",
    "metrics",
    "objectRetentionPolicies",
    "featureGates",
    "queueVisibility",
    *_PROCESS,
)
_ONLY_OLD: Final = ("queueVisibility",)
_ONLY_NEW: Final = ("visibilityServer",)


def read_quota_configuration(
    content: str, where: str, namespace: str = "", gates: Mapping[str, bool] | None = None
) -> QuotaConfiguration:
    """Return the settings of the text of a file or of a ConfigMap; see `quota_configuration`.

    Raises:
        UsageError: what is wrong, where, and what is accepted.
    """
    return quota_configuration(read_yaml(content, where), where, namespace, gates)


def quota_configuration(
    document: object = None,
    where: str = "quota.configuration",
    namespace: str = "",
    gates: Mapping[str, bool] | None = None,
) -> QuotaConfiguration:
    """Return the settings of a decoded document; None is no file at all.

    Args:
        document: the decoded file.
        where: how the user calls it.
        namespace: of the operator, where the document names none.
        gates: of the command line; not together with `featureGates`.

    Raises:
        UsageError: all that is wrong, each with its path and what is accepted.
    """
    given = {"apiVersion": NEW, "kind": KIND} if document is None else document
    if not isinstance(given, Mapping):
        raise UsageError(f"{where}: accepted: a {KIND} of {OLD} or {NEW}")
    version = given.get("apiVersion")
    if version not in (OLD, NEW) or given.get("kind") != KIND:
        raise UsageError(
            f"{where}: {version} {given.get('kind')}; accepted: kind {KIND} of {OLD} or {NEW}"
        )
    old = version == OLD
    unknown = unknown_keys(given, _keys_of(old))
    if unknown:
        raise UsageError(f"{where}: " + "; ".join(_strict(path) for path in unknown))
    errors: Errors = []
    found = _read(given, old, namespace, gates, errors)
    if errors:
        raise UsageError(f"{where}: " + "; ".join(errors))
    return found


def _read(
    given: Mapping[str, Any],
    old: bool,
    own_namespace: str,
    flag: Mapping[str, bool] | None,
    errors: Errors,
) -> QuotaConfiguration:
    namespace = given.get("namespace") or own_namespace or OWN_NAMESPACE
    integrations = section(given, "integrations", errors)
    resources = section(given, "resources", errors)
    metrics = section(given, "metrics", errors)
    certificates = section(given, "internalCertManagement", errors)
    webhook = section(given, "webhook", errors)
    kinds, external = frameworks(integrations, errors)
    selector = _default_selector(namespace)
    if given.get("managedJobsNamespaceSelector") is not None:
        wanted = given["managedJobsNamespaceSelector"]
        selector = namespace_selector(wanted, namespace, errors) or selector
    known, gates = gates_of(given.get("featureGates"), flag, errors)
    pods_ready = wait_for_pods_ready(given, old, known, errors)
    usage_based = admission_fair_sharing(given, errors)
    strategies = fair_sharing(given, old, errors)
    own = boolean(certificates, "enable", "internalCertManagement.enable", True, errors)
    service, secret = certificate_names(certificates, own, errors)
    visibility_server(section(given, "visibilityServer", errors), errors)
    tls(section(given, "tls", errors), errors)
    after = retention(given, errors)
    return QuotaConfiguration(
        settings=Settings(
            fair_sharing=strategies,
            gates=gates,
            eviction_timestamp=pods_ready is None or pods_ready.eviction_timestamp,
            ignore_undeclared=undeclared_is_ignored(resources, known, errors),
            admission_fair_sharing=usage_based is not None and gates.admission_fair_sharing,
            block_admission=pods_ready is not None and pods_ready.block_admission,
        ),
        pods_ready=pods_ready,
        usage_based=usage_based,
        rules=replace(
            request_rules(resources, errors),
            device_classes=device_class_mappings(resources, errors),
        ),
        frameworks=kinds,
        external_frameworks=external,
        label_keys_to_copy=texts(
            integrations, "labelKeysToCopy", "integrations.labelKeysToCopy", errors
        ),
        manage_jobs_without_queue_name=boolean(
            given, "manageJobsWithoutQueueName", "manageJobsWithoutQueueName", False, errors
        ),
        selector=selector,
        namespace=namespace,
        queue_metrics=boolean(
            metrics,
            "enableClusterQueueResources",
            "metrics.enableClusterQueueResources",
            False,
            errors,
        ),
        local_queue_metrics=_local_queue_metrics(metrics, errors),
        after_finished_s=after[0],
        after_deactivated_s=after[1],
        own_certificates=own,
        webhook_port=ports(webhook, "port", "webhook.port", 9443, errors),
        webhook_service=service,
        webhook_secret=secret,
        certificate_folder=str(webhook.get("certDir") or ""),
        gates=known,
        notices=tuple(_notices(given, old, strategies)),
    )


def _keys_of(old: bool) -> dict[str, Any]:
    """Return the known keys as a tree; None has anything below."""
    strategy = ("timestamp", "backoffLimitCount", "backoffBaseSeconds", "backoffMaxSeconds")
    waiting = ("timeout", "recoveryTimeout", "blockAdmission", *(("enable",) if old else ()))
    sharing = ("preemptionStrategies", *(("enable",) if old else ()))
    integrations = _INTEGRATIONS if old else _INTEGRATIONS[:3]
    rule = ("input", "strategy", "multiplyBy", "outputs")
    checks = () if old else ("quotaCheckStrategy",)
    tree: dict[str, Any] = dict.fromkeys(_KEYS)
    for name in _ONLY_NEW if old else _ONLY_OLD:
        del tree[name]
    tree |= {
        "fairSharing": dict.fromkeys(sharing),
        "waitForPodsReady": {
            **dict.fromkeys(waiting),
            "requeuingStrategy": dict.fromkeys(strategy),
        },
        "integrations": dict.fromkeys(integrations),
        "managedJobsNamespaceSelector": {
            "matchLabels": None,
            "matchExpressions": dict.fromkeys(("key", "operator", "values")),
        },
        "resources": {
            **dict.fromkeys(("excludeResourcePrefixes", *checks)),
            "deviceClassMappings": dict.fromkeys(("name", "deviceClassNames", "sources")),
            "transformations": dict.fromkeys(rule),
        },
        "admissionFairSharing": dict.fromkeys(
            ("usageHalfLifeTime", "usageSamplingInterval", "resourceWeights")
        ),
        "internalCertManagement": dict.fromkeys(_CERTIFICATES),
        "webhook": dict.fromkeys(("port", "host", "certDir")),
        "metrics": dict.fromkeys(_METRICS),
        "objectRetentionPolicies": {
            "workloads": dict.fromkeys(("afterFinished", "afterDeactivatedByKueue"))
        },
    }
    for name in tree.keys() & PROCESS_KEYS.keys():
        tree[name] = dict.fromkeys(PROCESS_KEYS[name])
    return tree


def _strict(path: str) -> str:
    return f'strict decoding error: unknown field "{path}"'


def _default_selector(namespace: str) -> LabelSelector:
    names = ("kube-system", namespace)
    return LabelSelector((NodeExpression("kubernetes.io/metadata.name", "NotIn", names),))


def _local_queue_metrics(metrics: Mapping[str, Any], errors: Errors) -> bool:
    if metrics.get("localQueueMetrics") is None:
        return True
    given = section(metrics, "localQueueMetrics", errors, "metrics.")
    return boolean(given, "enable", "metrics.localQueueMetrics.enable", False, errors)


def _notices(
    given: Mapping[str, Any], old: bool, strategies: Collection[Strategy] | None
) -> list[Notice]:
    found = [Notice(key, str(given[key]), why) for key, why in _PROCESS.items() if given.get(key)]
    if old and given.get("fairSharing") is not None and strategies is None:
        why = "fairSharing.enable is not true, so that preemption is classical"
        found.append(Notice("fairSharing", str(given["fairSharing"]), why))
    if old and given.get("queueVisibility") is not None:
        found.append(Notice("queueVisibility", str(given["queueVisibility"]), "it is not read"))
    if old and (given.get("integrations") or {}).get("podOptions") is not None:
        why = "it is not read; managedJobsNamespaceSelector chooses namespaces"
        found.append(Notice("integrations.podOptions", str(given["integrations"]), why))
    return found
