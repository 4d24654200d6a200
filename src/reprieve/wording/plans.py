"""Plans and units in log lines: who is evicted for whom, in all planes alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from reprieve.engine.cluster.rows import PodRow
from reprieve.engine.plan import Plan
from reprieve.engine.scheduling.outcome import Unit
from reprieve.units.counts import counted
from reprieve.units.ids import Uid
from reprieve.units.references import Reference

__all__ = ["object_text", "plan_text", "unit_text"]

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
