"""How long what failed by a fault of ours waits before it is tried again.

Ten seconds after the first fault, twice as long after each one in a row, at most ten minutes: what
fails by chance is soon tried again, and what fails always costs little and holds up no other work.
"""

from __future__ import annotations

from typing import Final

from kubeworld.units.instants import Nanos
from reprieve.engine.quota.waiting.requeuing import Backoff, backoff_end

__all__ = ["Faults"]

_AFTER_FAULT: Final = Backoff(base_s=10, max_s=600)
_MANY: Final = 7  # in a row, after which the pause is the longest
_WELL: Final = (0, Nanos(-1))


class Faults:
    """Keys of what failed: how often in a row, and until when each waits."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[int, Nanos]] = {}

    def __bool__(self) -> bool:
        return bool(self._found)

    def __contains__(self, key: str) -> bool:
        return key in self._found

    def add(self, key: str, now: Nanos) -> Nanos:
        """Count one more fault in a row; return until when the key waits."""
        count = self._found.get(key, _WELL)[0] + 1
        until = backoff_end(_AFTER_FAULT, count, now)
        assert until is not None, "there is no limit"
        self._found[key] = count, until
        return until

    def hold(self, key: str, until: Nanos) -> None:
        """Delay a key until then, and count its next faults as those that follow many."""
        self._found[key] = _MANY, until

    def forget(self, key: str) -> None:
        """Begin anew: the key did not fail, or is another one by now."""
        self._found.pop(key, None)

    def waits(self, key: str, now: Nanos) -> bool:
        """Return whether a key is not to be tried yet."""
        return self._found.get(key, _WELL)[1] > now

    def until(self, key: str, now: Nanos) -> Nanos | None:
        """Return when a key is tried again, None if it does not wait."""
        return self._found[key][1] if self.waits(key, now) else None

    def next_due(self, now: Nanos) -> Nanos | None:
        """Return when the first delayed key is to be tried again, None if none is delayed."""
        return min((until for _, until in self._found.values() if until > now), default=None)

    def due(self, now: Nanos) -> list[str]:
        """Return the keys that have failed and are to be tried again."""
        return [key for key, (_, until) in self._found.items() if until <= now]
