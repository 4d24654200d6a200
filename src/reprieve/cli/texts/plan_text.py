"""An answer of `reprieve plan` for people: at most 25 lines unless everything is requested."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from kubeworld.units.durations import SECOND, format_duration
from kubeworld.units.instants import Nanos, format_instant
from reprieve.answers.layout import MOST_LINES, Style, safe, shortened, wrapped
from reprieve.answers.quantities import (
    ago,
    amounts,
    device_time,
    duration,
    listed,
    quantity,
    summed,
)
from reprieve.answers.unseen import hidden, unseen_texts
from reprieve.engine.lost_work import is_device
from reprieve.units.counts import counted
from reprieve.whatif.questions.answer import Answer, Borrowed, Displaced, Fragile, Outcome, Verdict
from reprieve.whatif.questions.steps import next_steps
from reprieve.whatif.snapshots.snapshot import Snapshot
from reprieve.wording.blockers import place_holders_text
from reprieve.wording.diagnosis import OPT_IN
from reprieve.wording.displacements import rule_text
from reprieve.wording.estimates import estimate_text

__all__ = ["plan_text"]

_SHOWN: Final = 6
_PLACES: Final = 4
_NOTES: Final = 3
#: How many lines a text may have, as long as there are not too many in all; None for all of it.
_LENGTHS: Final = (None, 4, 2)
_IN_VAIN: Final = "submitting it evicts others for nothing: none of it would start"
_HEADLINES: Final = {
    Verdict.STARTS: "STARTS, nothing is preempted",
    Verdict.STARTS_WITH_VICTIMS: "STARTS, others are preempted",
    Verdict.WAITS: "WAITS",
    Verdict.NEVER_FITS: "NEVER FITS",
    None: "NOT DECIDED HERE",
}


def plan_text(
    answer: Answer,
    controllers: Sequence[str],
    style: Style | None = None,
    now: Nanos | None = None,
) -> list[str]:
    """Return the lines, not too many: fewer things are named first, then long texts are cut.

    `now`: with how old the snapshot is then.
    """
    style = style or Style()
    first = safe(_first_line(answer, now))
    if style.everything:
        return [first, *_lines(answer, controllers, _Form(style), None)]
    lines: list[str] = []
    for length, shown in itertools.product(_LENGTHS, range(_SHOWN, 0, -1)):
        lines = [first, *_lines(answer, controllers, _Form(style, length), shown)]
        if len(lines) <= MOST_LINES:
            break
    return lines


@dataclass(frozen=True, slots=True)
class _Form:
    """How lines are written; `length`: how many of them a text may have, None for all of it."""

    style: Style
    length: int | None = None


def _lines(
    answer: Answer, controllers: Sequence[str], form: _Form, shown: int | None
) -> Iterator[str]:
    """Yield the lines below the first; `shown`: how many of each thing are named, None for all."""
    for outcome in answer.outcomes[:shown]:
        yield from _outcome(outcome, form, answer.snapshot.at)
    yield from _more(len(answer.outcomes), shown, "submitted things")
    if not answer.outcomes:
        yield "nothing of it is to start: no pod, group or job"
    if answer.evicts_in_vain:
        yield f"  {_IN_VAIN}"
    yield from _victims(answer.victims, form, shown, answer.snapshot.at)
    for each in answer.borrowed[:shown]:
        yield from _reported(_borrowed_text(each), form, "  ")
    if answer.fragile is not None:
        yield from _reported(_fragile_text(answer, answer.fragile), form, "  fragile: ")
    yield from _placement(answer, shown)
    if not answer.rest:
        yield "  the cluster did not come to rest within 30 minutes: this is how far it came"
    for warning in answer.warnings[: shown and min(shown, _NOTES)]:
        yield from _reported(warning, form, "  note: ")
    unseen = "; nor ".join(unseen_texts(answer.snapshot))
    if unseen:
        yield from _reported(
            f"figures are lower bounds: you may not list {unseen}", form, "how sure: "
        )
    *before, last = controllers
    planes = f"{', '.join(before)} and {last}" if before else last
    yield f"decided by {planes}; nothing is submitted and nothing is reserved"


def _first_line(answer: Answer, now: Nanos | None) -> str:
    """Return of what and when the answer is, in one line; what is not seen is listed at the end."""
    snapshot = answer.snapshot
    at = datetime.fromtimestamp(snapshot.at / SECOND, UTC).strftime("%H:%M:%S UTC")
    age = "" if now is None else f", {_age(now - snapshot.at)} old"
    line = f"snapshot {at} ({_things(snapshot)}{age})"
    unseen = hidden(snapshot)
    return f"{line}; you may not list {unseen}" if unseen else line


def _age(nanoseconds: int) -> str:
    tenths = max(0, nanoseconds) * 10 // SECOND
    return f"{tenths / 10:.1f} s" if tenths < 100 else duration(nanoseconds)


def _things(snapshot: Snapshot) -> str:
    nodes = counted(snapshot.count("nodes"), "node")
    return f"{nodes}, {counted(snapshot.count('pods'), 'pod')}"


def _outcome(outcome: Outcome, form: _Form, now: Nanos) -> Iterator[str]:
    said = [each for each in (_size_text(outcome),) if each]
    if outcome.queue:
        queue = f"queue {outcome.queue}"
        if outcome.cluster_queue:
            queue += f" -> ClusterQueue {outcome.cluster_queue}"
        said.append(queue)
    if outcome.priority is not None:
        said.append(f"priority {outcome.priority}")
    title = safe(f"{outcome.kind} {_name(outcome)}")
    yield from _reported("; ".join(said), form, f"{title}   ") if said else (title,)
    needs = _needs_text(outcome)
    yield from _reported(needs, form, f"  {_HEADLINES[outcome.verdict]}{'   ' if needs else ''}")
    if outcome.pods_without_victims is not None:
        pods = counted(outcome.pods_without_victims, "pod")
        fewer = outcome.pods_if_fewer
        instead = f"; {counted(fewer, 'pod')} if no more were submitted" if fewer else ""
        yield f"  without preemption: {pods} now{instead}"
    if outcome.pods_on_empty_cluster is not None and outcome.waiting[0] in ("Pod", "PodGroup"):
        pods = f"{outcome.pods_on_empty_cluster:,} of {counted(outcome.pods, 'pod')}"
        yield f"  even on the empty cluster: {pods} placed"
    if outcome.message:
        yield from _reported(f"{outcome.reason}: {outcome.message}", form, "    ")
    if outcome.diagnosis is not None:
        if holders := place_holders_text(outcome.diagnosis):
            yield from _reported(holders, form, "    held by: ")
        for place, step in enumerate(next_steps(outcome, outcome.diagnosis)):
            untried = "" if outcome.diagnosis.fixes else ", not tried"
            yield from _reported(step, form, "    or: " if place else f"    next{untried}: ")
    if outcome.idle is not None:
        idle = f"{outcome.idle.reason}: {outcome.idle.text}"
        yield from _reported(idle, form, "    no idle work is preempted: ")
        if outcome.idle.itself:
            yield f'    opt in: annotate it with {OPT_IN}: "true"'
    if outcome.estimate is not None:
        start = estimate_text(outcome.estimate, lambda at: ago(at, now), duration)
        yield from _reported(start, form, "    start: ")


def _size_text(outcome: Outcome) -> str:
    """Return `8 pods x 8 nvidia.com/gpu = 64, 3 placed`."""
    asks, pods = outcome.asks, max(outcome.pods, outcome.asks.pods)
    if not pods:
        return ""
    text = counted(pods, "pod")
    if outcome.pods_requested is not None and outcome.pods_requested > pods:
        text = f"{pods:,} of {counted(outcome.pods_requested, 'pod')}"
    devices = {name: amount for name, amount in asks.total.items() if is_device(name)}
    if devices and asks.pod is not None and len(devices) == 1:
        ((name, total),) = devices.items()
        text += f" x {amounts({name: asks.pod[name]})}" + (f" = {total:,}" if pods > 1 else "")
    elif devices:
        text += f" with {amounts(devices)}"
    return f"{text}, {outcome.placed:,} placed"


def _needs_text(outcome: Outcome) -> str:
    """Return what it needs, and how much of that is free for it, where others are preempted."""
    said = []
    for name in outcome.asks.scarce:
        missing, total = outcome.short.get(name, 0), outcome.asks.total[name]
        if 0 < missing <= total:
            free = quantity(name, total - missing)
            said.append(
                f"needs {amounts({name: total})}, free in reach {free}: {quantity(name, missing)}"
            )
    return f"{'; '.join(said)} from others" if said else ""


def _borrowed_text(borrowed: Borrowed) -> str:
    text = f"afterwards {borrowed.cluster_queue} borrows {amounts(borrowed.amounts)} over nominal"
    if not borrowed.reclaimers:
        return text
    queues = "queue" if len(borrowed.reclaimers) == 1 else "queues"
    return f"{text}: the next to be reclaimed, by {queues} {listed(borrowed.reclaimers)}"


def _fragile_text(answer: Answer, fragile: Fragile) -> str:
    match fragile.verdict:
        case Verdict.STARTS:
            becomes = "nothing is preempted"
        case Verdict.STARTS_WITH_VICTIMS if answer.victims:
            becomes = "another workload is preempted"
        case Verdict.STARTS_WITH_VICTIMS:
            becomes = "a workload is preempted"
        case _:
            becomes = "it waits"
    less = amounts({fragile.resource: fragile.amount})
    where = f"on {fragile.name}"
    if fragile.flavor:
        where = f"in flavor {fragile.flavor} of ClusterQueue {fragile.name}"
    return f"with {less} less free {where} {becomes}"


def _victims(
    victims: Sequence[Displaced], form: _Form, shown: int | None, now: Nanos
) -> Iterator[str]:
    if not victims:
        return
    known = [each.lost_device_seconds for each in victims if each.lost_device_seconds is not None]
    said = [f"{len(victims):,} in all", _devices(victims)]
    if sum(known):
        said.append(f"{device_time(sum(known))} lost")
    yield f"  preempted ({', '.join(each for each in said if each)})"
    rows = [
        (safe(f"{each.kind} {_name(each)}"), _devices([each]), _why(each, now))
        for each in victims[:shown]
    ]
    names, devices = (max(len(row[column]) for row in rows) for column in (0, 1))
    for name, given, why in rows:
        start = f"     {name:{names}}  " + (f"{given:{devices}}  " if devices else "")
        yield from _reported(why, form, start)
    yield from _more(len(victims), shown, "victims")


def _why(victim: Displaced, now: Nanos) -> str:
    """Return for whom, if not for what is submitted, the rule, its save, delay and notice."""
    why = rule_text(victim.plane, victim.rule)
    saved = "" if victim.saved is None else f"saved {duration(now - victim.saved)} ago"
    turn = "in turn, for others than this" if victim.in_turn else ""
    reported = ""
    if victim.reported is not None and victim.evicted_by is not None:
        at, by = format_instant(victim.reported), format_instant(victim.evicted_by)
        reported = f"would be notified at {at}, is evicted at {by} at the latest"
    delayed = ""
    if victim.delay:
        delayed = f"chosen {format_duration(victim.delay)} after submission"
    return "; ".join(each for each in (turn, why, saved, delayed, reported) if each)


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


def _reported(text: str, form: _Form, start: str = "") -> Iterator[str]:
    """Yield a text behind `start`, wrapped below itself."""
    width = form.style.width - (len(start) or 2)
    lines = wrapped(text, width)
    if form.length is not None:
        lines = shortened(lines, form.length, width)
    yield start + lines[0]
    for line in lines[1:]:
        yield (" " * len(start) or "  ") + line
