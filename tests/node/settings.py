"""What the programs of a node are configured with."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from tests.node import network
from tests.node.credentials import Authority

__all__ = ["PAUSE", "bridge", "containerd", "kubelet", "processors", "proxy", "registries"]

PAUSE: Final = "docker.io/local/pause:1"
_DISK: Final = ("available", "inodesFree")


def bridge(number: int) -> dict[str, Any]:
    """Return the network of a node's pods, for the CNI plugins."""
    pods = {"subnet": network.pods_of(number)}
    plugin = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "hairpinMode": True,
        "ipMasq": False,
        "ipam": {"type": "host-local", "ranges": [[pods]], "routes": [{"dst": "0.0.0.0/0"}]},
    }
    return {"cniVersion": "1.0.0", "name": "pods", "plugins": [plugin]}


def containerd(place: Path) -> str:
    """Return the configuration of a containerd that has its files in a folder."""
    runtime = "plugins.'io.containerd.cri.v1.runtime'"
    return f"""version = 3
root = "{place}/containerd"
state = "/run/containerd"
[grpc]
address = "/run/containerd/containerd.sock"
[plugins.'io.containerd.cri.v1.images']
snapshotter = "overlayfs"
[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = "{PAUSE}"
[plugins.'io.containerd.cri.v1.images'.registry]
config_path = "{place}/registries"
[{runtime}]
restrict_oom_score_adj = true
[{runtime}.cni]
bin_dirs = ["/usr/lib/cni"]
conf_dir = "{place}/cni"
[{runtime}.containerd]
default_runtime_name = "runc"
[{runtime}.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[{runtime}.containerd.runtimes.runc.options]
SystemdCgroup = false
"""


def kubelet(authority: Authority, name: str, place: Path) -> dict[str, Any]:
    """Return a kubelet's configuration."""
    disks = (f"{fs}.{what}" for fs in ("nodefs", "imagefs") for what in _DISK)
    signals = ("memory.available", "pid.available", *disks)
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "failCgroupV1": False,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{network.PREFIX}{name}",
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": False},
            "x509": {"clientCAFile": str(authority.certificate)},
        },
        "authorization": {"mode": "AlwaysAllow"},
        "tlsCertFile": str(authority.folder / f"{name}-serving.crt"),
        "tlsPrivateKeyFile": str(authority.folder / f"{name}-serving.key"),
        "clusterDNS": [network.SERVER],
        "clusterDomain": "cluster.local",
        "resolvConf": str(place / "resolv.conf"),
        "staticPodPath": str(place / "static"),
        "failSwapOn": False,
        "oomScoreAdj": 0,
        "imageGCHighThresholdPercent": 100,
        "evictionHard": dict.fromkeys(signals, "0%"),
        "syncFrequency": "10s",
    }


def proxy(kubeconfig: Path, name: str) -> dict[str, Any]:
    """Return the configuration of a node's kube-proxy."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clusterCIDR": network.every_pod(),
        "hostnameOverride": name,
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        # Else it would change settings of the whole machine.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s"},
    }


def registries(place: Path, address: str) -> None:
    """Point the containerd of a folder to a registry in place of Docker Hub."""
    folder = place / "registries" / "docker.io"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "hosts.toml").write_text(
        f'server = "{address}"\n[host."{address}"]\ncapabilities = ["pull", "resolve"]\n'
    )


def processors(place: Path, count: int) -> tuple[str, ...]:
    """Return the commands by which a kubelet sees so many processors, none where it is 0.

    It reads them below /sys. What runs in containers has those of the machine.
    """
    if not count:
        return ()
    folder = place / "processors"
    for number in range(count):
        topology = folder / f"cpu{number}" / "topology"
        topology.mkdir(parents=True, exist_ok=True)
        (topology / "core_id").write_text(f"{number}\n")
        (topology / "physical_package_id").write_text("0\n")
    return (
        "mount -t tmpfs tmpfs /sys/devices/system/node",
        f"mount --bind {folder} /sys/devices/system/cpu",
    )
