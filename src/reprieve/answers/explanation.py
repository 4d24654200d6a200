"""What became of one object: from what was found out about it to an `Answer`.

The verdict is one sentence; what to do is what the engine tried, else what helps in general.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from kubeworld.units.instants import Nanos, format_instant, instant_or_none
from reprieve.answers.decided import start_text
from reprieve.answers.document import (
    VERSION,
    Answer,
    Displaced,
    Fact,
    State,
    Step,
    Subject,
    Waiting,
)
from reprieve.answers.evidence import MOST_TIMES, evidence_of
from reprieve.answers.findings import Findings, named
from reprieve.answers.preemptions.demand import demand_of
from reprieve.answers.quantities import ago
from reprieve.answers.unit import Unit, manifests_of, name_of, namespace_of
from reprieve.engine.diagnosis.model import Diagnosis
from reprieve.units.counts import counted
from reprieve.whatif.questions.document import estimate_document, idle_document
from reprieve.whatif.questions.written import written_by
from reprieve.wording.changes import fix_text
from reprieve.wording.diagnosis import OPT_IN, anchor, general_step, sentence

__all__ = ["answer_of"]

_TRIED: Final = 'Each change under Next with "it starts" was tried.'
_DEFAULT_SCHEDULER: Final = "default-scheduler"
_MOVED: Final = (
    "Decided anew, it does not wait for what its objects state: the cluster changed in between. "
    "Run the command again."
)
_KEPT: Final = (
    "From what the objects state, as of {at}: a decision made anew would not wait for the pods "
    "that are evicted, as the scheduler does."
)
_UNQUEUED: Final = (
    "To have it queued: its kind ({kind}) has to be in `integrations.frameworks` and its namespace "
    "managed when it is created. See docs/quota/troubleshooting.md"
)
_NOT_TRIED: Final = "The steps under Next were not tried; with no change that was tried it starts."


def answer_of(found: Findings) -> Answer:
    """Return the answer."""
    unit, standing = found.unit, found.standing
    diagnosis = _diagnosis(found)
    return Answer(
        version=VERSION,
        subject=_subject(unit),
        state=standing.state,
        verdict=_verdict(found, diagnosis),
        as_of=format_instant(found.now),
        limits=list(found.limits),
        evidence=[Fact(name, named(unit, text)) for name, text in evidence_of(found) if text],
        next_steps=list(_steps(found, diagnosis)),
        certainty=list(_certainty(found)),
        waiting=_waiting(found, diagnosis),
        displaced=list(found.displaced),
        displaced_others=list(found.others),
    )


def _diagnosis(found: Findings) -> Diagnosis | None:
    if found.decided is not None and found.decided.diagnosis is not None:
        return found.decided.diagnosis
    return None if found.standing.reported is None else found.standing.reported.diagnosis


def _subject(unit: Unit) -> Subject:
    return Subject(unit.asked["kind"], name_of(unit.asked), namespace_of(unit.asked))


def _verdict(found: Findings, diagnosis: Diagnosis | None) -> str:
    unit, standing, now = found.unit, found.standing, found.now
    who = str(_subject(unit))
    since = f" since {ago(standing.since, now)}" if standing.since is not None else ""
    match standing.state:
        case State.RUNS | State.STARTS:
            again = " again" if _came_back(found) else ""
            verb = "runs" if standing.state is State.RUNS else "is starting"
            more = (standing.text, standing.refused, standing.failed)
            return f"{who} {verb}{again}{since}: {'; '.join(filter(None, more))}."
        case State.WAITS:
            return f"{_who_waits(found)}: {_why(found, diagnosis)}."
        case State.LEAVES:
            return f"{who} is on its way out{since}{_for_whom(found, ': it is preempted')}."
        case State.FINISHED:
            when = f" at {ago(standing.since, now)}" if standing.since is not None else ""
            how, colon, why = named(unit, standing.text).rstrip(".").partition(": ")
            return f"{who} {how}{when}{colon}{why}."
        case State.GONE:
            return f"{who} is gone{_for_whom(found) or f': {standing.text}'}."
        case State.STOPPED:
            return f"{who} does not run: {standing.text}{_for_whom(found, '; it was preempted')}."
        case _:
            return f"{who}: {standing.text}{_for_whom(found, '; it was preempted')}."


def _who_waits(found: Findings) -> str:
    unit, standing = found.unit, found.standing
    who = str(_subject(unit))
    again = " again" if found.displaced else ""
    live = len(standing.waiting) + len(standing.nodes)
    if unit.group_name and unit.asked["kind"] == "Pod":
        if standing.nodes and standing.waiting:
            waiting = f"{len(standing.waiting)} of {counted(live, 'pod')}"
            return f"In group {unit.group_name}, to which {who} belongs, {waiting} wait{again}"
        return f"{who} waits{again} with its group {unit.group_name} of {counted(live, 'pod')}"
    if standing.nodes and standing.waiting:
        return f"{len(standing.waiting)} of {counted(live, 'pod')} of {who} wait{again}"
    return f"{who} waits{again}"


def _why(found: Findings, diagnosis: Diagnosis | None) -> str:
    reported = found.standing.reported
    assert reported is not None
    if diagnosis is not None:
        return _in_sentence(sentence(diagnosis))
    if reported.message:
        return named(found.unit, reported.message).rstrip(".")
    if found.unit.announced:
        return _in_sentence(named(found.unit, found.unit.announced).rstrip("."))
    own = _own_scheduler(found.unit)
    scheduler = f"the scheduler {own}, which it names," if own else "its scheduler"
    whose = {"quota": "its queue", "scheduling": scheduler}.get(reported.plane, "anybody")
    return f"nothing is recorded of why; {whose} has not looked at it yet"


def _own_scheduler(unit: Unit) -> str:
    """Return the scheduler that all of its pods name, empty for the default one."""
    named = {str(each["spec"].get("schedulerName") or _DEFAULT_SCHEDULER) for each in unit.pods}
    return next(iter(named - {_DEFAULT_SCHEDULER}), "") if len(named) == 1 else ""


def _in_sentence(text: str) -> str:
    """Return a sentence as a part of another; names of kinds keep their capitals."""
    word = text.partition(" ")[0]
    return text[0].lower() + text[1:] if word[1:].islower() else text


def _came_back(found: Findings) -> bool:
    since, last = found.standing.since, _newest(found.displaced)
    return since is not None and last is not None and last <= since


def _for_whom(found: Findings, lead: str = ": it was preempted") -> str:
    """Return for whom it is preempted, with the rule, where that is known."""
    if not found.displaced:
        return ""
    newest = found.displaced[0]
    for_whom = f" for {newest.preemptor}" if newest.preemptor else ""
    at = instant_or_none(newest.at)
    when = f" at {ago(at, found.now)}" if at is not None else ""
    return f"{lead}{for_whom}{when}, by the rule: {newest.rule}"


def _steps(found: Findings, diagnosis: Diagnosis | None) -> Iterator[Step]:
    unit, standing = found.unit, found.standing
    where = f"-n {namespace_of(unit.asked)} " if namespace_of(unit.asked) else ""
    if diagnosis is not None:
        for fix in diagnosis.fixes:
            yield Step(fix_text(fix, written_by(fix, manifests_of(unit))), field=fix.field)
        if not diagnosis.fixes:
            step = general_step(diagnosis)
            yield Step(f"{step} See {anchor(diagnosis.plane, diagnosis.reason)}")
    elif standing.reported is not None and standing.remedy is None:
        kind, name = unit.asked["kind"].lower(), name_of(unit.asked)
        if own := _own_scheduler(unit):
            named = f"See whether there is a scheduler named {own}"
            yield Step(f"{named}, or remove `spec.schedulerName`.")
        yield Step("Read what was recorded of it:", f"kubectl {where}describe {kind} {name}")
    if standing.remedy is not None:
        yield standing.remedy
    if found.ignored_queue:
        yield Step(_UNQUEUED.format(kind=unit.root["kind"]))
    if found.decided is not None and found.decided.idle is not None and found.decided.idle.itself:
        kind, name = unit.root["kind"].lower(), name_of(unit.root)
        command = f"kubectl {where}annotate {kind} {name} {OPT_IN}=true"
        yield Step("Opt in, so that idle work is preempted for it:", command)
    if found.displaced and found.displaced[0].spared_by:
        yield Step(f"It would have been spared by {found.displaced[0].spared_by}.")
    newest = next((each for each in (*found.displaced, *found.others) if each.record), None)
    if newest is not None:
        yield Step(
            "The decision, with all candidates and their reasons:",
            f"reprieve explain preemption/{newest.record}",
        )
    if len(found.displaced) > MOST_TIMES and not found.history:
        target = f"{unit.asked['kind'].lower()}/{name_of(unit.asked)}"
        yield Step("All displacements:", f"reprieve explain {target} {where}--history")


def _certainty(found: Findings) -> Iterator[str]:
    if found.standing.state is State.WAITS:
        decided, stated = found.decided, found.standing.reported
        if decided is not None and decided.diagnosis is not None:
            yield f"Decided anew on what the cluster held at {format_instant(decided.at)}."
            yield _TRIED if decided.diagnosis.fixes else _NOT_TRIED
        elif stated is not None and stated.waits_for_a_node_that_refuses:
            yield _KEPT.format(at=format_instant(found.now))
        elif decided is not None and decided.starts is not None:
            yield start_text(decided)
        elif decided is not None and not decided.notes:
            yield _MOVED
        else:
            yield (
                "From what the objects state, as of "
                f"{format_instant(found.now)}; nothing was decided anew."
            )
        yield from () if decided is None else decided.notes
    else:
        yield f"As of {format_instant(found.now)}."
    yield from found.unknown


def _waiting(found: Findings, diagnosis: Diagnosis | None) -> Waiting | None:
    reported = found.standing.reported
    if reported is None:
        return None
    lacks: dict[str, int] = {}
    for (_, resource), amount in (diagnosis.deficit if diagnosis else {}).items():
        lacks[resource] = lacks.get(resource, 0) + amount
    return Waiting(
        plane=str(diagnosis.plane if diagnosis else reported.plane),
        reason=str(diagnosis.reason) if diagnosis else "",
        why=_why(found, diagnosis),
        message=named(found.unit, reported.message),
        since=format_instant(reported.since) if reported.since is not None else "",
        lacks=lacks,
        others=[str(each) for each in diagnosis.others] if diagnosis else [],
        refused=dict(diagnosis.refused) if diagnosis else {},
        filters=dict(diagnosis.filters) if diagnosis else {},
        earliest=(
            format_instant(diagnosis.earliest)
            if diagnosis is not None and diagnosis.earliest is not None
            else ""
        ),
        estimate=None if found.decided is None else estimate_document(found.decided.estimate),
        idle=None if found.decided is None else idle_document(found.decided.idle),
        demand=demand_of(found),
    )


def _newest(reported: Sequence[Displaced]) -> Nanos | None:
    return instant_or_none(reported[0].at) if reported else None
