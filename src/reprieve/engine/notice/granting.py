"""How long the notice of a unit is before it is evicted.

1. It is given what its pods request, at most an hour. Of pods that request different times the
   longest counts, since a unit has one deadline.
2. Never more than the administrator allows in the plane and for the victim's queue or class, nor
   than the patience of the preemptor: `emergency` for one of at least the emergency priority,
   `default` for all others.
3. Less than ten seconds is no notice at all. Why a unit that requests notice gets none is stated,
   where the plane gives notice at all: its queue or class allows none, or the patience is shorter.
4. A speaker may extend it once, by at most `extension`, but for preemptors of emergency priority.

Durations are nanoseconds. Pure. Source: the contract of notices in `docs/notice-reference.md`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from kubeworld.units.durations import HOUR, MINUTE, SECOND

__all__ = ["LEAST", "MOST", "NO_GRANT", "Grant", "NoticePolicy", "Withheld", "granted"]

LEAST: Final = 10 * SECOND
MOST: Final = HOUR


@dataclass(frozen=True, slots=True)
class NoticePolicy:
    """What an administrator allows in a plane; `most` 0: no notice.

    `keep`: for how long idle work is spared that is reported as needed; 0: it is not.
    """

    most: int = 0
    patience: int = 10 * MINUTE
    emergency_patience: int = 0
    extension: int = 2 * MINUTE
    keep: int = 0


class Withheld(StrEnum):
    """Why a unit gets no notice although it requests it."""

    NOT_ALLOWED = "NotAllowed"  # its queue or priority class allows none
    NO_PATIENCE = "NoPatience"  # preemptors wait for less than ten seconds
    EMERGENCY = "Emergency"  # such a preemptor waits for less than ten seconds
    NOT_WORTH_IT = "NotWorthIt"  # the wait would cost more than is not saved


class Grant(NamedTuple):
    """What a unit is given: how long until its deadline, and how much longer on its own word.

    `withheld`: why it is given none although it requests notice; None without a request.
    """

    time: int
    extension: int = 0
    withheld: Withheld | None = None


NO_GRANT: Final = Grant(0)


def granted(
    policy: NoticePolicy, asked: Iterable[int], *, emergency: bool, allowed: int = MOST
) -> Grant:
    """Return what a unit is given whose pods request that much; `allowed`: by queue or class."""
    patience = policy.emergency_patience if emergency else policy.patience
    wanted = min(max(asked, default=0), MOST, policy.most)
    found = min(wanted, patience, allowed)
    if wanted < LEAST:
        return NO_GRANT
    if found < LEAST:
        impatient = Withheld.EMERGENCY if emergency else Withheld.NO_PATIENCE
        return Grant(0, 0, Withheld.NOT_ALLOWED if allowed < LEAST else impatient)
    return Grant(found, 0 if emergency else policy.extension)
