"""What is asked of etcd itself, by the JSON gateway that it serves beside gRPC."""

from __future__ import annotations

import json
import urllib.request
from typing import Any, Final

from tests.integration.control_plane import ControlPlane

__all__ = ["compact", "lift_alarms", "revision"]

_NO_SPACE: Final = "NOSPACE"


def revision(plane: ControlPlane) -> int:
    """Return the revision of the last write."""
    return int(_ask(plane, "maintenance/status", {})["header"]["revision"])


def compact(plane: ControlPlane) -> int:
    """Forget every version but the last of each object; return the revision."""
    now = revision(plane)
    _ask(plane, "kv/compaction", {"revision": now, "physical": True})
    return now


def lift_alarms(plane: ControlPlane) -> None:
    """Give back the room of what was forgotten, and write again."""
    _ask(plane, "maintenance/defragment", {})
    for raised in _ask(plane, "maintenance/alarm", {"action": "GET"}).get("alarms", ()):
        # Without its member an alarm stays.
        lifted = {"action": "DEACTIVATE", "memberID": raised["memberID"], "alarm": _NO_SPACE}
        _ask(plane, "maintenance/alarm", lifted)


def _ask(plane: ControlPlane, what: str, body: dict[str, Any]) -> dict[str, Any]:
    request = urllib.request.Request(
        f"http://127.0.0.1:{plane.ports['etcd']}/v3/{what}",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        found: dict[str, Any] = json.load(answer)
    return found
