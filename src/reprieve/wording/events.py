"""The text of an event, without its objects and times."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["EventText"]


@dataclass(frozen=True, slots=True)
class EventText:
    """What an event states. `action`: what was done, which events of core/v1 have no word for."""

    type: str
    reason: str
    message: str
    action: str = ""

    def __str__(self) -> str:
        return f"{self.type} {self.reason} {self.message}"
