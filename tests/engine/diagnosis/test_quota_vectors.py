"""Who waits in a published case has one reason, and it agrees with the condition recorded there."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from reprieve.engine.diagnosis.quota import diagnose
from reprieve.engine.diagnosis.quota_trial import QuotaFacts
from reprieve.engine.diagnosis.reasons import Reason
from tests.conformance.conftest import DEFAULT
from tests.conformance.quota_runners import Scheduler
from tests.conformance.world import Json

KINDS = ("scheduler", "schedulerGenerated")
#: What may be told where the condition `QuotaReserved` was recorded with a reason.
AGREES = {
    "WaitingForQuota": {Reason.HELD_BY_OTHERS},
    "ExceedsMaxQuota": {Reason.NEVER_FITS},
    "NoMatchingFlavor": {Reason.NO_FLAVOR_MATCHES},
    "WaitingForPreemptedWorkloads": {Reason.VICTIMS_LEAVING},
    "AdmissionGated": {Reason.CHECKS_OPEN},
    "Misconfigured": {Reason.INACTIVE, Reason.NAMESPACE_NOT_ALLOWED, Reason.INVALID},
}


def cases(folder: Path) -> list[Json]:
    return [
        case
        for path in sorted(folder.glob("*.json"))
        for case in json.loads(path.read_text())
        if isinstance(case, dict) and case.get("kind") in KINDS
    ]


def test_every_recorded_condition_agrees_with_the_one_reason(
    request: pytest.FixtureRequest,
) -> None:
    given = request.config.getoption("vectors", default=None)
    folder = (Path(given) if given else DEFAULT) / "quota"
    if not folder.is_dir():
        pytest.skip("there are no vectors of the quota plane beside the project")
    seen: Counter[str] = Counter()
    wrong = []
    for case in cases(folder):
        scheduler = Scheduler(case)
        result = scheduler.cycle()
        entries = {entry.workload.key: entry for entry in result.entries}
        for key, recorded in conditions(case).items():
            workload = scheduler.queues.workload(key)
            if workload is None or key not in entries:
                continue
            facts = QuotaFacts(
                scheduler.holdings, scheduler.queues, scheduler.now, entry=entries[key]
            )
            found = diagnose(facts, workload)
            seen[recorded] += 1
            if found is None or found.reason not in AGREES[recorded]:
                wrong.append((case["name"], key, recorded, found and found.reason))
    assert wrong == []
    assert seen["WaitingForQuota"] >= 100 and len(seen) >= 5, seen


def conditions(case: Json) -> dict[str, str]:
    """Return the recorded reasons of `QuotaReserved=False`, by key."""
    expect = case["expect"]
    found = {}
    for each in [*(expect.get("workloads") or ()), *(expect.get("changedWorkloads") or ())]:
        for condition in (each.get("status") or {}).get("conditions") or ():
            if (condition["type"], condition["status"]) == ("QuotaReserved", "False"):
                metadata = each["metadata"]
                found[f"{metadata['namespace']}/{metadata['name']}"] = condition["reason"]
    return found
