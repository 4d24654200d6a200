"""What probes and plugins show: values alone, without the server that shows them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

__all__ = ["Check", "Page", "Probe"]


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that a probe looks at; `detail` states in one line what is wrong and what helps."""

    name: str
    passed: bool
    detail: str = ""
    required: bool = True


@dataclass(frozen=True, slots=True)
class Page:
    """What is shown of a plugin: a JSON document, or a text that states why there is none."""

    document: object = None
    missing: str = ""


Probe = Callable[[], Iterable[Check]]
