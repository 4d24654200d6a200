"""Durations as options accept them."""

from __future__ import annotations

from typing import Any

import click

from kubeworld.units.durations import InvalidDuration, parse_duration

__all__ = ["DurationText"]


class DurationText(click.ParamType[int]):
    """A Go duration that is longer than nothing, as nanoseconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            length = parse_duration(str(value))
        except InvalidDuration as error:
            self.fail(str(error), param, ctx)
        if length <= 0:
            self.fail(
                f"{value!r} is not longer than nothing; accepted: such as 60s, 5m", param, ctx
            )
        return length
