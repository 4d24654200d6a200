"""What follows from an evaluation: a list of effects, made by pure functions.

| the evaluation states | then |
| --- | --- |
| a demand is not served | that is counted, logged, and reported to it where it can do something |
| time alone may change the answer | it is evaluated again then |
| a plan | its proof is checked: if it holds, the plan is recorded and begun, else never executed |

Nothing is done here: `carry_out` does it, in the order of the list; a dry run records plans and
begins none. Source: specification of the idle plane, section 14; the design's "How data flows".
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from kubeworld.units.instants import Nanos
from reprieve.engine.idle.check import check
from reprieve.engine.idle.claims import before_each
from reprieve.engine.idle.model import Fit, IdleSnapshot, Policy
from reprieve.engine.idle.outcome import Declined, Evaluation
from reprieve.engine.plan import Plan
from reprieve.units.references import Reference
from reprieve.wording.events import EventText
from reprieve.wording.kaiwo import declined_text, not_served, with_reasons

__all__ = [
    "Begin",
    "CountDeclined",
    "Effect",
    "EvaluateAt",
    "Log",
    "Refuse",
    "TellOnce",
    "answers_of",
    "plans_of",
]


@dataclass(frozen=True, slots=True)
class CountDeclined:
    """Count a demand that is not served, or a victim that is not evicted, by its reason."""

    declined: Declined


@dataclass(frozen=True, slots=True)
class Log:
    """Write a line to the log."""

    level: int
    text: str


@dataclass(frozen=True, slots=True)
class TellOnce:
    """Send an event, unless the same was stated of the object lately."""

    subject: Reference
    text: EventText


@dataclass(frozen=True, slots=True)
class EvaluateAt:
    """Evaluate again at that wall instant, also if nothing happens."""

    at: Nanos


@dataclass(frozen=True, slots=True)
class Refuse:
    """Execute nothing of a plan that fails its check."""

    plan: Plan
    why: str


@dataclass(frozen=True, slots=True)
class Begin:
    """Record the plan, which has its texts, and begin with it; in a dry run record it only."""

    plan: Plan


Effect: TypeAlias = CountDeclined | Log | TellOnce | EvaluateAt | Refuse | Begin


def answers_of(evaluation: Evaluation, policy: Policy) -> Iterator[Effect]:
    """Yield what is reported of an evaluation, whatever becomes of its plans."""
    for declined in evaluation.declined:
        yield CountDeclined(declined)
        yield Log(logging.DEBUG, f"{declined.subject.name}: {declined_text(declined)}")
        reported = not_served(declined, by_sum=policy.fit is Fit.SUM)
        if reported is not None:
            yield TellOnce(declined.subject, reported)
    if evaluation.next_due is not None:
        yield EvaluateAt(evaluation.next_due)


def plans_of(
    evaluation: Evaluation, snapshot: IdleSnapshot, policy: Policy, now: Nanos
) -> Iterator[Refuse | Begin]:
    """Yield what becomes of each plan of an evaluation of this snapshot."""
    for plan, seen in before_each(evaluation.plans, snapshot, evaluation.reservations):
        violations = check(plan, seen, policy, now)
        if violations:
            yield Refuse(plan, "; ".join(map(str, violations)))
        else:
            yield Begin(with_reasons(plan, seen.workloads, now))
