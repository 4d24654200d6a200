"""What every running plane works with, whatever it decides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import InitVar, dataclass, field

from kubeworld.units.clock import Clock
from reprieve.execution.accounts.disruptions import Disruptions
from reprieve.execution.fence import Fence
from reprieve.execution.notices import Notices
from reprieve.kube.client import Client
from reprieve.kube.own_writer import OwnWriter
from reprieve.kube.recording.events import EventRecorder
from reprieve.planes.common.disruptions.loop_notices import LoopNotices
from reprieve.planes.common.joint import Joint
from reprieve.planes.common.mirrors.mirror import Mirror
from reprieve.planes.common.solve import DecisionLimit
from reprieve.planes.common.victim_orders import NO_ORDER, Ranking
from reprieve.telemetry.decision_log import DecisionLog
from reprieve.telemetry.metrics import Metrics

__all__ = ["PlaneContext"]


@dataclass(slots=True, kw_only=True)
class PlaneContext:
    """One running plane.

    `joint`: where the plane registers, and queries other planes. `ranking`: the order of victims of
    an installed package. `shared`: the mirror of all planes.
    """

    full_client: Client
    clock: Clock
    fence: Fence
    events: EventRecorder
    metrics: Metrics
    lagging: Callable[[], bool] = lambda: False
    dry_run: bool = False
    decision_limit: DecisionLimit = field(default_factory=DecisionLimit)
    disruptions: Disruptions | None = None
    loops: LoopNotices | None = None
    decision_log: DecisionLog | None = None
    joint: Joint = field(default_factory=Joint)
    notices: Notices | None = None
    ranking: Ranking = NO_ORDER
    shared: InitVar[Mirror | None] = None
    mirror: Mirror = field(init=False)

    @property
    def client(self) -> OwnWriter:
        """What reads all kinds, and writes Reprieve's own; `full_client` is for `execution`."""
        return self.full_client

    def __post_init__(self, shared: Mirror | None) -> None:
        self.mirror = shared or Mirror(self.client, self.clock)
