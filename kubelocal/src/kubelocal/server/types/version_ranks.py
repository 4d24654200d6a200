"""The order of API versions, newest last."""

from __future__ import annotations

__all__ = ["version_rank"]


def version_rank(version: str) -> tuple[int, int, int]:
    """Order of API versions: v2 above v1 above v2beta1 above v1alpha3."""
    for level, word in ((1, "beta"), (0, "alpha")):
        major, found, minor = version.removeprefix("v").partition(word)
        if found and major.isdigit():
            return (level, int(major), int(minor) if minor.isdigit() else 0)
    digits = version.removeprefix("v")
    return (2, int(digits), 0) if digits.isdigit() else (-1, 0, 0)
