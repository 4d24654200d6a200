"""The exporter's Service and EndpointSlice, so that it can be found as in a real cluster.

The Service is headless and has no selector; its one endpoint is the exporter of this process, as
behind a collector. Readers follow `service://kube-amd-gpu/gpu-metrics-exporter:metrics/metrics`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kubelocal.machines.informer import Informer
from kubelocal.machines.node.exporter import Exporter
from kubelocal.machines.objects import AlreadyThere, Change, Object

__all__ = ["EXPORTER_NAMESPACE", "EXPORTER_SERVICE", "ExporterService"]

EXPORTER_NAMESPACE: Final = "kube-amd-gpu"
EXPORTER_SERVICE: Final = "gpu-metrics-exporter"
_SLICES: Final = "endpointslices.discovery.k8s.io"
_KEY: Final = "exporter"


class ExporterService:
    """Keeps both objects as they should be; what is deleted while it runs is made again."""

    name = "exporter-service"

    def __init__(self, informer: Informer, exporter: Exporter) -> None:
        self._informer = informer
        self._exporter = exporter

    def names(self) -> list[str]:
        """Return the keys to look at when starting."""
        return [_KEY]

    def concerns(self, change: Change, before: Object | None) -> Iterable[str]:
        metadata = change.object["metadata"]
        ours = metadata["name"] == EXPORTER_NAMESPACE and change.resource == "namespaces"
        ours |= metadata.get("namespace") == EXPORTER_NAMESPACE and metadata["name"].startswith(
            EXPORTER_SERVICE
        )
        return [_KEY] if ours else []

    async def reconcile(self, key: str) -> None:
        namespace = self._informer.get("namespaces", "", EXPORTER_NAMESPACE)
        if namespace is None:
            body = {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": EXPORTER_NAMESPACE},
            }
            await self._create("namespaces", body)
        elif namespace["metadata"].get("deletionTimestamp"):
            return
        if self._informer.get("services", EXPORTER_NAMESPACE, EXPORTER_SERVICE) is None:
            await self._create("services", self._service())
        wanted = self._slice()
        present = self._informer.get(_SLICES, EXPORTER_NAMESPACE, EXPORTER_SERVICE)
        if present is None:
            await self._create(_SLICES, wanted)
        elif _address(present) != _address(wanted):
            ports = {"ports": wanted["ports"], "endpoints": wanted["endpoints"]}
            await self._informer.update(_SLICES, {**present, **ports})

    async def _create(self, resource: str, obj: Object) -> None:
        try:
            await self._informer.create(resource, obj)
        except AlreadyThere:
            return

    def _service(self) -> Object:
        port = {"name": "metrics", "port": 5000, "protocol": "TCP", "targetPort": 5000}
        return {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": EXPORTER_SERVICE, "namespace": EXPORTER_NAMESPACE},
            "spec": {"clusterIP": "None", "ports": [port]},
        }

    def _slice(self) -> Object:
        return {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": EXPORTER_SERVICE,
                "namespace": EXPORTER_NAMESPACE,
                "labels": {"kubernetes.io/service-name": EXPORTER_SERVICE},
            },
            "addressType": "IPv4",
            "ports": [{"name": "metrics", "port": self._exporter.port, "protocol": "TCP"}],
            "endpoints": [
                {"addresses": [self._exporter.host], "conditions": {"ready": True}},
            ],
        }


def _address(endpoint_slice: Object) -> tuple[list[object], list[object]]:
    return (
        [port.get("port") for port in endpoint_slice.get("ports") or ()],
        [endpoint.get("addresses") for endpoint in endpoint_slice.get("endpoints") or ()],
    )
