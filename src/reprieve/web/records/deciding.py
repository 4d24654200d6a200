"""The process that decides one record again: `python -m reprieve.web.records.deciding SECONDS`.

A record as JSON is read from standard input, its judgement is written to standard output. The
system ends it once it has used so many seconds of processor time. A process of its own, since a
decision may need seconds and a lot of memory: its parent can end it, and nothing that users look at
waits for it.
"""

from __future__ import annotations

import os
import resource
import sys
from typing import Final

import msgspec

from kubeworld.units.untrusted import integer_or_none
from reprieve.api.reprieve import Preemption
from reprieve.web.records.judged import Again, Judgement

__all__ = ["main"]

_NICE: Final = 5
_LONGEST: Final = 3_600  # seconds


def main() -> None:
    """Read a record, write its judgement."""
    os.nice(_NICE)
    most = integer_or_none(sys.argv[1], 1, _LONGEST) or 1
    resource.setrlimit(resource.RLIMIT_CPU, (most, most))
    # Heavy, and not needed where nothing is decided.
    from reprieve.web.records.judgement import judgement_of

    record = msgspec.json.decode(sys.stdin.buffer.read(), type=Preemption)
    try:
        judgement = judgement_of(record)
    except Exception as failure:
        # A record may be any user's: what it does to the engine is an answer, too.
        text = f"Cannot be decided again: {type(failure).__name__}: {failure}"
        judgement = Judgement(Again.IMPOSSIBLE, text)
    sys.stdout.buffer.write(msgspec.json.encode(judgement))


if __name__ == "__main__":
    main()
