"""Faults are counted where they are logged with a traceback, and nowhere else."""

from __future__ import annotations

import logging

from reprieve.telemetry.faults import FaultCounter
from reprieve.telemetry.metrics import Metrics


def test_each_logged_fault_is_counted_under_the_part_that_says_it() -> None:
    metrics = Metrics()
    handler = FaultCounter(metrics.faults)
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        quota = logging.getLogger("reprieve.quota")
        quota.warning("a word of warning")
        quota.error("an error that no exception stands behind")
        try:
            raise ZeroDivisionError
        except ZeroDivisionError as fault:
            quota.exception("deciding about team/job failed")
            quota.error("the same, told later", exc_info=fault)
            logging.getLogger("reprieve.scheduling.preemptions").exception("a task failed")
            logging.getLogger("asyncio").exception("a task that nobody waited for")
    finally:
        root.removeHandler(handler)
    value = metrics.registry.get_sample_value
    assert value("reprieve_faults_total", {"logger": "reprieve.quota"}) == 2
    assert value("reprieve_faults_total", {"logger": "reprieve.scheduling"}) == 1
    assert value("reprieve_faults_total", {"logger": "other"}) == 1
