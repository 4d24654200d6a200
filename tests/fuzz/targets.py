"""What is fuzzed: every reader of text that tenants write, each as a function of bytes.

A target returns for whatever it is given, or raises what the reader promises and the target then
swallows; anything else is a finding. Errors that are told have at most 200 characters. Bytes are
taken apart at `\\x1f`, so that a fuzzer learns to fill several fields.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from itertools import cycle, islice
from typing import Any, Final

import msgspec
import orjson

from kubeworld.units.durations import SECOND, parse_duration
from kubeworld.units.instants import parse_instant
from kubeworld.units.quantities import InvalidQuantity, parse_exact, parse_milli, parse_quantity
from kubeworld.units.untrusted import (
    TOLD,
    Unreadable,
    integer_or_none,
    read_float,
    read_integer,
    read_json,
    shown,
)
from reprieve.api import gangs, kueue
from reprieve.api.core import KueueWorkload, Pod
from reprieve.api.kaiwo import ANNOTATION_PREFIX, DERIVED_ANNOTATION, SUFFIXES, GpuWorkload
from reprieve.api.kueue_conversion import KEPT, convert
from reprieve.api.kueue_validation import workload_errors
from reprieve.api.kueue_validation_jobs import pod_errors
from reprieve.api.pod_groups import PodGroup
from reprieve.api.reprieve import PREEMPT_MIN_RUNTIME
from reprieve.api.scheduling import LabelSelector, PodObject
from reprieve.engine.idle.literal import LiteralSwitches
from reprieve.engine.idle.resources import DEFAULT_VENDORS
from reprieve.engine.placement.filters.dynamic.device_selectors import compile_selector
from reprieve.engine.placement.filters.dynamic.device_tokens import UnsupportedSelector
from reprieve.engine.quota.holdings.shares import fair_weight
from reprieve.engine.scheduling.gangs.records import Defaults
from reprieve.engine.selectors import requirement_holds, selects
from reprieve.intake import pods as idle_pods
from reprieve.intake.cluster.groups import group_row
from reprieve.intake.cluster.metadata import (
    DISRUPTION,
    DISRUPTION_FLOOR,
    LAST_CHECKPOINT,
    PREEMPTION_PRIORITY_CLASS,
)
from reprieve.intake.cluster.pods import counted_pod_row, pod_row
from reprieve.intake.cluster.selectors import label_selector
from reprieve.intake.gangs import group_spec, pod_member
from reprieve.intake.gpuworkloads import status_from_api
from reprieve.intake.quota import Unusable, local_queue_row
from reprieve.intake.quota_requests import UnreadableRequest, amount_of, pod_requests
from reprieve.intake.quota_workloads import PRIORITY_BOOST, PodSetRows, workload_row
from reprieve.jobs.pod_sets import found_pod_sets
from reprieve.jobs.reading import reclaimable
from reprieve.jobs.table import BUILT_IN
from reprieve.kube.decoding import decode_event, decode_page
from reprieve.kube.errors import ApiError
from reprieve.planes.quota.webhooks.reviews import (
    MalformedReview,
    admission_review,
    conversion_review,
    kueue_hooks,
)
from reprieve.settings.idle import derive, overrides_of, read_derived

__all__ = ["POD_NOTES", "TARGETS"]

Target = Callable[[bytes], None]

_GANG: Final = "gang.scheduling.koordinator.sh/"
POD_NOTES: Final = (
    PREEMPT_MIN_RUNTIME,
    LAST_CHECKPOINT,
    DISRUPTION,
    DISRUPTION_FLOOR,
    PREEMPTION_PRIORITY_CLASS,
    f"{_GANG}name",
    f"{_GANG}min-available",
    f"{_GANG}total-number",
    f"{_GANG}waiting-time",
    f"{_GANG}mode",
    f"{_GANG}match-policy",
    f"{_GANG}groups",
    "pod-group.scheduling.sigs.k8s.io/min-available",
    "kueue.x-k8s.io/pod-group-name",
    "kueue.x-k8s.io/pod-group-total-count",
    PRIORITY_BOOST,
)
_READERS: Final[tuple[Callable[[str], object], ...]] = (
    read_integer,
    read_float,
    read_json,
    fair_weight,
    parse_duration,
    parse_instant,
    parse_exact,
    parse_milli,
    parse_quantity,
    compile_selector,
)


def values(data: bytes) -> None:
    """Numbers, quantities, durations, instants, JSON, device selectors."""
    text = data.decode("utf-8", "replace")
    for read in _READERS:
        try:
            read(text)
        except (Unreadable, UnsupportedSelector) as error:
            assert len(str(error)) <= TOLD, f"{read.__name__}: {error}"
    for resource in ("cpu", "nvidia.com/gpu"):
        try:
            amount_of(resource, text)
        except InvalidQuantity as error:
            assert len(str(error)) <= TOLD
    integer_or_none(text)
    assert len(shown(text)) <= TOLD


def pod_texts(data: bytes) -> None:
    """Annotations, labels, quantities and selectors of a pod in the scheduling plane."""
    text = fields(data)
    notes = {key: next(text) for key in POD_NOTES}
    pod = {
        "metadata": {
            "name": "a",
            "namespace": "work",
            "uid": "u",
            "resourceVersion": "7",
            "annotations": notes,
            "labels": {"app": next(text), f"{_GANG}name": next(text)},
            "creationTimestamp": next(text),
        },
        "spec": {
            "nodeName": "node",
            "containers": [
                {
                    "name": "c",
                    "image": next(text),
                    "resources": {
                        "requests": {"cpu": next(text), "memory": next(text), next(text): "1"},
                        "limits": {"nvidia.com/gpu": next(text)},
                    },
                }
            ],
            "overhead": {"cpu": next(text)},
            "tolerations": [{"key": next(text), "operator": "Gt", "value": next(text)}],
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [_requirement(text)]},
                            {"matchFields": [_requirement(text)]},
                        ]
                    }
                },
                "podAntiAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": [
                        {
                            "topologyKey": next(text),
                            "labelSelector": {"matchExpressions": [_requirement(text)]},
                        }
                    ]
                },
            },
        },
        "status": {"phase": "Running", "startTime": next(text)},
    }
    found = msgspec.convert(pod, PodObject)
    row = pod_row(found)
    assert row.node == counted_pod_row(found).node == "node"
    assert row.pod_class.requests == counted_pod_row(found).pod_class.requests
    assert -1 <= (row.min_runtime or 0) < 2**63 and 0 <= row.checkpoint < 2**63
    if row.gang:
        labels, said = dict(row.labels), dict(row.gang_annotations)
        pod_member(row.uid, "work", "a", labels, said, bound=True, defaults=Defaults(wait=SECOND))
    other = msgspec.convert(pod, Pod)
    idle_pods.pod_row(other, idle_pods.gpus_of(other, DEFAULT_VENDORS), ())


def group_texts(data: bytes) -> None:
    """Annotations of the PodGroups of all doors."""
    text = fields(data)
    metadata: dict[str, Any] = {"name": "g", "namespace": "work", "uid": "u"}
    metadata |= {"annotations": {key: next(text) for key in POD_NOTES}}
    metadata |= {"resourceVersion": "1", "creationTimestamp": next(text)}
    group_row(msgspec.convert({"metadata": metadata, "spec": {}, "status": {}}, PodGroup))
    old = {"metadata": metadata, "spec": {"minMember": 2}}
    group_spec(msgspec.convert(old, gangs.PodGroup), Defaults(wait=SECOND))


def idle_texts(data: bytes) -> None:
    """Annotations and GpuWorkloads of the idle plane."""
    text = fields(data)
    root, namespace = (
        {f"{ANNOTATION_PREFIX}{suffix}": next(text) for suffix in (*SUFFIXES, next(text))}
        for _ in range(2)
    )
    for literal in (LiteralSwitches(), LiteralSwitches(annotations_read_once=True)):
        assert derive(root, namespace, literal).tracked
    read_derived({DERIVED_ANNOTATION: next(text)})
    workload = {
        "metadata": {"name": "w", "namespace": "work"},
        "spec": {
            "workloadRef": {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"},
            "gpuResources": {"amd.com/gpu": 1},
            "gracePeriod": next(text),
            "ttlAfterFinished": next(text),
            "preemptionPolicy": next(text),
            "aggregationPolicy": next(text),
        },
        "status": {
            "phase": next(text),
            "idleSince": next(text),
            "lastMetricsUpdate": next(text),
            "trackedPods": [{"podName": "p", "gpuMetrics": []}],
        },
    }
    found = msgspec.convert(workload, GpuWorkload)
    overrides_of(found.spec)
    status_from_api(found.status)
    waits = {"type": "QuotaReserved", "status": "False", "reason": "Pending"}
    waits |= {"message": next(text), "lastTransitionTime": next(text)}
    queued = {"metadata": workload["metadata"], "spec": {}, "status": {"conditions": [waits]}}
    idle_pods.lacks_quota(msgspec.convert(queued, KueueWorkload), ("amd.com/gpu",))


def quota_texts(data: bytes) -> None:
    """Workloads, LocalQueues and pods of the quota plane."""
    text = fields(data)
    metadata: dict[str, Any] = {
        "name": "w",
        "namespace": "work",
        "uid": "u",
        "creationTimestamp": next(text),
    }
    metadata |= {"annotations": {key: next(text) for key in (PRIORITY_BOOST, KEPT)}}
    spec: dict[str, Any] = {
        "containers": [
            {"name": "c", "resources": {"requests": {"cpu": next(text), next(text): next(text)}}}
        ],
        "overhead": {"memory": next(text)},
        "nodeSelector": {next(text): next(text)},
        "tolerations": [{"key": next(text), "operator": next(text), "value": next(text)}],
    }
    workload = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": metadata,
        "spec": {
            "queueName": next(text),
            "podSets": [{"name": "main", "count": 1, "template": {"spec": spec}}],
        },
        "status": {
            "requeueState": {"requeueAt": next(text)},
            "admission": {
                "clusterQueue": next(text),
                "podSetAssignments": [{"name": "main", "resourceUsage": {"cpu": next(text)}}],
            },
        },
    }
    row = workload_row(msgspec.convert(workload, kueue.Workload), PodSetRows())
    assert row.admission is not None
    list(workload_errors(workload))
    queue = {"metadata": metadata, "spec": {"fairSharing": {"weight": next(text)}}}
    with contextlib.suppress(Unusable):
        local_queue_row(msgspec.convert(queue, kueue.LocalQueue))
    with contextlib.suppress(UnreadableRequest):
        pod_requests(msgspec.convert(spec, kueue.PodSpec))
    pod = {"metadata": {**metadata, "annotations": {key: next(text) for key in POD_NOTES}}}
    pod["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": next(text)}
    list(pod_errors(pod))
    convert(workload, "kueue.x-k8s.io/v1beta1")
    job = {
        "metadata": {
            "name": "j",
            "annotations": {"kueue.x-k8s.io/job-min-parallelism": next(text)},
        },
        "spec": {
            "parallelism": 3,
            "completions": 2**31 - 1,
            "completionMode": "Indexed",
            "template": {"spec": spec},
        },
        "status": {"succeeded": 1, "completedIndexes": next(text), "failedIndexes": next(text)},
    }
    [kind] = (each for each in BUILT_IN if each.kind == "Job")
    found_pod_sets(kind, job)
    reclaimable(kind, job)


def selectors(data: bytes) -> None:
    """Label selectors, and what their requirements mean."""
    text = fields(data)
    given = {"matchLabels": {next(text): next(text)}, "matchExpressions": [_requirement(text)]}
    found = label_selector(msgspec.convert(given, LabelSelector))
    labels = {next(text): next(text) for _ in range(3)}
    selects(found, labels)
    for each in found or ():
        requirement_holds(each.operator, each.values, next(text))


def answers(data: bytes) -> None:
    """Lists and events of a watch, as the API server sends them."""
    skipped: list[Exception] = []
    for kind in (PodObject, dict):
        for decode in (
            lambda kind=kind: decode_page(data, kind, None, skipped.append),
            lambda kind=kind: decode_event(data, kind),
            lambda kind=kind: decode_page(b'{"items":[%s]}' % data, kind, None, skipped.append),
        ):
            with contextlib.suppress(ApiError):
                decode()


def reviews(data: bytes) -> None:
    """Questions to the webhooks: the whole body, or the object in it."""
    for version, other in (("v1beta1", "v1beta2"), ("v1beta2", "v1beta1")):
        converted = _REVIEW % (b"ConversionReview", b"apiextensions.k8s.io")
        asked = b'"desiredAPIVersion":"kueue.x-k8s.io/%s","objects":[%s]'
        marked = data.replace(b"VERSION", b"kueue.x-k8s.io/" + other.encode())
        for body in (data, converted % (asked % (version.encode(), marked))):
            with contextlib.suppress(MalformedReview):
                orjson.dumps(conversion_review(body))
    admitted = _REVIEW % (b"AdmissionReview", b"admission.k8s.io")
    asked = b'"operation":"UPDATE","namespace":"work","object":%s,"oldObject":%s' % (data, data)
    for hook in _HOOKS:
        for body in (data, admitted % asked):
            with contextlib.suppress(MalformedReview):
                orjson.dumps(admission_review(body, hook.judge))


_REVIEW: Final = b'{"kind":"%s","apiVersion":"%s/v1","request":{"uid":"u",%%s}}'
_HOOKS: Final = kueue_hooks(partial_admission=False)

TARGETS: Final[Mapping[str, Target]] = {
    target.__name__: target
    for target in (
        values,
        pod_texts,
        group_texts,
        idle_texts,
        quota_texts,
        selectors,
        answers,
        reviews,
    )
}


def fields(data: bytes) -> Iterator[str]:
    """Yield the texts of the data for ever, beginning anew at the end."""
    texts = data.decode("utf-8", "replace").split("\x1f")
    return islice(cycle(texts), 10_000)


def _requirement(text: Iterator[str]) -> dict[str, Any]:
    operators = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
    operator = next(text)
    return {
        "key": next(text),
        "operator": operators[len(operator) % 7] if len(operator) % 7 < 6 else operator,
        "values": [next(text), next(text)][: len(operator) % 3],
    }
