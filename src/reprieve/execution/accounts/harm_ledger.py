"""The ledger of harm: hourly sums that outlive records and processes.

Parts are ConfigMaps of the operator's namespace, `reprieve-harm-11-0` to `reprieve-harm-11-7` for
November: a tenant's displacements are all in one of them. A part of the same month a year ago is
replaced, so that the ledger reaches back a year. A part holds rows of sums (`records.harm_sums`)
and the records that they sum up: both change in one write, so that a record counts once in each
whichever write a process dies at. What a plan displaced is appended once the plan is over. A
process that becomes the leader loads the parts that windows reach, and counts from records what is
in no part.

A part that is too large is summed up by the day, without lineages, but for the last day: a month of
1,000 tenants needs 2 MB at most. Only the leader appends, behind the fence. A part that cannot be
written is tried again; no work waits for it.
"""

from __future__ import annotations

import asyncio
import datetime
import zlib
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kubeworld.units.durations import HOUR, SECOND
from kubeworld.units.instants import Nanos
from reprieve.engine.harm_budgets.budget import Harm
from reprieve.engine.harm_budgets.sums import LONGEST_WINDOW, Amount, Key, coarser
from reprieve.execution.accounts.harm_store import AGAIN, HarmSite, HarmStore, log
from reprieve.execution.accounts.returns import Unit
from reprieve.execution.fence import Deposed
from reprieve.kube.errors import ApiError, NotFound
from reprieve.kube.own_objects import OURS
from reprieve.kube.resource import CONFIG_MAPS
from reprieve.records.harm_sums import (
    HARM_LABEL,
    MONTH,
    PARTS,
    merged,
    part_data,
    part_name,
    part_records,
    part_rows,
    record_digest,
)

__all__ = ["HarmLedger"]

_FULL: Final = 160_000  # characters of a part's rows
_MOST_RECORDS: Final = 6_000  # of one part, which no more than this are kept for a week
_DAY: Final = 24 * HOUR


@dataclass(slots=True)
class _Part:
    """One part as it is stored; `obj`: None before it was made."""

    month: str
    number: int
    obj: dict[str, Any] | None = None
    rows: dict[Key, Amount] = field(default_factory=dict)
    records: list[bytes] = field(default_factory=list)


class HarmLedger(HarmStore):
    """Loads and appends."""

    name = "the ledger of harm"

    def __init__(self, site: HarmSite) -> None:
        super().__init__(site)
        self._parts: dict[int, _Part] = {}  # those of this month that are known, by number
        self._stored: set[tuple[bytes, int]] = set()  # records, by the number of the part
        self._owed: list[tuple[bytes, Sequence[Harm]]] = []
        self._owing = asyncio.Event()
        site.governor.harm.await_sums()

    async def _load(self) -> None:
        parts = [part async for part in self._reached()]
        harm, oldest = self._governor.harm, self._clock.wall() - LONGEST_WINDOW - HOUR
        rows = [(k, a) for part in parts for k, a in part.rows.items() if a.last >= oldest]
        self._stored = {(record, part.number) for part in parts for record in part.records}
        with self._governor.guard:
            harm.store, harm.is_stored = self._store, self._is_stored
            harm.load(rows)

    def _begin(self) -> None:
        with self._governor.guard:
            self._governor.harm.load(())

    def _is_stored(self, record: str, harm: Harm) -> bool:
        return (record_digest(record), _part_of(harm)) in self._stored

    def returned(self, unit: Unit, at: Nanos) -> None:
        """Count how long a displaced unit was away."""
        with self._governor.guard:
            name = "/".join(("back", *unit.name))
            self._governor.harm.returned(name, unit.lineage, unit.noticed, at)

    def _store(self, record: str, harms: Sequence[Harm]) -> None:
        owed = [harm for harm in harms if not self._is_stored(record, harm)]
        if owed:
            self._owed.append((record_digest(record), owed))
            self._owing.set()

    @property
    def owes(self) -> int:
        """How many plans are still to be stored."""
        return len(self._owed)

    async def _keep(self) -> None:
        while True:
            await self._owing.wait()
            if self._fence.open:
                try:
                    await self._append()
                except (ApiError, Deposed) as failure:
                    log.warning("%s is not written, it is retried: %s", self.name, failure)
                    self._parts.clear()
            if self._owed:
                await self._clock.sleep(AGAIN)
            else:
                self._owing.clear()

    async def _append(self) -> None:
        """Add what is owed, in one write for each part.

        Raises:
            ApiError: to be tried again; it may have been written all the same.
            Deposed: the fence is closed.
        """
        owed = list(self._owed)
        by_part: dict[int, list[tuple[bytes, Harm]]] = defaultdict(list)
        for record, harms in owed:
            for harm in harms:
                by_part[_part_of(harm)].append((record, harm))
        for number, added in sorted(by_part.items()):
            await self._append_to(number, added)
        self._owed = self._owed[len(owed) :]

    async def _append_to(self, number: int, added: list[tuple[bytes, Harm]]) -> None:
        month = _month(self._clock.wall())
        part = self._parts.get(number)
        if part is None or part.month != month:
            # An answer may have been lost.
            part = await self._part(month, number)
            self._stored |= {(record, number) for record in part.records}
        new = [(record, harm) for record, harm in added if (record, number) not in self._stored]
        if new:
            rows = merged(part.rows, (harm for _, harm in new))
            names = dict.fromkeys([*part.records, *(record for record, _ in new)])
            part = await self._written(part, rows, list(names)[-_MOST_RECORDS:])
            self._stored |= {(record, number) for record, _ in new}
        self._parts[number] = part

    async def _written(self, part: _Part, rows: dict[Key, Amount], records: list[bytes]) -> _Part:
        data = part_data(rows.items(), records)
        if len(data["rows"]) > _FULL:
            rows = coarser(rows, Nanos(self._clock.wall() - _DAY))
            data = part_data(rows.items(), records)
        if len(data["rows"]) > _FULL:
            rows = coarser(rows, self._clock.wall())
            data = part_data(rows.items(), records)
        obj: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": part_name(part.month, part.number),
                "namespace": self._namespace,
                "labels": {HARM_LABEL: "sums", MONTH: part.month, **OURS},
            },
            "binaryData": data,
        }
        if part.obj is None:
            stored = await self._writer.create(CONFIG_MAPS, obj, dict)
        else:
            obj["metadata"]["resourceVersion"] = part.obj["metadata"]["resourceVersion"]
            stored = await self._writer.replace(CONFIG_MAPS, obj, dict)
        return _Part(part.month, part.number, stored, rows, records)

    async def _reached(self) -> AsyncIterator[_Part]:
        """Yield the parts that windows reach."""
        now = self._clock.wall()
        for month in sorted({_month(Nanos(now - back * _DAY)) for back in range(32)}):
            for number in range(PARTS):
                part = await self._part(month, number)
                if part.records or part.rows:
                    yield part

    async def _part(self, month: str, number: int) -> _Part:
        """Return a part as it is stored; empty where it is none, or one of another year."""
        name = part_name(month, number)
        try:
            obj: dict[str, Any] = await self._client.get(CONFIG_MAPS, self._namespace, name, dict)
        except NotFound:
            return _Part(month, number)
        if (obj["metadata"].get("labels") or {}).get(MONTH) != month:
            return _Part(month, number, obj)
        rows, unread = part_rows(obj)
        if unread:
            log.warning("ConfigMap %s: %d rows cannot be read", name, unread)
        return _Part(month, number, obj, rows, part_records(obj))


def _part_of(harm: Harm) -> int:
    return zlib.crc32(harm.victim.tenant.encode()) % PARTS


def _month(now: Nanos) -> str:
    return datetime.datetime.fromtimestamp(now // SECOND, datetime.UTC).strftime("%Y-%m")
