"""Plans and units in words, in all planes alike: who is evicted for whom, and how well chosen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from reprieve.engine.cluster.rows import PodRow
from reprieve.engine.placement.profile import VictimChoice
from reprieve.engine.plan import Plan
from reprieve.engine.scheduling.outcome import Unit
from reprieve.units.counts import counted
from reprieve.units.ids import Uid
from reprieve.units.references import Reference

__all__ = ["choice_lines", "object_text", "plan_text", "unit_text"]

_MOST_NAMED: Final = 8


def object_text(ref: Reference) -> str:
    """Return `Pod team/train-0`, without a namespace for what is cluster-wide."""
    return f"{ref.kind} {ref.namespace}/{ref.name}" if ref.namespace else f"{ref.kind} {ref.name}"


def plan_text(plan: Plan) -> str:
    """Return which work a plan evicts, at most eight by name, why, for whom, and its proof.

    The plan is the subject: `evicts Pod team/a (lower priority) for Pod team/b, proof Placement`.
    """
    named = [f"{object_text(each.root)} ({each.rule})" for each in plan.victims[:_MOST_NAMED]]
    text = ", ".join(named)
    if more := len(plan.victims) - len(named):
        text += f" and {counted(more, 'more victim')}"
    whom = f"for {object_text(plan.preemptor)}" if plan.preemptor else "for no demand"
    return f"evicts {text} {whom}, proof {plan.proof.level}"


def unit_text(unit: Unit, rows: Mapping[Uid, PodRow]) -> str:
    """Return the group of a unit of the scheduling plane, or else its pods, as `team/train-0`.

    `rows`: its pods; one that is not there is named by its uid.
    """
    known = ((uid, rows.get(uid)) for uid in unit.pods)
    pods = (uid if row is None else f"{row.namespace}/{row.name}" for uid, row in known)
    return unit.group or ", ".join(pods)


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
