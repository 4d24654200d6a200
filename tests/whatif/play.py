"""Plays plans, or the changes that they name, on random clusters; writes down each as it comes.

    python -m tests.whatif.play plans --planes idle,scheduling,quota --seeds 0-21 --out plans.jsonl

A line is one submission: where it was played, the verdict, and both sides where plan and cluster
differ; with `fixes` the change, and the manifests where they did not start with it. A cluster on
which something fails has a line with the failure, and the next one follows.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import traceback
from pathlib import Path
from typing import Any, TextIO

import msgspec

from tests.virtual_time import VirtualTimeLoop
from tests.whatif.fixes_proof import CONSTRAINED, FixCase, played_fixes
from tests.whatif.playing import Drawing
from tests.whatif.proof import PLAIN, Case, proven
from tests.whatif.strange_work import STRANGE
from tests.whatif.stranger_work import STRANGER

_DRAWINGS = {"plain": PLAIN, "constrained": CONSTRAINED, "strange": STRANGE, "stranger": STRANGER}


def main() -> None:
    """Play what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.whatif.play")
    parser.add_argument("what", choices=("plans", "fixes"))
    parser.add_argument("--planes", required=True)
    parser.add_argument("--seeds", required=True, help="first and last, as in 0-21")
    parser.add_argument("--cases", type=int, default=8, help="submissions on each cluster")
    parser.add_argument("--drawing", choices=sorted(_DRAWINGS))
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    drawing = None if given.drawing is None else _DRAWINGS[given.drawing]
    first, _, last = given.seeds.partition("-")
    for seed in range(int(first), int(last or first) + 1):
        with given.out.open("a") as out:
            _play(given.what, given.planes, seed, given.cases, drawing, out)


def _play(
    what: str, planes: str, seed: int, cases: int, drawing: Drawing | None, out: TextIO
) -> None:
    def told_plan(case: Case) -> None:
        said = {"where": case.where, "verdict": case.verdict, "same": not case.differs}
        _write(out, said | ({"differs": msgspec.to_builtins(case)} if case.differs else {}))

    def told_fix(case: FixCase) -> None:
        change = None if case.fix is None else str(case.fix.change)
        failed = case.fix is not None and not case.starts
        said = {"where": case.where, "change": change, "same": not failed}
        _write(out, said | ({"differs": msgspec.to_builtins(case)} if failed else {}))

    with (
        tempfile.TemporaryDirectory() as folder,
        asyncio.Runner(loop_factory=VirtualTimeLoop) as runner,
    ):
        try:
            if what == "plans":
                playing = proven(Path(folder), seed, planes, cases, drawing=drawing, tell=told_plan)
                runner.run(playing)
            else:
                runner.run(
                    played_fixes(Path(folder), seed, planes, cases, drawing=drawing, tell=told_fix)
                )
        except Exception:
            _write(out, {"where": f"{planes} seed {seed}", "failure": traceback.format_exc()})


def _write(out: TextIO, line: Any) -> None:
    print(json.dumps(line, default=list), file=out, flush=True)


if __name__ == "__main__":
    main()
