"""Every series that the operator can serve, with its labels, and those that a query is about."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase

from reprieve.telemetry.metrics import Metrics
from reprieve.telemetry.quota_series import COUNTERS, GAUGES, HISTOGRAMS
from reprieve.telemetry.scheduling import SchedulingMetrics

__all__ = ["faults_of", "served"]

# What Prometheus itself puts onto every series of a scrape, and what a histogram's buckets have.
_OF_A_TARGET: Final = {"namespace", "job", "pod", "le"}
_SUFFIXES: Final = ("", "_total", "_bucket", "_count", "_sum")
# Those of a Python process that Prometheus' client brings.
_OF_A_PROCESS: Final = ("process_cpu_seconds_total", "process_resident_memory_bytes")


def served() -> Mapping[str, set[str]]:
    """Return the labels of every series, by name."""
    scheduling = CollectorRegistry()
    SchedulingMetrics(scheduling)
    found: dict[str, set[str]] = {name: set() for name in _OF_A_PROCESS}
    for registry in (Metrics().registry, scheduling):
        for collector in registry._names_to_collectors.values():
            assert isinstance(collector, MetricWrapperBase)
            labels = set(collector._labelnames)
            for family in collector.describe():
                for suffix in _SUFFIXES:
                    found.setdefault(family.name + suffix, set()).update(labels)
    found |= {f"kueue_{name}_total": set(labels) for name, (_, labels) in COUNTERS.items()}
    found |= {f"kueue_{name}": set(labels) for name, (_, labels) in GAUGES.items()}
    for name, (_, names, _) in HISTOGRAMS.items():
        found |= {f"kueue_{name}{suffix}": set(names) for suffix in _SUFFIXES}
    return found


def faults_of(query: str, known: Mapping[str, set[str]]) -> list[str]:
    """Return what a query asks for that is not served; an empty list is what one wants."""
    patterns = re.findall(r'__name__=~"([^"]+)"', query)
    plain = re.sub(r'"[^"]*"', '""', query)
    names = re.findall(r"\b(?:reprieve|scheduler|kueue|process)_[a-z_]+\b", plain)
    faults = [f"{name} is not served" for name in names if name not in known]
    names += [name for each in patterns for name in known if re.fullmatch(each, name)]
    if not names:
        faults.append("it is about no metric")
    labels = set[str]().union(*(known.get(name, set()) for name in names)) | _OF_A_TARGET
    asked = [each for group in re.findall(r"\bby \(([^)]*)\)", plain) for each in group.split(",")]
    asked += re.findall(r"([a-z_]+)(?:=~|!=|=)\"", plain)
    asked += re.findall(r"\{\{\s*([a-z_]+)\s*\}\}", query)
    faults += [
        f"no label {label.strip()}"
        for label in asked
        if label.strip() not in labels and label.strip() != "__name__"
    ]
    return faults
