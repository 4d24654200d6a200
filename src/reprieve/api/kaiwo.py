"""Kaiwo's API: `GpuWorkload` and the part of `KaiwoConfig` that the idle plane reads.

JSON is exactly what the specification of the idle plane, sections 2 and 3, states; what is unset is
left out. Durations stay text (Go form), instants RFC 3339 text; `intake.gpuworkloads` makes engine
rows of them.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from reprieve.api.core import ObjectMeta

__all__ = [
    "ANNOTATION_PREFIX",
    "CONFIG_NAME",
    "DERIVED_ANNOTATION",
    "GPU_WORKLOAD_API_VERSION",
    "KAIWO_CONFIG_API_VERSION",
    "SUFFIXES",
    "Condition",
    "GpuMetric",
    "GpuWorkload",
    "GpuWorkloadSpec",
    "GpuWorkloadStatus",
    "KaiwoConfig",
    "KaiwoConfigSpec",
    "TrackedPod",
    "WorkloadReference",
]

GPU_WORKLOAD_API_VERSION: Final = "kaiwo.silogen.ai/v1alpha1"
KAIWO_CONFIG_API_VERSION: Final = "config.kaiwo.silogen.ai/v1alpha1"
CONFIG_NAME: Final = "kaiwo"
ANNOTATION_PREFIX: Final = "kaiwo.silogen.ai/gpu-preemption."
SUFFIXES: Final = ("enabled", "threshold", "grace-period", "policy", "aggregation", "ttl")
# What the annotations stated when the spec was last written: fields that differ from it were edited
# by hand and stay. JSON of the five override fields in the spec's own form.
DERIVED_ANNOTATION: Final = "reprieve.dev/derived"


class _Struct(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Common settings: camel case in JSON, defaults left out."""


class WorkloadReference(msgspec.Struct, frozen=True, rename="camel"):
    """The root owner."""

    api_version: str
    kind: str
    name: str
    uid: str = ""


class GpuWorkloadSpec(_Struct, frozen=True):
    """Root, GPU total per resource name and overrides; an unset override is resolved each time."""

    workload_ref: WorkloadReference
    gpu_resources: dict[str, int]
    utilization_threshold: float | None = None
    grace_period: str | None = None
    preemption_policy: str | None = None
    aggregation_policy: str | None = None
    ttl_after_finished: str | None = None


class GpuMetric(_Struct, frozen=True):
    """The last utilisation of one GPU, percent."""

    utilization: float
    last_update: str
    gpu_id: str = ""


class TrackedPod(_Struct, frozen=True):
    """An owned pod and its GPUs."""

    pod_name: str
    gpu_metrics: list[GpuMetric] | None = None


class Condition(msgspec.Struct, frozen=True, rename="camel"):
    """A standard condition."""

    type: str
    status: str
    reason: str
    message: str
    last_transition_time: str


class GpuWorkloadStatus(_Struct, frozen=True):
    """The status; nothing is required. `policy` and `gpus` are ours, for wide columns."""

    phase: str = ""
    tracked_pods: list[TrackedPod] | None = None
    aggregated_utilization: float | None = None
    last_metrics_update: str | None = None
    idle_since: str | None = None
    finished_at: str | None = None
    owner_chain: str = ""
    preempted_at: str | None = None
    preempted_for: str = ""
    preemption_reason: str = ""
    policy: str = ""
    gpus: str = ""
    conditions: list[Condition] | None = None


class GpuWorkload(msgspec.Struct, frozen=True, rename="camel"):
    """One tracked root owner."""

    metadata: ObjectMeta
    spec: GpuWorkloadSpec
    status: GpuWorkloadStatus = GpuWorkloadStatus()
    api_version: str = GPU_WORKLOAD_API_VERSION
    kind: str = "GpuWorkload"


class KaiwoConfigSpec(msgspec.Struct, frozen=True, rename="camel"):
    """`gpuPreemption` stays undecoded, so that one bad field does not cost the others."""

    gpu_preemption: dict[str, Any] | None = None


class KaiwoConfig(msgspec.Struct, frozen=True, rename="camel"):
    """The cluster-wide defaults; only the object named `kaiwo` is read."""

    metadata: ObjectMeta
    spec: KaiwoConfigSpec = KaiwoConfigSpec()
    api_version: str = KAIWO_CONFIG_API_VERSION
    kind: str = "KaiwoConfig"
