"""What a notification states: the body for Slack, or a CloudEvent, made from a Disruption alone.

A Disruption says nothing of other namespaces, and so does the message. `reprieve.dev/notify-format`
chooses; without it a URL of `hooks.slack.com` gets the body for Slack, which Mattermost and others
read, too, and any other a CloudEvent 1.0 in structured mode. Signed by the rules of Standard
Webhooks: `webhook-id` names the Disruption, so that a receiver that was told twice (an answer that
was lost) can tell, and `webhook-signature` is an HMAC-SHA256 over id, timestamp and body.
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


def body(told: Disruption, shape: Format, source: str) -> bytes:
    """Return the body; `source`: who sends it, a URI reference."""
    if shape is Format.SLACK:
        return orjson.dumps({"text": _text(told)})
    return orjson.dumps(
        {
            "specversion": "1.0",
            "id": _id(told),
            "source": source,
            "type": EVENT_TYPE,
            "subject": f"{told.metadata.namespace}/{told.spec.subject.name}",
            "time": told.spec.ended_at,
            "datacontenttype": "application/json",
            "data": {
                "namespace": told.metadata.namespace,
                "disruption": told.metadata.name,
                "kind": told.spec.subject.kind,
                "name": told.spec.subject.name,
                "objects": told.spec.objects,
                "plane": told.spec.plane,
                "rule": told.spec.rule,
                "preemptor": told.spec.preemptor,
                "noticedAt": told.spec.noticed_at,
                "endedAt": told.spec.ended_at,
                "lostDeviceSeconds": told.spec.lost_device_seconds,
                "times": told.spec.times,
                "window": told.spec.window,
                "sparedBy": told.spec.spared_by,
                "repeated": told.status.repeated,
                **_demand(told),
            },
        }
    )


def _demand(told: Disruption) -> dict[str, Any]:
    """Return what is reported of the demand; nothing where one plane decides alone."""
    demand = told.spec.demand
    return {} if demand is None else {"demand": msgspec.to_builtins(demand)}


def headers(
    told: Disruption, shape: Format, content: bytes, at: Nanos, key: bytes
) -> Mapping[str, str]:
    """Return the headers of a message that is sent at this wall time; unsigned without a key."""
    cloud = shape is Format.CLOUD_EVENT
    stamp = str(at // SECOND)
    found = {
        "content-type": "application/cloudevents+json" if cloud else "application/json",
        "user-agent": "reprieve",
        "webhook-id": _id(told),
        "webhook-timestamp": stamp,
    }
    if key:
        signed = b".".join((found["webhook-id"].encode(), stamp.encode(), content))
        digest = hmac.new(key, signed, hashlib.sha256).digest()
        found["webhook-signature"] = f"v1,{base64.b64encode(digest).decode()}"
    return found


def _id(told: Disruption) -> str:
    return f"{told.metadata.namespace}/{told.metadata.name}"


def _text(told: Disruption) -> str:
    """Return the lines for people; names cannot format or mention."""
    spec, space = told.spec, told.metadata.namespace
    subject = f"{spec.subject.kind} {space}/{spec.subject.name}"
    several = f" ({spec.objects} objects)" if spec.objects > 1 else ""
    lost = format_duration(spec.lost_device_seconds * SECOND)
    lines = [
        f"{subject}{several} was preempted at {spec.ended_at}, for {spec.preemptor}.",
        f"Why: {spec.rule}.",
        f"Lost: {lost} of device time; preempted {spec.times} times within {spec.window}.",
        f"It would have stayed with: {spec.spared_by}.",
        f"kubectl describe disruption -n {space} {told.metadata.name}",
    ]
    if told.status.repeated:
        lines.insert(3, told.status.message)
    return "\n".join(lines).translate(_ESCAPED)
