"""How busy GPUs are in a what-if: as the operator that runs measured them last, and nothing else.

No exporter is queried: what the status of a GpuWorkload states of its GPUs holds on for the run. Of
a pod whose last sample was out of date already when the cluster was read there is none, so that it
is not called idle; nor is what starts during the run, which is assumed to be busy.

Source: specification of the idle plane, section 10; the design's "Processes and time".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from reprieve.api.kaiwo import GpuWorkload
from reprieve.engine.idle.model import Policy
from reprieve.engine.idle.samples import REFRESH
from reprieve.intake.exposition import Exposition, Sample
from reprieve.intake.gpuworkloads import status_from_api
from reprieve.kube.resource import GPU_WORKLOADS
from reprieve.planes.common.process_settings import IDLE, OperatorOptions
from reprieve.whatif.snapshots.snapshot import Snapshot

__all__ = ["LastMeasured", "measured_last"]

_METRIC: Final = "status.trackedPods"
#: Variables of the idle plane: selecting the plane enables it, and one source stands for all.
_ENABLED: Final = "GPU_PREEMPTION_ENABLED"
_ENDPOINT: Final = "GPU_PREEMPTION_METRICS_ENDPOINT"
_STAND_IN: Final = "http://measured-last.invalid/metrics"


def measured_last(options: OperatorOptions) -> OperatorOptions:
    """Return the options with one source of metrics, for which `LastMeasured` stands."""
    if IDLE not in options.controllers:
        return options
    environment = {_ENABLED: "true", **options.environment, _ENDPOINT: _STAND_IN}
    return replace(options, environment=environment)


@dataclass(frozen=True, slots=True)
class LastMeasured:
    """Reads what GpuWorkloads of a snapshot state of their GPUs."""

    snapshot: Snapshot
    policy: Policy

    def __call__(self) -> Exposition:
        """Return the samples of a poll: every time the same."""
        return Exposition(list(self._samples()), [], 0)

    def _samples(self) -> Iterator[Sample]:
        listed = self.snapshot.kinds.get((GPU_WORKLOADS.group, GPU_WORKLOADS.plural))
        # Instants of samples are written once in a while only: that is not silence.
        oldest = self.snapshot.at - self.policy.freshness - REFRESH
        for body in () if listed is None else listed.objects.values():
            workload = msgspec.json.decode(body, type=GpuWorkload, strict=False)
            for pod in status_from_api(workload.status).tracked_pods:
                for sample in pod.samples:
                    if sample.updated >= oldest:
                        yield Sample(
                            namespace=workload.metadata.namespace,
                            pod=pod.name,
                            gpu_id=sample.gpu_id,
                            partition="",
                            utilization=sample.utilization,
                            vendor="",
                            metric=_METRIC,
                        )
