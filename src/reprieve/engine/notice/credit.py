"""Credit of a lineage: how likely its work is to save on notice.

1. Credit is the share of the lineage's last eight notices that ended saved at or after the notice.
2. Without history it is one half.
3. A lineage that reported a save which its next run contradicts has no credit for a day. A run
   contradicts a save when it reports a step that is smaller than the saved one.

Notices that were pardoned count for nothing. Credit is in thousandths, so that it is exact in
records. Pure. Source:
`docs/notice-decisions.md`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from kubeworld.units.durations import HOUR

__all__ = ["NO_HISTORY", "UNKNOWN", "WHOLE", "History"]

WHOLE: Final = 1_000
UNKNOWN: Final = WHOLE // 2
_LAST: Final = 8
_DISTRUSTED_FOR: Final = 24 * HOUR


@dataclass(frozen=True, slots=True)
class History:
    """The notices of one lineage. Instants are nanoseconds since the Unix epoch.

    `ends`: whether each of the last ones ended saved. `step`: the last that was reported as saved,
    -1 for none. `distrusted`: until when it has no credit, 0 for not at all.
    """

    ends: tuple[bool, ...] = ()
    step: int = -1
    distrusted: int = 0

    def credit(self, now: int) -> int:
        """Return the share of notices that are expected to end saved, in thousandths."""
        if now < self.distrusted:
            return 0
        return WHOLE * sum(self.ends) // len(self.ends) if self.ends else UNKNOWN

    def ended(self, *, saved: bool, step: int = -1) -> History:
        """Return the history after one more notice; `step`: the one that was saved, -1: unknown."""
        ends = (*self.ends, saved)[-_LAST:]
        return replace(self, ends=ends, step=step if saved else self.step)

    def reports(self, step: int, now: int) -> History:
        """Return the history after a later run reported that it is at this step."""
        if self.step < 0 or step >= self.step:
            return self
        return replace(self, step=-1, distrusted=now + _DISTRUSTED_FOR)


NO_HISTORY: Final = History()
