"""Why something waited at an instant that is past: from the decision log alone.

A log knows units by plane: a Workload, a pod or its group, a GpuWorkload. A job is found by the
names that these get from it: of the Workload by the rule of its name, of pods by their beginning.
Where the decision at that time was sampled it is made again, and the answer states so; else the
last reason that was written before stands. Source: specification of explain, "decision log".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from kubeworld.units.instants import Nanos, format_instant
from kubeworld.units.untrusted import Form
from reprieve.answers.document import VERSION, Answer, Fact, State, Step, Subject, Waiting
from reprieve.answers.kinds import Asked, nearest
from reprieve.answers.quantities import ago
from reprieve.engine.diagnosis.reasons import Reason
from reprieve.engine.plan import Plane
from reprieve.telemetry.decision_history import History, Line, history_of
from reprieve.units.counts import counted
from reprieve.units.errors import UsageError
from reprieve.wording.diagnosis import anchor, words

__all__ = ["answer_of_past"]

Again = Callable[[str, Mapping[str, Any]], str]

#: The planes in the order in which work passes them: who waits for quota waits for no node yet.
_PLANES: Final = {Plane.QUOTA.value: 0, Plane.SCHEDULING.value: 1, Plane.IDLE.value: 2}
_OF_UNITS: Final = ("Pod", "PodGroup", "CompositePodGroup", "Workload", "GpuWorkload")
_HASH: Final = Form(r"[0-9a-f]{5,8}+")
_SUFFIX: Final = Form(r"[a-z0-9]++(-[a-z0-9]++){0,4}+")
_MOST_UNITS: Final = 4
_SOURCE: Final = (
    "From the decision log, as the planes wrote it then; the cluster of today was not read."
)


def answer_of_past(
    path: Path, asked: Asked, namespace: str, instant: Nanos, again: Again
) -> Answer:
    """Return why something waited; `again` decides on a sample's input and returns the outcome.

    Raises:
        UsageError: the log cannot be read, does not reach back that far, or does not know the unit.
    """
    names: set[str] = set()

    def is_asked(line: Line) -> bool:
        if line.namespace == namespace and line.kind in _OF_UNITS:
            if _is_of(asked, line):
                return True
            if len(names) < 10_000:
                names.add(line.name)
        return False

    found = history_of(path, instant, is_asked)
    if found.first is None or instant < found.first:
        begins = "is empty" if found.first is None else f"begins {format_instant(found.first)}"
        raise UsageError(
            f"--as-of: {format_instant(instant)} is before the log {path}, which {begins}"
        )
    if not found.standing and not found.following:
        raise UsageError(
            f"{asked.kind} {namespace}/{asked.name} is not in the log {path}: it did not wait, or "
            f"had another name; {nearest(asked.name, names)}"
        )
    return _answer(found, asked, namespace, instant, again)


def _answer(found: History, asked: Asked, namespace: str, instant: Nanos, again: Again) -> Answer:
    subject, at = Subject(asked.kind, asked.name, namespace), format_instant(instant)
    waiting = sorted(
        (key for key, line in found.standing.items() if line.reason),
        key=lambda key: (_PLANES.get(key[0], len(_PLANES)), key),
    )
    if not waiting:
        return Answer(
            version=VERSION,
            subject=subject,
            state=State.UNKNOWN,
            verdict=f"{subject} did not wait at {at}, as far as the log states.",
            as_of=at,
            evidence=list(_around(found)),
            certainty=[_SOURCE, *_lost(found)],
        )
    key = waiting[0]
    line, began = found.standing[key], found.since.get(key)
    said = _ended(line.sentence)
    since = f" since {ago(began.at, instant)}" if began is not None else ""
    sample = found.samples.get(key)
    return Answer(
        version=VERSION,
        subject=subject,
        state=State.WAITS,
        verdict=f"{subject} waited at {at}{since}: {said}",
        as_of=at,
        evidence=list(_evidence(found, waiting)),
        next_steps=list(_steps(line)),
        certainty=list(_certainty(found, sample, again)),
        waiting=Waiting(line.plane, line.reason, line.sentence, _instant(began or line)),
    )


def _evidence(found: History, waiting: list[tuple[str, str]]) -> Iterator[Fact]:
    for key in waiting[:_MOST_UNITS]:
        line = found.standing[key]
        yield Fact(
            f"{line.plane}", f"{line.kind} {line.name}: {line.reason} since {_instant(line)}"
        )
        if line.previous:
            yield Fact("before", line.previous)
        after = found.following.get(key)
        if after is not None:
            yield Fact("then", f"{_instant(after)} {after.reason or 'it waited no longer'}")
    if len(waiting) > _MOST_UNITS:
        more = counted(len(waiting) - _MOST_UNITS, "further unit")
        yield Fact("and", f"{more} of it waited")


def _around(found: History) -> Iterator[Fact]:
    for line in sorted(found.standing.values(), key=lambda each: each.time)[-1:]:
        yield Fact("before", f"{_instant(line)} {line.reason or 'it waited no longer'}")
    for line in sorted(found.following.values(), key=lambda each: each.time)[:1]:
        yield Fact("then", f"{_instant(line)} {line.reason}: {line.sentence}")


def _steps(line: Line) -> Iterator[Step]:
    try:
        plane, reason = Plane(line.plane), Reason(line.reason)
        step = words(plane, reason).step
    except (ValueError, LookupError):
        return  # a word of another version
    yield Step(f"{step} See {anchor(plane, reason)}")


def _certainty(found: History, sample: Line | None, again: Again) -> Iterator[str]:
    yield _SOURCE
    if sample is not None and sample.input is not None:
        yield f"Decided again on the input that was sampled {_instant(sample)}: " + again(
            sample.plane, sample.input
        )
    else:
        yield "No decision about it was sampled, so that none could be made again."
    yield from _lost(found)


def _lost(found: History) -> Iterator[str]:
    said = []
    if found.dropped:
        said.append(f"{counted(found.dropped, 'line')} before that instant are missing")
    if found.unreadable:
        said.append(f"{counted(found.unreadable, 'line')} cannot be read")
    if said:
        yield f"Of the log {', '.join(said)}."


def _is_of(asked: Asked, line: Line) -> bool:
    """Return whether a line is about what is queried."""
    if line.kind == asked.kind or (asked.kind == "PodGroup" and line.kind.endswith("PodGroup")):
        return line.name == asked.name
    if asked.kind in _OF_UNITS:
        return asked.kind == "Pod" and line.kind == "Workload" and _hashed("pod", asked.name, line)
    if line.kind in ("Workload", "GpuWorkload"):
        return _hashed(asked.kind.lower(), asked.name, line)
    rest = line.name.removeprefix(f"{asked.name}-")
    return line.name == asked.name or (rest != line.name and _SUFFIX.fullmatch(rest) is not None)


def _hashed(kind: str, name: str, line: Line) -> bool:
    """Return whether a name is that which a Workload gets from a job of this name."""
    rest = line.name.removeprefix(f"{kind}-{name}-")
    return rest != line.name and _HASH.fullmatch(rest) is not None


def _instant(line: Line) -> str:
    return format_instant(line.at)


def _ended(text: str) -> str:
    said = text[:1].lower() + text[1:]
    return said if said.endswith(".") else f"{said}."
