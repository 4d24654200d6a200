"""What tenants read of holds and loops names nothing of other namespaces."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from reprieve.kube.errors import ServerError
from reprieve.planes.quota.held_pairs import HeldPairs
from reprieve.telemetry.metrics import Metrics
from reprieve.units.durations import HOUR
from reprieve.wording.displacements import known_as
from reprieve.wording.kueue import Event
from tests.quota.test_ledger import later, work

_SPACES = {"x": "red", "y": "blue"}


class Told:
    """Whom an event was about, what it said, and which other object it named."""

    def __init__(self, *, key: bool = True) -> None:
        self.events: list[tuple[str, str, str | None]] = []
        self.metrics = Metrics()
        self.options = SimpleNamespace(loop_limit=2, loop_window=HOUR)
        self.disruptions = SimpleNamespace(known_as=self._known_as)
        self._key = key

    async def _known_as(self, namespace: str, lineage: str) -> str:
        if not self._key:
            raise ServerError("away", code=500)
        return known_as(b"key", namespace, lineage)

    def announce(self, about: Any, event: Event, related: Any = None) -> None:
        self.events.append((about.namespace, event.message, related and related.namespace))


async def _held(told: Told, spaces: dict[str, str]) -> None:
    pairs = HeldPairs(cast("Any", told))
    assert pairs.ledger is not None
    x, y = (replace(work(name), namespace=space) for name, space in spaces.items())
    for turn in range(4):
        one, other = (x, y) if turn % 2 == 0 else (y, x)
        pairs.ledger.record(one, other, later(turn))
        pairs.issued(one, other)
        pairs.written(one, [other])
    await pairs.show(later(5))


@pytest.mark.parametrize("key", [True, False])
async def test_events_name_work_of_other_namespaces_by_a_number_alone(key: bool) -> None:
    told = Told(key=key)
    await _held(told, _SPACES)
    assert {space for space, *_ in told.events} == {"red", "blue"}
    reasons = ("preempted each other", " displacements in ")
    assert all(any(reason in text for _, text, _ in told.events) for reason in reasons)
    for space, text, related in told.events:
        other = {"red": "blue/", "blue": "red/"}[space]
        assert f"{space}/" in text and other not in text and related is None
        number = r"another tenant's work " + (r"#[0-9a-f]{4}" if key else r"\(\d\)")
        assert len(set(re.findall(number, text))) == 1
    # Operators see the names.
    (family,) = told.metrics.held_pairs.collect()
    assert any({"red/x", "blue/y"} == set(sample.labels.values()) for sample in family.samples)


async def test_within_a_namespace_both_are_named_and_related() -> None:
    told = Told()
    await _held(told, {"x": "red", "y": "red"})
    pairs = [each for each in told.events if "preempted each other" in each[1]]
    assert pairs
    for _, text, related in pairs:
        assert "red/x" in text and "red/y" in text and related == "red"
    assert not any("another tenant" in text for _, text, _ in told.events)
