"""Where our topology decides otherwise than recorded, and where the pages say so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["DEVIATIONS", "Deviation"]


@dataclass(frozen=True, slots=True)
class Deviation:
    """Recorded cases with another outcome; `said` stands in `docs/<page>`.

    `fault`: the reference itself is wrong, so that they are no part of what has to agree.
    """

    cases: frozenset[str]
    page: str
    said: str
    fault: bool = False


DEVIATIONS: Final = (
    # The reference lets it preempt others whose nodes it may not use: they go in vain.
    Deviation(
        frozenset(
            f"replace-{number}" for number in ("0024", "0037", "0067", "0068", "0078", "0081")
        ),
        "topology-kueue.md",
        "`TASFailedNodeReplacementFailFast` off no work is preempted for a replacement",
    ),
    Deviation(
        frozenset({"balanced-0344"}),
        "topology-kueue.md",
        "slices more than one level below the preferred level places all pods",
        fault=True,
    ),
    Deviation(
        frozenset({"replacement-0167"}),
        "topology-kueue.md",
        "A label with an empty value is a domain like others",
        fault=True,
    ),
)
