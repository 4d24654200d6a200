"""An answer of `reprieve plan` for people: at most 25 lines unless everything is asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from reprieve.units.durations import SECOND
from reprieve.whatif.answer import Answer, Displaced, Outcome, Verdict
from reprieve.wording.diagnosis import next_step

__all__ = ["plan_text"]

_SHOWN: Final = 6
_HEADLINES: Final = {
    Verdict.STARTS: "STARTS, nobody makes way",
    Verdict.STARTS_WITH_VICTIMS: "STARTS, others make way",
    Verdict.WAITS: "WAITS",
    Verdict.NEVER_FITS: "NEVER FITS",
    None: "NOT DECIDED HERE",
}


def plan_text(
    answer: Answer, controllers: Sequence[str], *, everything: bool = False
) -> Iterator[str]:
    """Yield the lines."""
    yield _first_line(answer)
    shown = None if everything else _SHOWN
    for outcome in answer.outcomes[:shown]:
        yield from _outcome(outcome)
    yield from _more(len(answer.outcomes), shown, "submitted things")
    if not answer.outcomes:
        yield "nothing of it is to start: no pod, group or job"
    yield from _victims(answer.victims, shown)
    yield from _placement(answer, everything=everything)
    if not answer.rest:
        yield "  the cluster did not come to rest within 30 minutes: this is how far it came"
    for warning in answer.warnings[:3]:
        yield f"  note: {_plain(warning)}"
    yield f"decided by {' and '.join(controllers)}; nothing is submitted and nothing is reserved"


def _first_line(answer: Answer) -> str:
    snapshot = answer.snapshot
    at = datetime.fromtimestamp(snapshot.at / SECOND, UTC).strftime("%H:%M:%S UTC")
    line = f"snapshot {at} ({snapshot.count('nodes'):,} nodes, {snapshot.count('pods'):,} pods)"
    places = {name for each in snapshot.unseen for name in each.namespaces}
    whole = sorted(each.resource.plural for each in snapshot.unseen if not each.namespaces)
    if places:
        of = f" of {snapshot.namespaces}" if snapshot.namespaces is not None else ""
        line += f"; you may not list {len(places)}{of} namespaces"
    if whole:
        line += f"; you may not list {', '.join(whole)}"
    if answer.snapshot.unseen:
        line += ": figures are lower bounds"
    return line


def _outcome(outcome: Outcome) -> Iterator[str]:
    where = f"{outcome.namespace}/" if outcome.namespace else ""
    line = f"{outcome.kind} {where}{outcome.name}"
    said = []
    if outcome.pods:
        said.append(f"{outcome.pods} pods, {outcome.placed} placed")
    if outcome.queue:
        queue = f"queue {outcome.queue}"
        if outcome.cluster_queue:
            queue += f" -> ClusterQueue {outcome.cluster_queue}"
        said.append(queue)
    if outcome.priority is not None:
        said.append(f"priority {outcome.priority}")
    yield line + (f"   {'; '.join(said)}" if said else "")
    yield f"  {_HEADLINES[outcome.verdict]}"
    if outcome.message:
        yield f"    {_plain(f'{outcome.reason}: {outcome.message}')}"
    if outcome.diagnosis is not None:
        yield f"    next: {_plain(next_step(outcome.diagnosis))}"


def _victims(victims: Sequence[Displaced], shown: int | None) -> Iterator[str]:
    if not victims:
        return
    devices = sum(each.devices for each in victims)
    known = [each.lost_device_seconds for each in victims if each.lost_device_seconds is not None]
    said = [f"{len(victims)} in all"]
    if devices:
        said.append(f"{devices} devices")
        if known:
            said.append(f"{sum(known) / 3600:.1f} device-hours lost")
    yield f"  makes way ({', '.join(said)})"
    for each in victims[:shown]:
        where = f"{each.namespace}/" if each.namespace else ""
        cost = f"  {each.devices} devices" if each.devices else ""
        yield f"     {each.kind} {where}{each.name}{cost}  {_plain(each.rule)}"
    yield from _more(len(victims), shown, "victims")


def _placement(answer: Answer, *, everything: bool) -> Iterator[str]:
    if not answer.placement:
        return
    if everything or len(answer.placement) <= 4:
        for each in answer.placement:
            yield f"  {each.pod} on {each.node}"
        return
    nodes = Counter(each.node for each in answer.placement)
    first = ", ".join(f"{node} ({count})" for node, count in sorted(nodes.items())[:4])
    more = f" and {len(nodes) - 4} more nodes" if len(nodes) > 4 else ""
    yield f"  runs on {first}{more}"


def _more(count: int, shown: int | None, what: str) -> Iterator[str]:
    if shown is not None and count > shown:
        yield f"     and {count - shown} more {what}; --all names them"


def _plain(text: str) -> str:
    """Return text of the cluster on one line, with nothing that steers a terminal."""
    flat = " ".join(text.split())
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in flat)
