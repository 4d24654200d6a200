"""An answer of `reprieve shadow` for people: what it cannot know, sums, and what is different.

The decisions of several planes for one demand are one line. Of those that differ at most 25 lines
are shown unless all are requested.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from reprieve.answers.layout import safe, wrapped
from reprieve.answers.quantities import listed
from reprieve.shadow.candidate import AS_RECORDED
from reprieve.shadow.comparison import ChosenVictim, Comparison, Verdict
from reprieve.shadow.document import Document, Sums
from reprieve.units.counts import counted
from reprieve.wording.harm_budgets import day_text, wait_text

__all__ = ["MOST_ROWS", "shadow_text"]

MOST_ROWS: Final = 25
_NAMES: Final = 2  # victims that are named in a row
_REASONS: Final = 3
_HEADER: Final = ("DECIDED", "PLANE", "PREEMPTOR", "RECORDED", "CANDIDATE", "LOST GPU H")


def shadow_text(found: Document, width: int, *, everything: bool = False) -> Iterator[str]:
    """Yield the lines."""
    for each in found.cannot_know:
        yield from wrapped(each, width)
    yield ""
    total = found.total
    if not total.decisions:
        yield "No preemptions are recorded."
    else:
        yield from _sums(found)
    for each in _delayed(found):
        yield from wrapped(safe(each), width)
    for each in found.unread[: None if everything else _REASONS]:
        yield from wrapped(f"not read: {each}", width)
    more = len(found.unread) - _REASONS
    if more > 0 and not everything:
        yield f"not read: {more:,} more"
    demands: dict[tuple[str, str], list[Comparison]] = {}
    for decision in found.decisions:
        demands.setdefault((decision.namespace, decision.demand), []).append(decision)
    different = [each for each in demands.values() if any(map(_differs, each))]
    if different:
        yield ""
        shown = different if everything else different[:MOST_ROWS]
        yield from _aligned([_HEADER, *(_row(each) for each in shown)])
        if len(different) > len(shown):
            yield f"and {len(different) - len(shown):,} more (--all names them)"


def _delayed(found: Document) -> Iterator[str]:
    """Yield what harm budgets would have cost whom."""
    for each in found.delayed:
        several = len(each.budgets) > 1
        names = f"harm budget{'s' if several else ''} {' and '.join(each.budgets)}"
        if each.plans > each.never:
            wait = wait_text(each.tenant, each.waited_seconds, day_text(each.day))
            yield f"with {names} {wait} ({counted(each.plans - each.never, 'preemption')})"
        if each.never:
            plans = counted(each.never, "preemption")
            yield f"with {names} {plans} of {each.tenant} on {each.day} would not have fitted"


def _differs(each: Comparison) -> bool:
    return each.verdict in (Verdict.OTHER, Verdict.NOBODY)


def _sums(found: Document) -> Iterator[str]:
    total = found.total
    planes = ", ".join(f"{name} {sums.decisions:,}" for name, sums in found.planes.items())
    first, last = found.decisions[0].decided_at, found.decisions[-1].decided_at
    several = total.demands < total.decisions
    whom = f" for {counted(total.demands, 'demand')}" if several else ""
    yield safe(
        f"{found.policy} on {counted(total.decisions, 'decision')}{whom} ({planes}), {first} to "
        f"{last}"
    )
    yield f"  decided again    {total.decided:>8,}"
    if total.decided:
        yield f"    the same       {total.same:>8,}  {_share(total.same, total.decided)}"
        yield f"    other victims  {total.other_victims:>8,}"
        yield f"    no victims     {total.no_victims:>8,}{_reasons(found, Verdict.NOBODY)}"
    if total.input_omitted:
        omitted = _reasons(found, Verdict.OMITTED)
        yield f"  input omitted    {total.input_omitted:>8,}{omitted}"
    if total.undecided:
        yield f"  not decided      {total.undecided:>8,}{_reasons(found, Verdict.UNDECIDED)}"
    if total.decided:
        yield from _lost(total, "made again" if found.policy == AS_RECORDED else "by the candidate")
    if total.reproduced < total.decided:
        programs = listed(each.program for each in found.decisions if each.decided)
        yield (
            f"  {total.decided - total.reproduced:,} of them do not give the recorded plan even as "
            f"they were recorded, by reprieve {safe(programs)}"
        )


def _lost(total: Sums, again: str) -> Iterator[str]:
    before, after = total.recorded_lost_device_seconds, total.candidate_lost_device_seconds
    change = f" ({100 * (after / before - 1):+.1f} %)" if before else ""
    yield (f"  lost GPU hours   {_hours(before):>8} as recorded, {_hours(after)} {again}{change}")
    yield (
        f"  victims          {total.recorded_victims:>8,} as recorded, "
        f"{total.candidate_victims:,} {again}"
    )


def _reasons(found: Document, verdict: Verdict) -> str:
    why = Counter(each.why for each in found.decisions if each.verdict is verdict and each.why)
    said = [f"{text} ({count:,})" for text, count in why.most_common(_REASONS)]
    if len(why) > _REASONS:
        said.append("...")
    return "  " + safe("; ".join(said)) if said else ""


def _row(demand: Sequence[Comparison]) -> tuple[str, ...]:
    """Return the row of a demand: its decisions, the oldest first, as one."""
    first = demand[0]
    recorded = [taken for each in demand for taken in each.recorded]
    candidate = [taken for each in demand for taken in each.candidate]
    before = _hours(sum(each.recorded_lost for each in demand))
    after = _hours(sum(each.candidate_lost for each in demand))
    return (
        first.decided_at,
        ", then ".join(dict.fromkeys(each.plane for each in demand)),
        first.preemptor or "nobody",
        _named(recorded, candidate) or "nobody",
        _named(candidate, recorded) or "nobody",
        f"{before} -> {after}",
    )


def _named(victims: Sequence[ChosenVictim], others: Sequence[ChosenVictim]) -> str:
    """Return the victims of this side alone, and how many on both sides."""
    known = {each.uid for each in others}
    alone = [each.name.partition(" ")[2] for each in victims if each.uid not in known]
    both = len(victims) - len(alone)
    said = [*([listed(alone, _NAMES)] if alone else []), *([f"{both} on both sides"] * (both > 0))]
    return ", ".join(said)


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    plain = [[safe(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*plain, strict=True)]
    for row in plain:
        cells = (text.ljust(width) for text, width in zip(row, widths, strict=True))
        yield "   ".join(cells).rstrip()


def _share(part: int, of: int) -> str:
    return f"{100 * part / of:.1f} %"


def _hours(device_seconds: int) -> str:
    return f"{device_seconds / 3600:,.1f}"
