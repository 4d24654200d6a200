"""What a notification states: the body for Slack, or a CloudEvent, made from a Disruption alone.

A Disruption states nothing of other namespaces, nor does the message. `reprieve.dev/notify-format`
chooses; without it a URL of `hooks.slack.com` gets the body for Slack, which Mattermost and others
read, too, and any other a CloudEvent 1.0 in structured mode. Signed by the rules of Standard
Webhooks: `webhook-id` names the Disruption, so that a receiver can recognize a repeated message (an
answer that was lost), and `webhook-signature` is an HMAC-SHA256 over id, timestamp and body.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

import msgspec
import orjson

from kubeworld.units.durations import SECOND, format_duration
from kubeworld.units.instants import Nanos
from reprieve.api.disruption import Disruption
from reprieve.units.counts import counted

__all__ = ["EVENT_TYPE", "Format", "body", "format_for", "headers"]

EVENT_TYPE: Final = "dev.reprieve.disruption.v1"
_SLACK: Final = "hooks.slack.com"
_ESCAPED: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


class Format(StrEnum):
    """The shapes of a body."""

    SLACK = "slack"
    CLOUD_EVENT = "cloudevents"


def format_for(wanted: str, host: str) -> Format:
    """Return the shape that a namespace wants, else the usual one of a host.

    Raises:
        ValueError: there is no such shape.
    """
    if not wanted:
        return Format.SLACK if host == _SLACK else Format.CLOUD_EVENT
    return Format(wanted)


def body(reported: Disruption, shape: Format, source: str) -> bytes:
    """Return the body; `source`: who sends it, a URI reference."""
    if shape is Format.SLACK:
        return orjson.dumps({"text": _text(reported)})
    return orjson.dumps(
        {
            "specversion": "1.0",
            "id": _id(reported),
            "source": source,
            "type": EVENT_TYPE,
            "subject": f"{reported.metadata.namespace}/{reported.spec.subject.name}",
            "time": reported.spec.ended_at,
            "datacontenttype": "application/json",
            "data": {
                "namespace": reported.metadata.namespace,
                "disruption": reported.metadata.name,
                "kind": reported.spec.subject.kind,
                "name": reported.spec.subject.name,
                "objects": reported.spec.objects,
                "plane": reported.spec.plane,
                "rule": reported.spec.rule,
                "preemptor": reported.spec.preemptor,
                "noticedAt": reported.spec.noticed_at,
                "endedAt": reported.spec.ended_at,
                "lostDeviceSeconds": reported.spec.lost_device_seconds,
                "times": reported.spec.times,
                "window": reported.spec.window,
                "sparedBy": reported.spec.spared_by,
                "repeated": reported.status.repeated,
                **_demand(reported),
            },
        }
    )


def _demand(reported: Disruption) -> dict[str, Any]:
    """Return what is reported of the demand; nothing where one plane decides alone."""
    demand = reported.spec.demand
    return {} if demand is None else {"demand": msgspec.to_builtins(demand)}


def headers(
    reported: Disruption, shape: Format, content: bytes, at: Nanos, key: bytes
) -> Mapping[str, str]:
    """Return the headers of a message that is sent at this wall time; unsigned without a key."""
    cloud = shape is Format.CLOUD_EVENT
    stamp = str(at // SECOND)
    found = {
        "content-type": "application/cloudevents+json" if cloud else "application/json",
        "user-agent": "reprieve",
        "webhook-id": _id(reported),
        "webhook-timestamp": stamp,
    }
    if key:
        signed = b".".join((found["webhook-id"].encode(), stamp.encode(), content))
        digest = hmac.new(key, signed, hashlib.sha256).digest()
        found["webhook-signature"] = f"v1,{base64.b64encode(digest).decode()}"
    return found


def _id(reported: Disruption) -> str:
    return f"{reported.metadata.namespace}/{reported.metadata.name}"


def _text(reported: Disruption) -> str:
    """Return the lines for people; names cannot format or mention."""
    spec, space = reported.spec, reported.metadata.namespace
    subject = f"{spec.subject.kind} {space}/{spec.subject.name}"
    several = f" ({counted(spec.objects, 'object')})" if spec.objects > 1 else ""
    lost = format_duration(spec.lost_device_seconds * SECOND)
    times = counted(spec.times, "time")
    lines = [
        f"{subject}{several} was preempted at {spec.ended_at}, for {spec.preemptor}.",
        f"Why: {spec.rule}.",
        f"Lost: {lost} of device time; preempted {times} within {spec.window}.",
        f"It would have stayed with: {spec.spared_by}.",
        f"kubectl describe disruption -n {space} {reported.metadata.name}",
    ]
    if reported.status.repeated:
        lines.insert(3, reported.status.message)
    return "\n".join(lines).translate(_ESCAPED)
