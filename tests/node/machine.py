"""What a real node needs of this machine, and where it lies.

    python -m tests.node.machine    # says what is missing, and ends with 1 then
    python -m tests.node.build      # makes what can be made, once

Everything is kept in `reprieve/node-1.37.1` of the user's cache folder. The control plane is that
of `tests/integration`. A node is a network namespace with a containerd and a kubelet of its own.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from pathlib import Path
from typing import Final

from tests.chart.go_tools import HELM, ToolMissing, tool
from tests.integration.control_plane import binaries_folder
from tests.node.groups import lacking_groups

__all__ = [
    "BASE",
    "DEVICE_PLUGIN",
    "DEVICE_PLUGIN_SOURCE",
    "ENFORCER",
    "FOLDER",
    "IMAGE",
    "NAME",
    "NODES",
    "PROGRAMS",
    "missing",
]

FOLDER: Final = binaries_folder()[0].parent / "node-1.37.1"
#: Built with Go by `tests.node.build`.
PROGRAMS: Final = ("kubelet", "kube-proxy", "containerd", "containerd-shim-runc-v2", "ctr")
#: A program of our own, by which the kubelet has GPUs; named by its source, so that it is current.
DEVICE_PLUGIN_SOURCE: Final = Path(__file__).with_name("device_plugin") / "main.go"
DEVICE_PLUGIN: Final = FOLDER / (
    f"device-plugin-{hashlib.sha256(DEVICE_PLUGIN_SOURCE.read_bytes()).hexdigest()[:12]}"
)
#: Enforces NetworkPolicies, where it is there.
ENFORCER: Final = FOLDER / "kube-router"
#: A root file system with Python, and the image that the Dockerfile makes of it.
BASE: Final = FOLDER / "base.tar"
IMAGE: Final = FOLDER / "reprieve.tar"
NODES: Final = ("n1", "n2")
NAME: Final = "docker.io/library/reprieve:1"
_CONTROL: Final = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
_COMMANDS: Final = (
    "runc",
    "ip",
    "nsenter",
    "unshare",
    "mount",
    "nft",
    "conntrack",
    "busybox",
    "buildah",
)
_PLUGINS: Final = Path("/usr/lib/cni")


def missing() -> str:
    """Return what keeps a node from running here, in one line; empty where nothing does."""
    if os.name != "posix" or os.geteuid() != 0:
        return "real nodes need root"
    if lacking_groups():
        return f"real nodes need the control groups {lacking_groups()}"
    lacking = [name for name in _COMMANDS if shutil.which(name) is None]
    lacking += [] if (_PLUGINS / "bridge").exists() else ["the CNI plugin bridge"]
    if lacking:
        return f"real nodes need {', '.join(lacking)}"
    files = [*(FOLDER / name for name in PROGRAMS), DEVICE_PLUGIN, BASE]
    if lacking := [each.name for each in files if not each.exists()]:
        return f"{', '.join(lacking)} not in {FOLDER}: `python -m tests.node.build` makes them"
    control = binaries_folder()[0]
    if lacking := [name for name in _CONTROL if not (control / name).exists()]:
        return f"{', '.join(lacking)} not in {control}, where a control plane is expected"
    try:
        tool(HELM)
    except ToolMissing as lacks:
        return str(lacks)
    return ""


if __name__ == "__main__":
    sys.exit(missing() or 0)
