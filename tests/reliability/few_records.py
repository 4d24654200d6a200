"""`reprieve` that keeps few records, so that their number is constant in an hour.

The product keeps 5,000 records of a plane for 168 hours, which no run of an hour reaches. Nothing
else is other than in the product: the same sweeps remove them.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Final
from unittest.mock import patch

from reprieve.cli.main import main
from reprieve.execution.records.book import Retention
from reprieve.planes.idle import plane
from reprieve.planes.scheduling.cycle import preemptions

MOST: Final = 300

if __name__ == "__main__":
    with ExitStack() as patches:
        for module in (preemptions, plane):
            patches.enter_context(patch.object(module, "_RETENTION", Retention(cap=MOST)))
        main()
