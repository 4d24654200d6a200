"""Events: an event lives where its object lives, and new ones are complete.

Source: core/v1 and events.k8s.io/v1; texts of a 1.37 server.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kubelocal.server import causes
from kubelocal.server.causes import Cause

__all__ = ["core_event", "event"]

Object = Mapping[str, Any]

_LONGEST_NOTE: Final = 1_024


def core_event(obj: Object) -> Iterator[Cause]:
    """Check a core/v1 Event."""
    involved = (obj.get("involvedObject") or {}).get("namespace") or ""
    own = (obj.get("metadata") or {}).get("namespace") or ""
    if (involved and involved != own) or (not involved and own not in ("", "default")):
        yield causes.bad("involvedObject.namespace", involved, "does not match event.namespace")


def event(obj: Object) -> Iterator[Cause]:
    """Check an events.k8s.io/v1 Event."""
    if not obj.get("eventTime"):
        yield causes.required("eventTime")
    kind = obj.get("type") or ""
    if kind not in ("Normal", "Warning"):
        yield causes.bad("type", "", f"has invalid value: {kind}")
    if obj.get("eventTime"):
        for word in ("reportingController", "reportingInstance", "action", "reason"):
            if not obj.get(word):
                yield causes.required(word)
    if len(str(obj.get("note") or "").encode()) > _LONGEST_NOTE:
        yield causes.bad("message", "", f"can have at most {_LONGEST_NOTE} characters")
