"""Webhook configurations: what to call, how and how long. Source: the API's published rules."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from typing import Any, Final

from kubelocal.server import causes
from kubelocal.server.causes import Cause

__all__ = ["client_config", "configuration"]

Object = Mapping[str, Any]
_EFFECTS: Final = ("None", "NoneOnDryRun")
_LONGEST_SECONDS: Final = 30


def configuration(obj: Object) -> Iterator[Cause]:
    """Check each webhook of a mutating or validating configuration."""
    names: set[str] = set()
    for index, hook in enumerate(obj.get("webhooks") or ()):
        at = f"webhooks[{index}]"
        name = hook.get("name") or ""
        if name.count(".") < 2:
            text = "should be a domain with at least three segments separated by dots"
            yield causes.bad(f"{at}.name", name, text) if name else causes.required(f"{at}.name")
        elif name in names:
            yield causes.duplicate(f"{at}.name", name)
        names.add(name)
        yield from client_config(hook.get("clientConfig") or {}, f"{at}.clientConfig")
        effects, versions = hook.get("sideEffects"), hook.get("admissionReviewVersions") or []
        if effects is None:
            yield causes.required(f"{at}.sideEffects", "must specify one of None, NoneOnDryRun")
        elif effects not in _EFFECTS:
            yield causes.unsupported(f"{at}.sideEffects", effects, _EFFECTS)
        if "v1" not in versions:
            yield causes.bad(f"{at}.admissionReviewVersions", versions, "must include v1")
        seconds = hook.get("timeoutSeconds")
        if seconds is not None and not 1 <= seconds <= _LONGEST_SECONDS:
            text = "the timeout value must be between 1 and 30 seconds"
            yield causes.bad(f"{at}.timeoutSeconds", seconds, text)


def client_config(config: Object, at: str) -> Iterator[Cause]:
    """Check where a webhook is, and whom to trust there."""
    url, service = config.get("url"), config.get("service")
    if (url is None) == (service is None):
        yield causes.required(at, "exactly one of url or service is required")
        return
    if url is not None and not url.startswith("https://"):
        text = "'https' is the only allowed URL scheme; desired format: https://host[/path]"
        yield causes.bad(f"{at}.url", url, text)
    for field in ("namespace", "name") if service is not None else ():
        if not (service or {}).get(field):
            yield causes.required(f"{at}.service.{field}", f"service {field} is required")
    try:
        bundle = base64.b64decode(config.get("caBundle") or b"").strip()
    except (binascii.Error, ValueError):
        bundle = b"?"
    if bundle and b"-----BEGIN CERTIFICATE-----" not in bundle:
        text = "unable to load root certificates: unable to parse bytes as PEM block"
        yield causes.bad(f"{at}.caBundle", "<CA bundle>", text)
