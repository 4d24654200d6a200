"""The decision log: what its lines say, and that writing them never holds up the work."""

from __future__ import annotations

import errno
import json
import logging
import os
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from kubeworld.units.clock import SystemClock
from reprieve.engine.diagnosis.model import Diagnosis
from reprieve.engine.diagnosis.reasons import Reason
from reprieve.engine.plan import Plane
from reprieve.telemetry.decision_log import DecisionLog, decision_log
from reprieve.telemetry.line_writer import LineWriter, RotatedFile
from reprieve.telemetry.metrics import Metrics
from reprieve.units.errors import UsageError
from reprieve.units.ids import Uid
from reprieve.units.references import Reference

TRAIN = Reference("v1", "Pod", "team", "train\x9b\u2028", Uid("u-1"))
FULL = Diagnosis(Plane.SCHEDULING, Reason.FULL)
LEAVING = Diagnosis(Plane.SCHEDULING, Reason.VICTIMS_LEAVING)


def lines(*texts: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for text in texts for line in text.splitlines()]


def words(found: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(each["previous"], each["reason"]) for each in found]


def lost(metrics: Metrics, reason: str) -> float:
    name = "reprieve_decision_log_dropped_total"
    return metrics.registry.get_sample_value(name, {"reason": reason}) or 0.0


def test_a_unit_has_one_line_for_each_new_reason_and_one_when_it_waits_no_longer() -> None:
    written: list[bytes] = []
    log = DecisionLog(SystemClock(), written.append)
    log.waits_no_longer(Plane.SCHEDULING, "k")
    for each in (FULL, FULL, LEAVING):
        log.waits("k", TRAIN, each)
    assert log.reason(Plane.SCHEDULING, "k") is Reason.VICTIMS_LEAVING
    for _ in range(2):
        log.waits_no_longer(Plane.SCHEDULING, "k")
    assert log.reason(Plane.SCHEDULING, "k") is None
    found = lines(*written)
    assert words(found) == [("", "Full"), ("Full", "VictimsLeaving"), ("VictimsLeaving", "")]
    assert found[-1] == {
        "time": found[-1]["time"],
        "plane": "scheduling",
        "kind": "Pod",
        "namespace": "team",
        "name": "train\x9b\u2028",
        "uid": "u-1",
        "reason": "",
        "previous": "VictimsLeaving",
        "sentence": "It waits no longer",
    }
    assert all(text.isascii() and text.count(b"\n") == 1 for text in written)


def test_another_object_of_the_same_name_begins_anew() -> None:
    written: list[bytes] = []
    log = DecisionLog(SystemClock(), written.append)
    log.waits("k", TRAIN, FULL)
    log.waits("k", Reference("v1", "Pod", "team", "train", Uid("u-2")), FULL)
    found = lines(*written)
    assert words(found) == [("", "Full"), ("Full", ""), ("", "Full")]
    assert [each["uid"] for each in found] == ["u-1", "u-1", "u-2"]


def test_a_file_is_renamed_before_it_grows_too_large_and_three_stay(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"0" * 9 + b"\n")
    file = RotatedFile(path, largest=20, kept=3)
    for number in range(1, 10):
        file.write(b"%d" % number * 9 + b"\n")
    file.close()
    found = {each.name: [line[:1] for line in each.read_text().split()] for each in _files(path)}
    assert found == {
        "log": ["8", "9"],
        "log.1": ["6", "7"],
        "log.2": ["4", "5"],
        "log.3": ["2", "3"],
    }
    assert stat.S_IMODE(path.stat().st_mode) & 0o007 == 0


def _files(path: Path) -> list[Path]:
    return sorted(path.parent.iterdir())


def test_a_disk_that_fills_costs_whole_lines_which_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write, room = os.write, [12]

    def filled(file: int, text: bytes) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        done = write(file, bytes(text)[: room[0]])
        room[0] -= done
        return done

    path = tmp_path / "log"
    file, counted = RotatedFile(path), list[tuple[int, str]]()
    told = LineWriter(
        file.write, lambda n: b"missing %d\n" % n, lambda n, why: counted.append((n, why))
    )
    monkeypatch.setattr("reprieve.telemetry.line_writer.os.write", filled)
    attempt = vars(LineWriter)["_try"]  # what the thread does with what waits
    with caplog.at_level(logging.WARNING):
        attempt(told, [b"first\n"], 0)
        attempt(told, [b"second\n", b"third\n"], 0)
        attempt(told, [b"fourth\n"], 0)
    assert path.read_bytes() == b"first\n"
    assert counted == [(2, "unwritten"), (1, "unwritten")]
    assert [record.getMessage().partition(";")[0] for record in caplog.records] == [
        "the decision log cannot be written: [Errno 28] No space left on device"
    ]
    room[0] = 1_000
    told.write(b"fifth\n")
    told.start()
    told.close(60)
    assert path.read_bytes() == b"first\nfifth\nmissing 3\n"


def test_what_finds_the_queue_full_is_dropped_and_the_log_says_how_much() -> None:
    written, counted = list[bytes](), list[tuple[int, str]]()
    told = LineWriter(
        written.append,
        lambda number: b"missing %d\n" % number,
        lambda number, why: counted.append((number, why)),
        most=20,
    )
    for number in range(5):
        told.write(b"line %d..\n" % number)
    told.start()
    told.close(60)
    assert b"".join(written) == b"line 0..\nline 1..\nmissing 3\n"
    assert counted == [(1, "full")] * 3


def test_a_reader_who_stopped_reading_keeps_nobody_from_ending() -> None:
    reads_again, written = threading.Event(), list[bytes]()

    def write(text: bytes) -> None:
        reads_again.wait()
        written.append(text)

    told = LineWriter(write, lambda _: b"", lambda _, __: None)
    told.start()
    told.write(b"line\n")
    told.close(0.01)
    assert written == []
    reads_again.set()
    told.close(60)
    assert written == [b"line\n"]


def test_a_log_is_appended_to_and_what_waits_is_written_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "log"
    metrics = Metrics()
    for _ in range(2):
        with decision_log(str(path), SystemClock(), metrics) as log:
            assert log is not None
            log.waits("k", TRAIN, FULL)
            log.waits("k", TRAIN, LEAVING)
    assert words(lines(path.read_bytes())) == [("", "Full"), ("Full", "VictimsLeaving")] * 2
    assert lost(metrics, "full") == lost(metrics, "unwritten") == 0
    with decision_log(None, SystemClock(), metrics) as log:
        assert log is None


def test_a_dash_is_standard_output(capfd: pytest.CaptureFixture[str]) -> None:
    with decision_log("-", SystemClock(), Metrics()) as log:
        assert log is not None
        log.waits("k", TRAIN, FULL)
    assert words(lines(capfd.readouterr().out.encode())) == [("", "Full")]


def test_a_standard_output_that_nobody_reads_any_more_is_counted_and_ends_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    metrics = Metrics()
    monkeypatch.setattr("reprieve.telemetry.line_writer._STANDARD_OUTPUT", writing)
    with decision_log("-", SystemClock(), metrics) as log:
        assert log is not None
        log.waits("k", TRAIN, FULL)
    os.close(writing)
    assert lost(metrics, "unwritten") == 1


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("missing/log", "No such file or directory"),
        ("folder", "Is a directory"),
        ("pipe", "No such device or address"),
        ("nul\0l", ""),
        ("", "Is a directory"),
    ],
)
def test_what_cannot_be_written_is_refused_in_one_line(tmp_path: Path, name: str, why: str) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    where = f"{tmp_path}/{name}" if name else ""
    if "\0" in name:  # what Pythons say of it differs
        with pytest.raises(ValueError, match="embedded null") as own:
            os.open(where, os.O_WRONLY)
        why = str(own.value)
    with (
        pytest.raises(UsageError) as raised,
        decision_log(where, SystemClock(), Metrics()),
    ):
        pass
    assert str(raised.value) == (
        f"--decision-log: {where!r} cannot be written: {why}; accepted: a file, or - for "
        "standard output"
    )


def test_a_device_is_no_file() -> None:
    with pytest.raises(OSError, match="not a regular file"):
        RotatedFile(Path("/dev/full"))
