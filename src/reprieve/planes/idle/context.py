"""What the parts of the idle plane share: connections, settings and the way to people."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from kubeworld.units.durations import HOUR, format_duration
from kubeworld.units.instants import Nanos
from reprieve.api.reprieve import PLAN_ANNOTATION
from reprieve.engine.disruptions.governor import Governor
from reprieve.intake.exposition import Exposition
from reprieve.kube.discovery import RestMapper
from reprieve.planes.common.context import PlaneContext
from reprieve.settings.idle import Overrides, Tier, kaiwo_config_tier, resolve
from reprieve.settings.start_up import StartUp
from reprieve.units.references import Reference
from reprieve.wording.events import EventText
from reprieve.wording.kaiwo import COMPONENT

__all__ = ["IdleContext", "log"]

log: Final = logging.getLogger("reprieve.idle")

_SAID: Final = 10_000


@dataclass(slots=True, kw_only=True)
class IdleContext(PlaneContext):
    """One running idle plane.

    `read_only` states in one line why nothing is written (beside a live Kaiwo), empty when we do.
    `stepped`: when the wall clock was stepped last, monotonic.
    `measured` gives each poll what exporters are queried for otherwise.
    `config` is the tier of the KaiwoConfig, replaced whenever that object changes.
    """

    mapper: RestMapper
    start: StartUp
    stepped: Callable[[], Nanos | None] = lambda: None
    measured: Callable[[], Exposition] | None = None
    read_only: str = ""
    config: Tier = field(default_factory=lambda: kaiwo_config_tier(None))
    governor: Governor = field(default_factory=Governor)
    # When something was stated that need not be stated again soon, monotonic; oldest first.
    said: dict[str, Nanos] = field(default_factory=dict)

    @property
    def tiers(self) -> Iterable[Tier]:
        """The tiers below the annotations, in order."""
        return (self.config, *self.start.tiers)

    def since_step(self) -> str:
        """Return why nothing is preempted after a step of the wall clock, empty when it is over."""
        stepped = self.stepped()
        grace = resolve(Overrides(), self.tiers).grace_period
        if stepped is None or self.clock.monotonic() - stepped >= grace:
            return ""
        return f"the wall clock was stepped within the last {format_duration(grace)}"

    def announce(self, about: Reference, text: EventText, plan: str = "") -> None:
        """Send an event; it never fails the caller."""
        if self.read_only:
            return
        self.events.event(
            about,
            text.type,
            text.reason,
            text.action or text.reason,
            text.message,
            controller=COMPONENT,
            annotations={PLAN_ANNOTATION: plan} if plan else None,
            apart=True,
        )

    def log_once(self, key: str, emit: Callable[[], None]) -> None:
        """Call `emit` unless something was stated under this key in the last hour."""
        now = self.clock.monotonic()
        before = self.said.pop(key, None)
        due = before is None or now - before >= HOUR
        self.said[key] = now if before is None or due else before
        if len(self.said) > _SAID:
            del self.said[next(iter(self.said))]
        if due:
            emit()
