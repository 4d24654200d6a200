"""`python -m bench.real_api_server [--part FRACTION] [--cores PART] [CASE...]`: load on a real one.

Each case gets an etcd and a kube-apiserver of its own (`bench.control_plane`, without controllers),
so that none sees what another left behind:

    quota_load   15,000 Workloads in 30 queues (`bench.quota_load`)
    large_gang   a gang of 500 that evicts 4,000 pods on 1,000 nodes (`bench.large_gang`)
    bindings     3,000 pods on 100 nodes (`bench.bindings`)
    backlog      10,000 gangs of one tenant, and pods of another (`bench.backlog`)

Without CASE all of them, in that order. The lines are those of the benches. `--part` is the
fraction of the Workloads in `quota_load`, `--cores` the part of a core that the operator has in
`large_gang`; `--quick` uses small inputs and asserts results only.
Ends with 1 where a case failed, with 2 where there are no binaries.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

__all__ = ["main"]

_CASES: Final[Mapping[str, tuple[str, ...]]] = {
    "quota_load": (),
    "large_gang": ("--gang", "500", "--victims", "4000", "--nodes", "1000"),
    "bindings": ("--pods", "3000", "--nodes", "100"),
    "backlog": ("--shape", "sizes"),
}
_NO_BINARIES: Final = 2


class _NotStarted(Exception):
    """The control plane ended before it was ready; `code` is what it ended with."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def main(arguments: list[str] | None = None) -> int:
    """Run the cases, each on a control plane of its own."""
    parser = argparse.ArgumentParser(prog="python -m bench.real_api_server", description=__doc__)
    parser.add_argument("case", nargs="*", help=f"of {', '.join(_CASES)}")
    parser.add_argument("--part", type=float, default=1.0, help="fraction of the Workloads")
    parser.add_argument("--cores", type=float, default=1.0, help="part of a core for the operator")
    parser.add_argument("--quick", action="store_true", help="small inputs, times do not matter")
    chosen = parser.parse_args(arguments)
    for each in chosen.case:
        if each not in _CASES:
            parser.error(f"{each}: accepted: {', '.join(_CASES)}")
    if not 0 < chosen.part <= 1:
        parser.error(f"--part {chosen.part:g}: accepted: more than 0, at most 1")
    worst = 0
    for case in chosen.case or _CASES:
        given = ["--quick"] if chosen.quick else [*_CASES[case]]
        if case == "quota_load" and chosen.part < 1 and not chosen.quick:
            given += ["--part", f"{chosen.part:g}"]
        if case == "large_gang":
            given += ["--cores", f"{chosen.cores:g}"]
        try:
            worst = max(worst, _run(case, given))
        except _NotStarted as ended:
            return _NO_BINARIES if ended.code == _NO_BINARIES else 1
    return worst


def _run(case: str, given: Sequence[str]) -> int:
    with _control_plane() as kubeconfig:
        command = [sys.executable, "-m", f"bench.{case}", "--kubeconfig", str(kubeconfig), *given]
        return 1 if subprocess.call(command) else 0


@contextmanager
def _control_plane() -> Iterator[Path]:
    """Start a control plane and give its kubeconfig.

    Raises:
        _NotStarted: it ended at once; it has said why.
    """
    with tempfile.TemporaryDirectory() as folder:
        kubeconfig = Path(folder) / "kubeconfig"
        process = subprocess.Popen(
            [sys.executable, "-m", "bench.control_plane", str(kubeconfig)],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout is not None
            if not process.stdout.readline().startswith("ready: "):
                raise _NotStarted(process.wait())
            yield kubeconfig
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


if __name__ == "__main__":
    raise SystemExit(main())
