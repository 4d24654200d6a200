"""A study in shards: each makes some of its runs, wherever, and what they came to is merged.

Shard I of N (counted from 0, as an Indexed Job counts its pods) has every N-th run from the I-th
on, so that traces, loads and policies are spread over all. A shard leaves in its folder

    shard-I-of-N.jsonl         a line that names the study, then one for each of its runs
    decisions-NNNNNN.jsonl     what was decided in run NNNNNN

and the first of them last, under its name only when it is whole: a shard that was killed has left
nothing that counts, and is run again. `read_shards` gives what all runs came to, in the order of
the study; results that are made of it are those of a study that was made in one piece.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

import reprieve
from kubeworld.units.untrusted import Unreadable, read_integer
from reprieve.simulation.reporting.budget_costs import TenantCosts
from reprieve.simulation.reporting.measures import Measures
from reprieve.simulation.runs import Failed, Outcome, Run, Submitted, decisions_file
from reprieve.simulation.study import Study
from reprieve.units.errors import UsageError

__all__ = ["Shard", "read_shard", "read_shards", "write_shard"]

MOST_SHARDS: Final = 10_000
_NAME: Final = re.compile(r"shard-[0-9]{1,5}+-of-[0-9]{1,5}+\.jsonl", re.ASCII)


@dataclass(frozen=True, slots=True)
class Shard:
    """Which shard, from 0 on, and of how many."""

    index: int
    count: int

    @property
    def name(self) -> str:
        """The name of its file."""
        return f"shard-{self.index}-of-{self.count}.jsonl"

    def runs(self, runs: Iterable[Run]) -> list[Run]:
        """Return the runs of this shard."""
        return [run for run in runs if run.number % self.count == self.index]


class _Header(msgspec.Struct, frozen=True):
    """Of which study a shard is: its text, what traces it names, and who replayed it."""

    study: str
    program: str
    shard: int
    shards: int
    runs: int


class _Row(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one run came to; `why` where it did not come to an end."""

    run: int
    submitted: Submitted | None = None
    measures: Measures | None = None
    cpu_s: float = 0.0
    stories: str = ""
    why: str = ""
    costs: TenantCosts = TenantCosts()


def read_shard(text: str) -> Shard:
    """Return the shard of a text such as `2/8`.

    Raises:
        UsageError: it is none.
    """
    index, _, count = text.partition("/")
    try:
        shard = Shard(read_integer(index, 0, MOST_SHARDS), read_integer(count, 1, MOST_SHARDS))
    except Unreadable:
        shard = Shard(1, 1)
    if shard.index >= shard.count:
        raise UsageError(f"--shard: {text!r}; accepted: I/N with I from 0 to N-1, such as 0/4")
    return shard


def write_shard(
    folder: Path, study: Study, shard: Shard, runs: Sequence[Run], ended: Iterable[Outcome | Failed]
) -> Path:
    """Write what the runs of a shard came to; return the file.

    Raises:
        UsageError: it cannot be written.
    """
    header = _Header(
        _digest(study, runs), reprieve.__version__, shard.index, shard.count, len(runs)
    )
    lines = [msgspec.json.encode(header)]
    lines += [
        msgspec.json.encode(_row(each)) for each in sorted(ended, key=lambda each: each.run.number)
    ]
    path = folder / shard.name
    part = path.with_suffix(".part")
    try:
        part.write_bytes(b"\n".join(lines) + b"\n")
        part.replace(path)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; accepted: a folder to write to") from None
    return path


def read_shards(
    folder: Path, study: Study, runs: Sequence[Run]
) -> tuple[list[Outcome | Failed], list[str]]:
    """Return what the runs of all shards came to, and what is missing.

    Raises:
        UsageError: there are none, or of another study, or they contradict each other.
    """
    files = sorted(each for each in _entries(folder) if _NAME.fullmatch(each.name))
    if not files:
        raise UsageError(f"--merge {folder}: accepted: a folder with files shard-I-of-N.jsonl")
    ended: dict[int, Outcome | Failed] = {}
    counts: dict[int, set[int]] = {}
    for path in files:
        header, rows = _content(path)
        if header.study != _digest(study, runs) or header.program != reprieve.__version__:
            raise UsageError(
                f"{path}: of another study, or of reprieve {header.program}; accepted: shards of "
                f"{study.name} as it is, of reprieve {reprieve.__version__}"
            )
        counts.setdefault(header.shards, set()).add(header.shard)
        for row in rows:
            if row.run >= len(runs) or row.run in ended:
                raise UsageError(
                    f"{path}: run {row.run} is twice there, or not in the study; accepted: "
                    "the files of one division of the study, each shard once"
                )
            ended[row.run] = _ended(row, runs[row.run], folder)
    if len(counts) > 1:
        raise UsageError(
            f"--merge {folder}: shards of {' and of '.join(map(str, sorted(counts)))}; accepted: "
            "those of one division"
        )
    ((count, there),) = counts.items()
    missing = [f"shard {index}/{count}" for index in range(count) if index not in there]
    return [ended[number] for number in sorted(ended)], missing


def _digest(study: Study, runs: Sequence[Run]) -> str:
    """Return a text that differs for studies with other runs."""
    said = [study.text, str(study.cluster)]
    said += [f"{run.trace}/{run.seed}/{run.load}/{run.policy.name}" for run in runs]
    return hashlib.sha256("\0".join(said).encode()).hexdigest()


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError as error:
        raise UsageError(f"--merge {folder}: {error.strerror}; accepted: a folder") from None


def _content(path: Path) -> tuple[_Header, list[_Row]]:
    try:
        first, *rest = path.read_bytes().splitlines()
        decoder = msgspec.json.Decoder(_Row)
        return msgspec.json.decode(first, type=_Header), [decoder.decode(line) for line in rest]
    except (OSError, ValueError, msgspec.DecodeError) as error:
        raise UsageError(f"{path}: {error}; accepted: a file that --shard wrote") from None


def _row(ended: Outcome | Failed) -> _Row:
    if isinstance(ended, Failed):
        return _Row(ended.run.number, why=ended.why)
    said = ended.submitted, ended.measures, ended.cpu_s, ended.stories
    return _Row(ended.run.number, *said, costs=ended.costs)


def _ended(row: _Row, run: Run, folder: Path) -> Outcome | Failed:
    if row.submitted is None or row.measures is None:
        return Failed(run, row.why)
    file = decisions_file(folder, run)
    return Outcome(
        run,
        row.submitted,
        row.measures,
        row.cpu_s,
        file if file.is_file() else None,
        row.stories,
        row.costs,
    )
