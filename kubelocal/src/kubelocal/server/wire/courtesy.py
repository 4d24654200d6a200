"""What clients request beside objects: health, version, discovery, OpenAPI, logs and tokens."""

from __future__ import annotations

from typing import Any, Final

import orjson
from aiohttp import web

from kubelocal.server.errors import (
    StatusError,
    bad_request,
    method_not_allowed,
    path_not_found,
)
from kubelocal.server.types.registry import Registry
from kubelocal.server.wire import discovery, openapi
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos, format_instant

__all__ = [
    "audiences",
    "bound_pod",
    "connection_refused",
    "document",
    "log",
    "public",
    "token_request",
]

VERSION: Final = {
    "major": "1",
    "minor": "37",
    "emulationMajor": "1",
    "emulationMinor": "37",
    "minCompatibilityMajor": "1",
    "minCompatibilityMinor": "36",
    "gitVersion": "v1.37.0",
    "gitCommit": "unknown",
    "gitTreeState": "archive",
    "buildDate": "2026-01-01T00:00:00Z",
    "goVersion": "go1.26",
    "compiler": "gc",
    "platform": "linux/amd64",
}
# kubectl falls back to version 2 for kinds that version 3 does not have: a document without any.
_OPENAPI_2_TYPE: Final = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
_OPENAPI_2: Final = b"\x0a\x032.0"
_VERSIONS: Final = ("/version", "/version/")
_HEALTH: Final = ("/healthz", "/readyz", "/livez")
_AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


def public(method: str, path: str) -> web.Response | None:
    """Answer what needs no token, None for anything else."""
    if path not in _VERSIONS and not path.startswith(_HEALTH):
        return None
    if method not in ("GET", "HEAD"):
        raise method_not_allowed()
    if path in _VERSIONS:
        body = orjson.dumps(VERSION, option=orjson.OPT_INDENT_2)
        return web.Response(body=body, content_type="application/json")
    return web.Response(text="ok")


def document(registry: Registry, request: web.BaseRequest, segments: list[str]) -> web.Response:
    """Answer discovery and OpenAPI; other paths are not found."""
    if request.method not in ("GET", "HEAD"):
        raise method_not_allowed()
    match segments:
        case ["openapi", "v2"] if _OPENAPI_2_TYPE in request.headers.get("Accept", ""):
            return web.Response(
                body=_OPENAPI_2, headers={"Content-Type": _OPENAPI_2_TYPE.replace("@", ".")}
            )
        case ["openapi", "v3"]:
            return _json(openapi.openapi_index(registry))
        case ["openapi", "v3", "api", version]:
            return _maybe(openapi.openapi_document(registry, "", version))
        case ["openapi", "v3", "apis", group, version]:
            return _maybe(openapi.openapi_document(registry, group, version))
        case ["api"] | ["apis"] if _wants_aggregated(request.headers.get("Accept", "")):
            body = discovery.aggregated(registry, segments == ["api"])
            return web.Response(body=body, headers={"Content-Type": _AGGREGATED})
    found = discovery.legacy(registry, request.path, request.host)
    return _maybe(None if found is None else orjson.dumps(found))


def _wants_aggregated(accept: str) -> bool:
    first = accept.partition(",")[0].replace(" ", "")
    return "as=APIGroupDiscoveryList" in first and "v=v2" in first.split(";")


def _json(body: bytes) -> web.Response:
    return web.Response(body=body + b"\n", content_type="application/json")


def _maybe(body: bytes | None) -> web.Response:
    if body is None:
        raise path_not_found()
    return _json(body)


def log(pod: dict[str, Any]) -> web.Response:
    """Answer `kubectl logs`: no container runs here, and that is what the log states."""
    if not (pod.get("spec") or {}).get("nodeName"):
        return web.Response(status=204)
    name = pod["metadata"]["name"]
    return web.Response(text=f"(the embedded cluster runs no containers: {name} has no output)\n")


def connection_refused(pod: dict[str, Any]) -> StatusError:
    """Refuse `kubectl exec`, `attach` and `port-forward`."""
    if not (pod.get("spec") or {}).get("nodeName"):
        return bad_request(f"pod {pod['metadata']['name']} does not have a host assigned")
    return bad_request("the embedded cluster runs no containers")


def audiences(obj: dict[str, Any]) -> list[str]:
    """Return the user of a token that the token subresource makes; no user in particular."""
    spec = obj.get("spec")
    asked = spec.get("audiences") if isinstance(spec, dict) else None
    return [str(each) for each in asked] if isinstance(asked, list) else []


def bound_pod(obj: dict[str, Any]) -> tuple[str, str]:
    """Return name and uid of the pod for which a token is requested, empty where none is named.

    Raises:
        StatusError: 400, tokens are bound to nothing else here.
    """
    spec = obj.get("spec")
    bound = spec.get("boundObjectRef") if isinstance(spec, dict) else None
    if not isinstance(bound, dict):
        return "", ""
    kind = str(bound.get("kind", ""))
    if (kind, bound.get("apiVersion", "v1")) != ("Pod", "v1"):
        raise bad_request(f"cannot bind a token to an object of kind {kind!r}; accepted: Pod of v1")
    return str(bound.get("name", "")), str(bound.get("uid") or "")


def token_request(obj: dict[str, Any], token: str, meant: list[str], now: Nanos) -> dict[str, Any]:
    """Answer the token subresource of a service account."""
    spec = obj.get("spec")
    seconds = spec.get("expirationSeconds") if isinstance(spec, dict) else None
    if seconds is not None and type(seconds) is not int:
        raise StatusError(400, "BadRequest", "spec.expirationSeconds is not a number of seconds")
    expiry = format_instant(Nanos(now + (seconds or 3_600) * SECOND))
    return {
        "kind": "TokenRequest",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {"creationTimestamp": format_instant(now)},
        "spec": {"audiences": meant, "expirationSeconds": seconds or 3_600},
        "status": {"token": token, "expirationTimestamp": expiry},
    }
