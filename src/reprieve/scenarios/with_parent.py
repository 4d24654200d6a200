"""Runs a module as `python -m` does, in a process that ends with the one that started it.

    python -m reprieve.scenarios.with_parent PARENT MODULE ARGUMENTS...

A replica that outlived its player would continue against a cluster that no longer exists, for as
long as the machine runs: a player that is killed cannot stop it. On Linux the kernel kills the
process when the thread that started it ends, also after the process executes itself anew; it does
not when another kernel runs it. SIGKILL, since a replica may stand still or be stopped by a signal.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import sys
from typing import Final

__all__ = ["command", "end_with"]

_SET_SIGNAL_OF_PARENTS_DEATH: Final = 1  # PR_SET_PDEATHSIG of `linux/prctl.h`


def command(module: str, *arguments: str) -> tuple[str, ...]:
    """Return the command that runs a module for as long as this process runs."""
    return (sys.executable, "-m", __name__, str(os.getpid()), module, *arguments)


def end_with(parent: int) -> None:
    """Have this process killed when its parent ends; at once if that has ended already."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_SET_SIGNAL_OF_PARENTS_DEATH, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    _, _parent, _module, *_arguments = sys.argv
    end_with(int(_parent))
    sys.argv = [_module, *_arguments]
    runpy.run_module(_module, run_name="__main__", alter_sys=True)
