"""What a Service may request: its type, its addresses and its ports.

Order and texts: the real server's validation of Services; addresses as of 1.36, where numbers with
leading zeros and IPv4 addresses in the form of IPv6 are refused (StrictIPCIDRValidation). The
addresses and ports of other Services are no concern here (`services.allocate`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from ipaddress import IPv6Address, ip_address
from typing import Any, Final

from kubelocal.server import causes
from kubelocal.server.causes import Cause
from kubelocal.server.types.metadata import (
    check_labels,
    label_problem,
    qualified_name_problems,
    subdomain_problem,
)
from kubelocal.server.validation.containers import port_name

__all__ = ["NODE_PORTS", "service", "service_update"]

NODE_PORTS: Final = range(30_000, 32_768)

Object = Mapping[str, Any]

_TYPES: Final = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_PROTOCOLS: Final = ("SCTP", "TCP", "UDP")
_AFFINITIES: Final = ("ClientIP", "None")
_TRAFFIC: Final = ("Cluster", "Local")
_FAMILIES: Final = ("IPv4", "IPv6")
_POLICIES: Final = ("PreferDualStack", "RequireDualStack", "SingleStack")
_LONGEST_AFFINITY_SECONDS: Final = 86_400
_LEADING_ZEROS: Final = re.compile(r"(?<![0-9a-fA-F:])0+(?=[0-9]+(\.|$))", re.ASCII)


def service(obj: Object) -> Iterator[Cause]:
    """Check a Service; node ports outside of their range are reported when all else is valid."""
    found = list(_service(obj.get("spec") or {}))
    yield from found
    if not found:
        yield from _node_ports_in_range((obj.get("spec") or {}).get("ports") or ())


def service_update(obj: Object, old: Object) -> Iterator[Cause]:
    """The addresses inside the cluster stay once given."""
    new, was = obj.get("spec") or {}, old.get("spec") or {}
    if "ExternalName" in (new.get("type"), was.get("type")):
        return
    addresses = new.get("clusterIPs") or []
    for index, address in enumerate(was.get("clusterIPs") or ()):
        if addresses[index : index + 1] != [address]:
            yield causes.bad(f"spec.clusterIPs[{index}]", addresses, "may not change once set")


def _service(spec: Object) -> Iterator[Cause]:
    kind, ports = spec.get("type"), spec.get("ports") or ()
    headless = _is_headless(spec)
    if not ports and not headless and kind != "ExternalName":
        yield causes.required("spec.ports")
    if headless and kind in ("LoadBalancer", "NodePort"):
        text = f"may not be set to 'None' for {kind} services"
        yield causes.bad("spec.clusterIPs[0]", "None", text)
    if kind == "ExternalName":
        yield from _external_name(spec)
    names: set[str] = set()
    for index, port in enumerate(ports):
        yield from _port(port, len(ports) > 1, names, f"spec.ports[{index}]")
    yield from check_labels(spec.get("selector") or {}, "spec.selector")
    yield from _affinity(spec)
    if kind != "ExternalName":
        yield from _addresses(spec)
    for index, address in enumerate(spec.get("externalIPs") or ()):
        yield from _address(address, f"spec.externalIPs[{index}]")
    if kind not in _TYPES:
        yield causes.unsupported("spec.type", kind, _TYPES)
    yield from _ports_together(ports, kind)
    if spec.get("allocateLoadBalancerNodePorts") is not None and kind != "LoadBalancer":
        text = "may only be used when `type` is 'LoadBalancer'"
        yield causes.forbidden("spec.allocateLoadBalancerNodePorts", text)
    yield from _traffic(spec, kind)


def _is_headless(spec: Object) -> bool:
    return list(spec.get("clusterIPs") or ()) == ["None"]


def _external_name(spec: Object) -> Iterator[Cause]:
    for word in ("clusterIPs", "ipFamilies", "ipFamilyPolicy"):
        if spec.get(word):
            yield causes.forbidden(f"spec.{word}", "may not be set for ExternalName services")
    name = (spec.get("externalName") or "").removesuffix(".")
    yield from causes.named(name, "spec.externalName", subdomain_problem)


def _port(port: Object, named: bool, names: set[str], field: str) -> Iterator[Cause]:
    """Check one port; `names`: those of the ports before it, to which its own is added."""
    name = port.get("name") or ""
    if name or named:
        yield from causes.named(name, f"{field}.name", label_problem)
    if name in names:
        yield causes.duplicate(f"{field}.name", name)
    if name:
        names.add(name)
    number, protocol = port.get("port", 0), port.get("protocol")
    yield from _port_number(number, f"{field}.port")
    if protocol not in _PROTOCOLS:
        yield causes.unsupported(f"{field}.protocol", protocol, _PROTOCOLS)
    wanted = port.get("targetPort")
    if isinstance(wanted, str):
        yield from port_name(wanted, f"{field}.targetPort")
    elif wanted is not None:
        yield from _port_number(wanted, f"{field}.targetPort")
    for problem in qualified_name_problems(port.get("appProtocol") or "x"):
        yield causes.bad(f"{field}.appProtocol", port["appProtocol"], problem)


def _port_number(number: int, field: str) -> Iterator[Cause]:
    if not 1 <= number <= 65535:
        yield causes.bad(field, number, "must be between 1 and 65535, inclusive")


def _ports_together(ports: Sequence[Object], kind: str | None) -> Iterator[Cause]:
    """Check node ports against the type, and that no port of one protocol stands there twice."""
    given = [port.get("nodePort") or 0 for port in ports]
    for index, number in enumerate(given):
        if number and kind == "ClusterIP":
            text = "may not be used when `type` is 'ClusterIP'"
            yield causes.forbidden(f"spec.ports[{index}].nodePort", text)
    pairs = [(port.get("protocol"), number) for port, number in zip(ports, given, strict=True)]
    for index, pair in enumerate(pairs):
        if pair[1] and pair in pairs[:index]:
            yield causes.duplicate(f"spec.ports[{index}].nodePort", pair[1])
    pairs = [(port.get("protocol"), port.get("port", 0)) for port in ports]
    for index, (protocol, number) in enumerate(pairs):
        if (protocol, number) in pairs[:index]:
            shown = {"Name": "", "Protocol": protocol, "AppProtocol": None}
            shown |= {"Port": number, "TargetPort": 0, "NodePort": 0}
            yield causes.duplicate(f"spec.ports[{index}]", shown)


def _node_ports_in_range(ports: Sequence[Object]) -> Iterator[Cause]:
    for index, port in enumerate(ports):
        number = port.get("nodePort") or 0
        if number and number not in NODE_PORTS:
            yield causes.bad(
                f"spec.ports[{index}].nodePort",
                number,
                "provided port is not in the valid range. The range of valid ports is "
                f"{NODE_PORTS.start}-{NODE_PORTS.stop - 1}",
            )


def _affinity(spec: Object) -> Iterator[Cause]:
    affinity = spec.get("sessionAffinity")
    if affinity not in _AFFINITIES:
        yield causes.unsupported("spec.sessionAffinity", affinity, _AFFINITIES)
    client = (spec.get("sessionAffinityConfig") or {}).get("clientIP") or {}
    seconds = client.get("timeoutSeconds")
    if affinity == "ClientIP" and not 0 < (seconds or 0) <= _LONGEST_AFFINITY_SECONDS:
        text = f"must be greater than 0 and less than {_LONGEST_AFFINITY_SECONDS}"
        yield causes.bad("spec.sessionAffinityConfig.clientIP.timeoutSeconds", seconds, text)


def _addresses(spec: Object) -> Iterator[Cause]:
    """Check the addresses inside the cluster, and the families that they are of."""
    field, addresses = "spec.clusterIPs", list(spec.get("clusterIPs") or ())
    first = spec.get("clusterIP") or ""
    if first and not addresses:
        yield causes.required(field)
    elif first and addresses[0] != first:
        yield causes.bad(field, addresses, "first value must match `clusterIP`")
    elif addresses and not first:
        yield causes.bad(field, addresses, "must be empty when `clusterIP` is not specified")
    families = list(spec.get("ipFamilies") or ())
    for index, family in enumerate(families):
        if family not in _FAMILIES:
            yield causes.unsupported(f"spec.ipFamilies[{index}]", family, _FAMILIES)
        if family in families[:index]:
            yield causes.duplicate(f"spec.ipFamilies[{index}]", family)
    policy = spec.get("ipFamilyPolicy")
    if policy is not None and policy not in _POLICIES:
        yield causes.unsupported("spec.ipFamilyPolicy", policy, _POLICIES)
    wrong: list[Cause] = []
    for index, address in enumerate(addresses):
        if index or address != "None":
            wrong += _address(address, f"{field}[{index}]")
        elif len(addresses) > 1:
            wrong.append(causes.bad(field, addresses, "'None' must be the first and only value"))
    yield from wrong
    if len(addresses) > 2:
        yield causes.bad(field, addresses, "may only hold up to 2 values")
    if wrong or _is_headless(spec):
        return
    versions = [ip_address(address).version for address in addresses]
    if len(addresses) > 1 and sorted(versions) != [4, 6]:
        text = "may specify no more than one IP for each IP family"
        yield causes.bad(field, addresses, text)


def _address(text: str, field: str) -> Iterator[Cause]:
    """Check one address as the fields that are older than its strict form are checked."""
    plain = _LEADING_ZEROS.sub("", text)
    try:
        address = ip_address(plain)
    except ValueError:
        address = None
    if address is None or "%" in text:
        why = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
        yield causes.bad(field, text, why)
    elif plain != text:
        yield causes.bad(field, text, "must not have leading 0s")
    elif isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        yield causes.bad(field, text, "must not be an IPv4-mapped IPv6 address")


def _traffic(spec: Object, kind: str | None) -> Iterator[Cause]:
    outward, inward = spec.get("externalTrafficPolicy"), spec.get("internalTrafficPolicy")
    reachable = kind in ("LoadBalancer", "NodePort") or (
        kind == "ClusterIP" and bool(spec.get("externalIPs"))
    )
    if outward and not reachable:
        text = "may only be set for externally-accessible services"
        yield causes.bad("spec.externalTrafficPolicy", outward, text)
    elif outward and outward not in _TRAFFIC:
        yield causes.unsupported("spec.externalTrafficPolicy", outward, _TRAFFIC)
    if inward and inward not in _TRAFFIC:
        yield causes.unsupported("spec.internalTrafficPolicy", inward, _TRAFFIC)
