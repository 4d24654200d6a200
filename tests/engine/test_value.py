"""Values are what frozen dataclasses are, to all who do not set their fields."""

from __future__ import annotations

from dataclasses import fields, replace

import msgspec

from reprieve.engine.cluster.rows import HostPort, PodClass
from reprieve.engine.value import value


@value
class Point:
    """A point."""

    x: int
    y: int = 0


@value
class Named:
    """Something that is known by its name alone."""

    name: str
    size: int = 0

    def __hash__(self) -> int:
        return hash(self.name)


def test_equal_values_are_one_key_and_others_are_not() -> None:
    assert Point(1) == Point(1, 0) and hash(Point(1)) == hash(Point(1, 0))
    assert len({Point(1), Point(1, 0), Point(0, 1)}) == 2
    assert replace(Point(1), y=2) == Point(1, 2)
    assert [field.name for field in fields(Point(1))] == ["x", "y"]
    assert not hasattr(Point(1), "__dict__")


def test_a_hash_of_its_own_stays_and_values_that_share_it_differ() -> None:
    assert hash(Named("a", 1)) == hash(Named("a", 2))
    assert len({Named("a", 1), Named("a", 2)}) == 2


def test_values_are_stored_as_dataclasses_are() -> None:
    stored = msgspec.json.encode(PodClass(host_ports=(HostPort(1),), priority_class="high"))
    read = msgspec.json.decode(stored, type=PodClass)
    assert read == PodClass(host_ports=(HostPort(1),), priority_class="high")
    assert hash(read) == hash(PodClass(host_ports=(HostPort(1),), priority_class="high"))
