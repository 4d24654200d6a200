"""How far victims are from the least costly ones, in words."""

from __future__ import annotations

__all__ = ["gap_text"]


def gap_text(gap: int | None) -> str:
    """Return how much less victims could have cost at most; None: no bound is known."""
    if gap is None:
        return "gap to the least victims: not known"
    return f"gap to the least victims: {f'at most {gap} %' if gap else '0'}"
