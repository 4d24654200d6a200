"""What is sent: of the own work alone, in the shape that is wanted, signed."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json

import pytest

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.notifications.messages import Format, body, format_for, headers
from tests.notifications.builders import disruption


def test_slack_gets_lines_that_nobodys_name_can_format() -> None:
    told = disruption(name="<!channel>&", preemptor="another tenant's work #a3f1")
    (text,) = json.loads(body(told, Format.SLACK, "/reprieve")).values()
    first = (
        "Job team/&lt;!channel&gt;&amp; was preempted at 2026-05-02T03:12:04Z, "
        "for another tenant's work #a3f1."
    )
    assert text.splitlines() == [
        first,
        "Why: lower priority.",
        "Lost: 2h0m0s of device time; preempted 1 time within 1h0m0s.",
        "It would have stayed with: a higher priority.",
        "kubectl describe disruption -n team train-1",
    ]


def test_others_get_a_cloud_event() -> None:
    event = json.loads(body(disruption(), Format.CLOUD_EVENT, "/reprieve/ns"))
    data = event.pop("data")
    assert event == {
        "specversion": "1.0",
        "id": "team/train-1",
        "source": "/reprieve/ns",
        "type": "dev.reprieve.disruption.v1",
        "subject": "team/train",
        "time": "2026-05-02T03:12:04Z",
        "datacontenttype": "application/json",
    }
    assert (data["namespace"], data["name"], data["lostDeviceSeconds"]) == ("team", "train", 7200)


@pytest.mark.parametrize(
    ("wanted", "host", "shape"),
    [
        ("", "hooks.slack.com", Format.SLACK),
        ("", "hooks.example.com", Format.CLOUD_EVENT),
        ("slack", "chat.example.com", Format.SLACK),
        ("cloudevents", "hooks.slack.com", Format.CLOUD_EVENT),
    ],
)
def test_the_namespace_chooses_the_shape(wanted: str, host: str, shape: Format) -> None:
    assert format_for(wanted, host) is shape


def test_the_signature_is_that_of_standard_webhooks() -> None:
    key, content = b"0123456789abcdef", b'{"text":"x"}'
    at = Nanos(1_777_691_524 * SECOND + 5)
    found = headers(disruption(), Format.SLACK, content, at, key)
    digest = hmac.new(key, b"team/train-1.1777691524." + content, hashlib.sha256).digest()
    assert found["webhook-signature"] == "v1," + base64.b64encode(digest).decode()
    assert (found["webhook-id"], found["webhook-timestamp"]) == ("team/train-1", "1777691524")
    unsigned = headers(disruption(), Format.CLOUD_EVENT, content, at, b"")
    assert "webhook-signature" not in unsigned
    assert unsigned["content-type"] == "application/cloudevents+json"
