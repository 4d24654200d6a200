"""What deciding a record again states, as values that cross from one process to another.

Nothing here decides: `judgement` does, in a process of its own (`deciding`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import msgspec

from reprieve.api.reprieve import PreemptionSpec

__all__ = ["Again", "Candidate", "Fate", "Judgement", "Opened", "Unopened", "Whole"]


class Fate(StrEnum):
    """What became of a candidate."""

    MADE_WAY = "MadeWay"
    #: It could have been evicted, and was reprieved or never needed.
    REPRIEVED = "Reprieved"
    #: A rule keeps it: priority, policy, quota of its own, a minimum runtime, a grace period.
    SPARED = "Spared"
    #: It was on its way out already.
    LEAVING = "Leaving"
    #: It lost nothing by this, and could not have: it was pending itself.
    WAITED = "Waited"


class Candidate(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One object that a decision looked at.

    Attributes:
        rule: a word for why, as the plane has it; `text`: the same as a clause.
        amounts: what it held, in base units.
        place: in the order in which candidates are tried; 0 for one that could not be.
        among: how many have a place in that order.
        queue: its ClusterQueue. node, pool, group: where it ran, and with whom.
        since: when it began to hold what it held, in nanoseconds; 0 where that is not known.
        idle_since: likewise, of work that was idle.
        lost: device-seconds that it would have lost; -1 where they were not requested.
        borrowed: what its ClusterQueue used above its nominal quota.
    """

    kind: str
    namespace: str
    name: str
    uid: str
    fate: Fate
    rule: str
    text: str
    amounts: dict[str, int] = {}
    priority: int = 0
    place: int = 0
    among: int = 0
    queue: str = ""
    node: str = ""
    pool: str = ""
    group: str = ""
    since: int = 0
    idle_since: int = 0
    lost: int = -1
    borrowed: dict[str, int] = {}


class Again(StrEnum):
    """What became of the attempt to decide again."""

    SAME = "Same"
    DIFFERS = "Differs"
    #: Nothing was decided, or there is no input, or none that can be used.
    IMPOSSIBLE = "Impossible"
    #: It would have needed more time or memory than is allowed.
    TOO_LARGE = "TooLarge"
    #: It is being decided.
    PENDING = "Pending"


class Judgement(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What deciding again stated.

    Attributes:
        text: in a sentence; it may name objects.
        faults: what the proof states against the plan; empty where it holds, or was not run.
        proven: the proof was run.
        candidates: victims in full, of others at most a thousand of each fate.
        counts: of all candidates, by fate and rule as `Fate/rule`.
        order: in which those are tried, in words.
    """

    again: Again
    text: str = ""
    faults: list[str] = []
    proven: bool = False
    candidates: list[Candidate] = []
    counts: dict[str, int] = {}
    order: str = ""

    def number_of(self, fate: Fate) -> int:
        """Return how many candidates had this fate."""
        return sum(n for key, n in self.counts.items() if key.partition("/")[0] == fate)


@dataclass(frozen=True, slots=True)
class Whole:
    """What never changes of a record, with all of its victims, and its judgement.

    The judgement is None while it is being decided again.
    """

    spec: PreemptionSpec
    judgement: Judgement | None


class Opened(Protocol):
    """Records that viewers look at, whole and decided again."""

    def whole(self, namespace: str, name: str, uid: str) -> Whole | None:
        """Return a record, None while it is not there; it is requested then."""
        ...


class Unopened:
    """Where no record can be read whole."""

    def whole(self, namespace: str, name: str, uid: str) -> Whole | None:
        """Return nothing."""
        return None
