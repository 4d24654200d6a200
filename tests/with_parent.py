"""Starts any program in a process that ends with this one, however this one ends.

A test that is killed stops nobody: what it had started would go on against a cluster that is gone,
and take ports and time from the tests that come after it. `reprieve.scenarios.with_parent` says how
the kernel does it; Reprieve's own modules are started with that one's `command`.

The kernel minds the thread that started a process: `asyncio.to_thread` is none for it, since its
threads end with the loop.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from reprieve.scenarios.with_parent import end_with

__all__ = ["program"]


def program(path: Path | str, *arguments: str) -> tuple[str, ...]:
    """Return the command that runs a program for as long as this process runs."""
    # By its file, since the tests can be imported in their own folder alone; -P keeps their names
    # from hiding those of others.
    return (sys.executable, "-P", __file__, str(os.getpid()), str(path), *arguments)


if __name__ == "__main__":
    _, _parent, _path, *_arguments = sys.argv
    end_with(int(_parent))
    os.execv(_path, [_path, *_arguments])
