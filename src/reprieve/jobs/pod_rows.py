"""The rows of pods and of what stands on them: kinds that are held back by scheduling gates.

A Notebook has no row: its controller hands its labels to its pod, which is queued by itself.
Source: specification of the quota plane, sections 10.2 and 10.4.
"""

from __future__ import annotations

from typing import Final

from reprieve.jobs.model import Beside, JobKind, PassesOn, PodSetSource, Test

__all__ = ["GATED", "POD"]

_READY: Final = [Test(condition="Ready"), Test(field="status.phase", values=["Succeeded"])]


POD: Final = JobKind(
    api_version="v1",
    kind="Pod",
    plural="pods",
    framework="pod",
    gate="kueue.x-k8s.io/admission",
    pod_sets=[PodSetSource("", index="kueue.x-k8s.io/pod-group-pod-index")],
    succeeded=[Test(field="status.phase", values=["Succeeded"])],
    failed=[Test(field="status.phase", values=["Failed"])],
    ready=_READY,
    message="status.message",
)


def _rows() -> tuple[JobKind, ...]:
    groups = "leaderworkerset.sigs.k8s.io"
    whole = "spec.leaderWorkerTemplate"
    return (
        POD,
        JobKind(
            api_version="apps/v1",
            kind="Deployment",
            plural="deployments",
            framework="deployment",
            passes_on=PassesOn(["spec.template"], queue=True, managed=True),
        ),
        JobKind(
            api_version="apps/v1",
            kind="StatefulSet",
            plural="statefulsets",
            framework="statefulset",
            passes_on=PassesOn(["spec.template"], total="spec.replicas"),
            pod_sets=[
                PodSetSource(
                    "spec.template",
                    counts=[["spec.replicas"]],
                    index="apps.kubernetes.io/pod-index",
                )
            ],
        ),
        JobKind(
            api_version="leaderworkerset.x-k8s.io/v1",
            kind="LeaderWorkerSet",
            plural="leaderworkersets",
            framework="leaderworkerset.x-k8s.io/leaderworkerset",
            passes_on=PassesOn(
                [f"{whole}.leaderTemplate", f"{whole}.workerTemplate"],
                queue=True,
                serving=True,
                total=f"{whole}.size",
                groups="spec.replicas",
                set_label=f"{groups}/name",
                index_label=f"{groups}/group-index",
                index_else="apps.kubernetes.io/pod-index",
                follower=f"{groups}/leader-name",
            ),
            pod_sets=[
                PodSetSource(f"{whole}.leaderTemplate", name="leader"),
                PodSetSource(
                    f"{whole}.workerTemplate",
                    counts=[[f"{whole}.size"]],
                    beside=Beside(f"{whole}.leaderTemplate", "worker", fewer=1),
                    index=f"{groups}/worker-index",
                    shifted=Test(field=f"{whole}.leaderTemplate", without=[""]),
                ),
            ],
        ),
    )


GATED: Final = _rows()
