"""The pages by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from kubeworld.units.instants import Nanos
from reprieve.web.mirror.mirror import Mirror
from reprieve.web.pages import (
    harm,
    health,
    history,
    mine,
    now,
    preemption,
    preemptions,
    queues,
    waiting,
    workload,
)
from reprieve.web.tables import Page, Parameters, Viewer

__all__ = ["PAGES", "MakePage"]

#: Raises `NotFound` for what is not there or may not be known, `InvalidParameter` for the rest.
MakePage: TypeAlias = Callable[[Mirror, Viewer, Parameters, Nanos], Page]

PAGES: Final[Mapping[str, MakePage]] = MappingProxyType(
    {
        "now": now.page,
        "mine": mine.page,
        "waiting": waiting.page,
        "queues": queues.page,
        "workload": workload.page,
        "preemptions": preemptions.page,
        "preemption": preemption.page,
        "health": health.page,
        "harm": harm.page,
        "history": history.page,
    }
)
