"""Log lines for people (text) or for machines (JSON), with the fields of `extra`.

`log.info("...", extra={"plan": plan.id})` gives `... plan=1a2b` in text and a member `plan` in
JSON. Times are the injected clock's wall time, so that a scenario's log has the scenario's times.

A fault that lasts is one line a minute, however often what fails is tried again: of equal warnings
and errors the first is written, and then one a minute, with the number of those left out before it
(`repeated`). With `-v 4` all are written.
"""

from __future__ import annotations

import json
import logging
import sys
from collections import OrderedDict
from datetime import UTC, datetime
from typing import Any, Final, TextIO

from kubeworld.units.clock import Clock
from kubeworld.units.durations import MINUTE

__all__ = ["DETAIL", "FORMATS", "JsonFormatter", "TextFormatter", "level_of", "start_logging"]

#: Below DEBUG: each single step of a decision.
DETAIL: Final = 5

# What every record has; all other attributes are fields that the caller gave.
_OWN: Final = frozenset(
    (*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", "color_message")
)
# Control characters and what some viewers treat as the end of a line, as they are escaped.
_CONTROLS: Final = {
    code: json.dumps(chr(code))[1:-1] if code < 0x20 else f"\\u{code:04x}"
    for code in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)
}


#: As many texts are known; a cluster with more faults at a time has lines of each more often.
_MOST_TEXTS: Final = 2_000


class _OncePerMinute:
    """A filter that leaves out a warning or error that was written less than a minute ago."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # When each was written last, and how many were left out since; that written last is last.
        self._written: OrderedDict[object, list[int]] = OrderedDict()

    def __call__(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING or _all_is_written():
            return True
        failure = repr(record.exc_info[1]) if record.exc_info else ""
        fields = tuple(sorted((key, str(value)) for key, value in _fields(record).items()))
        key = record.name, record.levelno, record.getMessage(), failure, fields
        now, known = self._clock.monotonic(), self._written.get(key)
        if known is not None and now - known[0] < MINUTE:
            known[1] += 1
            return False
        if known is not None and known[1]:
            record.repeated = known[1]
        self._written[key] = [now, 0]
        self._written.move_to_end(key)
        if len(self._written) > _MOST_TEXTS:
            self._written.popitem(last=False)
        return True


def _all_is_written() -> bool:
    return logging.getLogger("reprieve").isEnabledFor(logging.DEBUG)


class TextFormatter(logging.Formatter):
    """`2026-03-04T10:15:00.000Z INFO reprieve.scraper: words key=value`."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def format(self, record: logging.LogRecord) -> str:
        line = f"{_time(self._clock)} {record.levelname} {record.name}: {record.getMessage()}"
        for key, value in _fields(record).items():
            text = str(value)
            quoted = not text or any(letter in text for letter in ' "=\n')
            line += f" {key}={json.dumps(text, ensure_ascii=False) if quoted else text}"
        # One record is one line: a message must not be able to forge the next, nor to steer the
        # terminal that shows it.
        line = line.translate(_CONTROLS)
        if record.exc_info:
            # Nor must that of an exception: a traceback's lines are known by their indentation.
            for each in self.formatException(record.exc_info).split("\n"):
                line += f"\n  {each.translate(_CONTROLS)}"
        return line


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, logger, message, the fields, and traceback if any."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "time": _time(self._clock),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        for key, value in _fields(record).items():
            entry.setdefault(key, value)
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False, default=str).translate(_CONTROLS)


FORMATS: Final = {"text": TextFormatter, "json": JsonFormatter}


def level_of(verbosity: int) -> int:
    """Return the level for `-v N` in Kubernetes' sense: 4 and 5 debug, from 6 on every detail."""
    if verbosity >= 6:
        return DETAIL
    return logging.DEBUG if verbosity >= 4 else logging.INFO


def start_logging(
    form: str, clock: Clock, level: int = logging.INFO, stream: TextIO | None = None
) -> logging.Handler:
    """Send the records of `reprieve` and warnings of all others to `stream` (standard error).

    `form`: `text` or `json`. Returns the handler, for a caller that wants to remove it again.
    """
    logging.addLevelName(DETAIL, "DETAIL")
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(FORMATS[form](clock))
    handler.addFilter(_is_news)
    handler.addFilter(_OncePerMinute(clock))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger("reprieve").setLevel(level)
    return handler


def _is_news(record: logging.LogRecord) -> bool:
    """Return whether a record states more than that the peer closed a connection of ours.

    uvloop reports a fault when TLS has bytes left for a connection that is closed already. A caller
    that waited for an answer on it has an error of its own.
    """
    failure = record.exc_info[1] if record.exc_info else None
    closed = (
        record.name == "asyncio"
        and isinstance(failure, RuntimeError)
        and str(failure).endswith("the handler is closed")
    )
    return not closed or _all_is_written()


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    return {key: value for key, value in vars(record).items() if key not in _OWN}


def _time(clock: Clock) -> str:
    seconds, nanoseconds = divmod(clock.wall(), 1_000_000_000)
    moment = datetime.fromtimestamp(seconds, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{nanoseconds // 1_000_000:03d}Z"
