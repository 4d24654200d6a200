"""CPU time of telling tenants: one Disruption after another, written to an API server.

    python -m bench.telling [--quick]

The API server is the embedded one in another process; what is measured is this process, which does
what the operator does for each displaced unit: read the record, count, encode, send, note. Checked:
all of them are there in the end.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.measuring import other_process, print_line
from bench.quota_server import OPERATOR_NAMESPACE
from bench.quota_shapes import QUICK
from kubeworld.units.clock import Clock, SystemClock
from kubeworld.units.durations import MINUTE
from kubeworld.units.instants import Nanos, format_instant
from reprieve.api.reprieve import (
    Metadata,
    ObjectRef,
    Preemption,
    PreemptionSpec,
    Proof,
    Victim,
    VictimState,
    VictimStatus,
)
from reprieve.execution.accounts.disruptions import Disruptions
from reprieve.execution.fence import Fence
from reprieve.kube.client import connect
from reprieve.kube.credentials import load_connection
from reprieve.kube.resource import DISRUPTIONS
from reprieve.operator.collector import relax_collector
from reprieve.telemetry.metrics import Metrics

_SPACE: Final = "default"
_AT_ONCE: Final = 8


@dataclass
class _Held:
    """A lease that is always held."""

    clock: Clock
    identity: str = "bench"
    epoch: int = 1

    @property
    def held_until(self) -> Nanos:
        """Return an end that does not come."""
        return Nanos(self.clock.monotonic() + MINUTE)


def _plan(number: int, now: Nanos) -> Preemption:
    """Return the record of a plan with one victim, for work of the same namespace."""
    victim = ObjectRef("batch/v1", "Job", f"job-{number}", f"uid-{number}", _SPACE)
    preemptor = ObjectRef("batch/v1", "Job", "preemptor", "preemptor", _SPACE)
    return Preemption(
        Metadata(f"plan-{number}", OPERATOR_NAMESPACE),
        PreemptionSpec(
            "quota",
            f"plan-{number}",
            0,
            Proof("quota"),
            [Victim(victim, victim, {}, "InClusterQueue", lineage=f"owner/{number % 500}")],
            format_instant(now),
            preemptor,
        ),
    )


async def _run(count: int) -> None:
    clock, metrics = SystemClock(), Metrics()
    with tempfile.TemporaryDirectory() as folder:
        kubeconfig = Path(folder) / "kubeconfig"
        with other_process("bench.quota_server", QUICK.name, str(kubeconfig)):
            client = connect(await load_connection(str(kubeconfig)), clock)
            fence = Fence(_Held(clock), clock, MINUTE)
            reported = Disruptions(client, OPERATOR_NAMESPACE, fence, clock, metrics)
            plans = [_plan(number, clock.wall()) for number in range(count)]
            slots = asyncio.Semaphore(_AT_ONCE)

            async def report(plan: Preemption) -> None:
                uid = plan.spec.victims[0].root.uid
                state = VictimStatus(uid, VictimState.EVICTED, plan.spec.decided_at)
                async with slots:
                    await reported.report(plan, {uid: state}, {})

            await report(plans[0])
            start = time.process_time()
            await asyncio.gather(*map(report, plans[1:]))
            cpu = time.process_time() - start
            found = await client.list(DISRUPTIONS, dict, namespace=_SPACE)
            assert len(found.items) == count, len(found.items)
            await client.close()
    print_line("telling", f"{count}-units", cpu_us_per_unit=round(cpu / (count - 1) * 1e6, 1))


def main(arguments: list[str] | None = None) -> int:
    """Run it; a wrong result is an AssertionError."""
    parser = argparse.ArgumentParser(prog="python -m bench.telling", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few")
    chosen = parser.parse_args(arguments)
    relax_collector()
    asyncio.run(_run(20 if chosen.quick else 2_000))
    return 0


if __name__ == "__main__":
    sys.exit(main())
