"""What containers state of ports, variables, probes and hooks, and what their pod adds to it.

Order and texts: the real server's validation of core/v1.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from kubelocal.server import causes
from kubelocal.server.causes import Cause
from kubelocal.server.types.metadata import qualified_name_problems

__all__ = ["check_around", "check_handlers", "check_message", "port_name", "variable_source"]

Object = Mapping[str, Any]

_HANDLERS: Final = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")
_NUMBERS: Final = (
    "initialDelaySeconds",
    "timeoutSeconds",
    "periodSeconds",
    "successThreshold",
    "failureThreshold",
)
_SOURCES: Final = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
_FIELDS: Final = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
)
#: Fields of a pod that the server knows by name; not all of them may be in a variable.
_KNOWN: Final = frozenset(
    {
        *_FIELDS,
        *("metadata.annotations", "metadata.labels", "spec.restartPolicy", "spec.schedulerName"),
        *("spec.hostNetwork", "status.phase", "status.nominatedNodeName"),
    }
)
_SUBSCRIPT: Final = re.compile(r"metadata\.(?:labels|annotations)\['[^']*'\]")


def port_name(name: str, field: str) -> Iterator[Cause]:
    """Yield what keeps `name` from being a port's name."""
    if len(name) > 15:
        yield causes.bad(field, name, "must be no more than 15 characters")
    if not re.fullmatch(r"[-a-z0-9]+", name):
        text = "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)"
        yield causes.bad(field, name, text)
    if not re.search(r"[a-z]", name):
        yield causes.bad(field, name, "must contain at least one letter (a-z)")
    if "--" in name:
        yield causes.bad(field, name, "must not contain consecutive hyphens")
    if name.startswith("-") or name.endswith("-"):
        yield causes.bad(field, name, "must not begin or end with a hyphen")


def check_message(container: Object, field: str) -> Iterator[Cause]:
    """Check where a container's last words come from."""
    policy = container.get("terminationMessagePolicy")
    if policy not in (None, "File", "FallbackToLogsOnError"):
        yield causes.bad(
            f"{field}.terminationMessagePolicy",
            policy,
            "must be 'File' or 'FallbackToLogsOnError'",
        )


def variable_source(variable: Object, field: str) -> Iterator[Cause]:
    """Check where a variable's value comes from."""
    source = variable.get("valueFrom")
    if source is None:
        return
    here = f"{field}.valueFrom"
    for word, value in source.items():
        if value is None:
            continue
        if word == "fieldRef":
            yield from _field_path(value.get("fieldPath") or "", f"{here}.{word}.fieldPath")
        elif word in ("configMapKeyRef", "secretKeyRef"):
            for part in ("name", "key"):
                if not value.get(part):
                    yield causes.required(f"{here}.{word}.{part}")
    given = [word for word in _SOURCES if source.get(word) is not None]
    if not given:
        yield causes.bad(
            here,
            "",
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, "
            "`secretKeyRef` or `fileKeyRef`",
        )
    elif variable.get("value"):
        yield causes.bad(here, "", "may not be specified when `value` is not empty")
    elif len(given) > 1:
        yield causes.bad(here, "", "may not have more than one field specified at a time")


def _field_path(path: str, field: str) -> Iterator[Cause]:
    if not path:
        yield causes.required(field)
    elif _SUBSCRIPT.fullmatch(path):
        return
    elif path not in _KNOWN:
        text = f"error converting fieldPath: field label not supported: {path}"
        yield causes.bad(field, path, text)
    elif path not in _FIELDS:
        yield causes.unsupported(field, path, _FIELDS)


def check_handlers(container: Object, field: str) -> Iterator[Cause]:
    """Check hooks and probes."""
    lifecycle = container.get("lifecycle") or {}
    for word in ("postStart", "preStop"):
        hook = lifecycle.get(word)
        if hook is not None:
            yield from _handler(hook, f"{field}.lifecycle.{word}")
    for word in ("livenessProbe", "readinessProbe", "startupProbe"):
        probe = container.get(word)
        if probe is None:
            continue
        here = f"{field}.{word}"
        yield from _handler(probe, here)
        for number in _NUMBERS:
            if probe.get(number, 0) < 0:
                text = "must be greater than or equal to 0"
                yield causes.bad(f"{here}.{number}", probe[number], text)
        if word != "readinessProbe" and probe.get("successThreshold", 1) != 1:
            yield causes.bad(f"{here}.successThreshold", probe["successThreshold"], "must be 1")


def _handler(handler: Object, field: str) -> Iterator[Cause]:
    given = [word for word in _HANDLERS if handler.get(word) is not None]
    if not given:
        yield causes.required(field, "must specify a handler type")
    for word in given[1:]:
        yield causes.forbidden(f"{field}.{word}", "may not specify more than 1 handler type")
    if given[:1] == ["exec"] and not handler["exec"].get("command"):
        yield causes.required(f"{field}.exec.command")


def check_around(spec: Object, field: str, *, is_pod: bool) -> Iterator[Cause]:
    """Check what concerns all containers of a spec, or the pod as a whole."""
    containers = spec.get("containers") or ()
    yield from _host_ports(containers, f"{field}.containers")
    if spec.get("hostNetwork"):
        for place, port in _ports(containers, f"{field}.containers"):
            number = port.get("hostPort") or 0
            if (is_pod or number) and number != port.get("containerPort"):
                text = "must match `containerPort` when `hostNetwork` is true"
                yield causes.bad(f"{place}.hostPort", number, text)
    yield from _name_servers(spec, field)
    security = spec.get("securityContext") or {}
    for word in ("runAsUser", "runAsGroup", "fsGroup"):
        number = security.get(word)
        if number is not None and not 0 <= number < 2**31:
            text = "must be between 0 and 2147483647, inclusive"
            yield causes.bad(f"{field}.securityContext.{word}", number, text)
    for index, gate in enumerate(spec.get("readinessGates") or ()):
        name = gate.get("conditionType", "")
        for problem in qualified_name_problems(name):
            yield causes.bad(f"{field}.readinessGates[{index}].conditionType", name, problem)
    for index, alias in enumerate(spec.get("hostAliases") or ()):
        if not _is_address(alias.get("ip", "")):
            yield causes.bad(
                f"{field}.hostAliases[{index}].ip",
                alias.get("ip", ""),
                "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
            )
    system = (spec.get("os") or {}).get("name")
    if system is not None and system not in ("linux", "windows"):
        yield causes.unsupported(f"{field}.os.name", system, ("linux", "windows"))
    yield from _claims(spec, field)


def _ports(containers: Sequence[Object], field: str) -> Iterator[tuple[str, Object]]:
    for index, container in enumerate(containers):
        for place, port in enumerate(container.get("ports") or ()):
            yield f"{field}[{index}].ports[{place}]", port


def _host_ports(containers: Sequence[Object], field: str) -> Iterator[Cause]:
    seen: set[str] = set()
    for place, port in _ports(containers, field):
        number = port.get("hostPort") or 0
        if number:
            shown = f"{port.get('protocol', '')}/{port.get('hostIP') or ''}/{number}"
            if shown in seen:
                yield causes.duplicate(f"{place}.hostPort", shown)
            seen.add(shown)


def _name_servers(spec: Object, field: str) -> Iterator[Cause]:
    if spec.get("dnsPolicy") == "None":
        settings = spec.get("dnsConfig")
        if settings is None:
            text = "must provide `dnsConfig` when `dnsPolicy` is None"
            yield causes.required(f"{field}.dnsConfig", text)
        elif not settings.get("nameservers"):
            text = "must provide at least one DNS nameserver when `dnsPolicy` is None"
            yield causes.required(f"{field}.dnsConfig.nameservers", text)


def _claims(spec: Object, field: str) -> Iterator[Cause]:
    known = sorted({claim.get("name", "") for claim in spec.get("resourceClaims") or ()})
    accepted = f": {', '.join(known)}" if known else " which is empty"
    for group in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(group) or ()):
            here = f"{field}.{group}[{index}].resources.claims"
            claims = (container.get("resources") or {}).get("claims") or ()
            for place, claim in enumerate(claims):
                name = claim.get("name", "")
                if name not in known:
                    yield Cause(
                        "FieldValueNotFound",
                        f"Not found: {causes.shown(name)}: must be one of the names in "
                        f"pod.spec.resourceClaims{accepted}",
                        f"{here}[{place}]",
                    )


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
