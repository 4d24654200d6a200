"""Which kinds hold decisions up since they cannot be read."""

from __future__ import annotations

from typing import Any

from kubeworld.units.clock import VirtualClock
from kubeworld.units.durations import SECOND
from reprieve.kube.cache import Cache
from reprieve.kube.reflector import Health, Reflector
from reprieve.kube.resource import NODES, PODS, Resource
from reprieve.planes.common.mirrors.troubles import Troubles
from tests.kube.fakes import FakeAnswer, FakeWire, client_over


def reflector(resource: Resource, health: Health) -> Reflector[Any]:
    client = client_over(FakeWire(lambda request: FakeAnswer()))
    found: Reflector[Any] = Reflector(
        client, resource, dict, Cache(lambda obj: obj), VirtualClock()
    )
    found.health, found.error = health, RuntimeError("no answer")
    return found


async def test_a_refusal_holds_up_at_once_and_a_failure_when_it_has_lasted() -> None:
    clock = VirtualClock()
    troubles = Troubles(clock)
    pods, nodes = reflector(PODS, Health.FORBIDDEN), reflector(NODES, Health.UNREACHABLE)

    assert troubles.lines((pods, nodes)) == ["pods: Forbidden: no answer"]
    await clock.advance(10 * SECOND)
    assert troubles.lines((pods, nodes)) == [
        "pods: Forbidden: no answer",
        "nodes: Unreachable: no answer",
    ]


async def test_a_failure_that_has_passed_is_not_counted_when_the_kind_fails_again() -> None:
    clock = VirtualClock()
    troubles = Troubles(clock)
    nodes = reflector(NODES, Health.FAILING)

    assert troubles.lines((nodes,)) == []
    nodes.health = Health.WATCHING
    await clock.advance(9 * SECOND)
    assert troubles.lines((nodes,)) == []
    nodes.health = Health.FAILING
    await clock.advance(9 * SECOND)
    assert troubles.lines((nodes,)) == []
