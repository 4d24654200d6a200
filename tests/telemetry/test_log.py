"""Log lines in both forms."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from kubeworld.units.clock import VirtualClock
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.telemetry.log import start_logging


@pytest.fixture(autouse=True)
def _levels() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("reprieve")
    levels = root.level, ours.level
    yield
    root.setLevel(levels[0])
    ours.setLevel(levels[1])


class Log:
    """Collects what is written in one form."""

    def __init__(self, form: str, level: int = logging.INFO) -> None:
        self._stream = io.StringIO()
        self.clock = VirtualClock(Nanos(1_772_619_300_123_456_789))
        self._handler = start_logging(form, self.clock, level, stream=self._stream)

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger().removeHandler(self._handler)

    def lines(self) -> list[str]:
        return self._stream.getvalue().splitlines()


log = logging.getLogger("reprieve.test")


def test_text_lines_end_with_the_fields() -> None:
    with Log("text") as written:
        log.info("marked %d", 2, extra={"plan": "1a2b", "reason": 'idle for "12m"'})
    (line,) = written.lines()
    assert line == (
        "2026-03-04T10:15:00.123Z INFO reprieve.test: marked 2 plan=1a2b"
        ' reason="idle for \\"12m\\""'
    )


def test_json_lines_hold_the_fields_as_members() -> None:
    with Log("json") as written:
        log.warning("marked %d", 2, extra={"plan": "1a2b", "gpus": 4})
    assert [json.loads(line) for line in written.lines()] == [
        {
            "time": "2026-03-04T10:15:00.123Z",
            "level": "warning",
            "logger": "reprieve.test",
            "message": "marked 2",
            "plan": "1a2b",
            "gpus": 4,
        }
    ]


@pytest.mark.parametrize("form", ["text", "json"])
def test_one_record_is_one_line_whatever_a_tenant_wrote(form: str) -> None:
    with Log(form) as written:
        log.warning("pod %s", "a\n2026-03-04 ERROR forged", extra={"name_of_pod": "b\r\nc"})
    assert len(written.lines()) == 1


@pytest.mark.parametrize("form", ["text", "json"])
def test_no_control_character_reaches_the_terminal_that_shows_a_line(form: str) -> None:
    controls = "".join(map(chr, (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)))
    with Log(form) as written:
        log.warning("pod %s", f"\x1b[0m{controls}", extra={"root": f"a{controls}"})
    (line,) = written.lines()
    assert not set(controls) & set(line)
    assert "\\u001b[0m" in line
    assert "\\u009b" in line


@pytest.mark.parametrize("form", ["text", "json"])
def test_no_traceback_forges_a_line_or_steers_the_terminal(form: str) -> None:
    controls = "".join(map(chr, (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)))
    with Log(form) as written:
        try:
            raise ValueError(f"no number: {controls}\n2026-03-04T10:15:00.123Z ERROR forged")
        except ValueError:
            log.exception("evaluation failed")
    told, *trace = written.lines()
    assert "evaluation failed" in told
    assert all(line.startswith("  ") for line in trace)
    assert not set(controls) & set("".join((told, *trace)))
    assert "ERROR forged" in "".join((told, *trace))


def test_a_traceback_is_a_member_in_json() -> None:
    with Log("json") as written:
        try:
            raise ValueError("our bug")
        except ValueError:
            log.exception("evaluation failed")
    (entry,) = (json.loads(line) for line in written.lines())
    assert entry["message"] == "evaluation failed"
    assert "ValueError: our bug" in entry["traceback"]


def test_other_libraries_are_heard_from_warnings_on() -> None:
    with Log("text") as written:
        logging.getLogger("other").info("quiet")
        logging.getLogger("other").warning("loud")
        log.debug("too much")
    assert [line.split(": ")[1] for line in written.lines()] == ["loud"]


@pytest.mark.parametrize("level", [logging.INFO, logging.DEBUG])
def test_a_connection_that_the_peer_closed_is_no_error(level: int) -> None:
    # What uvloop 0.23 says where TLS has bytes left for it.
    closed = RuntimeError("unable to perform operation on <TCPTransport>; the handler is closed")
    other = logging.getLogger("asyncio")
    with Log("json") as written:
        logging.getLogger("reprieve").setLevel(level)
        other.error("Fatal error on SSL protocol", exc_info=closed)
        other.error("Fatal error on SSL protocol", exc_info=RuntimeError("unknown state"))
        log.error("failed", exc_info=closed)
    said = [json.loads(line) for line in written.lines()]
    ours = [(each["logger"], "unknown state" in each["traceback"]) for each in said]
    expected = [("asyncio", False), ("asyncio", True), ("reprieve.test", False)]
    assert ours == (expected if level == logging.DEBUG else expected[1:])


@pytest.mark.parametrize("form", ["text", "json"])
async def test_a_fault_that_lasts_is_one_line_a_minute_however_often_it_is_tried(form: str) -> None:
    """Two causes alternate every second for ten minutes; what is left out is counted."""
    causes = ("the webhook refuses it", "503 from the API server")
    with Log(form) as written:
        for second in range(600):
            cause = causes[second // 2 % 2]
            log.warning("plan %d is not written: %s", 1, cause)
            try:
                raise ValueError(cause)
            except ValueError:
                log.exception("plan 1 is skipped")
            await written.clock.advance(SECOND)
    lines = [line for line in written.lines() if "plan 1" in line]
    warnings = [line for line in lines if "is not written" in line]
    for cause in causes:
        assert len([line for line in warnings if cause in line]) == 10
    assert len(lines) - len(warnings) == 2 * 10  # exceptions, of which each cause is one
    assert sum("repeated" in line for line in lines) == 4 * 9


async def test_faults_of_different_objects_and_what_is_no_fault_are_all_written() -> None:
    with Log("text") as written:
        for number in range(5):
            log.warning("pod %d is not evicted", number)
            log.warning("is not evicted", extra={"pod": number})
            log.info("a decision")
    assert len(written.lines()) == 15


async def test_with_verbosity_nothing_is_left_out() -> None:
    with Log("text", logging.DEBUG) as written:
        for _ in range(5):
            log.warning("again")
    assert len(written.lines()) == 5
