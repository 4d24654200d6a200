"""A quantity of any length is refused at once, and never holds the embedded server up."""

from __future__ import annotations

import pytest

from kubeworld.units.canonical import NotAQuantity, canonical


@pytest.mark.parametrize("text", ["1" * 250_000, "1" * 250_000 + "x", "1." * 100_000, "." * 9_000])
def test_a_long_quantity_is_refused(text: str) -> None:
    with pytest.raises(NotAQuantity):
        canonical(text)


@pytest.mark.parametrize(
    ("text", "written"),
    [("1E", "1E"), ("1Ei", "1Ei"), ("1e3", "1e3"), ("1.50", "1500m"), ("3k", "3k")],
)
def test_what_ends_in_e_is_read_as_ever(text: str, written: str) -> None:
    assert canonical(text) == written
