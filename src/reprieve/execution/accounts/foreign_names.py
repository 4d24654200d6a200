"""What people of a namespace may know of whom their work was preempted for.

Work of their own namespace has its name (`demand_names`), that of another one a number: the same
one each time it is the same work, and another one in each namespace. The key to these numbers is a
Secret of the operator's namespace, which the chart makes empty and the operator fills when it is
first needed (and makes where it may and there is none); where it is out of reach there are none.
Source: specification of disruptions, section 6.
"""

from __future__ import annotations

import base64
import binascii
import logging
import secrets
from typing import Any, Final

from kubeworld.units.clock import Clock
from reprieve.api.disruption import KEY_FIELD, KEY_SECRET
from reprieve.api.reprieve import Preemption
from reprieve.execution.accounts.demand_names import DemandNames
from reprieve.kube.client import Client
from reprieve.kube.errors import AlreadyExists, Conflict, Forbidden, NotFound
from reprieve.kube.resource import SECRETS
from reprieve.wording.displacements import NOBODY, known_as

__all__ = ["ForeignNames"]

log: Final = logging.getLogger("reprieve.execution")

_KEY_BYTES: Final = 32


class ForeignNames:
    """Names preemptors for people of other namespaces; `writer`: fenced, makes the Secret."""

    def __init__(self, client: Client, writer: Client, namespace: str, clock: Clock) -> None:
        self._client = client
        self._demands = DemandNames(client, clock)
        self._writer = writer
        self._namespace = namespace
        self._key: bytes | None = None

    async def known_as(self, namespace: str, lineage: str) -> str:
        """Return what people of a namespace may know of work of another one.

        Raises:
            Deposed: the fence is closed.
            ApiError: the key to the numbers could not be read now.
        """
        return known_as(await self._numbers_key(), namespace, lineage)

    async def preemptor(self, intent: Preemption, namespace: str) -> str:
        """Return for whom a plan was, as people of a namespace may know it.

        Raises:
            Deposed: the fence is closed.
            ApiError: the key to the numbers, or what the plan names, could not be read now.
        """
        preemptor = intent.spec.preemptor
        if preemptor is None:
            return NOBODY
        if preemptor.namespace == namespace:
            return await self._demands.of(preemptor)
        lineage = intent.spec.preemptor_lineage or preemptor.uid
        return await self.known_as(namespace, lineage)

    async def _numbers_key(self) -> bytes:
        """Return the key to the numbers; empty, so that there are none, where it is out of reach.

        Raises:
            ApiError: to be tried again.
        """
        if self._key is None:
            try:
                self._key = await self._stored_key()
            except (Forbidden, binascii.Error, KeyError) as failure:
                self._key = b""
                log.warning(
                    "Disruptions have no numbers for workloads of other namespaces: Secret "
                    "%s/%s cannot be used: %s",
                    self._namespace,
                    KEY_SECRET,
                    failure,
                )
        return self._key

    async def _stored_key(self) -> bytes:
        fresh = base64.b64encode(secrets.token_bytes(_KEY_BYTES)).decode()
        made: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": KEY_SECRET, "namespace": self._namespace},
            "data": {KEY_FIELD: fresh},
        }
        found: dict[str, Any]
        try:
            found = await self._client.get(SECRETS, self._namespace, KEY_SECRET, dict)
        except NotFound:
            try:
                found = await self._writer.create(SECRETS, made, dict)
            except AlreadyExists:
                found = await self._client.get(SECRETS, self._namespace, KEY_SECRET, dict)
        if not found.get("data"):
            try:
                filled = {**found, "data": made["data"]}
                found = await self._writer.replace(SECRETS, filled, dict)
            except Conflict:
                found = await self._client.get(SECRETS, self._namespace, KEY_SECRET, dict)
        return base64.b64decode(found["data"][KEY_FIELD], validate=True)
