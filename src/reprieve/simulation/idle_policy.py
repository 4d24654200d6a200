"""How a policy of a study sets up the idle plane: the section `gpuPreemption` of a `--config` file.

    gpuPreemption:
      defaultPolicy: Always          # or OnPressure: for work that waits alone
      defaultGracePeriod: 10m        # idle for so long before it is preempted
      defaultThreshold: 5            # percent below which devices are idle
      fit: Node                      # or Sum
      irreducible: false
      literal: {alwaysNotCredited: true}

It is read by the operator's own readers (`settings.start_up`, `settings.idle`). All jobs count as
opted in, and have these settings. What a running operator alone has a use for is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from reprieve.engine.idle.model import Fit, Policy, Settings
from reprieve.settings.idle import FALLBACK, Overrides, resolve
from reprieve.settings.option import keys, not_replayed
from reprieve.settings.options import IDLE
from reprieve.settings.start_up import start_up
from reprieve.simulation.document import Part
from reprieve.units.errors import UsageError

__all__ = ["SECTION", "IdlePolicy", "read_idle_policy"]

SECTION: Final = "gpuPreemption"
_OPERATOR_ONLY: Final = not_replayed(IDLE)
_KEYS: Final = tuple(key for key in keys(IDLE) if key not in _OPERATOR_ONLY)


@dataclass(frozen=True, slots=True)
class IdlePolicy:
    """The settings of every job, and what holds for the whole plane.

    `delay`: how many nanoseconds a demand waits before idle work is evicted for it.
    """

    settings: Settings = FALLBACK
    policy: Policy = field(default_factory=lambda: Policy(fit=Fit.NODE))
    delay: int = 0


def read_idle_policy(given: Part) -> IdlePolicy:
    """Return the policy of the section.

    Raises:
        UsageError: what is wrong, where, and what is accepted.
    """
    whole = given.part(SECTION)
    for key in _OPERATOR_ONLY:
        if key in whole.value:
            raise UsageError(f"{whole.where(key)}: changes nothing in a replay; leave it out")
    section = given.part(SECTION, _KEYS)
    place = section.where().rsplit(f".{SECTION}", 1)[0]
    found = start_up({}, section.value, place)
    for bad in found.rejected:
        raise UsageError(f"{bad.where}: {bad.value!r}; accepted: {bad.accepted}")
    return IdlePolicy(resolve(Overrides(), found.tiers), found.policy, found.delay or 0)
