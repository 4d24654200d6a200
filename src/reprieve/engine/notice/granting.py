"""For how long a unit is told before it is evicted.

1. It is given what its pods ask for, at most an hour. Of pods that ask for different times the
   longest counts, since a unit has one deadline.
2. Never more than the administrator allows, nor than the patience of the preemptor: `emergency` for
   one of at least the emergency priority, `default` for all others.
3. Less than ten seconds is no notice at all.

Durations are nanoseconds. Pure. Source: the contract of notices in `docs/notice.md`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from reprieve.units.durations import HOUR, MINUTE, SECOND

__all__ = ["LEAST", "MOST", "NoticePolicy", "granted"]

LEAST: Final = 10 * SECOND
MOST: Final = HOUR


@dataclass(frozen=True, slots=True)
class NoticePolicy:
    """What an administrator allows in a plane; `most` 0: nobody is told."""

    most: int = 0
    patience: int = 10 * MINUTE
    emergency_patience: int = 0


def granted(policy: NoticePolicy, asked: Iterable[int], *, emergency: bool) -> int:
    """Return how long a unit whose pods ask for that much is given, 0 for no notice."""
    patience = policy.emergency_patience if emergency else policy.patience
    found = min(max(asked, default=0), MOST, policy.most, patience)
    return found if found >= LEAST else 0
