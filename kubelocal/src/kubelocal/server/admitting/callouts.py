"""Calls to webhooks: where one is, in whom the call trusts, and what failed.

`clientConfig` names a URL, or a Service, which is found through its EndpointSlices: their addresses
are connected to as they are, so they have to be reachable from this machine. The certificate is
checked against `caBundle` for the host of the URL or `NAME.NAMESPACE.svc`. Source: the webhook
client of k8s.io/apiserver; its texts.
"""

from __future__ import annotations

import base64
import binascii
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson
from aiohttp import (
    ClientConnectorCertificateError,
    ClientConnectorError,
    ClientError,
    ClientSession,
    ClientTimeout,
)

from kubelocal.store import Store

__all__ = ["CallFailed", "call"]

_ANSWER_LIMIT = 8 * 1024 * 1024


class CallFailed(Exception):
    """A webhook could not be called, or did not answer as one; the text states why."""


@dataclass(frozen=True, slots=True)
class _Place:
    """`shown` stands in texts, `url` is connected to."""

    shown: str
    url: str
    host: str | None


async def call(
    store: Store, config: Mapping[str, Any], review: dict[str, Any], seconds: int
) -> dict[str, Any]:
    """Post `review` and return the review that is answered.

    Raises:
        CallFailed: no answer in time, or none that can be read.
    """
    place = _place(store, config)
    shown = f'Post "{place.shown}?timeout={seconds}s"'
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    if place.host is not None:
        headers["Host"] = f"{place.host}:443"
    try:
        trust = _trust(config)
        async with (
            ClientSession(timeout=ClientTimeout(total=seconds)) as session,
            session.post(
                place.url,
                params={"timeout": f"{seconds}s"},
                data=orjson.dumps(review),
                headers=headers,
                ssl=trust if place.url.startswith("https") else True,
                server_hostname=place.host,
                allow_redirects=False,
            ) as response,
        ):
            code, body = response.status, bytearray()
            async for chunk in response.content.iter_any():
                body += chunk
                if len(body) > _ANSWER_LIMIT:
                    raise CallFailed(f"{shown}: the answer is longer than {_ANSWER_LIMIT} bytes")
    except ClientConnectorCertificateError as error:
        raise CallFailed(f"{shown}: tls: {error.certificate_error}") from None
    except ClientConnectorError as error:
        raise CallFailed(f"{shown}: {error.os_error or error}") from None
    except TimeoutError:
        raise CallFailed(f"{shown}: context deadline exceeded") from None
    except (ClientError, OSError, ValueError) as error:
        raise CallFailed(f"{shown}: {error}") from None
    if not 200 <= code < 300:
        raise CallFailed(f"the server responded with the status code {code}")
    try:
        answer = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise CallFailed(f"couldn't decode the answer: {error}") from None
    if not isinstance(answer, dict) or answer.get("kind") != review["kind"]:
        raise CallFailed(f"expected webhook response of {review['apiVersion']}, {review['kind']}")
    response_part = answer.get("response")
    if not isinstance(response_part, dict):
        raise CallFailed("webhook response was absent")
    asked, given = review["request"]["uid"], response_part.get("uid", "")
    if given != asked:
        raise CallFailed(f'expected response.uid="{asked}", got "{given}"')
    return response_part


def _trust(config: Mapping[str, Any]) -> ssl.SSLContext:
    bundle = config.get("caBundle")
    if not bundle:
        return ssl.create_default_context()
    try:
        return ssl.create_default_context(cadata=base64.b64decode(bundle).decode("ascii"))
    except (binascii.Error, UnicodeDecodeError, ssl.SSLError):
        raise CallFailed(
            "unable to load root certificates: unable to parse bytes as PEM block"
        ) from None


def _place(store: Store, config: Mapping[str, Any]) -> _Place:
    service = config.get("service")
    if service is None:
        url = str(config.get("url") or "")
        return _Place(url, url, None)
    namespace, name = service["namespace"], service["name"]
    port, path = service.get("port") or 443, service.get("path") or ""
    host = f"{name}.{namespace}.svc"
    stored = store.get("services", namespace, name)
    if stored is None:
        raise CallFailed(f'service "{name}" not found')
    spec = stored.decode().get("spec") or {}
    wanted = next((one for one in spec.get("ports") or () if one.get("port") == port), None)
    if wanted is None:
        raise CallFailed(f'no service port {port} found for service "{name}"')
    address = _endpoint(store, namespace, name, wanted)
    if address is None:
        raise CallFailed(f'no endpoints available for service "{name}"')
    path = f"/{path.lstrip('/')}"
    return _Place(f"https://{host}:{port}{path}", f"https://{address}{path}", host)


def _endpoint(store: Store, namespace: str, name: str, port: Mapping[str, Any]) -> str | None:
    """Return address and port of one ready endpoint of a service's port."""
    for stored in store.range("endpointslices.discovery.k8s.io", namespace):
        if stored.labels.get("kubernetes.io/service-name") != name:
            continue
        found = stored.decode()
        numbers = [
            one.get("port")
            for one in found.get("ports") or ()
            if (one.get("name") or "") == (port.get("name") or "")
        ]
        for endpoint in found.get("endpoints") or ():
            ready = (endpoint.get("conditions") or {}).get("ready", True)
            if ready and endpoint.get("addresses") and numbers and numbers[0]:
                address = endpoint["addresses"][0]
                return f"[{address}]:{numbers[0]}" if ":" in address else f"{address}:{numbers[0]}"
    return None
