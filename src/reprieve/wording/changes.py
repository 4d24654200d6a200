"""A change with which work would start, as a sentence.

Of manifests the sentence names their own fields, else the path within the object that was decided
about. Source: `Fix` of the engine's diagnosis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from reprieve.engine.diagnosis.model import Change, Fix, Gain
from reprieve.wording.node_refusals import toleration_text

__all__ = ["Written", "fix_text"]

_MOST_WRITTEN: Final = 2
_GAINS: Final = {
    Gain.START: "it starts",
    Gain.QUOTA: "it gets its quota",
    Gain.ONE_POD: "one of its pods gets a node",
}
_UNTRIED: Final = {
    Gain.QUOTA: "; whether nodes accept its pods was not tried",
    Gain.ONE_POD: "; its other pods were not tried",
}


@dataclass(frozen=True, slots=True)
class Written:
    """One field of a manifest that a change writes; `before` or `after` is empty for no value.

    `added`: `after` is one more item of the list.
    """

    path: str
    before: str
    after: str
    added: bool = False


def fix_text(fix: Fix, written: Sequence[Written] = ()) -> str:
    """Return a change that was tried and helps, as a sentence; of manifests it names the fields."""
    preempted = {0: "", 1: "; one other is preempted then"}.get(
        fix.victims, f"; {fix.victims:,} more are preempted then"
    )
    gains = f"{_GAINS[fix.gain]}{preempted}{_UNTRIED.get(fix.gain, '')}"
    if fix.change is Change.WAIT:
        until = fix.after or "those that are preempted have ended"
        return f"Wait until {until}{preempted}."
    if fix.change is Change.FEWER_DEVICES and (device := _device(fix.field)):
        return f"With {fix.after} {device} a pod instead of {fix.before} {gains}."
    if written:
        return f"{_written_text(written)} {gains}."
    if fix.change is Change.WITHOUT_CONSTRAINT:
        if fix.field.endswith("tolerations") and not fix.before and " and " not in fix.after:
            added = toleration_text(fix.after)
            return f"With {added} added to {fix.field} {gains}."
        if fix.before and fix.after:
            return f"Without {fix.before} and with {fix.after} in {fix.field} {gains}."
        if fix.after:
            return f"With {fix.after} in {fix.field} {gains}."
        return f"Without {fix.field} ({fix.before}) {gains}."
    return f"With {fix.field} {fix.after} instead of {fix.before} {gains}."


def _device(field: str) -> str:
    """Return the resource that a field of requests is about."""
    return field.rpartition("requests of ")[2] if "requests of " in field else _key(field)


def _key(field: str) -> str:
    """Return the key in brackets behind a field of requests, empty without one."""
    _, found, rest = field.rpartition("requests[")
    return rest.removesuffix("]") if found else ""


def _value_text(text: str) -> str:
    """Return a value in brackets, nothing where it was too long to be shown whole."""
    return "" if text.endswith("…") else f" ({text})"


def _written_text(written: Sequence[Written]) -> str:
    """Return `With spec.parallelism 2 instead of 4`; of many fields the first two are named."""
    reported = []
    for each in written[:_MOST_WRITTEN]:
        if each.added:
            reported.append(f"with {each.after} added to {each.path}")
            continue
        instead = f" instead of {each.before}" if each.before else ""
        reported.append(
            f"with {each.path} {each.after}{instead}"
            if each.after
            else f"without {each.path}{_value_text(each.before)}"
        )
    more = len(written) - len(reported)
    text = " and ".join(reported) + (f" and {more} more such fields" if more > 0 else "")
    return text[0].upper() + text[1:]
