"""The key to the numbers under which work of other tenants is shown, as the operator made it.

Tenants read the same numbers in their own `Disruption`s. A viewer who may not read the key sees
none.
"""

from __future__ import annotations

import base64
import binascii

from reprieve.api.disruption import KEY_FIELD, KEY_SECRET
from reprieve.kube.errors import ApiError
from reprieve.kube.reader import Reader
from reprieve.kube.resource import SECRETS

__all__ = ["numbers_key"]


async def numbers_key(reader: Reader, namespace: str) -> bytes:
    """Return the key, empty where it is not there or may not be read.

    `namespace`: the operator's.
    """
    try:
        found = await reader.get(SECRETS, namespace, KEY_SECRET, dict)
        return base64.b64decode(found["data"][KEY_FIELD], validate=True)
    except (ApiError, binascii.Error, KeyError):
        return b""
