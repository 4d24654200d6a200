"""`python -m bench.decision_log [--quick]`: what the decision log takes of a busy operator.

A thousand units are refused each second for a minute, each time for another reason, with samples
of an input of a thousand rows as they become due; lines go to a file, beside the work. Told are the
CPU time of the process for that, its share of one core over the minute, and the bytes written.
Checked: every line can be read again.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from random import Random

import msgspec

from bench.measuring import print_line
from kubeworld.units.clock import SystemClock
from reprieve.engine.diagnosis.model import Diagnosis
from reprieve.engine.diagnosis.reasons import Reason
from reprieve.engine.plan import Plane
from reprieve.records.idle.record import packed
from reprieve.telemetry.decision_history import lines_of_log
from reprieve.telemetry.decision_log import decision_log
from reprieve.telemetry.metrics import Metrics
from reprieve.units.ids import Uid
from reprieve.units.references import Reference

_A_SECOND = 1_000
_HELD = {"what": "6 nvidia.com/gpu in flavor h100"}


def main() -> None:
    seconds = 2 if "--quick" in sys.argv[1:] else 60
    clock = SystemClock()
    units = [
        Reference(
            "kueue.x-k8s.io/v1beta2",
            "Workload",
            f"team-{number % 40}",
            f"job-train-{number}-0a1b2",
            Uid(f"3f9d2c1e-7b64-4d1a-9c55-{number:012d}"),
        )
        for number in range(_A_SECOND)
    ]
    said = [
        Diagnosis(Plane.QUOTA, reason, values)
        for reason, values in ((Reason.HELD_BY_OTHERS, _HELD), (Reason.BEHIND_HEAD, {}))
    ]
    random = Random(1)
    rows = [{"name": f"job-{i}", "uid": random.getrandbits(128), "gpus": 8} for i in range(1_000)]
    recorded = msgspec.json.encode([{**each, "uid": f"{each['uid']:032x}"} for each in rows])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "decisions.log"
        used, samples = 0.0, 0
        with decision_log(str(path), clock, Metrics()) as log:
            assert log is not None
            for second in range(seconds):
                began, start = time.process_time(), time.monotonic()
                for unit in units:
                    log.waits(unit.uid, unit, said[second % 2])
                    if log.samples.is_due():
                        samples += 1
                        log.decided_on(
                            Plane.QUOTA,
                            unit,
                            said[second % 2].reason,
                            packed(recorded, "1000 rows"),
                        )
                time.sleep(max(0.0, 1.0 - (time.monotonic() - start)))
                used += time.process_time() - began
        lines = list(lines_of_log(path))
        size = path.stat().st_size
    assert len(lines) == seconds * _A_SECOND + samples and None not in lines
    print_line(
        "decision_log",
        f"{_A_SECOND}-a-second-{seconds}-s",
        cpu_ms=round(used * 1e3, 1),
        percent_of_a_core=round(used / seconds * 100, 2),
        mib=round(size / 2**20, 2),
        samples=samples,
    )


if __name__ == "__main__":
    main()
