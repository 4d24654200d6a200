"""A cluster of a few numbers, instead of the mirror."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from kubeworld.units.instants import Nanos
from reprieve.web.live.watching import Key
from reprieve.web.tables import Cell, Column, InvalidParameter, Kind, NotFound, Page, Table

COLUMNS = (
    Column("unit", Kind.UNIT),
    Column("gpus", Kind.NUMBER),
    Column("since", Kind.INSTANT),
    Column("notes", Kind.LIST),
)


@dataclass
class StandIn:
    """Units with their GPUs by `namespace/name`; the page `now` shows those that may be seen."""

    units: dict[str, int] = field(default_factory=dict)
    version: int = 0
    made: int = 0
    fault: Exception | None = None
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def set(self, unit: str, gpus: int) -> None:
        self.units[unit] = gpus
        self.touched()

    def touched(self) -> None:
        self.version += 1
        self._news.set()
        self._news = asyncio.Event()

    async def changed(self, since: int) -> None:
        while self.version == since:
            await self._news.wait()

    def page(self, key: Key, at: Nanos) -> Page:
        self.made += 1
        if self.fault is not None:
            raise self.fault
        parameters = dict(key.parameters)
        wanted = parameters.get("namespace", ())
        shown = {
            unit: gpus
            for unit, gpus in self.units.items()
            if key.viewer.sees(unit.partition("/")[0])
        }
        match key.page:
            case "now":
                if any(not each for each in wanted):
                    raise InvalidParameter("namespace: empty; accepted: the name of a namespace")
                rows: dict[str, tuple[Cell, ...]] = {
                    unit: (f"job/{unit}", gpus, None, [])
                    for unit, gpus in shown.items()
                    if not wanted or unit.partition("/")[0] in wanted
                }
                return Page({"gpus": sum(shown.values())}, {"holders": Table(COLUMNS, rows)})
            case "workload":
                name = "/".join((*wanted, *parameters.get("name", ())))
                if name not in shown:
                    raise NotFound("there is no such workload, or you may not see it")
                return Page({"gpus": shown[name]}, {})
            case _:
                raise NotFound("there is no such page")
