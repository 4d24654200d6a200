"""`reprieve` that keeps few records of preemptions, so that their number is constant in an hour.

The product keeps 5,000 of a plane for 168 hours, which no run of an hour reaches. Nothing else is
other than in the product: the same sweep removes them.
"""

from __future__ import annotations

import sys
from typing import Final
from unittest.mock import patch

from reprieve.cli.main import main
from reprieve.controllers.idle import evaluator
from reprieve.controllers.scheduling import preemptions

MOST: Final = 300

if __name__ == "__main__":
    with (
        patch.object(preemptions, "_RECORD_CAP", MOST),
        patch.object(evaluator, "RECORD_CAP", MOST),
    ):
        sys.exit(main())
