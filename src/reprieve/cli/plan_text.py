"""An answer of `reprieve plan` for people: at most 25 lines unless everything is asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from reprieve.answers.layout import MOST_LINES, Style, safe, shortened, wrapped
from reprieve.answers.quantities import amounts, counted, device_time, summed
from reprieve.answers.unseen import by_weight, elsewhere, whole
from reprieve.units.durations import SECOND
from reprieve.whatif.answer import Answer, Displaced, Outcome, Verdict
from reprieve.whatif.snapshot import Snapshot
from reprieve.wording.diagnosis import next_step
from reprieve.wording.displacements import rule_text

__all__ = ["plan_text"]

_SHOWN: Final = 6
_PLACES: Final = 4
_NOTES: Final = 3
_HEADLINES: Final = {
    Verdict.STARTS: "STARTS, nobody makes way",
    Verdict.STARTS_WITH_VICTIMS: "STARTS, others make way",
    Verdict.WAITS: "WAITS",
    Verdict.NEVER_FITS: "NEVER FITS",
    None: "NOT DECIDED HERE",
}


def plan_text(answer: Answer, controllers: Sequence[str], style: Style | None = None) -> list[str]:
    """Return the lines; of what is many, fewer are named until they are not too many."""
    style = style or Style()
    if style.everything:
        return list(_lines(answer, controllers, style, None))
    lines: list[str] = []
    for shown in range(_SHOWN, 0, -1):
        lines = list(_lines(answer, controllers, style, shown))
        if len(lines) <= MOST_LINES:
            break
    return lines


def _lines(
    answer: Answer, controllers: Sequence[str], style: Style, shown: int | None
) -> Iterator[str]:
    """Yield the lines; `shown`: how many of each thing are named, None for all."""
    yield from _told(_first_line(answer), style)
    for outcome in answer.outcomes[:shown]:
        yield from _outcome(outcome, style)
    yield from _more(len(answer.outcomes), shown, "submitted things")
    if not answer.outcomes:
        yield "nothing of it is to start: no pod, group or job"
    yield from _victims(answer.victims, style, shown)
    for each in answer.borrowed[:shown]:
        yield f"  afterwards {each.cluster_queue} borrows {amounts(each.amounts)} over nominal"
    yield from _placement(answer, shown)
    if not answer.rest:
        yield "  the cluster did not come to rest within 30 minutes: this is how far it came"
    for warning in answer.warnings[: shown and min(shown, _NOTES)]:
        yield from _told(warning, style, "  note: ")
    yield f"decided by {' and '.join(controllers)}; nothing is submitted and nothing is reserved"


def _first_line(answer: Answer) -> str:
    snapshot = answer.snapshot
    at = datetime.fromtimestamp(snapshot.at / SECOND, UTC).strftime("%H:%M:%S UTC")
    line = f"snapshot {at} ({_things(snapshot)})"
    places = {name for each in snapshot.unseen for name in each.namespaces}
    refused = []
    if places:
        of = f" of {snapshot.namespaces}" if snapshot.namespaces is not None else ""
        refused.append(f"{len(places)}{of} namespaces")
    kinds = list(whole(snapshot))
    if kinds:
        refused.append(by_weight(kinds, len(kinds)))
    beyond = list(elsewhere(snapshot))
    if beyond:
        refused.append(f"{by_weight(beyond, len(beyond))} in other namespaces")
    # What limits every figure comes first: of a long line the end is cut.
    if refused:
        line += f"; figures are lower bounds: you may not list {'; nor '.join(refused)}"
    return line


def _things(snapshot: Snapshot) -> str:
    nodes = counted(snapshot.count("nodes"), "node")
    return f"{nodes}, {counted(snapshot.count('pods'), 'pod')}"


def _outcome(outcome: Outcome, style: Style) -> Iterator[str]:
    said = []
    if outcome.pods:
        said.append(f"{counted(outcome.pods, 'pod')}, {outcome.placed:,} placed")
    if outcome.queue:
        queue = f"queue {outcome.queue}"
        if outcome.cluster_queue:
            queue += f" -> ClusterQueue {outcome.cluster_queue}"
        said.append(queue)
    if outcome.priority is not None:
        said.append(f"priority {outcome.priority}")
    title = safe(f"{outcome.kind} {_name(outcome)}")
    yield from _told("; ".join(said), style, f"{title}   ") if said else (title,)
    yield f"  {_HEADLINES[outcome.verdict]}"
    if outcome.pods_without_victims is not None:
        pods = counted(outcome.pods_without_victims, "pod")
        yield f"  without anybody making way: {pods} now"
    if outcome.message:
        yield from _told(f"{outcome.reason}: {outcome.message}", style, "    ")
    if outcome.diagnosis is not None:
        yield from _told(next_step(outcome.diagnosis), style, "    next: ")


def _victims(victims: Sequence[Displaced], style: Style, shown: int | None) -> Iterator[str]:
    if not victims:
        return
    known = [each.lost_device_seconds for each in victims if each.lost_device_seconds is not None]
    said = [f"{len(victims):,} in all", _devices(victims)]
    if sum(known):
        said.append(f"{device_time(sum(known))} lost")
    yield f"  makes way ({', '.join(each for each in said if each)})"
    rows = [
        (safe(f"{each.kind} {_name(each)}"), _devices([each]), rule_text(each.plane, each.rule))
        for each in victims[:shown]
    ]
    names, devices = (max(len(row[column]) for row in rows) for column in (0, 1))
    for name, given, why in rows:
        start = f"     {name:{names}}  " + (f"{given:{devices}}  " if devices else "")
        yield from _told(why, style, start)
    yield from _more(len(victims), shown, "victims")


def _devices(victims: Sequence[Displaced]) -> str:
    """Return what they give back: by its name, unless there are several; empty for nothing."""
    named = summed(each.amounts for each in victims)
    if len(named) > 1 and len(victims) > 1:
        return counted(sum(named.values()), "device")
    return amounts(named)


def _placement(answer: Answer, shown: int | None) -> Iterator[str]:
    if shown is None or len(answer.placement) <= min(shown, _PLACES):
        for each in answer.placement:
            yield f"  {each.pod} on {each.node}"
        return
    nodes = sorted(Counter(each.node for each in answer.placement).items())
    first = ", ".join(f"{node} ({count})" for node, count in nodes[:_PLACES])
    left = len(nodes) - _PLACES
    more = f" and {counted(left, 'more node')}" if left > 0 else ""
    yield f"  runs on {first}{more}"


def _more(count: int, shown: int | None, what: str) -> Iterator[str]:
    if shown is not None and count > shown:
        yield f"     and {count - shown:,} more {what}; --all names them"


def _name(each: Outcome | Displaced) -> str:
    return f"{each.namespace}/{each.name}" if each.namespace else each.name


def _told(text: str, style: Style, start: str = "") -> Iterator[str]:
    """Yield a text behind `start`, wrapped below itself, cut after two lines."""
    width = style.width - (len(start) or 2)
    lines = wrapped(text, width)
    if not style.everything:
        lines = shortened(lines, 2, width)
    yield start + lines[0]
    for line in lines[1:]:
        yield (" " * len(start) or "  ") + line
