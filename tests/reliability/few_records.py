"""`reprieve` that keeps little of what is over, so that it is constant in an hour.

The product keeps 5,000 records of a plane for 168 hours, and of who displaced whom 100,000 rows
of a day, and the uids of as many victims, which no run of an hour reaches. Nothing else is other
than in the product: the same sweeps remove them.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from functools import partial
from typing import Final
from unittest.mock import patch

from reprieve.cli.main import main
from reprieve.engine.disruptions import history
from reprieve.engine.disruptions.counts import DisplacementCounts
from reprieve.engine.disruptions.ledger import Ledger
from reprieve.execution import disruptions
from reprieve.execution.book import Retention
from reprieve.planes.common import displacements
from reprieve.planes.idle import plane
from reprieve.planes.scheduling import preemptions

MOST: Final = 300
MOST_ROWS: Final = 1_000

if __name__ == "__main__":
    with ExitStack() as patches:
        for module in (preemptions, plane):
            patches.enter_context(patch.object(module, "_RETENTION", Retention(cap=MOST)))
        few = patch.object(history, "Ledger", lambda kept, most: Ledger(kept, MOST_ROWS))
        patches.enter_context(few)
        fewer = partial(DisplacementCounts, most=MOST_ROWS)
        patches.enter_context(patch.object(disruptions, "DisplacementCounts", fewer))
        patches.enter_context(patch.object(displacements, "_MOST_KNOWN", MOST_ROWS))
        sys.exit(main())
