"""The annotations `sim.reprieve.dev/*`, with which a manifest scripts what its pods do.

They are read from the pod and then from its controllers, nearest first: a value in the pod template
wins over one on the Job, and `kubectl annotate job/x ...` reaches pods that run already. Nothing
outside the embedded cluster knows these annotations.

| annotation | value | meaning |
|---|---|---|
| `gpu-utilization` | percent, or a script such as `90 for 30s, 0` | what the exporter reports |
| `start-latency` | duration | from binding to running |
| `run-time` | duration | from running to exit; never without it |
| `termination-time` | duration | from the deletion request to the end, at most the grace period |
| `exit-code` | 0 to 255 | exit code when the run time is over |
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Final

from reprieve.local.machines.informer import Informer, Key
from reprieve.local.machines.objects import Change, Object
from reprieve.local.machines.ownership import controller_of
from reprieve.units.durations import InvalidDuration, parse_duration

__all__ = ["PREFIX", "InvalidSetting", "Setting", "duration", "exit_code", "pods_below", "setting"]

PREFIX: Final = "sim.reprieve.dev/"
_MAXIMUM_DEPTH: Final = 10


class Setting(StrEnum):
    """The part of the annotation after the prefix."""

    GPU_UTILIZATION = "gpu-utilization"
    START_LATENCY = "start-latency"
    RUN_TIME = "run-time"
    TERMINATION_TIME = "termination-time"
    EXIT_CODE = "exit-code"


class InvalidSetting(ValueError):
    """A `sim.reprieve.dev` annotation has a value that is not accepted."""


def setting(informer: Informer, pod: Object, name: Setting) -> str | None:
    """Return the value in force for this pod, None when nobody in the chain sets it."""
    for obj in chain(informer, pod):
        value = (obj["metadata"].get("annotations") or {}).get(PREFIX + name)
        if value is not None:
            return str(value)
    return None


def duration(informer: Informer, pod: Object, name: Setting) -> int | None:
    """Return the value in nanoseconds.

    Raises:
        InvalidSetting: not a duration, or negative.
    """
    text = setting(informer, pod, name)
    if text is None:
        return None
    try:
        length = parse_duration(text)
    except InvalidDuration as problem:
        raise InvalidSetting(f"annotation {PREFIX}{name}: {problem}") from None
    if length < 0:
        raise InvalidSetting(f"annotation {PREFIX}{name}: {text!r} is negative")
    return length


def exit_code(informer: Informer, pod: Object) -> int:
    """Return the exit code of the pod's containers at the end of their run time.

    Raises:
        InvalidSetting: not a whole number from 0 to 255.
    """
    text = setting(informer, pod, Setting.EXIT_CODE)
    if text is None:
        return 0
    if not (text.isascii() and text.isdigit() and int(text) <= 255):
        raise InvalidSetting(
            f"annotation {PREFIX}{Setting.EXIT_CODE}: {text!r}; accepted: a number from 0 to 255"
        )
    return int(text)


def chain(informer: Informer, pod: Object) -> Iterator[Object]:
    """Give the pod and its controllers, nearest first, as far as they are known."""
    obj: Object = pod
    for _ in range(_MAXIMUM_DEPTH):
        yield obj
        reference = controller_of(obj)
        found = informer.by_uid(reference["uid"]) if reference else None
        if found is None:
            return
        obj = found[1]


def pods_below(informer: Informer, change: Change, before: Object | None) -> Iterator[Key]:
    """Give the pods whose settings this change of an owner (not of a pod) may have altered."""
    if change.resource == "pods" or _settings(change.object) == _settings(before):
        return
    level = [change.object["metadata"]["uid"]]
    for _ in range(_MAXIMUM_DEPTH):
        below = [found for uid in level for found in informer.dependents(uid)]
        yield from (key for key, _ in below if key.resource == "pods")
        level = [obj["metadata"]["uid"] for key, obj in below if key.resource != "pods"]


def _settings(obj: Object | None) -> dict[str, str]:
    annotations = (obj or {}).get("metadata", {}).get("annotations") or {}
    return {name: value for name, value in annotations.items() if name.startswith(PREFIX)}
