"""What a policy buys and costs against the first one, in one sentence each.

Named are the measures that differ by a hundredth or more, the largest share first, at most three on
either side. Of six runs or more only those count whose interval of the difference has no 0 in it;
of fewer the sentence states how many runs there were, and that this is no proof. A policy with harm
budgets has a second sentence: what these cost whom (`budget_costs`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from reprieve.simulation.reporting.budget_costs import budget_line, compared_to
from reprieve.simulation.reporting.intervals import FEWEST_FOR_A_STAR, Estimate
from reprieve.simulation.reporting.summary import Column, Found, LoadSummary, PolicySummary
from reprieve.units.counts import counted

__all__ = ["is_clear", "verdict_lines"]

#: Measures by title: whether more of it is better. Others are neither bought nor paid.
_BETTER: Final = {
    "admitted": True,
    "done GPU h": True,
    "useful": True,
    "wait p50": False,
    "wait p95": False,
    "completion": False,
    "preempted": False,
    "lost GPU h": False,
    "worst tenant": False,
    "Jain": True,
}
_LEAST: Final = 0.01
_MOST: Final = 3


def verdict_lines(summary: LoadSummary) -> Iterator[str]:
    """Yield a sentence for each policy but the first."""
    first = summary.policies[0].policy
    runs = len(summary.submitted)
    for policy in summary.policies[1:]:
        buys: list[tuple[float, str]] = []
        costs: list[tuple[float, str]] = []
        for column in summary.columns:
            found = policy.columns[column.title]
            share = _share(found)
            if column.title not in _BETTER or share is None or abs(share) < _LEAST:
                continue
            better = (share > 0) is _BETTER[column.title]
            (buys if better else costs).append((-abs(share), _stated(column, found, share)))
        yield f"{policy.policy} against {first}{_caution(runs)}: {_sides(buys, costs)}."
        yield from _of_budgets(policy, summary)


def _of_budgets(policy: PolicySummary, summary: LoadSummary) -> Iterator[str]:
    """Yield what the harm budgets of a policy cost whom, by its first run."""
    own = policy.outcomes[0].run
    if not own.policy.harm_budgets:
        return
    others = [each.outcomes[0].run.policy for each in summary.policies if each is not policy]
    than = compared_to(own.policy, others)
    for each in summary.policies:
        for outcome in each.outcomes if each.policy == than.name else ():
            if (outcome.run.trace, outcome.run.seed) == (own.trace, own.seed):
                names = [budget.name for budget in own.policy.harm_budgets]
                line = budget_line(names, than.name, policy.outcomes[0].costs, outcome.costs)
                yield f"{policy.policy}: {line}."


def _sides(buys: list[tuple[float, str]], costs: list[tuple[float, str]]) -> str:
    if not buys and not costs:
        return "no measure differs by a hundredth"
    bought = f"buys {_listed(buys)}" if buys else "buys nothing"
    return f"{bought}; {f'costs {_listed(costs)}' if costs else 'costs nothing'}"


def _share(found: Found) -> float | None:
    """Return the difference as a share of the first policy's mean; None where it states nothing."""
    change = found.change
    if change is None or (change.runs >= FEWEST_FOR_A_STAR and not is_clear(change)):
        return None
    base = found.value.mean - change.mean
    if base == 0:
        return None if change.mean == 0 else (1.0 if change.mean > 0 else -1.0)
    return change.mean / abs(base)


def is_clear(change: Estimate) -> bool:
    """Return whether the interval of a difference has no 0 in it, of runs enough to state so."""
    if change.runs < FEWEST_FOR_A_STAR or change.low is None or change.high is None:
        return False
    return change.low > 0 or change.high < 0


def _stated(column: Column, found: Found, share: float) -> str:
    assert found.change is not None
    sign = "+" if share > 0 else "\N{MINUS SIGN}"
    size = column.text(abs(found.change.mean))
    base = found.value.mean - found.change.mean
    relative = f" ({sign}{100 * abs(share):.0f} %)" if base else ""
    return f"{column.title} {sign}{size}{relative}"


def _listed(sides: list[tuple[float, str]]) -> str:
    return ", ".join(text for _, text in sorted(sides)[:_MOST])


def _caution(runs: int) -> str:
    if runs >= FEWEST_FOR_A_STAR:
        return ""
    return f" ({counted(runs, 'run')}, no proof)"
