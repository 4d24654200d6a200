"""The annotations `sim.reprieve.dev/*`, with which a manifest scripts what pods and nodes do.

Those of pods are read from the pod and then from its controllers, nearest first: a value in the pod
template wins over one on the Job, and `kubectl annotate job/x ...` reaches pods that run already.
Nothing outside the embedded cluster knows these annotations.

| annotation | value | meaning |
|---|---|---|
| `gpu-utilization` | percent, or a script such as `90 for 30s, 0` | what the exporter reports |
| `pull-latency` | latency | added for an image that the node has not pulled yet |
| `start-latency` | latency | from binding (or the pull) to running |
| `run-time` | latency | from running to exit; never without it |
| `termination-time` | latency | from the deletion request to the end, at most the grace period |
| `exit-code` | 0 to 255 | exit code when the run time is over |
| `fail` | 1 to 255, or a word of `Failure` | fails as soon as it runs, once for each value |
| `devices`, on a node | `DRIVER=COUNT`, by comma | devices that the driver offers there |
| `ready`, on a node | `true`, `false`, `unknown` | `unknown`: its kubelet does nothing any more |

A latency is a duration or a distribution (`latency`).
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Final, TypeVar

from kubelocal.machines.informer import Informer, Key
from kubelocal.machines.node.latency import InvalidLatency, Latency, parse_latency
from kubelocal.machines.objects import Change, Object
from kubeworld.objects.owners import controller_of

__all__ = [
    "PREFIX",
    "Failure",
    "InvalidSetting",
    "Readiness",
    "Setting",
    "devices",
    "effective_readiness",
    "exit_code",
    "failure",
    "latency",
    "pods_below",
    "readiness",
    "setting",
]

PREFIX: Final = "sim.reprieve.dev/"
_MAXIMUM_DEPTH: Final = 10


class Setting(StrEnum):
    """The part of the annotation after the prefix."""

    GPU_UTILIZATION = "gpu-utilization"
    PULL_LATENCY = "pull-latency"
    START_LATENCY = "start-latency"
    RUN_TIME = "run-time"
    TERMINATION_TIME = "termination-time"
    EXIT_CODE = "exit-code"
    FAIL = "fail"
    READY = "ready"
    DEVICES = "devices"


class Failure(StrEnum):
    """How a pod fails on command, apart from an exit code."""

    OUT_OF_MEMORY = "OOMKilled"  # the containers end with exit code 137
    EVICTED = "Evicted"  # the pod fails for good, as under pressure on its node
    IMAGE_PULL = "ImagePullBackOff"  # it does not start as long as this stands


class Readiness(StrEnum):
    """What a node's Ready condition is to be."""

    TRUE = "true"
    FALSE = "false"
    UNKNOWN = "unknown"


class InvalidSetting(ValueError):
    """A `sim.reprieve.dev` annotation has a value that is not accepted."""


def setting(informer: Informer, pod: Object, name: Setting) -> str | None:
    """Return the value in force for this pod, None when nothing in the chain sets it."""
    for obj in chain(informer, pod):
        value = (obj["metadata"].get("annotations") or {}).get(PREFIX + name)
        if value is not None:
            return str(value)
    return None


def latency(informer: Informer, pod: Object, name: Setting) -> Latency | None:
    """Return how long this lasts, None when nothing states it.

    Raises:
        InvalidSetting: neither a duration nor a distribution.
    """
    text = setting(informer, pod, name)
    if text is None:
        return None
    try:
        return parse_latency(text)
    except InvalidLatency as problem:
        raise InvalidSetting(f"annotation {PREFIX}{name}: {problem}") from None


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


def failure(informer: Informer, pod: Object) -> Failure | int | None:
    """Return how the pod is to fail, an exit code or a word.

    Raises:
        InvalidSetting: neither.
    """
    text = setting(informer, pod, Setting.FAIL)
    if text is None:
        return None
    if text.isascii() and text.isdigit() and 0 < int(text) <= 255:
        return int(text)
    return _word(Failure, text, Setting.FAIL, "1 to 255, ")


def readiness(node: Object) -> Readiness:
    """Return what the node's Ready condition is to be.

    Raises:
        InvalidSetting: no such word.
    """
    text = (node["metadata"].get("annotations") or {}).get(PREFIX + Setting.READY)
    return Readiness.TRUE if text is None else _word(Readiness, str(text), Setting.READY)


def effective_readiness(node: Object) -> Readiness:
    """Return the readiness; a word that is not accepted changes nothing."""
    try:
        return readiness(node)
    except InvalidSetting:
        return Readiness.TRUE


def devices(node: Object) -> dict[str, int]:
    """Return how many devices each driver has on the node.

    Raises:
        InvalidSetting: something that is no `DRIVER=COUNT`.
    """
    text = (node["metadata"].get("annotations") or {}).get(PREFIX + Setting.DEVICES) or ""
    found: dict[str, int] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        driver, _, count = part.partition("=")
        if not driver or not count.isascii() or not count.isdigit() or int(count) > 128:
            accepted = "accepted: DRIVER=COUNT with at most 128, by comma"
            raise InvalidSetting(f"annotation {PREFIX}{Setting.DEVICES}: {part!r}; {accepted}")
        found[driver] = int(count)
    return found


_Word = TypeVar("_Word", Failure, Readiness)


def _word(words: type[_Word], text: str, name: Setting, more: str = "") -> _Word:
    try:
        return words(text)
    except ValueError:
        accepted = f"{more}{', '.join(words)}"
        raise InvalidSetting(f"annotation {PREFIX}{name}: {text!r}; accepted: {accepted}") from None


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
