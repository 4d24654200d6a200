"""Part of a core for the processes of one session: a quota of the kernel, or turns.

With the right to make a group of the controller `cpu` (cgroup v1 or v2) the kernel lets the
processes run for that part of each tenth of a second, as it does with a container's limit. Without
that right all processes of the session are stopped by signals for the rest of each turn.
"""

from __future__ import annotations

import os
import signal
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

__all__ = ["part_of_a_core"]

_ROOT: Final = Path("/sys/fs/cgroup")
_PERIOD_US: Final = 100_000  # of a container, too


@contextmanager
def part_of_a_core(leader: int, cores: float) -> Iterator[str]:
    """Bound all processes of a session that exist now, and what they start; yield by what."""
    if cores >= 1:
        yield "none"
        return
    group = _group(cores)
    if group is None:
        with _turns(leader, cores):
            yield "signals"
        return
    pids = list(_session(leader))
    for pid in pids:
        (group / "cgroup.procs").write_text(str(pid))
    try:
        yield "quota"
    finally:
        for left in (group / "cgroup.procs").read_text().split():
            with suppress(OSError):
                (group.parent / "cgroup.procs").write_text(left)
        with suppress(OSError):
            group.rmdir()


def _group(cores: float) -> Path | None:
    """Make a group with this quota; None without the right to."""
    quota = int(cores * _PERIOD_US)
    files = {_ROOT: ("cpu.max", f"{quota} {_PERIOD_US}")}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "cpu" in controllers.split(","):  # below our own group, so that it keeps our weight
            files = {_ROOT / controllers / path.lstrip("/"): ("cpu.cfs_quota_us", str(quota))}
    for parent, (name, text) in files.items():
        group = parent / f"reprieve-bench-{uuid.uuid4().hex[:8]}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            (group / name).write_text(text)
        except OSError:
            group.rmdir()
            continue
        return group
    return None


def _session(leader: int) -> Iterator[int]:
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            with suppress(OSError):
                if os.getsid(int(each.name)) == leader:
                    yield int(each.name)


@contextmanager
def _turns(leader: int, cores: float) -> Iterator[None]:
    """Have all processes of a session stand still for the rest of each turn."""
    over, turn = threading.Event(), _PERIOD_US / 1e6

    def turns() -> None:
        while not over.wait(turn * cores):
            os.killpg(leader, signal.SIGSTOP)
            over.wait(turn * (1 - cores))
            os.killpg(leader, signal.SIGCONT)

    thread = threading.Thread(target=turns)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
