"""`reprieve` that keeps few records of preemptions, so that their number is constant in an hour.

The product keeps 5,000 of a plane for 168 hours, which no run of an hour reaches. Nothing else is
other than in the product: the same sweep removes them.
"""

from __future__ import annotations

import sys
from typing import Final
from unittest.mock import patch

from reprieve.cli.main import main
from reprieve.execution.book import Retention
from reprieve.planes.idle import plane
from reprieve.planes.scheduling import preemptions

MOST: Final = 300

if __name__ == "__main__":
    with (
        patch.object(preemptions, "_RETENTION", Retention(cap=MOST)),
        patch.object(plane, "_RETENTION", Retention(cap=MOST)),
    ):
        sys.exit(main())
