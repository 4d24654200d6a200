"""What a Service is given: an address inside the cluster and, where its type has them, node ports.

What it requests must be in the range of the cluster and not another Service's. There is one range
of addresses, of IPv4. Source: the allocators in front of the registry of Services (KEP-1880) and
its texts; addresses and ports that the Service does not request are derived from its uid, so that
the same uid gives the same ones.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, ip_address
from typing import Any, Final

from kubelocal.server.causes import Cause, bad
from kubelocal.server.errors import StatusError, invalid
from kubelocal.server.state import State
from kubelocal.server.types.kinds import Kind
from kubelocal.server.validation.services import NODE_PORTS

__all__ = ["allocate", "keep_addresses"]

ADDRESSES: Final = IPv4Network("10.96.0.0/12")
# Those that no Service requests leave the lower ends of both ranges to those that one does.
_FIRST_ADDRESS, _FREE_ADDRESSES = 256, 65_000
_FREE_PORTS: Final = 2_700
_WITH_NODE_PORTS: Final = ("NodePort", "LoadBalancer")


@dataclass(slots=True)
class _Allocated:
    """What other Services have, and what this one has had so far."""

    addresses: set[str] = field(default_factory=set)
    ports: set[int] = field(default_factory=set)
    own_address: str = ""


def allocate(api: State, kind: Kind, obj: dict[str, Any], *, new: bool) -> None:
    """Give a Service what it does not request.

    `new`: there is none yet; else it may keep what the one of its name has.

    Raises:
        StatusError: 422, it requests what it cannot have.
    """
    spec, metadata = obj.setdefault("spec", {}), obj["metadata"]
    if spec.get("type") == "ExternalName":
        return
    chosen = _allocated(api, "" if new else metadata["name"], metadata["namespace"])
    seed = zlib.crc32(metadata["uid"].encode())
    if not spec.get("clusterIP"):
        spec["clusterIP"] = _free_address(seed, chosen)
    spec.setdefault("clusterIPs", [spec["clusterIP"]])
    spec.setdefault("ipFamilies", ["IPv4"])
    spec.setdefault("ipFamilyPolicy", "SingleStack")
    for cause in (_address_problem(spec, chosen), _port_problem(spec, chosen)):
        if cause is not None:
            raise invalid(kind, metadata["name"], [cause])
    if spec.get("type") == "NodePort" or (
        spec.get("type") == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts", True)
    ):
        ports = spec.get("ports") or ()
        used = chosen.ports | {port.get("nodePort") for port in ports}
        wanted = NODE_PORTS.start + seed % _FREE_PORTS
        for port in ports:
            if not port.get("nodePort"):
                wanted = next(
                    each for each in range(wanted + 1, NODE_PORTS.stop) if each not in used
                )
                port["nodePort"] = wanted


def _allocated(api: State, name: str, namespace: str) -> _Allocated:
    found = _Allocated()
    for stored in api.store.range("services", None):
        service = stored.decode()
        spec, metadata = service.get("spec") or {}, service["metadata"]
        if (metadata["name"], metadata["namespace"]) == (name, namespace):
            found.own_address = spec.get("clusterIP", "")
            continue
        found.addresses.update(spec.get("clusterIPs") or ())
        found.ports |= {port["nodePort"] for port in spec.get("ports") or () if "nodePort" in port}
    return found


def _free_address(seed: int, chosen: _Allocated) -> str:
    first = seed % _FREE_ADDRESSES
    for number in range(_FREE_ADDRESSES):
        place = _FIRST_ADDRESS + (first + number) % _FREE_ADDRESSES
        address = str(ADDRESSES.network_address + place)
        if address not in chosen.addresses:
            return address
    raise StatusError(
        500,
        "InternalError",
        "Internal error occurred: failed to allocate a serviceIP: range is full",
    )


def _address_problem(spec: dict[str, Any], chosen: _Allocated) -> Cause | None:
    """Return why a Service cannot have its address; one that is none is refused elsewhere."""
    asked, addresses = spec["clusterIP"], spec["clusterIPs"]
    try:
        address = ip_address(asked)
    except ValueError:
        return None
    if asked == chosen.own_address:
        return None
    if not isinstance(address, IPv4Address):
        return bad("spec.clusterIPs[0]", addresses, "IPv6 is not configured on this cluster")
    if address not in ADDRESSES:
        why = "the provided network does not match the current range"
    elif asked in chosen.addresses:
        why = "provided IP is already allocated"
    else:
        return None
    return bad("spec.clusterIPs", addresses, f"failed to allocate IP {asked}: {why}")


def _port_problem(spec: dict[str, Any], chosen: _Allocated) -> Cause | None:
    for index, port in enumerate(spec.get("ports") or ()):
        if port.get("nodePort") in chosen.ports:
            where = f"spec.ports[{index}].nodePort"
            return bad(where, port["nodePort"], "provided port is already allocated")
    return None


def keep_addresses(old: dict[str, Any], spec: dict[str, Any]) -> None:
    """Have a Service keep what it was given, as far as its type still has such a thing."""
    kind, former = spec.get("type", "ClusterIP"), old.get("type")
    if kind == "ExternalName":
        if former != kind and spec.get("clusterIPs") == old.get("clusterIPs"):
            for word in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
                spec.pop(word, None)
    elif former != "ExternalName":
        _keep_cluster_address(old, spec)
    given = {(port.get("protocol"), port.get("port")): port for port in old.get("ports") or ()}
    ports = spec.get("ports") or ()
    if kind in _WITH_NODE_PORTS:
        chosen = {port.get("nodePort") for port in ports}
        for port in ports:
            was = given.get((port.get("protocol", "TCP"), port.get("port")), {}).get("nodePort")
            if was and not port.get("nodePort") and was not in chosen:
                port["nodePort"] = was
    elif former in _WITH_NODE_PORTS:
        known = {port.get("nodePort") for port in given.values()}
        for port in ports:
            if port.get("nodePort") in known:
                port.pop("nodePort", None)
        spec.pop("externalTrafficPolicy", None)
    if former == "LoadBalancer" != kind:
        spec.pop("allocateLoadBalancerNodePorts", None)


def _keep_cluster_address(old: dict[str, Any], spec: dict[str, Any]) -> None:
    changed = spec.get("clusterIP") and spec.get("clusterIP") != old.get("clusterIP")
    if changed and spec.get("clusterIPs") == old.get("clusterIPs"):
        # Who changes the one field and leaves the other means both.
        spec["clusterIPs"] = [spec["clusterIP"]]
    for word in ("clusterIP", "clusterIPs"):
        if not spec.get(word) and old.get(word):
            spec[word] = old[word]
