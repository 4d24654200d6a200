"""Values made many at once are those made one by one."""

from __future__ import annotations

from itertools import repeat

import pytest

from reprieve.engine.many import many
from reprieve.units.ids import Uid
from reprieve.units.references import Reference


def test_values_made_at_once_are_the_same_and_as_frozen() -> None:
    made = many(
        Reference,
        2,
        api_version=repeat("v1"),
        kind=repeat("Pod"),
        namespace=["a", "b"],
        name=["x", "y"],
        uid=["1", "2"],
        resource_version=repeat(""),
    )
    one_by_one = [
        Reference("v1", "Pod", "a", "x", Uid("1")),
        Reference("v1", "Pod", "b", "y", Uid("2")),
    ]
    assert made == one_by_one
    assert list(map(hash, made)) == list(map(hash, one_by_one))
    with pytest.raises(AttributeError):
        made[0].name = "z"  # type: ignore[misc]


def test_a_field_that_is_not_named_is_an_error() -> None:
    with pytest.raises(TypeError, match="Reference has the fields"):
        many(Reference, 1, name=["x"])
