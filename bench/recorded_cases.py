"""Recorded cases of Kueue and kube-scheduler, each decided by the engine: the victims they say.

The cases are no part of the project; `tests/conformance` reads them. Of Kueue those are taken in
which targets are searched for, or whole cycles run; of kube-scheduler all that can be run. A case
says True where the outcome is the recorded one, None where it deviates on purpose and the oracle
agrees (`tests/conformance/DEVIATIONS.md`), False otherwise.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from tests.conformance import workload_aware_engine
from tests.conformance.quota_runners import RUNNERS
from tests.conformance.test_workload_aware_vectors import _as_the_oracle, _asserted
from tests.conformance.workload_aware_vectors import Vector, vectors_in

__all__ = ["kube_scheduler_cases", "kueue_cases"]

Case = Callable[[], bool | None]
_DECIDING: Final = (
    *("classical", "fair", "fair-hierarchical", "hierarchical"),
    *("scheduler", "schedulerGenerated", "schedulerTwoCycles"),
)


def kueue_cases(folder: Path) -> Iterator[Case]:
    """Yield the cases of the subfolder `quota`."""
    for path in sorted((folder / "quota").glob("*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        for case in document if isinstance(document, list) else ():
            if case.get("kind") in _DECIDING:
                yield partial(_kueue, case)


def kube_scheduler_cases(folder: Path) -> Iterator[Case]:
    """Yield the cases of the subfolder `workload-aware` that can be run."""
    for vector in vectors_in(folder / "workload-aware"):
        played = vector.id.startswith("integration_")
        if vector.kind in workload_aware_engine.FOUND and not vector.skip and not played:
            yield partial(_kube_scheduler, vector)


def _kueue(case: dict[str, Any]) -> bool:
    outcome, expected = RUNNERS[case["kind"]](case)
    return bool(outcome == expected)


def _kube_scheduler(vector: Vector) -> bool | None:
    asserted = _asserted(vector)
    if not workload_aware_engine.differences(asserted):
        return True
    return None if _as_the_oracle(asserted) else False
