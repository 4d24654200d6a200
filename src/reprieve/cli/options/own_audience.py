"""For whom tokens of the API server are made: the audience of the token that this process has."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Final

__all__ = ["api_audience"]

#: What an API server without `--api-audiences` accepts, in most clusters.
_USUAL: Final = "https://kubernetes.default.svc.cluster.local"
_BEARER: Final = "Bearer "


def api_audience(headers: Mapping[str, str]) -> str:
    """Return the first audience of our own service account's token, else the usual one."""
    parts = headers.get("Authorization", "").removeprefix(_BEARER).split(".")
    if len(parts) != 3:
        return _USUAL
    try:
        padded = parts[1] + "=" * (-len(parts[1]) % 4)
        claims = json.loads(base64.urlsafe_b64decode(padded))
    except (ValueError, binascii.Error, RecursionError):
        return _USUAL
    found = claims.get("aud") if isinstance(claims, dict) else None
    audiences = found if isinstance(found, list) else [found]
    named = [each for each in audiences if isinstance(each, str) and each]
    return named[0] if named else _USUAL
