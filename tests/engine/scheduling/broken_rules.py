"""Faults that tests put into the rules for victims, to see that somebody notices."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from reprieve.engine.cluster.arrays import I64
from reprieve.engine.placement.profile import FilterName
from reprieve.engine.scheduling.victims import reprieve
from reprieve.engine.scheduling.victims.trackers import Room

__all__ = ["drop_rollback", "see_less_room", "skip_the_reprieve_of_groups", "take_one_too_many"]


def drop_rollback(monkeypatch: pytest.MonkeyPatch) -> None:
    """A unit that was refused halfway keeps the room that it had taken."""
    monkeypatch.setattr(Room, "give", lambda self, rows: None)


def skip_the_reprieve_of_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what touches a member nobody is put back."""

    def nobody(self: object, units: Sequence[int]) -> dict[int, FilterName]:
        del self
        return dict.fromkeys(units, FilterName.NODE_RESOURCES_FIT)

    monkeypatch.setattr(reprieve._Board, "restore_each", nobody)


def take_one_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first unit that could return goes all the same."""
    whole = reprieve._Board.restore_each

    def all_but_one(self: reprieve._Board, units: Sequence[int]) -> dict[int, FilterName]:
        refused = whole(self, units)
        spared = next((unit for unit in units if unit not in refused), None)
        more = {} if spared is None else {spared: FilterName.NODE_RESOURCES_FIT}
        return {**refused, **more}

    monkeypatch.setattr(reprieve._Board, "restore_each", all_but_one)


def see_less_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod that is put back takes its room twice."""
    rows = Room.rows

    def twice(self: Room, slots: I64) -> list[tuple[int, int]]:
        return [(node, 2 * lanes) for node, lanes in rows(self, slots)]

    monkeypatch.setattr(Room, "rows", twice)
