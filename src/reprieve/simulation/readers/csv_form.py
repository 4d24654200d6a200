"""Our own form: comma-separated values with a header line.

`arrival_s`, `gpus` and `duration_s` have to be there, in any order; `job`, `model`, `tenant`,
`priority`, `checkpoint_s`, `save_s`, `restart_s`, `notice_s`, `busy_s`, `idle_s`, `required` and
`preferred` may be. Empty cells of the latter state nothing. A job without an id of its own has the
number of its line. `notice_s` is how long a notice it requests before it is preempted, `busy_s`
for how long it uses its devices before it only holds them, `idle_s` after how long it uses them
again, without which it never does. `required` and `preferred` name the level of domains that it
requests, one of them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from kubeworld.units.untrusted import LONGEST_NAME, Unreadable, bounded, read_integer, shown
from reprieve.simulation.readers.columns import Row, read_rows
from reprieve.simulation.readers.lines import devices, seconds
from reprieve.simulation.trace import Job, Trace

__all__ = ["read_csv"]

_NEEDED: Final = ("arrival_s", "gpus", "duration_s")
_OPTIONAL: Final = (
    "job",
    "model",
    "tenant",
    "priority",
    "checkpoint_s",
    "save_s",
    "restart_s",
    "notice_s",
    "busy_s",
    "idle_s",
    "required",
    "preferred",
)


def read_csv(path: Path, name: str) -> Trace:
    """Return the trace of a file.

    Raises:
        UsageError: it cannot be read, or its header is none of ours.
    """
    return read_rows(path, name, _NEEDED, _job, _OPTIONAL)


def _job(cells: Row, number: int) -> Job:
    def optional_seconds(column: str) -> int | None:
        text = cells.get(column, "")
        return seconds(text, column) if text else None

    priority = cells.get("priority", "")
    duration = seconds(cells["duration_s"], "duration_s")
    if not duration:
        raise Unreadable("duration_s '0'; accepted: more than 0 seconds")
    busy, idle = optional_seconds("busy_s"), optional_seconds("idle_s")
    if busy is not None and busy > duration:
        said = f"busy_s {shown(cells['busy_s'])} of {shown(cells['duration_s'])} seconds"
        raise Unreadable(f"{said}; accepted: at most duration_s")
    if idle is not None and (busy is None or not idle):
        said = f"idle_s {shown(cells['idle_s'])}"
        raise Unreadable(f"{said}; accepted: more than 0 seconds, beside busy_s")
    required, preferred = (bounded(cells.get(key, "")) for key in ("required", "preferred"))
    if required and preferred:
        said = f"required {shown(required)} beside preferred {shown(preferred)}"
        raise Unreadable(f"{said}; accepted: one of them")
    return Job(
        id=bounded(cells.get("job") or f"L{number}", LONGEST_NAME),
        arrival=seconds(cells["arrival_s"], "arrival_s"),
        devices=devices(cells["gpus"]),
        duration=duration,
        model=bounded(cells.get("model", "")),
        tenant=bounded(cells.get("tenant", ""), LONGEST_NAME),
        priority=read_integer(priority) if priority else None,
        checkpoint=optional_seconds("checkpoint_s"),
        save=optional_seconds("save_s"),
        restart=optional_seconds("restart_s"),
        notice=optional_seconds("notice_s"),
        idle_from=busy,
        idle_for=idle,
        required=required,
        preferred=preferred,
    )
