"""Reads harm budgets with their status, and the ledger of harm, for the page.

Both are read every quarter of a minute: the budgets by a list, the parts of the ledger that this
month and the last week are in by name, since the page may read no other ConfigMap. What may not be
read, or is not served, is not there.
"""

from __future__ import annotations

import datetime
from typing import Any, Final

from kubeworld.units.clock import Clock
from kubeworld.units.durations import HOUR, SECOND
from kubeworld.units.instants import Nanos
from reprieve.api.harm_budget import HarmBudget
from reprieve.engine.harm_budgets.sums import Amount, Key
from reprieve.kube.errors import ApiError, NotFound
from reprieve.kube.reader import Reader
from reprieve.kube.resource import CONFIG_MAPS, HARM_BUDGETS
from reprieve.records.harm_sums import MONTH, PARTS, part_name, part_rows
from reprieve.web.mirror.harm import HarmRead
from reprieve.web.mirror.mirror import Mirror

__all__ = ["keep_reading_harm", "read_harm"]

_EVERY: Final = 15 * SECOND
_WEEK: Final = 7 * 24 * HOUR


async def keep_reading_harm(mirror: Mirror, reader: Reader, namespace: str, clock: Clock) -> None:
    """Read for ever; `namespace`: the operator's."""
    while True:
        found = await read_harm(reader, namespace, clock.wall())
        if found.versions != mirror.harm.versions:
            mirror.harm = found
            mirror.touch()
        await clock.sleep(_EVERY)


async def read_harm(reader: Reader, namespace: str, now: Nanos) -> HarmRead:
    """Return what there is."""
    budgets: tuple[HarmBudget, ...] = ()
    versions: list[str] = []
    try:
        page = await reader.list(HARM_BUDGETS, HarmBudget)
        budgets = tuple(sorted(page.items, key=lambda each: each.metadata.name))
        versions += [each.metadata.resource_version for each in budgets]
    except ApiError:
        pass
    rows: list[tuple[Key, Amount]] = []
    for month in sorted({_month(Nanos(now - _WEEK)), _month(now)}):
        for number in range(PARTS):
            try:
                part: dict[str, Any] = await reader.get(
                    CONFIG_MAPS, namespace, part_name(month, number), dict
                )
            except NotFound:
                continue
            except ApiError:
                return HarmRead(budgets, tuple(rows), tuple(versions))
            if (part["metadata"].get("labels") or {}).get(MONTH) == month:
                rows += part_rows(part)[0].items()
                versions.append(part["metadata"]["resourceVersion"])
    return HarmRead(budgets, tuple(rows), tuple(versions))


def _month(now: Nanos) -> str:
    return datetime.datetime.fromtimestamp(now // SECOND, datetime.UTC).strftime("%Y-%m")
