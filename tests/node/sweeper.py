"""Removes what a cluster leaves on this machine: `python -m tests.node.sweeper FOLDER`.

It waits until whoever started it ends, however that ends: the kernel closes the other end of the
pipe that it reads. The processes of a cluster end with the tests by themselves; what is left are
network namespaces and control groups without processes, and the files.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from tests.chart.helm import ROOT
from tests.node import network
from tests.node.groups import remove_groups
from tests.node.machine import FOLDER, NODES

__all__ = ["Sweeper", "sweep"]

_LONGEST_WAIT_S: Final = 60


class Sweeper:
    """A process that sweeps when this one has ended, or when it is asked to.

    There is one cluster of each number at a time: whoever comes second waits here. What an earlier
    one left is removed first.
    """

    def __init__(self, folder: Path) -> None:
        self._lock = (FOLDER / f"{network.PREFIX}lock").open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        sweep()
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(folder)],
            stdin=subprocess.PIPE,
            cwd=ROOT,
            # Who interrupts the tests with Ctrl-C does not mean this one.
            start_new_session=True,
            # The lock is given back when the last that has it open has ended.
            pass_fds=(self._lock.fileno(),),
        )

    def finish(self) -> None:
        """Sweep now; return when it is done."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self._lock.close()


def sweep(folder: Path | None = None) -> None:
    """Remove it all, as soon as the last process is gone."""
    until = time.monotonic() + _LONGEST_WAIT_S
    left = set(NODES)
    while left and time.monotonic() < until:
        left -= {node for node in left if remove_groups(node)}
        time.sleep(0.2)
    network.down()
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    _, _folder = sys.argv
    while os.read(sys.stdin.fileno(), 4096):
        pass
    sweep(Path(_folder))
