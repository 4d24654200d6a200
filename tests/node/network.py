"""Network namespaces of one cluster: one for the control plane and one for each node.

The control plane's has a bridge at 10.78.0.1 that is the switch. A node has 10.78.0.1N, its pods
are in 10.78.N.0/24. One pair of devices leads to this machine, for Helm and the tests.
Nothing of this machine's own network changes, so that no port can be taken.

Clusters of different numbers run at the same time: `REPRIEVE_NODE_CLUSTER=1` has 10.79.0.1.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

__all__ = [
    "CONTROL",
    "PREFIX",
    "SERVER",
    "address_of",
    "down",
    "every_pod",
    "inside",
    "node_namespace",
    "pods_of",
    "up",
]

_NUMBER: Final = int(os.environ.get("REPRIEVE_NODE_CLUSTER", "0"))
_NET: Final = f"10.{78 + _NUMBER}"
#: What a cluster makes on this machine is named with it.
PREFIX: Final = f"reprieve{_NUMBER or ''}-"
CONTROL: Final = f"{PREFIX}c"
SERVER: Final = f"{_NET}.0.1"
_HOST: Final = f"{PREFIX}h"
_NODES: Final = (1, 2)


def node_namespace(number: int) -> str:
    """Return the name of a node's network namespace."""
    return f"{PREFIX}n{number}"


def address_of(number: int) -> str:
    """Return the address of a node."""
    return f"{_NET}.0.1{number}"


def pods_of(number: int) -> str:
    """Return the addresses of a node's pods."""
    return f"{_NET}.{number}.0/24"


def every_pod() -> str:
    """Return what has the addresses of all pods in it."""
    return f"{_NET}.0.0/16"


def inside(namespace: str) -> tuple[str, ...]:
    """Return what runs a command in a network namespace, /sys being left as it is."""
    return (shutil.which("nsenter") or "nsenter", f"--net=/run/netns/{namespace}")


def up() -> None:
    """Make all namespaces; there are none of an earlier run."""
    for name in (CONTROL, *map(node_namespace, _NODES)):
        _ip("netns", "add", name)
        _ip("-n", name, "link", "set", "lo", "up")
        _run(*inside(name), "sysctl", "-qw", "net.ipv4.ip_forward=1")
    control = ("-n", CONTROL)
    _ip(*control, "link", "add", "sw0", "type", "bridge")
    _ip(*control, "addr", "add", f"{SERVER}/24", "dev", "sw0")
    _ip(*control, "link", "set", "sw0", "up")
    _ip("link", "add", _HOST, "type", "veth", "peer", "name", "host", "netns", CONTROL)
    _ip(*control, "link", "set", "host", "master", "sw0", "up")
    _ip("addr", "add", f"{_NET}.0.254/24", "dev", _HOST)
    _ip("link", "set", _HOST, "up")
    for number in _NODES:
        node, port = node_namespace(number), f"n{number}"
        _ip("link", "add", "eth0", "netns", node, "type", "veth", "peer", port, "netns", CONTROL)
        _ip(*control, "link", "set", port, "master", "sw0", "up")
        _ip("-n", node, "addr", "add", f"{address_of(number)}/24", "dev", "eth0")
        _ip("-n", node, "link", "set", "eth0", "up")
        _ip("-n", node, "route", "add", "default", "via", SERVER)
        _ip(*control, "route", "add", pods_of(number), "via", address_of(number))
        for other in _NODES:
            if other != number:
                _ip("-n", node, "route", "add", pods_of(other), "via", address_of(other))


def down() -> None:
    """Remove all of it; what is not there is no fault."""
    for name in (CONTROL, *map(node_namespace, _NODES)):
        if Path("/run/netns", name).exists():
            _ip("netns", "del", name)
    if Path("/sys/class/net", _HOST).exists():
        _ip("link", "del", _HOST)


def _ip(*arguments: str) -> None:
    _run("ip", *arguments)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
