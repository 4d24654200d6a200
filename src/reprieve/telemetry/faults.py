"""Counts faults of ours: whatever is logged with a traceback, by the logger that states it.

Every guard that continues after a fault logs it, so that one place counts them all.
"""

from __future__ import annotations

import logging
from typing import Final

from prometheus_client import Counter

__all__ = ["FaultCounter"]

_ROOT: Final = "reprieve"


class FaultCounter(logging.Handler):
    """A handler of the root logger; `faults` is labelled with the name of a logger."""

    def __init__(self, faults: Counter) -> None:
        super().__init__(logging.ERROR)
        self._faults = faults

    def emit(self, record: logging.LogRecord) -> None:
        """Count the record if it is of an exception, under the first two parts of its name."""
        if record.exc_info and record.exc_info[0] is not None:
            parts = record.name.split(".")
            self._faults.labels(".".join(parts[:2]) if parts[0] == _ROOT else "other").inc()
