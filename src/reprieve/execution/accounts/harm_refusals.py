"""Keeps since when harm budgets refuse ClusterQueues their own quota, over restarts.

The ConfigMap `reprieve-harm-refused` holds a line for each budget and ClusterQueue: `[budget,
queue, first, last]`, instants in nanoseconds. It is written a few seconds after a budget refuses a
ClusterQueue for the first time, and while it continues every ten minutes, behind the fence.
"""

from __future__ import annotations

import contextlib
from typing import Any, Final

import msgspec

from kubeworld.units.durations import MINUTE, SECOND
from reprieve.engine.harm_budgets.reclaims import Refused
from reprieve.execution.accounts.harm_store import HarmSite, HarmStore, log
from reprieve.execution.fence import Deposed
from reprieve.kube.errors import ApiError, NotFound
from reprieve.kube.own_objects import OURS
from reprieve.kube.resource import CONFIG_MAPS

__all__ = ["REFUSED", "HarmRefusals"]

REFUSED: Final = "reprieve-harm-refused"
_LINES: Final = "refused"
_EVERY: Final = 5 * SECOND
_LATE: Final = 10 * MINUTE


class HarmRefusals(HarmStore):
    """Loads and stores refusals."""

    name = "refusals of harm budgets"

    def __init__(self, site: HarmSite) -> None:
        super().__init__(site)
        self._obj: dict[str, Any] | None = None
        self._stored: dict[tuple[str, str], Refused] = {}

    def _begin(self) -> None:
        """There is nothing to begin with."""

    async def _keep(self) -> None:
        while True:
            await self._clock.sleep(_EVERY)
            if self._fence.open:
                await self._store()

    async def _load(self) -> None:
        try:
            self._obj = await self._client.get(CONFIG_MAPS, self._namespace, REFUSED, dict)
        except NotFound:
            self._obj = None
        rows = _rows((self._obj or {}).get("data", {}).get(_LINES, ""))
        self._stored = {row[:2]: row for row in rows}
        with self._governor.guard:
            self._governor.harm.reclaims.load(rows)

    async def _store(self) -> None:
        with self._governor.guard:
            known = set(self._governor.harm.budgets)
            rows = [row for row in self._governor.harm.reclaims.rows() if row.budget in known]
        if not any(self._differs(row) for row in rows):
            return
        obj = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": REFUSED,
                "namespace": self._namespace,
                "labels": dict(OURS),
            },
            "data": {_LINES: "\n".join(msgspec.json.encode(row).decode() for row in rows)},
        }
        try:
            if self._obj is None:
                self._obj = await self._writer.create(CONFIG_MAPS, obj, dict)
            else:
                obj["metadata"] = self._obj["metadata"]
                self._obj = await self._writer.replace(CONFIG_MAPS, obj, dict)
        except (ApiError, Deposed) as failure:
            log.warning("%s is not written, it is retried: %s", self.name, failure)
            with contextlib.suppress(ApiError):
                await self._load()
            return
        self._stored = {row[:2]: row for row in rows}

    def _differs(self, row: Refused) -> bool:
        stored = self._stored.get(row[:2])
        return stored is None or stored.first != row.first or row.last - stored.last > _LATE


def _rows(text: str) -> list[Refused]:
    found = []
    for line in filter(None, text.split("\n")):
        try:
            found.append(msgspec.json.decode(line, type=Refused))
        except msgspec.DecodeError:
            log.warning("ConfigMap %s: a line cannot be read", REFUSED)
    return found
