"""Files that somebody hands out, made to stop who reads them: a snapshot, a log, a record."""

from __future__ import annotations

import gzip
import tracemalloc
from pathlib import Path

import msgspec
import pytest

from reprieve.answers.preemptions.record_sources import record_of_file, records_of_file
from reprieve.telemetry.decision_history import lines_of_log
from reprieve.units.errors import UsageError
from reprieve.whatif.snapshots.snapshot import Snapshot
from reprieve.whatif.snapshots.stored import snapshot_of_bytes, stored_bytes

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
    monkeypatch.setattr("reprieve.whatif.snapshots.stored._LARGEST", 2**20)
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


@pytest.mark.parametrize("end", ["\n", ""])
@pytest.mark.parametrize("beyond", [-1, 0, 1, 5, 2**20 - 1, 2**20, 2**20 + 1, 2**22])
def test_a_line_of_a_log_of_more_than_a_mebibyte_costs_itself_alone(
    tmp_path: Path, beyond: int, end: str
) -> None:
    path = tmp_path / "log"
    good = '{"time": "2026-01-01T00:00:00Z", "name": "train"}'
    head = '{"time": "2026-01-01T00:00:00Z", "name": "long", "sentence": "'
    tail = f'"}}{end}'
    long = head + "x" * (2**20 + beyond - len(head) - len(tail)) + tail
    for text, names in (
        (f"{good}\n{long}", ["train", "long"]),
        (f"{good}\n{long}{good}\n" if end else "", ["train", "long", "train"]),
    ):
        path.write_text(text)
        read = list(lines_of_log(path))
        # A whole mebibyte without an end may be the beginning of any line.
        skipped = beyond > 0 or (beyond == 0 and not end)
        wanted = [None if name == "long" and skipped else name for name in names if text]
        assert [None if line is None else line.name for line in read] == wanted


def test_an_endless_line_of_a_log_takes_no_more_memory_than_a_long_one(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("wb") as content:
        content.truncate(2**27)  # of zeros, which take no room on the disk
        content.seek(0, 2)
        content.write(b'\n{"time": "2026-01-01T00:00:00Z", "name": "train"}\n')
    tracemalloc.start()
    try:
        read = list(lines_of_log(path))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [None if line is None else line.name for line in read] == [None, "train"]
    assert most < 8 * 2**20


def test_a_record_with_half_a_character_is_told_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    path.write_text('{"kind": "Preemption", "metadata": "\\ud800", "spec": {}}')
    with pytest.raises(UsageError, match="not a Preemption: 'utf-8' codec"):
        record_of_file(str(path), None)
    records, unread = records_of_file(str(path))
    assert (records, len(unread)) == ([], 1)
