"""Pages as exporters serve them, written after their documentation."""

from __future__ import annotations

UUID = "GPU-11111111-2222-3333-4444-555555555555"


def dcgm(pods: dict[str, str], value: str, *, gpu: str = "0", uuid: str = UUID) -> str:
    """A device of dcgm-exporter with KUBERNETES_VIRTUAL_GPUS; `pods`: name, number of its share.

    The value is that of the device, for each of them.
    """
    lines = [
        "# HELP DCGM_FI_PROF_GR_ENGINE_ACTIVE Ratio of time the graphics engine is active.",
        "# TYPE DCGM_FI_PROF_GR_ENGINE_ACTIVE gauge",
    ]
    for pod, share in pods.items():
        labels = (
            f'gpu="{gpu}",UUID="{uuid}",pci_bus_id="00000000:01:00.0",device="nvidia{gpu}",'
            f'modelName="Tesla T4",Hostname="node-0",container="main",namespace="team",'
            f'pod="{pod}",vgpu="{share}"'
        )
        lines.append(f"DCGM_FI_PROF_GR_ENGINE_ACTIVE{{{labels}}} {value}")
    return "\n".join(lines) + "\n"


def amd(pod: str, partition: str, mode: str, activity: str, *instantaneous: str) -> str:
    """A GPU, or a partition of one, of the device-metrics-exporter.

    `activity` is that of the GPU (of partition 0 where it is partitioned); the other values are
    those of its compute cores.
    """
    labels = (
        'card_model="0x74a1",card_series="AMD Instinct MI300X",card_vendor="AMD",'
        f'container="main",deployment_mode="",gpu_compute_partition_type="{mode}",gpu_id="0",'
        f'gpu_memory_partition_type="nps1",gpu_partition_id="{partition}",gpu_uuid="amd-0",'
        f'hostname="node-0",namespace="team",pod="{pod}",serial_number="692304000001"'
    )
    lines = [f"gpu_gfx_activity{{{labels}}} {activity}"] if activity else []
    lines += [
        f'gpu_gfx_busy_instantaneous{{{labels},xcc_index="{core}"}} {value}'
        for core, value in enumerate(instantaneous)
    ]
    return "\n".join(lines) + "\n"


def hami(pod: str, value: str) -> str:
    """A container's share of a GPU, of HAMi's monitor since release 2.9."""
    labels = f'container="main",device_uuid="{UUID}",namespace="team",pod="{pod}",vdevice_index="0"'
    return (
        "# TYPE hami_container_device_utilization_ratio gauge\n"
        f"hami_container_device_utilization_ratio{{{labels}}} {value}\n"
    )


def hami_before(pod: str, value: str) -> str:
    """The same, of earlier releases."""
    labels = (
        f'ctrname="main",deviceuuid="{UUID}",podname="{pod}",podnamespace="team",vdeviceid="0",'
        'zone="vGPU"'
    )
    return (
        "# TYPE Device_utilization_desc_of_container gauge\n"
        f"Device_utilization_desc_of_container{{{labels}}} {value}\n"
    )
