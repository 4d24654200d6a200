"""When events were observed."""

from __future__ import annotations

from reprieve.answers.sources import Json

__all__ = ["instant_of"]


def instant_of(event: Json) -> str:
    """Return when an event came last; texts of instants in UTC sort as these do."""
    return str(
        (event.get("series") or {}).get("lastObservedTime")
        or event.get("lastTimestamp")
        or event.get("eventTime")
        or ""
    )
