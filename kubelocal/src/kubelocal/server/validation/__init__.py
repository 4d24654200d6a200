"""Checks of built-in kinds that a layout cannot express, in the real server's words.

`check` looks at one decoded, defaulted object; `check_update` at what an update changes. Each
module holds the rules of a family of kinds. Source: the API's published validation rules; texts
of a 1.37 server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from kubelocal.server.causes import Cause
from kubelocal.server.types.kinds import Kind
from kubelocal.server.types.scheduling_versions import (
    as_newer,
    as_older_cause,
    is_older,
    mode_problems,
)
from kubelocal.server.validation import (
    cluster,
    devices,
    events,
    evictions,
    pods,
    policy,
    scheduling,
    services,
    webhooks,
    workloads,
)

__all__ = ["check", "check_update"]

Object = Mapping[str, Any]

_CHECKS: Final[Mapping[tuple[str, str], Callable[[Object], Iterator[Cause]]]] = {
    ("", "ConfigMap"): cluster.config_map,
    ("", "Event"): events.core_event,
    ("", "LimitRange"): policy.limit_range,
    ("", "Node"): cluster.node,
    ("", "PersistentVolumeClaim"): cluster.volume_claim,
    ("", "Pod"): pods.pod,
    ("", "PodTemplate"): workloads.pod_template,
    ("", "ReplicationController"): workloads.replication_controller,
    ("", "ResourceQuota"): policy.resource_quota,
    ("", "Secret"): cluster.secret,
    ("", "Service"): services.service,
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"): webhooks.configuration,
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"): webhooks.configuration,
    ("apps", "DaemonSet"): workloads.daemon_set,
    ("apps", "Deployment"): workloads.deployment,
    ("apps", "ReplicaSet"): workloads.replica_set,
    ("apps", "StatefulSet"): workloads.stateful_set,
    ("batch", "CronJob"): workloads.cron_job,
    ("batch", "Job"): workloads.job,
    ("coordination.k8s.io", "Lease"): policy.lease,
    ("events.k8s.io", "Event"): events.event,
    ("lifecycle.k8s.io", "Eviction"): evictions.eviction,
    ("lifecycle.k8s.io", "EvictionRequest"): evictions.eviction_request,
    ("policy", "PodDisruptionBudget"): policy.disruption_budget,
    ("rbac.authorization.k8s.io", "ClusterRole"): policy.role,
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"): policy.role_binding,
    ("rbac.authorization.k8s.io", "Role"): policy.role,
    ("rbac.authorization.k8s.io", "RoleBinding"): policy.role_binding,
    ("resource.k8s.io", "ResourceClaim"): devices.claim,
    ("resource.k8s.io", "ResourceClaimTemplate"): devices.claim_template,
    ("resource.k8s.io", "ResourceSlice"): devices.resource_slice,
    ("scheduling.k8s.io", "CompositePodGroup"): scheduling.pod_group,
    ("scheduling.k8s.io", "PodGroup"): scheduling.pod_group,
    ("scheduling.k8s.io", "Workload"): scheduling.workload,
    ("scheduling.k8s.io", "PriorityClass"): scheduling.priority_class,
}
_UPDATES: Final[Mapping[tuple[str, str], Callable[[Object, Object], Iterator[Cause]]]] = {
    ("", "ConfigMap"): cluster.immutable_data,
    ("", "Pod"): pods.pod_update,
    ("", "Secret"): cluster.secret_update,
    ("", "Service"): services.service_update,
    ("apps", "DaemonSet"): workloads.selector_update,
    ("apps", "Deployment"): workloads.selector_update,
    ("apps", "ReplicaSet"): workloads.selector_update,
    ("apps", "StatefulSet"): workloads.stateful_set_update,
    ("batch", "Job"): workloads.job_update,
    ("lifecycle.k8s.io", "Eviction"): evictions.eviction_update,
    ("lifecycle.k8s.io", "EvictionRequest"): evictions.request_update,
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"): policy.role_binding_update,
    ("rbac.authorization.k8s.io", "RoleBinding"): policy.role_binding_update,
    ("resource.k8s.io", "ResourceClaim"): devices.spec_update,
    ("resource.k8s.io", "ResourceClaimTemplate"): devices.spec_update,
    ("resource.k8s.io", "ResourceSlice"): devices.resource_slice_update,
    ("scheduling.k8s.io", "CompositePodGroup"): scheduling.pod_group_update,
    ("scheduling.k8s.io", "PodGroup"): scheduling.pod_group_update,
    ("scheduling.k8s.io", "PriorityClass"): scheduling.priority_class_update,
    ("scheduling.k8s.io", "Workload"): scheduling.workload_update,
}


def check(kind: Kind, obj: Object) -> Iterable[Cause]:
    """Return what is wrong with `obj` beyond its metadata."""
    rules = _CHECKS.get((kind.group, kind.kind))
    if rules is None:
        return ()
    if is_older(kind):
        found = rules(as_newer(dict(obj), None))
        return [*mode_problems(obj), *map(as_older_cause, found)]
    return rules(obj)


def check_update(kind: Kind, obj: Object, old: Object) -> Iterable[Cause]:
    """Return what `obj` changes in `old` that may not change."""
    rules = _UPDATES.get((kind.group, kind.kind))
    if rules is None:
        return ()
    if is_older(kind):
        found = rules(as_newer(dict(obj), None), as_newer(dict(old), None))
        return map(as_older_cause, found)
    return rules(obj, old)
