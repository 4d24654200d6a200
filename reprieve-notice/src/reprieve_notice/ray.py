"""Ray: drain one's own node when its pod gets notice, so that Ray Train notifies its workers.

`ray.train.get_preemption_info()` returns the notice on all workers at the same call; Ray places no
new work on the node. Run it beside the raylet, in each pod of the cluster:

    reprieve-notice ray

Ray does not report that its workers have saved. One worker of each pod reports that, after its
`ray.train.report`, by `Notices().report("saved", step=step)`.
"""

from __future__ import annotations

import time
from typing import Any

import ray
from ray.core.generated import autoscaler_pb2

from reprieve_notice.notices import Notices

__all__ = ["drain_on_notice", "join"]

_LOOK_S = 1.0


def join() -> None:
    """Join the Ray that runs in this pod."""
    ray.init(address="auto", log_to_driver=False)


def drain_on_notice(notices: Notices | None = None, last: str = "") -> str:
    """Wait until the pod gets notice, and drain the node of Ray that this process is on.

    Returns the id of the notice, which is another one than `last`. Ray has to be initialized in
    this process.

    Raises:
        RuntimeError: Ray does not drain the node.
    """
    found = notices or Notices()
    while True:
        notice = found.due()
        if notice is not None and notice.id != last:
            _drain(notice.remaining, notice.reason)
            return notice.id
        time.sleep(_LOOK_S)


def _drain(seconds: float, reason: str) -> None:
    context = ray.get_runtime_context()
    client: Any = ray._raylet.GcsClient(address=context.gcs_address)
    deadline = int((time.time() + seconds) * 1000)
    cause = autoscaler_pb2.DrainNodeReason.Value("DRAIN_NODE_REASON_PREEMPTION")
    accepted, why = client.drain_node(context.get_node_id(), cause, reason, deadline)
    if not accepted:
        raise RuntimeError(f"Ray does not drain the node: {why}")
