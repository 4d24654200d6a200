"""The devices of a node in the text formats of the vendors' exporters.

AMD: the device-metrics-exporter's families and labels; devices that no pod uses have empty `pod`,
`namespace` and `container`. NVIDIA: dcgm-exporter's, where unused devices lack these labels.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from kubelocal.machines.node.gpus import Gpu
from kubelocal.machines.node.utilization import format_percent

__all__ = ["exposition"]

_AMD_MEMORY_MIB: Final = 196_592
_NVIDIA_MEMORY_MIB: Final = 81_559


class _Family(NamedTuple):
    name: str
    help: str
    value: Callable[[Gpu], float]


class _Dialect(NamedTuple):
    prefix: str
    labels: Callable[[Gpu], Mapping[str, str]]
    families: tuple[_Family, ...]


def exposition(gpus: Iterable[Gpu]) -> str:
    """Return the Prometheus text for these devices, each family once."""
    devices = list(gpus)
    lines: list[str] = []
    for dialect in _DIALECTS:
        own = [(gpu, _label_text(dialect.labels(gpu))) for gpu in devices if _is_of(gpu, dialect)]
        if not own:
            continue
        for family in dialect.families:
            lines.append(f"# HELP {family.name} {family.help}")
            lines.append(f"# TYPE {family.name} gauge")
            lines += [
                f"{family.name}{{{labels}}} {format_percent(family.value(gpu))}"
                for gpu, labels in own
            ]
    return "".join(f"{line}\n" for line in lines)


def _is_of(gpu: Gpu, dialect: _Dialect) -> bool:
    return gpu.resource.startswith(dialect.prefix)


def _amd_labels(gpu: Gpu) -> dict[str, str]:
    return {
        "card_model": "0x74a1",
        "card_vendor": "Advanced Micro Devices Inc",
        "container": gpu.container,
        "deployment_mode": "container",
        "driver_version": "6.8.5",
        "gpu_compute_partition_type": "spx",
        "gpu_id": str(gpu.index),
        "gpu_memory_partition_type": "nps1",
        "gpu_partition_id": "0",
        "gpu_uuid": _uuid(gpu),
        "hostname": gpu.node,
        "job_id": "",
        "job_partition": "",
        "job_user": "",
        "namespace": gpu.namespace,
        "pod": gpu.pod,
        "serial_number": _serial(gpu),
    }


def _nvidia_labels(gpu: Gpu) -> dict[str, str]:
    labels = {
        "gpu": str(gpu.index),
        "UUID": f"GPU-{_uuid(gpu)}",
        "device": f"nvidia{gpu.index}",
        "modelName": "NVIDIA H100 80GB HBM3",
        "Hostname": gpu.node,
    }
    if gpu.pod:
        labels |= {"container": gpu.container, "namespace": gpu.namespace, "pod": gpu.pod}
    return labels


def _intel_labels(gpu: Gpu) -> dict[str, str]:
    labels = {"uuid": _uuid(gpu), "dev_name": f"card{gpu.index}", "node": gpu.node}
    if gpu.pod:
        labels |= {
            "kube_container": gpu.container,
            "kube_namespace": gpu.namespace,
            "kube_pod": gpu.pod,
        }
    return labels


def _memory(total_mib: int) -> Callable[[Gpu], float]:
    return lambda gpu: total_mib * 6 // 10 if gpu.pod else 283


def _power(idle: int, span: int) -> Callable[[Gpu], float]:
    """Watts: the idle draw and a share of the rest that follows the utilisation, NaN as 0."""
    return lambda gpu: round(idle + span * min(max(0.0, gpu.utilization), 100.0) / 100)


_DIALECTS: Final = (
    _Dialect(
        "amd.com/",
        _amd_labels,
        (
            _Family(
                "gpu_gfx_activity",
                "Graphics engine usage percentage (0 - 100)",
                lambda gpu: gpu.utilization,
            ),
            _Family(
                "gpu_umc_activity",
                "Memory engine usage percentage (0 - 100)",
                lambda gpu: gpu.utilization / 2,
            ),
            _Family("gpu_package_power", "Package power in watts", _power(140, 610)),
            _Family("gpu_total_vram", "Total VRAM in MiB", lambda _: _AMD_MEMORY_MIB),
            _Family("gpu_used_vram", "Used VRAM in MiB", _memory(_AMD_MEMORY_MIB)),
        ),
    ),
    _Dialect(
        "nvidia.com/",
        _nvidia_labels,
        (
            _Family("DCGM_FI_DEV_GPU_UTIL", "GPU utilization (in %).", lambda g: g.utilization),
            _Family(
                "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
                "Ratio of time the graphics engine is active.",
                lambda gpu: gpu.utilization / 100,
            ),
            _Family("DCGM_FI_DEV_POWER_USAGE", "Power draw (in W).", _power(70, 630)),
            _Family(
                "DCGM_FI_DEV_FB_USED",
                "Framebuffer memory used (in MiB).",
                _memory(_NVIDIA_MEMORY_MIB),
            ),
        ),
    ),
    _Dialect(
        "gpu.intel.com/",
        _intel_labels,
        (
            _Family(
                "xpum_engine_ratio",
                "GPU active time of the elapsed time",
                lambda g: g.utilization / 100,
            ),
            _Family("xpum_power_watts", "GPU power in watts", _power(60, 540)),
        ),
    ),
)


def _uuid(gpu: Gpu) -> str:
    digest = hashlib.sha256(f"{gpu.node}/{gpu.index}".encode()).hexdigest()
    return f"{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:32]}"


def _serial(gpu: Gpu) -> str:
    return "69" + hashlib.sha256(f"{gpu.node}/{gpu.index}".encode()).hexdigest()[:10].upper()


def _label_text(labels: Mapping[str, str]) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
