"""The published cases of the quota plane, one test a case: `quota/file.json::name`.

Every case also runs as a copy in which all instants are moved and all uids have another beginning,
in input and expectation alike: an engine that knows a case instead of the rule fails the copy.
Objects in outcomes are compared in full; nothing deviates.
"""

from __future__ import annotations

import json
import re
from typing import Any

from reprieve.units.durations import HOUR, SECOND
from reprieve.units.instants import Nanos, format_instant, parse_instant
from tests.conformance.quota_runners import RUNNERS
from tests.conformance.world import Json

DELTA = 9_679 * HOUR + 431 * SECOND
INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
UID = re.compile(r'("uid": "|"kueue.x-k8s.io/job-uid": "|UID: )(?!UNKNOWN)([^",)]+)')


def test_published(quota_vector: tuple[str, str, Json]) -> None:
    _, kind, case = quota_vector
    outcome, expected = _run(kind, case)
    assert outcome == expected


def test_shifted_copy(quota_vector: tuple[str, str, Json]) -> None:
    _, kind, case = quota_vector
    outcome, expected = _run(kind, _shifted(case))
    assert outcome == expected


def _run(kind: str, case: Json) -> tuple[Any, Any]:
    assert kind in RUNNERS, f"no runner for kind {kind!r}"
    return RUNNERS[kind](case)


def _shifted(case: Json) -> Json:
    text = INSTANT.sub(
        lambda found: format_instant(Nanos(parse_instant(found.group()) + DELTA)),
        json.dumps(case),
    )
    copy: Json = json.loads(UID.sub(r"\g<1>z9-\g<2>", text))
    return copy
