"""The decision log: one JSON line for each change of the reason for which a unit waits.

    {"time": "2026-03-04T10:15:00.000000Z", "plane": "quota", "kind": "Workload",
     "namespace": "team", "name": "train", "uid": "...", "reason": "HeldByOthers",
     "previous": "BehindHead", "sentence": "..."}

`previous` is empty in the first line about a unit, `reason` in the last one, which states that it
waits no longer. `{"time": ..., "dropped": 3}` states how many lines are missing before it.

    {"time": ..., "plane": ..., "kind": ..., "namespace": ..., "name": ..., "uid": ...,
     "reason": "HeldByOthers", "input": {"version": 1, "encoding": "zlib+base64", ...}}

is a sample (`input_samples`): all that a decision was made on which refused the unit, in the form
of a record's `spec.input` (`record`, `quota_record`, `scheduling_record`), to be decided again.
Fields may be added to lines, none is removed or changes its meaning. Lines are written beside the
work (`line_writer`), and read again by `decision_history`. Source: the design's "Why work waits".
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from kubeworld.units.clock import Clock
from kubeworld.units.instants import format_micro
from reprieve.engine.diagnosis.model import Diagnosis
from reprieve.engine.diagnosis.reasons import Reason
from reprieve.engine.plan import Plane
from reprieve.telemetry.input_samples import InputSamples
from reprieve.telemetry.line_writer import LineWriter, RotatedFile, StandardOutput
from reprieve.telemetry.metrics import Metrics
from reprieve.units.errors import UsageError
from reprieve.units.references import Reference
from reprieve.wording.diagnosis import NO_LONGER, sentence

__all__ = ["DecisionLog", "Missing", "ReasonChange", "Sample", "decision_log"]

_AT_THE_END: Final = 1.0  # seconds in which what waits is written
_ENCODER: Final = msgspec.json.Encoder()


class ReasonChange(msgspec.Struct, frozen=True, gc=False):
    """A unit waits for another reason than before, or no longer."""

    time: str
    plane: str
    kind: str
    namespace: str
    name: str
    uid: str
    reason: str
    previous: str
    sentence: str


class Sample(msgspec.Struct, frozen=True):
    """What a decision was made on that refused a unit; `input` as in a record's `spec.input`."""

    time: str
    plane: str
    kind: str
    namespace: str
    name: str
    uid: str
    reason: str
    input: dict[str, Any]


class Missing(msgspec.Struct, frozen=True):
    """So many lines are missing before this one."""

    time: str
    dropped: int


class DecisionLog:
    """What was stated last of each unit that waits; `put` accepts a line with its end."""

    def __init__(self, clock: Clock, put: Callable[[bytes], None]) -> None:
        self._clock = clock
        self._put = put
        self._known: dict[tuple[Plane, str], tuple[Reference, Reason]] = {}
        self.samples = InputSamples(clock)

    def reason(self, plane: Plane, key: str) -> Reason | None:
        """Return the reason of the last line about a unit, None where it waits for nothing."""
        known = self._known.get((plane, key))
        return None if known is None else known[1]

    def waits(self, key: str, unit: Reference, diagnosis: Diagnosis) -> None:
        """State why a unit waits, unless that was the last that was stated of it.

        `key` is the plane's own of the unit. The uid of `unit` is empty where there is no object.
        """
        plane, reason = diagnosis.plane, diagnosis.reason
        known = self._known.get((plane, key))
        if known is not None and known[0].uid and unit.uid and known[0].uid != unit.uid:
            self.waits_no_longer(plane, key)
            known = None
        previous = None if known is None else known[1]
        if previous is not reason:
            self._known[plane, key] = unit, reason
            self._emit(plane, unit, reason, previous, sentence(diagnosis))

    def waits_no_longer(self, plane: Plane, key: str) -> None:
        """State that a unit started, ended or was deleted; nothing if it was not stated to wait."""
        known = self._known.pop((plane, key), None)
        if known is not None:
            unit, previous = known
            self._emit(plane, unit, None, previous, NO_LONGER)

    def decided_on(
        self, plane: Plane, unit: Reference, reason: Reason, recorded: Mapping[str, Any]
    ) -> None:
        """Write what a decision was made on that refused a unit; `samples` had it due."""
        line = Sample(
            *self._reported_of(plane, unit),
            reason.value,
            dict(recorded),
        )
        text = _line(line)
        self.samples.took(len(text))
        self._put(text)

    def _reported_of(self, plane: Plane, unit: Reference) -> tuple[str, str, str, str, str, str]:
        """Return what every line about a unit begins with: when, by which plane, about whom."""
        at = format_micro(self._clock.wall())
        return at, plane.value, unit.kind, unit.namespace, unit.name, unit.uid

    def _emit(
        self,
        plane: Plane,
        unit: Reference,
        reason: Reason | None,
        previous: Reason | None,
        said: str,
    ) -> None:
        line = ReasonChange(
            *self._reported_of(plane, unit),
            "" if reason is None else reason.value,
            "" if previous is None else previous.value,
            said,
        )
        self._put(_line(line))


@contextlib.contextmanager
def decision_log(where: str | None, clock: Clock, metrics: Metrics) -> Iterator[DecisionLog | None]:
    """Have the decision log written to a file, or standard output (`-`); None writes none.

    Raises:
        UsageError: it cannot be written there.
    """
    if where is None:
        yield None
        return

    def missing(number: int) -> bytes:
        return _line(Missing(format_micro(clock.wall()), number))

    def lost(number: int, why: str) -> None:
        metrics.decision_log_dropped.labels(why).inc(number)

    writer = LineWriter(_target(where), missing, lost)
    writer.start()
    try:
        yield DecisionLog(clock, writer.write)
    finally:
        writer.close(_AT_THE_END)


def _target(where: str) -> Callable[[bytes], None]:
    try:
        return StandardOutput().write if where == "-" else RotatedFile(Path(where)).write
    except (OSError, ValueError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise UsageError(
            f"--decision-log: {where!r} cannot be written: {why}; accepted: a file, or - for "
            "standard output"
        ) from None


def _line(line: ReasonChange | Sample | Missing) -> bytes:
    text = _ENCODER.encode(line)
    if not text.isascii():
        # Pure ASCII: nothing in a name or a message can steer the terminal that shows it.
        text = json.dumps(msgspec.to_builtins(line), separators=(",", ":")).encode()
    return text + b"\n"
