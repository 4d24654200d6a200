"""Defaults of pods and pod templates, as users see them in what the server stored.

Source: the API's documented defaults; objects of a 1.37 server.
"""

from __future__ import annotations

from typing import Any

from kubeworld.admission.pods import bind_host_ports, request_limits
from kubeworld.objects.quality import quality

__all__ = ["pod_defaults", "template_defaults"]

Object = dict[str, Any]


def pod_defaults(pod: Object) -> None:
    """Fill in what a pod leaves out, in its spec and in its first status."""
    spec = pod.setdefault("spec", {})
    _spec(spec)
    spec.setdefault("enableServiceLinks", True)
    request_limits(spec)
    bind_host_ports(spec)
    status = pod.setdefault("status", {})
    status.setdefault("phase", "Pending")
    status.setdefault("qosClass", quality(spec))


def template_defaults(spec: Object) -> None:
    """Fill in what the `template` of `spec` leaves out."""
    template = spec.setdefault("template", {})
    template.setdefault("metadata", {})
    _spec(template.setdefault("spec", {}))


def _spec(spec: Object) -> None:
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("securityContext", {})
    spec.setdefault("terminationGracePeriodSeconds", 30)
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:
        spec["serviceAccountName"] = spec["serviceAccount"] = account
    for group in ("initContainers", "containers", "ephemeralContainers"):
        for container in spec.get(group, ()):
            _container(container)
    for volume in spec.get("volumes", ()):
        _volume(volume)


def _container(container: Object) -> None:
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    image = container.get("image", "")
    if "imagePullPolicy" not in container and image:
        container["imagePullPolicy"] = "Always" if _is_latest(image) else "IfNotPresent"
    for port in container.get("ports", ()):
        port.setdefault("protocol", "TCP")
    for variable in container.get("env", ()):
        reference = (variable.get("valueFrom") or {}).get("fieldRef")
        if reference is not None:
            reference.setdefault("apiVersion", "v1")
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if container.get(name):
            _probe(container[name])
    for hook in (container.get("lifecycle") or {}).values():
        if isinstance(hook, dict) and hook.get("httpGet"):
            _http_get(hook["httpGet"])


def _is_latest(image: str) -> bool:
    name, _, digest = image.partition("@")
    tag = name.rpartition("/")[2].partition(":")[2]
    return not digest and tag in ("", "latest")


def _probe(probe: Object) -> None:
    probe.setdefault("timeoutSeconds", 1)
    probe.setdefault("periodSeconds", 10)
    probe.setdefault("successThreshold", 1)
    probe.setdefault("failureThreshold", 3)
    if probe.get("httpGet"):
        _http_get(probe["httpGet"])
    if probe.get("grpc"):
        probe["grpc"].setdefault("service", "")


def _http_get(action: Object) -> None:
    action.setdefault("path", "/")
    action.setdefault("scheme", "HTTP")


def _volume(volume: Object) -> None:
    # Without a source a volume is an empty directory.
    if not any(word != "name" for word in volume):
        volume["emptyDir"] = {}
    for source in ("configMap", "secret", "downwardAPI", "projected"):
        if source in volume:
            volume[source].setdefault("defaultMode", 0o644)
    if "hostPath" in volume:
        volume["hostPath"].setdefault("type", "")
    for each in (volume.get("projected") or {}).get("sources", ()):
        if "serviceAccountToken" in each:
            each["serviceAccountToken"].setdefault("expirationSeconds", 3607)
    for holder in (volume, *(volume.get("projected") or {}).get("sources", ())):
        for item in (holder.get("downwardAPI") or {}).get("items", ()):
            if item.get("fieldRef"):
                item["fieldRef"].setdefault("apiVersion", "v1")
