"""`/metrics`: requests by verb, kind and code, under the name and labels of a real API server.

A watch is counted when it ends. Beside it stand the CPU and memory of the process that serves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from kubelocal.server.wire.target import Target

__all__ = ["CONTENT_TYPE", "RequestMetrics"]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_LABELS: Final = (
    *("code", "component", "dry_run", "group", "resource", "scope", "subresource"),
    *("verb", "version"),
)
_VERBS: Final = {"create": "POST", "update": "PUT"}
_APPLY: Final = "application/apply-patch+yaml"


class RequestMetrics(Collector):
    """What was answered so far."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, ...]] = Counter()
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def count(
        self, target: Target, verb: str, code: int, *, dry_run: str, content_type: str
    ) -> None:
        """Apply one answer; `verb` is that of rules, `dry_run` the value requested."""
        applied = verb == "patch" and content_type.startswith(_APPLY)
        scope = "cluster" if target.namespace is None else "namespace"
        if target.name or verb == "create":
            scope = "resource"
        elif not target.kind.namespaced:
            scope = "cluster"
        self._counts[
            str(code),
            "apiserver",
            dry_run,
            target.kind.group,
            target.kind.plural,
            scope,
            target.subresource,
            "APPLY" if applied else _VERBS.get(verb, verb.upper()),
            target.kind.version,
        ] += 1

    def collect(self) -> Iterator[CounterMetricFamily]:
        family = CounterMetricFamily(
            "apiserver_request_total",
            "Requests to the API server that were answered.",
            labels=_LABELS,
        )
        for labels, count in sorted(self._counts.items()):
            family.add_metric(labels, count)
        yield family

    def text(self) -> bytes:
        """Return all of it in the text format."""
        return generate_latest(self._registry)
