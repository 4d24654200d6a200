"""GPU vendors: which resource names are GPUs, which metric has their use, and its labels.

AMD is what the guide describes and is always the default. The other entries state the same things
about NVIDIA's and Intel's exporters, and about HAMi's monitor, which alone reports what a share of
a GPU uses. Source: specification of the idle plane, sections 8 and 10 and
hazard H6; idle signals, section 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Final

from reprieve.engine.cluster.devices import EXTENDED_PREFIX

__all__ = ["AMD", "HAMI", "INTEL", "KNOWN_VENDORS", "NVIDIA", "UtilizationMetric", "Vendor"]


@dataclass(frozen=True, slots=True)
class UtilizationMetric:
    """A metric family and the factor that makes percent of its value: 1 for percent, 100 for ratio.

    The scale is never guessed from a value: 0.9 may be either. `of_partitions`: it comes first for
    partitions of a GPU, and last for whole ones.
    """

    name: str
    scale: float = 1.0
    of_partitions: bool = False


@dataclass(frozen=True, slots=True)
class Vendor:
    """One vendor's resources and metrics.

    `resources`: patterns of extended resource names, `*` standing for any text; `not_devices`:
    patterns of names among them that count something else (memory, shares). `device_classes`:
    patterns of the names of DeviceClasses, and of drivers, of its GPUs. `metrics`: best first;
    a GPU that one metric covers is not read from a later one. Of each tuple of labels the first
    that is there and not empty is used. `uuid_labels`: which device it is, whatever its node calls
    it. `mode_label`: how a GPU is partitioned; `whole` has the values of one that is not.
    """

    name: str
    resources: tuple[str, ...]
    metrics: tuple[UtilizationMetric, ...]
    namespace_labels: tuple[str, ...]
    pod_labels: tuple[str, ...]
    gpu_labels: tuple[str, ...]
    partition_labels: tuple[str, ...] = ()
    not_devices: tuple[str, ...] = ()
    device_classes: tuple[str, ...] = ()
    uuid_labels: tuple[str, ...] = ()
    mode_label: str = ""
    whole: tuple[str, ...] = ()

    def owns(self, resource: str) -> bool:
        """Return whether `resource` is the name of this vendor's GPUs or parts of GPUs.

        Also of a DeviceClass, by the name of the extended resource that stands for it.
        """
        device_class = resource.removeprefix(EXTENDED_PREFIX)
        if device_class != resource:
            return self.selects(device_class)
        return _matches(resource, self.resources) and not _matches(resource, self.not_devices)

    def selects(self, name: str) -> bool:
        """Return whether a DeviceClass or driver of this name is one of this vendor's GPUs."""
        return _matches(name, self.device_classes)


# A cluster has few resource names and queries each for every container of every pod.
@lru_cache(maxsize=1024)
def _matches(resource: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(resource, pattern) for pattern in patterns)


# The exact names and order of section 10 of the specification, after those that a Prometheus
# without `honorLabels` makes of them: there `pod` names the exporter, `exported_pod` the user.
_NAMESPACE: Final = (
    "exported_namespace",
    "namespace",
    "kubernetes_namespace",
    "k8s_namespace_name",
    "k8s.namespace.name",
)
_POD: Final = (
    "exported_pod",
    "pod",
    "pod_name",
    "kubernetes_pod_name",
    "k8s_pod_name",
    "k8s.pod.name",
)

AMD: Final = Vendor(
    name="amd",
    resources=("amd.com/*",),
    metrics=(
        UtilizationMetric("gpu_gfx_activity"),
        # On partitioned GPUs the former is that of partition 0, whichever partition is named.
        UtilizationMetric("gpu_gfx_busy_instantaneous", of_partitions=True),
    ),
    namespace_labels=_NAMESPACE,
    pod_labels=_POD,
    gpu_labels=("gpu_id", "gpu"),
    partition_labels=("gpu_partition_id",),
    device_classes=("gpu.amd.com",),
    uuid_labels=("gpu_uuid",),
    mode_label="gpu_compute_partition_type",
    whole=("", "none", "spx"),
)

NVIDIA: Final = Vendor(
    name="nvidia",
    resources=("nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-*"),
    # The ratio also covers MIG instances and does not saturate with tiny kernels.
    metrics=(
        UtilizationMetric("DCGM_FI_PROF_GR_ENGINE_ACTIVE", scale=100.0),
        UtilizationMetric("DCGM_FI_DEV_GPU_UTIL"),
    ),
    namespace_labels=_NAMESPACE,
    pod_labels=_POD,
    gpu_labels=("gpu", "UUID", "device"),
    partition_labels=("GPU_I_ID",),
    device_classes=("gpu.nvidia.com", "mig.nvidia.com"),
    uuid_labels=("UUID",),
)

INTEL: Final = Vendor(
    name="intel",
    resources=("gpu.intel.com/*",),
    metrics=(UtilizationMetric("xpum_engine_ratio", scale=100.0),),
    namespace_labels=("kube_namespace", *_NAMESPACE),
    pod_labels=("kube_pod", *_POD),
    gpu_labels=("uuid", "pci_bdf", "pci_dev", "dev_file"),
    partition_labels=("sub_dev",),
    device_classes=("gpu.intel.com",),
    uuid_labels=("uuid",),
    not_devices=(
        "gpu.intel.com/memory.max",
        "gpu.intel.com/millicores",
        "gpu.intel.com/tiles",
        "gpu.intel.com/*_monitoring",
    ),
)

HAMI: Final = Vendor(
    name="hami",
    resources=("nvidia.com/gpu",),
    # The second is its name before release 2.9.
    metrics=(
        UtilizationMetric("hami_container_device_utilization_ratio"),
        UtilizationMetric("Device_utilization_desc_of_container"),
    ),
    namespace_labels=("podnamespace", *_NAMESPACE),
    pod_labels=("podname", *_POD),
    gpu_labels=("device_uuid", "deviceuuid"),
    partition_labels=("vdevice_index", "vdeviceid"),
)

KNOWN_VENDORS: Final = {vendor.name: vendor for vendor in (AMD, NVIDIA, INTEL, HAMI)}
