"""Candidates on which an order of victims is tried before it decides."""

from __future__ import annotations

from typing import Final

from kubeworld.units.durations import MINUTE
from kubeworld.units.instants import Nanos
from reprieve.engine.idle import model as idle
from reprieve.engine.quota import model as quota
from reprieve.units.ids import Uid
from reprieve.units.references import Reference

__all__ = ["IDLE_SAMPLES", "QUOTA_SAMPLES"]

_GPUS: Final = {"nvidia.com/gpu": 8}
_LATER: Final = Nanos(idle.EPOCH + MINUTE)


def _idle(name: str, since: Nanos | None) -> idle.Workload:
    def ref(kind: str) -> Reference:
        return Reference("v1", kind, "team", name, Uid(name))

    settings = idle.Settings(
        20.0, MINUTE, idle.PreemptionPolicy.ON_PRESSURE, idle.Aggregation.MAX, 0
    )
    status = idle.Status(idle.Phase.IDLE, idle_since=since)
    return idle.Workload(ref("GpuWorkload"), ref("Job"), idle.EPOCH, _GPUS, settings, status)


IDLE_SAMPLES: Final = (_idle("sample-0", _LATER), _idle("sample-1", None))
QUOTA_SAMPLES: Final = (
    quota.Workload("team", "sample-0"),
    quota.Workload(
        "team",
        "sample-1",
        "uid",
        "team/queue",
        priority=10,
        created=idle.EPOCH,
        reserved_at=_LATER,
        checkpoint=_LATER,
        idle=True,
    ),
)
