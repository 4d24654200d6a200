"""Orders of victims that others made, found among the installed packages.

A package offers them as entry points of `reprieve.victim_orders`; `quota.victimOrder` and
`gpuPreemption.victimOrder` name one. An order is a pure function that gives a candidate a whole
number; the lower one is evicted first. It decides among candidates that the rules treat alike: in
the quota plane those of one priority, in the idle plane all idle work. Everything else stays as it
is, the proof of a plan included, and the number stands in the record, so that a decision is made
again without the package.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, Final, TypeVar

from reprieve.units.errors import UsageError

__all__ = ["NO_ORDER", "ORDER_ENTRY_POINTS", "Orders", "Ranking", "function_of", "ranking"]

ORDER_ENTRY_POINTS: Final = "reprieve.victim_orders"
_LIMIT: Final = 2**63
_ACCEPTED: Final = "accepted: a whole number of 64 bits, the same at each call"

if TYPE_CHECKING:
    from reprieve.engine.idle.model import Workload as IdleWorkload
    from reprieve.engine.quota.model import Workload as QuotaWorkload

_log = logging.getLogger("reprieve")
Row = TypeVar("Row", "QuotaWorkload", "IdleWorkload")


@dataclass(frozen=True, slots=True)
class Ranking:
    """An order with its name; `order` None leaves every row as it is."""

    name: str = ""
    order: Callable[[Any], int] | None = None
    _reported: set[str] = field(default_factory=set)

    def of(self, row: Row) -> Row:
        """Return a row with its number; 0 where the order has none, which is logged once."""
        if self.order is None:
            return row
        rank, fault = self.asked(row)
        if fault and fault not in self._reported and len(self._reported) < 100:
            self._reported.add(fault)
            _log.error("victimOrder %s: %s: %s; it counts as 0", self.name, row.key, fault)
        return replace(row, rank=rank) if rank != row.rank else row

    def asked(self, row: QuotaWorkload | IdleWorkload) -> tuple[int, str]:
        """Return the number of a row, and what is wrong with the answer."""
        assert self.order is not None, "there is an order"
        try:
            rank = self.order(row)
            again = self.order(row)
        except Exception as failure:  # code of an installed package
            return 0, f"it failed: {failure!r}; {_ACCEPTED}"
        if type(rank) is not int or not -_LIMIT <= rank < _LIMIT:
            return 0, f"it answered {rank!r}; {_ACCEPTED}"
        if rank != again:
            return 0, f"it answered {rank} and then {again!r}; {_ACCEPTED}"
        return rank, ""


NO_ORDER: Final = Ranking()


@dataclass(frozen=True, slots=True)
class Orders:
    """The orders of a process, by plane."""

    quota: Ranking = NO_ORDER
    idle: Ranking = NO_ORDER


def ranking(name: str, where: str, *samples: QuotaWorkload | IdleWorkload) -> Ranking:
    """Return the installed order of a name, empty for none.

    Raises:
        UsageError: no package offers it, it cannot be loaded, or it breaks a rule of the proof.
    """
    if not name:
        return NO_ORDER
    offered: Mapping[str, EntryPoint] = {e.name: e for e in entry_points(group=ORDER_ENTRY_POINTS)}
    if name not in offered:
        known = ", ".join(sorted(offered)) or "none, as no installed package offers an order"
        raise UsageError(f"{where}: {name!r}; accepted: {known}")
    try:
        found = Ranking(name, function_of(offered[name]))
    except UsageError as refusal:
        raise UsageError(f"{where}: {refusal}") from None
    for row in samples:
        _, fault = found.asked(row)
        if fault:
            raise UsageError(f"{where} {name}: {fault}")
    return found


def function_of(entry: EntryPoint) -> Any:
    """Return what an entry point names.

    Raises:
        UsageError: it cannot be imported, or is nothing that can be called.
    """
    where = f"plugin {entry.name} ({entry.value})"
    try:
        plugin = entry.load()
    except Exception as failure:
        raise UsageError(f"{where} cannot be loaded: {failure}") from None
    if not callable(plugin):
        raise UsageError(f"{where} is {plugin!r}; accepted: a function")
    return plugin
