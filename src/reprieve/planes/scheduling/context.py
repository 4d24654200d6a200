"""What the parts of the scheduling plane share: connections, policy and the way to people."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from reprieve.engine.disruptions.governor import Governor
from reprieve.engine.placement.filtering import PlacementScorer
from reprieve.engine.placement.profile import Policy
from reprieve.engine.scheduling.plugins import PostFilter
from reprieve.engine.scheduling.session import GROUP_POST_FILTERS
from reprieve.planes.common.context import PlaneContext
from reprieve.planes.common.disruptions.other_actors import OtherActors
from reprieve.planes.common.mirrors.mirror import Mirror
from reprieve.records.plans.parts import SIZES, Sizes
from reprieve.settings.scheduling import SchedulingSettings
from reprieve.telemetry.scheduling import SchedulingMetrics
from reprieve.units.references import Reference
from reprieve.wording.events import EventText

__all__ = ["SchedulingContext", "log"]

log: Final = logging.getLogger("reprieve.scheduling")


@dataclass(slots=True, kw_only=True)
class SchedulingContext(PlaneContext):
    """One running scheduling plane. `group_version`: of the PodGroups that are served, if any.

    `plugins`: PodGroupPostFilter plugins by name. `scorers`: placement scorers of others.
    """

    scheduler_metrics: SchedulingMetrics
    settings: SchedulingSettings
    plugins: Mapping[str, PostFilter] = field(default_factory=lambda: GROUP_POST_FILTERS)
    scorers: Mapping[str, PlacementScorer] = field(default_factory=dict)
    shared_nodes: bool = False
    watch_others: bool = False
    group_version: str = ""
    governor: Governor = field(default_factory=Governor)
    others: OtherActors | None = None
    record_sizes: Sizes = SIZES
    _beside_others: Policy = field(init=False)

    def __post_init__(self, shared: Mirror | None) -> None:
        PlaneContext.__post_init__(self, shared)
        self._beside_others = self.settings.policy.beside_others()

    @property
    def policy(self) -> Policy:
        """What decisions depend on."""
        several = len(self.joint.planes) > 1
        return self._beside_others if several else self.settings.policy

    @property
    def scheduler_names(self) -> frozenset[str]:
        """The names whose pods are ours."""
        return frozenset(profile.scheduler_name for profile in self.policy.profiles)

    def announce(
        self,
        regarding: Reference,
        text: EventText,
        scheduler_name: str,
        related: Reference | None = None,
    ) -> None:
        """Send an event in the name of a scheduler; it never fails the caller."""
        if self.dry_run:
            return
        self.events.event(
            regarding,
            text.type,
            text.reason,
            text.action,
            text.message,
            controller=scheduler_name,
            related=related,
        )
