"""EvictionRequests and Evictions of `lifecycle.k8s.io`, and the responders that pods name.

Of values that the real server prints in the form of its own structs only the rule is repeated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kubelocal.server import causes
from kubelocal.server.causes import Cause
from kubeworld.units.instants import instant_or_none

__all__ = ["eviction", "eviction_request", "eviction_update", "request_update", "responders"]

Object = Mapping[str, Any]

_RESERVED: Final = ("k8s.io", "kubernetes.io")
_FINAL: Final = ("Canceled", "Completed", "Interrupted")


def eviction_request(obj: Object) -> Iterator[Cause]:
    """Check the target and the requester."""
    spec = obj.get("spec") or {}
    yield from _target(spec)
    yield from _participant(spec.get("requester") or "", "spec.requester", reserved=True)
    yield from _intent(spec.get("intent") or "", "spec.intent")


def request_update(new: Object, old: Object) -> Iterator[Cause]:
    """Check that neither the target nor the requester changes."""
    for word in ("target", "requester"):
        if new["spec"].get(word) != old["spec"].get(word):
            yield causes.bad(f"spec.{word}", None, "field is immutable")


def eviction(obj: Object) -> Iterator[Cause]:
    """Check the target, and that as many responders report as there are."""
    yield from _target(obj.get("spec") or {})
    status = obj.get("status") or {}
    for index, requester in enumerate(status.get("requesters") or ()):
        here = f"status.requesters[{index}]"
        yield from _participant(requester.get("name") or "", f"{here}.name")
        yield from _intent(requester.get("intent") or "", f"{here}.intent")
    turns, reports = status.get("targetResponders") or (), status.get("responders") or ()
    if [each["name"] for each in turns] != [each["name"] for each in reports]:
        text = "must be the same length as status.targetResponders and contain the same keys"
        yield causes.bad("status.responders", [each["name"] for each in reports], text)
    for index, report in enumerate(reports):
        started, expected = (_at(report, word) for word in ("startTime", "expectedCompletionTime"))
        if expected and started and expected <= started:
            here = f"status.responders[{index}]"
            yield causes.bad(
                f"{here}.expectedCompletionTime",
                report["expectedCompletionTime"],
                f"must occur after {here}.startTime",
            )


def eviction_update(new: Object, old: Object) -> Iterator[Cause]:
    """Check that only active responders report, and that ended turns stay ended."""
    if new["spec"] != old["spec"]:
        yield causes.bad("spec.target", None, "field is immutable")
    before, after = old.get("status") or {}, new.get("status") or {}
    turns = {each["name"]: each for each in before.get("targetResponders") or ()}
    named = [each["name"] for each in after.get("targetResponders") or ()]
    if turns and sorted(turns) != sorted(named):
        text = "must preserve the same length and the same keys"
        yield causes.bad("status.targetResponders", named, text)
        return
    for index, turn in enumerate(after.get("targetResponders") or ()):
        was = turns.get(turn["name"])
        if was is not None and was["state"] in _FINAL and turn["state"] != was["state"]:
            yield causes.bad(
                f"status.targetResponders[{index}].state",
                turn["state"],
                f"must be one of: {was['state']}, because final state is immutable",
            )
    ended = any(
        each.get("type") in ("TargetEvicted", "Failed") and each.get("status") == "True"
        for each in after.get("conditions") or ()
    )
    for index, turn in enumerate(after.get("targetResponders") or ()):
        was, here = turns.get(turn["name"]), f"status.targetResponders[{index}].state"
        before_ = was["state"] if was is not None else ""
        allowed = {"Active": _FINAL, "Inactive": ("Inactive",)}.get(before_, (turn["state"],))
        if ended and turn["state"] not in allowed:
            text = "because the eviction request has finished processing"
            yield causes.bad(here, turn["state"], f"must be one of: {', '.join(allowed)}, {text}")
        elif not ended and before_ == "Active" and turn["state"] == "Canceled":
            text = "must stay Active because the responder is in progress"
            yield causes.forbidden(here, text)
    active = {each["name"] for each in after.get("targetResponders") or () if _acts(each, turns)}
    known = {each["name"]: each for each in before.get("responders") or ()}
    for index, report in enumerate(after.get("responders") or ()):
        said, here = known.get(report["name"]), f"status.responders[{index}]"
        if said is None or said == report:
            continue
        if report["name"] not in active:
            yield causes.bad(here, report["name"], "field is immutable")
        for word in ("startTime", "completionTime"):
            if said.get(word) and said.get(word) != report.get(word):
                yield causes.bad(f"{here}.{word}", report.get(word), "field is immutable")
        if _at(report, "heartbeatTime") < _at(said, "heartbeatTime"):
            yield causes.bad(
                f"{here}.heartbeatTime", report.get("heartbeatTime"), "cannot be decreased"
            )


def responders(spec: Object, field: str) -> Iterator[Cause]:
    """Check the responders that a pod names."""
    named = spec.get("evictionResponders") or ()
    if named and spec.get("schedulingGroup"):
        yield causes.forbidden(
            f"{field}.schedulingGroup", "may not be set when evictionResponders is set"
        )
    for index, each in enumerate(named):
        here = f"{field}.evictionResponders[{index}]"
        yield from _participant(each.get("name") or "", f"{here}.name", reserved=True)
        if not 0 <= (each.get("priority") or 0) <= 100_000:
            text = "must be less than or equal to 100000"
            yield causes.bad(f"{here}.priority", each["priority"], text)


def _acts(turn: Object, turns: Mapping[str, Object]) -> bool:
    was = turns.get(turn["name"])
    return turn["state"] == "Active" or (was is not None and was["state"] == "Active")


def _target(spec: Object) -> Iterator[Cause]:
    if not (spec.get("target") or {}).get("pod"):
        yield causes.bad("spec.target", "", "must specify one of: `pod`")


def _participant(name: str, field: str, *, reserved: bool = False) -> Iterator[Cause]:
    domain, slash, key = name.partition("/")
    if not name:
        yield causes.required(field)
    elif not (domain and slash and key):
        yield causes.bad(field, name, "must include a prefix (e.g. 'example.com/key')")
    elif reserved and any(domain == each or domain.endswith(f".{each}") for each in _RESERVED):
        text = "domain names *.k8s.io, *.kubernetes.io are reserved"
        yield causes.bad(field, name, text)


def _intent(intent: str, field: str) -> Iterator[Cause]:
    if not intent:
        yield causes.required(field)
    elif intent not in ("Eviction", "Withdrawn"):
        yield causes.unsupported(field, intent, ("Eviction", "Withdrawn"))


def _at(report: Object, word: str) -> int:
    return instant_or_none(report.get(word) or "") or 0
