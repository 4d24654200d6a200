"""Defaults of built-in kinds, as users see them in what the server stored.

Source: the API's documented defaults; objects of a 1.37 server. Defaults that need more than the
object itself (a Job's uid in its selector, a pod's priority and tolerations) are given by
`claim_job` and by admission.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any, Final

from kubelocal.server.types.kinds import Kind
from kubelocal.server.types.pod_defaults import pod_defaults, template_defaults
from kubeworld.admission.pods import complete_limit_range

__all__ = ["claim_job", "set_defaults"]

Object = dict[str, Any]


def set_defaults(kind: Kind, obj: Object) -> None:
    """Fill in what `obj`, a decoded object of a built-in kind, leaves to the server."""
    default = _DEFAULTS.get((kind.group, kind.kind))
    if default is not None:
        default(obj)


def claim_job(job: Object) -> None:
    """Give a new Job the selector and labels that tie pods to its uid, unless set by hand."""
    spec = job["spec"]
    if spec.get("manualSelector"):
        return
    metadata = job["metadata"]
    uid, name = metadata["uid"], metadata["name"]
    labels = {
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": name,
        "controller-uid": uid,
        "job-name": name,
    }
    template = spec.setdefault("template", {}).setdefault("metadata", {})
    template["labels"] = {**(template.get("labels") or {}), **labels}
    if not metadata.get("labels"):
        # The labels of a Job without any are those of its template.
        metadata["labels"] = dict(template["labels"])
    if not spec.get("selector"):
        spec["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}


def _job(job: Object) -> None:
    spec = job.setdefault("spec", {})
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = spec["parallelism"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", 2**31 - 1 if "backoffLimitPerIndex" in spec else 6)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    spec.setdefault("manualSelector", False)
    failing = spec.get("podFailurePolicy") is not None
    spec.setdefault("podReplacementPolicy", "Failed" if failing else "TerminatingOrFailed")
    for rule in (spec.get("podFailurePolicy") or {}).get("rules", ()):
        for pattern in rule.get("onPodConditions", ()):
            pattern.setdefault("status", "True")
    template_defaults(spec)


def _cron_job(cron_job: Object) -> None:
    spec = cron_job.setdefault("spec", {})
    spec.setdefault("concurrencyPolicy", "Allow")
    spec.setdefault("suspend", False)
    spec.setdefault("successfulJobsHistoryLimit", 3)
    spec.setdefault("failedJobsHistoryLimit", 1)
    template = spec.setdefault("jobTemplate", {})
    template.setdefault("metadata", {})
    template_defaults(template.setdefault("spec", {}))


def _deployment(deployment: Object) -> None:
    spec = deployment.setdefault("spec", {})
    spec.setdefault("replicas", 1)
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("progressDeadlineSeconds", 600)
    strategy = spec.setdefault("strategy", {})
    strategy.setdefault("type", "RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", "25%")
        rolling.setdefault("maxSurge", "25%")
    template_defaults(spec)


def _replica_set(replica_set: Object) -> None:
    spec = replica_set.setdefault("spec", {})
    spec.setdefault("replicas", 1)
    template_defaults(spec)
    labels = spec["template"]["metadata"].get("labels")
    if labels and not replica_set.setdefault("metadata", {}).get("labels"):
        replica_set["metadata"]["labels"] = dict(labels)


def _replication_controller(controller: Object) -> None:
    spec = controller.setdefault("spec", {})
    if "template" in spec:
        template_defaults(spec)
        labels = spec["template"]["metadata"].get("labels")
        if labels:
            spec.setdefault("selector", dict(labels))
            metadata = controller.setdefault("metadata", {})
            if not metadata.get("labels"):
                metadata["labels"] = dict(labels)
    spec.setdefault("replicas", 1)


def _stateful_set(stateful_set: Object) -> None:
    spec = stateful_set.setdefault("spec", {})
    spec.setdefault("replicas", 1)
    spec.setdefault("podManagementPolicy", "OrderedReady")
    spec.setdefault("revisionHistoryLimit", 10)
    retention = spec.setdefault("persistentVolumeClaimRetentionPolicy", {})
    retention.setdefault("whenDeleted", "Retain")
    retention.setdefault("whenScaled", "Retain")
    update = spec.setdefault("updateStrategy", {})
    update.setdefault("type", "RollingUpdate")
    if update["type"] == "RollingUpdate":
        update.setdefault("rollingUpdate", {}).setdefault("partition", 0)
    template_defaults(spec)
    for claim in spec.get("volumeClaimTemplates", ()):
        claim.setdefault("apiVersion", "v1")
        claim.setdefault("kind", "PersistentVolumeClaim")
        _claim(claim)


def _daemon_set(daemon_set: Object) -> None:
    spec = daemon_set.setdefault("spec", {})
    spec.setdefault("revisionHistoryLimit", 10)
    update = spec.setdefault("updateStrategy", {})
    update.setdefault("type", "RollingUpdate")
    if update["type"] == "RollingUpdate":
        rolling = update.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", 1)
        rolling.setdefault("maxSurge", 0)
    template_defaults(spec)
    metadata = daemon_set.setdefault("metadata", {})
    metadata.setdefault("annotations", {}).setdefault(
        "deprecated.daemonset.template.generation", "1"
    )


def _service(service: Object) -> None:
    spec = service.setdefault("spec", {})
    spec.setdefault("type", "ClusterIP")
    if spec.setdefault("sessionAffinity", "None") == "None":
        spec.pop("sessionAffinityConfig", None)
    elif spec["sessionAffinity"] == "ClientIP":
        client = spec.setdefault("sessionAffinityConfig", {}).setdefault("clientIP", {})
        client.setdefault("timeoutSeconds", 10_800)
    if spec["type"] in ("ClusterIP", "NodePort", "LoadBalancer"):
        spec.setdefault("internalTrafficPolicy", "Cluster")
    if spec["type"] in ("NodePort", "LoadBalancer"):
        spec.setdefault("externalTrafficPolicy", "Cluster")
    if spec["type"] == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)
    if spec["type"] != "ExternalName":
        spec.setdefault("ipFamilies", ["IPv4"])
        spec.setdefault("ipFamilyPolicy", "SingleStack")
    if spec.get("clusterIP"):
        spec.setdefault("clusterIPs", [spec["clusterIP"]])
    for port in spec.get("ports", ()):
        port.setdefault("protocol", "TCP")
        if port.get("targetPort") in (None, 0, ""):
            port["targetPort"] = port.get("port", 0)


def _namespace(namespace: Object) -> None:
    metadata = namespace.setdefault("metadata", {})
    if metadata.get("name"):
        labels = metadata.setdefault("labels", {})
        labels["kubernetes.io/metadata.name"] = metadata["name"]
    spec = namespace.setdefault("spec", {})
    if not metadata.get("deletionTimestamp"):
        spec.setdefault("finalizers", ["kubernetes"])
    namespace.setdefault("status", {}).setdefault("phase", "Active")


def _node(node: Object) -> None:
    status = node.setdefault("status", {})
    if "capacity" in status:
        status.setdefault("allocatable", dict(status["capacity"]))


def _secret(secret: Object) -> None:
    secret.setdefault("type", "Opaque")
    plain = secret.pop("stringData", None)
    if plain:
        data = secret.setdefault("data", {})
        for key, text in plain.items():
            data[key] = base64.b64encode(text.encode()).decode()


def _claim(claim: Object) -> None:
    claim.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")
    claim.setdefault("status", {}).setdefault("phase", "Pending")


def _volume_object(volume: Object) -> None:
    spec = volume.setdefault("spec", {})
    spec.setdefault("persistentVolumeReclaimPolicy", "Retain")
    spec.setdefault("volumeMode", "Filesystem")
    volume.setdefault("status", {}).setdefault("phase", "Pending")


def _storage_class(storage_class: Object) -> None:
    storage_class.setdefault("reclaimPolicy", "Delete")
    storage_class.setdefault("volumeBindingMode", "Immediate")


def _csi_driver(driver: Object) -> None:
    spec = driver.setdefault("spec", {})
    spec.setdefault("attachRequired", True)
    spec.setdefault("fsGroupPolicy", "ReadWriteOnceWithFSType")
    spec.setdefault("volumeLifecycleModes", ["Persistent"])
    for word in ("podInfoOnMount", "requiresRepublish", "seLinuxMount", "storageCapacity"):
        spec.setdefault(word, False)


def _resource_claim(claim: Object) -> None:
    for request in ((claim.get("spec") or {}).get("devices") or {}).get("requests") or ():
        for one in (request.get("exactly"), *(request.get("firstAvailable") or ())):
            if one is not None:
                one.setdefault("allocationMode", "ExactCount")
                if one["allocationMode"] == "ExactCount":
                    one.setdefault("count", 1)
                for toleration in one.get("tolerations") or ():
                    toleration.setdefault("operator", "Equal")


def _resource_claim_template(template: Object) -> None:
    _resource_claim(template.get("spec") or {})


def _limit_range(limits: Object) -> None:
    for item in limits.setdefault("spec", {}).get("limits", ()):
        complete_limit_range(item)


def _priority_class(priority_class: Object) -> None:
    priority_class.setdefault("preemptionPolicy", "PreemptLowerPriority")


def _role_binding(binding: Object) -> None:
    role = binding.setdefault("roleRef", {})
    role["apiGroup"] = role.get("apiGroup") or "rbac.authorization.k8s.io"
    for subject in binding.get("subjects", ()):
        if subject.get("kind") in ("User", "Group"):
            subject.setdefault("apiGroup", "rbac.authorization.k8s.io")


def _cluster_role(role: Object) -> None:
    role.setdefault("rules", None)


def _webhooks(configuration: Object) -> None:
    for webhook in configuration.get("webhooks", ()):
        webhook.setdefault("failurePolicy", "Fail")
        webhook.setdefault("matchPolicy", "Equivalent")
        webhook.setdefault("namespaceSelector", {})
        webhook.setdefault("objectSelector", {})
        webhook.setdefault("timeoutSeconds", 10)
        service = (webhook.get("clientConfig") or {}).get("service")
        if service is not None:
            service.setdefault("port", 443)
        for rule in webhook.get("rules", ()):
            rule.setdefault("scope", "*")
    if configuration.get("kind") == "MutatingWebhookConfiguration":
        for webhook in configuration.get("webhooks", ()):
            webhook.setdefault("reinvocationPolicy", "Never")


def _endpoint_slice(endpoint_slice: Object) -> None:
    for port in endpoint_slice.get("ports", ()):
        port.setdefault("name", "")
        port.setdefault("protocol", "TCP")


def _pod_group(pod_group: Object) -> None:
    older = str(pod_group.get("apiVersion")).endswith("/v1alpha2")
    mode: Any = "Pod" if older else {"single": {}}
    pod_group.setdefault("spec", {}).setdefault("disruptionMode", mode)


def _pod_template(template: Object) -> None:
    template_defaults(template)


_DEFAULTS: Final[Mapping[tuple[str, str], Callable[[Object], None]]] = {
    ("", "LimitRange"): _limit_range,
    ("", "Namespace"): _namespace,
    ("", "Node"): _node,
    ("", "PersistentVolume"): _volume_object,
    ("", "PersistentVolumeClaim"): _claim,
    ("", "Pod"): pod_defaults,
    ("", "PodTemplate"): _pod_template,
    ("", "ReplicationController"): _replication_controller,
    ("", "Secret"): _secret,
    ("", "Service"): _service,
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"): _webhooks,
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"): _webhooks,
    ("apps", "DaemonSet"): _daemon_set,
    ("apps", "Deployment"): _deployment,
    ("apps", "ReplicaSet"): _replica_set,
    ("apps", "StatefulSet"): _stateful_set,
    ("batch", "CronJob"): _cron_job,
    ("batch", "Job"): _job,
    ("discovery.k8s.io", "EndpointSlice"): _endpoint_slice,
    ("rbac.authorization.k8s.io", "ClusterRole"): _cluster_role,
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"): _role_binding,
    ("rbac.authorization.k8s.io", "Role"): _cluster_role,
    ("rbac.authorization.k8s.io", "RoleBinding"): _role_binding,
    ("resource.k8s.io", "ResourceClaim"): _resource_claim,
    ("resource.k8s.io", "ResourceClaimTemplate"): _resource_claim_template,
    ("scheduling.k8s.io", "PriorityClass"): _priority_class,
    ("scheduling.k8s.io", "CompositePodGroup"): _pod_group,
    ("scheduling.k8s.io", "PodGroup"): _pod_group,
    ("storage.k8s.io", "CSIDriver"): _csi_driver,
    ("storage.k8s.io", "StorageClass"): _storage_class,
}
