"""`Told`: a notice as the operator gave it, and how long it stands by the clock of this process."""

from __future__ import annotations

import math
from datetime import datetime, timezone
from typing import Any

__all__ = ["Notified", "instant"]


class Notified:
    """A notice. `due`: when it ends, by the monotonic clock."""

    def __init__(self, id: str, state: str, reason: str, now: float, left: float, heard: float):
        """`now`: seconds since the epoch, by whose clock the deadline is `left` seconds away.

        `heard`: the same instant by the monotonic clock.
        """
        self.id, self.state, self.reason = id, state, reason
        self._now, self._heard = now, heard
        self.due = heard + left

    @classmethod
    def at(cls, answer: dict[str, Any], now: float, heard: float) -> Notified:
        """Read the operator's answer.

        Raises:
            ValueError: it is no notice.
        """
        try:
            left = instant(answer["deadline"]) - now
            id, state = str(answer["id"]), str(answer["state"])
            return cls(id, state, str(answer.get("reason", "")), now, left, heard)
        except (KeyError, TypeError) as missing:
            raise ValueError(f"no notice: {missing!r}") from None

    def instant_at(self, monotonic: float) -> str:
        """Return an instant by the operator's clock, rounded up to whole seconds."""
        later = self._now + math.ceil(monotonic - self._heard)
        return datetime.fromtimestamp(later, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")

    @property
    def withdrawn(self) -> bool:
        """Whether the unit stays after all."""
        return self.state == "Pardoned"

    @property
    def waits(self) -> bool:
        """Whether the operator still waits for a word."""
        return self.state in ("Noticed", "Saving")


def instant(text: str) -> float:
    """Return seconds since the epoch.

    Raises:
        ValueError: it is no instant in UTC, in whole seconds.
    """
    read = datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ")
    return read.replace(tzinfo=timezone.utc).timestamp()
