"""`python -m bench.control_plane KUBECONFIG`: a real API server for the other benches.

Starts the etcd and kube-apiserver that the tests use (see CONTRIBUTING), without controllers and
with PodGroups where it has them, writes a kubeconfig of an administrator, says that it is ready,
and serves until it is ended.
"""

from __future__ import annotations

import signal
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from tests.integration.control_plane import (
    ADMINISTRATOR,
    NoBinaries,
    control_plane,
    find_binaries,
)
from tests.integration.group_plane import group_flags

__all__ = ["main"]


def main(arguments: list[str]) -> int:
    """Serve until SIGINT or SIGTERM."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print("usage: python -m bench.control_plane KUBECONFIG", file=sys.stderr)
        return 2
    try:
        binaries = replace(find_binaries(), controller_manager=None)
        flags = {"kube-apiserver": group_flags()} if binaries.release >= (1, 37) else {}
    except NoBinaries as absent:
        print(absent, file=sys.stderr)
        return 2
    ends = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    with (
        tempfile.TemporaryDirectory() as folder,
        control_plane(binaries, Path(folder), {ADMINISTRATOR: "system:masters"}, flags) as running,
    ):
        running.write_kubeconfig(Path(arguments[0]), ADMINISTRATOR)
        print(f"ready: {running.url}", flush=True)
        signal.sigwait(ends)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
