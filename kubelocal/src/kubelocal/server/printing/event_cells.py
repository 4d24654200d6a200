"""Cells of events, whichever of the two API groups they are read through.

Source: the printed forms of a 1.37 server.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubelocal.server.printing.ages import age
from kubeworld.units.instants import Nanos

Object = Mapping[str, Any]


def last_seen(obj: Object, now: Nanos) -> str:
    """Time since an event last happened."""
    series = obj.get("series") or {}
    last = (
        series.get("lastObservedTime")
        or obj.get("lastTimestamp")
        or obj.get("deprecatedLastTimestamp")
        or obj.get("eventTime")
    )
    return age(last, now)


def first_seen(obj: Object, now: Nanos) -> str:
    """Time since an event first happened."""
    first = obj.get("firstTimestamp") or obj.get("deprecatedFirstTimestamp") or obj.get("eventTime")
    return age(first, now)


def _involved(obj: Object) -> Object:
    return obj.get("involvedObject") or obj.get("regarding") or {}


def regarding(obj: Object) -> str:
    """The object that an event is about."""
    involved = _involved(obj)
    kind, name = str(involved.get("kind", "")).lower(), involved.get("name")
    return f"{kind}/{name}" if name else kind


def subobject(obj: Object) -> str:
    """The part of the object that an event is about."""
    return str(_involved(obj).get("fieldPath") or "")


def event_source(obj: Object) -> str:
    """Who reported an event."""
    source = obj.get("source") or obj.get("deprecatedSource") or {}
    component = (
        source.get("component")
        or obj.get("reportingComponent")
        or (obj.get("reportingController") or "")
    )
    host = source.get("host") or (
        "" if source.get("component") else obj.get("reportingInstance") or ""
    )
    return f"{component}, {host}" if host else str(component)


def event_message(obj: Object) -> str:
    """What an event states."""
    return str(obj.get("message") or obj.get("note") or "").strip()


def event_count(obj: Object) -> str:
    """How often an event happened."""
    series = obj.get("series") or {}
    count = series.get("count") or obj.get("count") or obj.get("deprecatedCount")
    return str(count or 1)
