"""How victims were chosen, and how far they are from the least costly ones, in words."""

from __future__ import annotations

from collections.abc import Iterator

from reprieve.engine.placement.profile import VictimChoice

__all__ = ["choice_lines"]


def choice_lines(profile: str, gap: int | None) -> Iterator[str]:
    """Yield which profile chose the victims; older records do not state one.

    `gap`: per cent by which they may exceed the least possible, None: no bound is known. Only
    profile `best` has one.
    """
    if profile == VictimChoice.BEST:
        yield f"Chosen by profile {profile}; {_gap_text(gap)}"
    elif profile:
        yield f"Chosen by profile {profile}"


def _gap_text(gap: int | None) -> str:
    if gap is None:
        return "gap to the least victims: not known"
    return f"gap to the least victims: {f'at most {gap} %' if gap else '0'}"
