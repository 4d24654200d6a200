"""Combinations of the chart's values in which every pair of choices occurs.

Greedy, as AETG does: each row starts with a pair that no row has yet, and takes of every other
factor the choice that brings most new pairs. Deterministic.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Final

__all__ = ["FACTORS", "combinations", "covering", "values_of"]

Values = Mapping[str, Any]
Row = tuple[int, ...]

_ENDPOINT: Final = "http://exporter.gpu-operator.svc:5000/metrics"
_IDLE: Final[Values] = {"gpuPreemption": {"enabled": True, "metricsEndpoint": _ENDPOINT}}
_NETWORK: Final[Values] = {
    "enabled": True,
    "webhooks": {"cidrs": ["10.0.0.1/32"]},
    "metrics": {"namespaces": ["monitoring"]},
    "web": {"namespaces": ["ingress"]},
}
_EGRESS: Final[Values] = {
    "enabled": True,
    "apiServer": {"cidrs": ["10.0.0.1/32"]},
    "notifications": {"cidrs": ["192.0.2.0/24"]},
    "metricSources": {"namespaces": ["gpu-operator"], "ports": [5000]},
}
_CREDENTIALS: Final[Values] = {"credentials": {"name": "scraper", "key": "token"}}
_PROFILE: Final[Values] = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [{"schedulerName": "gangs"}],
}
_KUEUE: Final[Values] = {
    "apiVersion": "config.kueue.x-k8s.io/v1beta2",
    "kind": "Configuration",
    "integrations": {"frameworks": ["batch/job", "pod"]},
}

#: Factor -> its choices, each a part of a values file; none contradicts one of another factor.
FACTORS: Final[Mapping[str, Sequence[Values]]] = {
    "planes": (
        {},
        _IDLE,
        {"controllers": ["scheduling"]},
        {"controllers": ["quota"]},
        {"controllers": ["idle", "scheduling", "quota"], **_IDLE},
        {"controllers": ["scheduling", "quota"]},
    ),
    "idle": (
        {},
        {
            "gpuPreemption": {
                "fit": "Sum",
                "irreducible": True,
                "profile": "best",
                "defaultThreshold": 0,
                "vendors": ["nvidia", "intel"],
                "notice": {"max": "1m", "keep": "1h"},
                "literal": {"deleteWithoutUid": True},
            }
        },
    ),
    "kaiwo": (
        {},
        {"kaiwoConfig": {"enabled": True, "spec": {"gpuPreemption": {"defaultThreshold": 10}}}},
    ),
    "scheduling": (
        {},
        {"scheduling": {"schedulerNames": [], "configuration": _PROFILE, "sharedNodes": True}},
        {
            "scheduling": {
                "featureGates": {"PodGroupPreemptionPolicy": True},
                "strictDisruptionMode": True,
                "profile": "compatible",
                "harmOrder": True,
                "preemptionPriority": {"cap": 1000, "namespaces": {"team-a": 500}},
                "maxMinRuntime": "2h",
            }
        },
    ),
    "quota": (
        {},
        {"quota": {"preemptionPolicy": "FairSharing", "profile": "best", "loopLimit": 0}},
        {"quota": {"configuration": _KUEUE}},
        {"quota": {"configurationMap": "kueue-manager-config"}},
    ),
    "webhooks": (
        {},
        {"quota": {"webhooks": {"certManager": {"enabled": True}}}},
        {
            "quota": {
                "webhooks": {
                    "port": 10250,
                    "jobFailurePolicy": "Fail",
                    "namespaceSelector": {"matchLabels": {"queues": "true"}},
                    "clientCertificate": {"configMap": "clients", "names": ["kube-apiserver"]},
                }
            }
        },
    ),
    "notifications": (
        {},
        {"notifications": {"hosts": ["*.example.com", "relay.chat.svc:8080"]}},
    ),
    "governor": ({}, {"governor": {"enforce": "all", "loopLimit": 3}}),
    "process": (
        {},
        {"dryRun": True, "verbosity": 6, "replicas": 3},
        {"notice": {"enabled": True}},
        {"notice": {"enabled": True, "tls": {"enabled": True}}},
        {"replicas": 2, "podDisruptionBudget": {"enabled": False}, "crds": {"install": "Never"}},
    ),
    "rights": (
        {},
        {
            "rbac": {
                "actions": True,
                "extraOwnerRules": [{"apiGroups": ["batch"], "resources": ["cronjobs"]}],
            },
            "serviceAccount": {"name": "room", "annotations": {"a": "b"}},
            "admissionPolicy": {"extraUsers": ["system:serviceaccount:ops:backup"]},
        },
        {
            "rbac": {"create": False},
            "serviceAccount": {"create": False, "name": "given"},
            "admissionPolicy": {"enabled": False},
        },
    ),
    "metrics": (
        {},
        {"metrics": {"authentication": True, "service": {"annotations": {"a": "b"}}}},
    ),
    "monitors": (
        {},
        {"serviceMonitor": {"enabled": True, "labels": {"release": "p"}, **_CREDENTIALS}},
        {
            "podMonitor": {"enabled": True, "interval": "10s", **_CREDENTIALS},
            "metrics": {"service": {"enabled": False}},
        },
    ),
    "boards": (
        {},
        {
            "prometheusRule": {"enabled": True, "runbooks": "https://example.com/runbooks"},
            "dashboards": {"enabled": True, "folder": "GPUs"},
        },
    ),
    "network": (
        {},
        {"networkPolicy": _NETWORK, "flowSchema": {"enabled": True}},
        {"networkPolicy": {**_NETWORK, "egress": _EGRESS}},
    ),
    "web": (
        {},
        {"web": {"enabled": True, "clusterName": "one", "trustedProxies": ["10.0.0.0/8"]}},
        {
            "web": {
                "enabled": True,
                "hosts": ["reprieve.example.com"],
                "tls": {"secretName": "web"},
                "ingress": {
                    "enabled": True,
                    "className": "nginx",
                    "host": "reprieve.example.com",
                    "tlsSecretName": "ingress",
                },
            }
        },
    ),
    "pod": (
        {},
        {
            "nameOverride": "room",
            "image": {"repository": "registry.example/reprieve", "tag": "1.2.3"},
            "imagePullSecrets": [{"name": "pull"}],
            "podAnnotations": {"a": "1"},
            "podLabels": {"team": "platform"},
            "nodeSelector": {"kubernetes.io/os": "linux"},
            "tolerations": [{"key": "control-plane", "operator": "Exists"}],
            "priorityClassName": "system-cluster-critical",
            "extraEnv": [{"name": "TZ", "value": "UTC"}],
            "extraArgs": ["--log-format", "json"],
        },
        {
            "fullnameOverride": "a" * 40,
            "resources": {"requests": {"cpu": 1}, "limits": {"memory": "2Gi"}},
            "topologySpreadConstraints": [
                {
                    "maxSkew": 1,
                    "topologyKey": "topology.kubernetes.io/zone",
                    "whenUnsatisfiable": "ScheduleAnyway",
                }
            ],
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": "gpu", "operator": "DoesNotExist"}]}
                        ]
                    }
                }
            },
        },
    ),
}


def combinations() -> list[dict[str, Any]]:
    """Return values files in which every two choices of two factors meet, a default among them."""
    sizes = [len(choices) for choices in FACTORS.values()]
    return [values_of(row) for row in covering(sizes)]


def values_of(row: Row) -> dict[str, Any]:
    """Return the values of one choice per factor."""
    merged: dict[str, Any] = {}
    for choices, chosen in zip(FACTORS.values(), row, strict=True):
        _merge(merged, choices[chosen])
    return merged


def covering(sizes: Sequence[int]) -> list[Row]:
    """Return rows, of one choice below each size, in which every pair of choices stands."""
    missing = {
        ((one, a), (other, b))
        for one, other in itertools.combinations(range(len(sizes)), 2)
        for a in range(sizes[one])
        for b in range(sizes[other])
    }
    rows: list[Row] = []
    while missing:
        row = dict(min(missing))
        # Factors with many choices first: they have the most pairs left.
        for factor in sorted(range(len(sizes)), key=lambda each: -sizes[each]):
            if factor not in row:
                row[factor] = max(
                    range(sizes[factor]),
                    key=lambda choice: (len(_pairs(factor, choice, row) & missing), -choice),
                )
        full = tuple(row[factor] for factor in range(len(sizes)))
        rows.append(full)
        missing -= set(itertools.combinations(enumerate(full), 2))
    return rows


def _pairs(
    factor: int, choice: int, row: Mapping[int, int]
) -> set[tuple[tuple[int, int], tuple[int, int]]]:
    mine = (factor, choice)
    return {(min(mine, other), max(mine, other)) for other in row.items()}


def _merge(into: dict[str, Any], part: Values) -> None:
    for name, value in part.items():
        if isinstance(value, Mapping):
            _merge(into.setdefault(name, {}), value)
        else:
            into[name] = value
