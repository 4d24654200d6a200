"""Files that somebody hands out, made to stop who reads them: a snapshot, a log, a record."""

from __future__ import annotations

import gzip
from pathlib import Path

import msgspec
import pytest

from reprieve.answers.record_sources import record_of_file, records_of_file
from reprieve.telemetry.decision_history import lines_of_log
from reprieve.units.errors import UsageError
from reprieve.whatif.snapshot import Snapshot
from reprieve.whatif.stored import snapshot_of_bytes, stored_bytes

DEEP = "[" * 3000 + "]" * 3000


def test_a_snapshot_that_is_nested_thousands_of_levels_is_damaged() -> None:
    stored = msgspec.json.decode(gzip.decompress(stored_bytes(Snapshot(0, {}))))  # type: ignore[arg-type]
    stored["single"] = {"/x": "HERE"}
    text = msgspec.json.encode(stored).replace(b'"HERE"', DEEP.encode())
    with pytest.raises(
        UsageError, match=r"^FILE: .*recursion.*; accepted: a file of reprieve snapshot"
    ):
        snapshot_of_bytes(gzip.compress(text), "FILE")


def test_a_small_snapshot_that_unpacks_to_more_than_memory_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("reprieve.whatif.stored._LARGEST", 2**20)
    packed = gzip.compress(b" " * (2**20 + 1))
    assert len(packed) < 2000
    with pytest.raises(UsageError) as refused:
        snapshot_of_bytes(packed, "FILE")
    assert str(refused.value) == "FILE: too large; accepted: at most 1048576 bytes unpacked"


def test_a_line_of_a_log_that_is_nested_thousands_of_levels_costs_itself_alone(
    tmp_path: Path,
) -> None:
    path = tmp_path / "log"
    good = '{"time": "2026-01-01T00:00:00Z", "name": "train"}'
    path.write_text(f'{good}\n{{"time": "", "input": {{"a": {DEEP}}}}}\n{good}\n')
    read = list(lines_of_log(path))
    assert [None if line is None else line.name for line in read] == ["train", None, "train"]


def test_a_record_with_half_a_character_is_told_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    path.write_text('{"kind": "Preemption", "metadata": "\\ud800", "spec": {}}')
    with pytest.raises(UsageError, match="not a Preemption: 'utf-8' codec"):
        record_of_file(str(path), None)
    records, unread = records_of_file(str(path))
    assert (records, len(unread)) == ([], 1)
