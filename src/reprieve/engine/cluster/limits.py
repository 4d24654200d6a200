"""Up to where amounts count exactly: what columns, and all that fill them, keep to.

They stand apart from the columns, so that who only reads requests does not load numpy for them: a
process in which nothing is scheduled has no use for that. Source: the design's "State that can be
trusted".
"""

from __future__ import annotations

from typing import Final

__all__ = ["HUGE", "LIMIT", "MOST_REQUESTED"]

LIMIT: Final = 2**62 - 1  # what amounts and sums saturate at; two of them still fit into 64 bits
#: What counts of one pod: a thousand of these on a node add up without saturating, so that what
#: is left without some of them is exact. In base units: 4 PiB, or some 10^12 cpus.
MOST_REQUESTED: Final = 2**52
HUGE: Final = 2**46  # 131,071 amounts up to this one add up without saturating
