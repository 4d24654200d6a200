"""What a comparison of many decisions states: what it cannot know, sums by plane, all decisions.

`reprieve shadow -o json` prints it. A decision counts as decided if it has one of the verdicts
`Same`, `OtherVictims` and `NoVictims`; what was lost is of those alone, on both sides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from reprieve.shadow.budgets import Delayed
from reprieve.shadow.candidate import Candidate
from reprieve.shadow.comparison import Comparison, Verdict

__all__ = ["VERSION", "Document", "Sums", "document"]

VERSION: Final = 1
_ONE_AT_A_TIME: Final = (
    "Each decision is made again by itself, on the cluster as it was recorded: what would have "
    "come of other victims afterwards is not known (reprieve simulate replays whole traces)."
)
_DISPLACING_ALONE: Final = (
    "Only decisions that displaced work have a record, and the decision log has samples of the "
    "others: for which other work the candidate would have preempted is not known."
)
_STAGES: Final = (
    "Where two planes displaced for one demand, each made its own decision: the second is made "
    "again on the victims of the first as they were recorded, and not where the candidate "
    "displaces others or none there; what planes queried of each other is used as it was then."
)
_WITHOUT_FORMER: Final = "the candidate displaces others, or none, in the decision before it"
_BUDGETS: Final = (
    "What harm budgets delay is the longest it could have been: other victims that they do not "
    "spare are not looked for, and saves after a notice are not foreseen. Records of a cluster "
    "without any HarmBudget state no priorities and no ClusterQueues: budgets that select by them "
    "count nothing there."
)


class Sums(msgspec.Struct, frozen=True, rename="camel"):
    """How many decisions came to what; lost device-seconds are of those that were decided.

    `demands`: for how many demands they are; the decisions of several planes for one count once.
    """

    decisions: int = 0
    decided: int = 0
    same: int = 0
    other_victims: int = 0
    no_victims: int = 0
    input_omitted: int = 0
    undecided: int = 0
    reproduced: int = 0
    recorded_victims: int = 0
    candidate_victims: int = 0
    recorded_lost_device_seconds: int = 0
    candidate_lost_device_seconds: int = 0
    demands: int = 0


class Document(msgspec.Struct, frozen=True, rename="camel"):
    """The answer. `unread`: objects that are no records, by what is wrong with them.

    `delayed`: what the candidate's harm budgets would have delayed.
    """

    version: int
    policy: str
    cannot_know: list[str]
    total: Sums
    planes: dict[str, Sums]
    decisions: list[Comparison]
    unread: list[str] = []
    delayed: list[Delayed] = []


def document(
    candidate: Candidate,
    comparisons: Iterable[Comparison],
    unread: Sequence[str] = (),
    delayed: Sequence[Delayed] = (),
) -> Document:
    """Return the answer, decisions in the order of their time."""
    ordered = _in_order(comparisons)
    planes = sorted({each.plane for each in ordered})
    return Document(
        VERSION,
        candidate.name,
        [
            _ONE_AT_A_TIME,
            _DISPLACING_ALONE,
            *([_STAGES] if any(len(each.stages) > 1 for each in ordered) else []),
            *([_BUDGETS] if candidate.harm_budgets else []),
            *(f"{key} is not applied: {why}." for key, why in candidate.unused.items()),
        ],
        _sums(ordered),
        {plane: _sums([each for each in ordered if each.plane == plane]) for plane in planes},
        ordered,
        list(unread),
        list(delayed),
    )


def _in_order(comparisons: Iterable[Comparison]) -> list[Comparison]:
    """Return decisions by time, without an answer to those that rest on one that is another now."""
    found: list[Comparison] = []
    changed: set[tuple[str, str]] = set()
    for each in sorted(comparisons, key=lambda each: (each.decided_at, each.namespace, each.name)):
        demand = each.namespace, each.demand
        if demand in changed and each.decided:
            each = _undecided(each)
        if each.verdict is not Verdict.SAME:
            changed.add(demand)
        found.append(each)
    return found


def _undecided(each: Comparison) -> Comparison:
    return msgspec.structs.replace(
        each, verdict=Verdict.UNDECIDED, recorded=(), candidate=(), why=_WITHOUT_FORMER
    )


def _sums(comparisons: Sequence[Comparison]) -> Sums:
    decided = [each for each in comparisons if each.decided]

    def counted(verdict: Verdict) -> int:
        return sum(each.verdict is verdict for each in comparisons)

    return Sums(
        decisions=len(comparisons),
        decided=len(decided),
        same=counted(Verdict.SAME),
        other_victims=counted(Verdict.OTHER),
        no_victims=counted(Verdict.NOBODY),
        input_omitted=counted(Verdict.OMITTED),
        undecided=counted(Verdict.UNDECIDED),
        reproduced=sum(each.reproduced for each in decided),
        recorded_victims=sum(len(each.recorded) for each in decided),
        candidate_victims=sum(len(each.candidate) for each in decided),
        recorded_lost_device_seconds=sum(each.recorded_lost for each in decided),
        candidate_lost_device_seconds=sum(each.candidate_lost for each in decided),
        demands=len({(each.namespace, each.demand) for each in comparisons}),
    )
