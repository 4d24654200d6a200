"""Fuzz one reader of tenants' text, guided by coverage: `python -m tests.fuzz TARGET [option...]`.

The options are libFuzzer's, such as `-max_total_time=600`; what is found is written into the
current folder and belongs into `tests/fuzz/corpus/TARGET`, once mended.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["reprieve", "tests.fuzz"]):
    from tests.fuzz.targets import TARGETS

CORPUS = Path(__file__).parent / "corpus"


def main() -> None:
    if len(sys.argv) < 2 or sys.argv[1] not in TARGETS:
        sys.exit(f"usage: python -m tests.fuzz TARGET [option...]; TARGET: {', '.join(TARGETS)}")
    name = sys.argv.pop(1)
    grown = tempfile.mkdtemp(prefix=f"fuzz-{name}-")
    seeds = [str(CORPUS / name)] if (CORPUS / name).is_dir() else []
    defaults = ["-max_len=20000", "-timeout=5"]
    atheris.Setup([sys.argv[0], *defaults, *sys.argv[1:], grown, *seeds], TARGETS[name])
    atheris.Fuzz()


main()
