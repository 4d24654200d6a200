"""What Kueue's `Configuration` states of the process: checked, reported, and mostly not needed.

Keys of these sections that no version has are refused as all others are, and what they state has to
be right, so that a file that the reference would not start with is not accepted here either.

Source: specification of the quota plane, section 1.6.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any, Final

from reprieve.api import field_errors as wrong
from reprieve.settings.quota_configuration_parts import Errors, ports

__all__ = ["PROCESS_KEYS", "certificate_names", "tls", "visibility_server"]

# Keys below the sections of the process; what is not here may have anything below.
PROCESS_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "leaderElection": (
        "leaderElect",
        "leaseDuration",
        "renewDeadline",
        "retryPeriod",
        "resourceLock",
        "resourceName",
        "resourceNamespace",
    ),
    "clientConnection": ("qps", "burst"),
    "controller": ("groupKindConcurrency", "cacheSyncTimeout"),
    "health": ("healthProbeBindAddress", "readinessEndpointName", "livenessEndpointName"),
    "tls": ("minVersion", "cipherSuites", "curvePreferences"),
    "visibilityServer": ("bindAddress", "bindPort"),
}

_SERVICE: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?", re.ASCII)
_SERVICE_TEXT: Final = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an "
    "alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', "
    "regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
)


def certificate_names(
    certificates: Mapping[str, Any], own: bool, errors: Errors
) -> tuple[str, str]:
    """Return the names of the Service and the Secret of the webhooks, empty where none is stated.

    They are looked at only where certificates are our `own`.
    """
    found = []
    for key, check in (
        ("webhookServiceName", _service_name),
        ("webhookSecretName", wrong.subdomain),
    ):
        path, name = f"internalCertManagement.{key}", certificates.get(key) or ""
        if own and name:
            errors += (wrong.invalid(path, name, why) for why in check(str(name)))
        found.append(str(name))
    return found[0], found[1]


def visibility_server(given: Mapping[str, Any], errors: Errors) -> None:
    """Check where pending workloads would be served; nothing is served there."""
    address = given.get("bindAddress")
    if address:
        try:
            ip_address(str(address))
        except ValueError:
            path, why = "visibilityServer.bindAddress", "must be a valid IP address"
            errors.append(wrong.invalid(path, address, why))
    ports(given, "bindPort", "visibilityServer.bindPort", 8082, errors)


def tls(given: Mapping[str, Any], errors: Errors) -> None:
    """Look at what TLS is to be spoken; webhooks have their own."""
    if given.get("minVersion") == "VersionTLS13" and given.get("cipherSuites"):
        why = "may not be specified when `minVersion` is 'VersionTLS13'"
        errors.append(wrong.invalid("tls.cipherSuites", given["cipherSuites"], why))


def _service_name(name: str) -> list[str]:
    found = ["must be no more than 63 bytes"] if len(name) > 63 else []
    return found if _SERVICE.fullmatch(name) else [*found, _SERVICE_TEXT]
