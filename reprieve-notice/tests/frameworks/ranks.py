"""A rank of torch.distributed with gloo: trains until any rank is told, and prints what it saved.

`python ranks.py RANK RANKS STORE TOLD_AT [KILLED_AT]`: rank 0 is told at that step, the others
never. The last rank ends as by SIGKILL at the step KILLED_AT, 0 for never.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

import torch

from reprieve_notice.notices import Notices


class Source:
    """An operator in the same process, which tells the pod from a step on."""

    hears = True
    monotonic = staticmethod(time.monotonic)

    def __init__(self) -> None:
        self.told: Any = None
        self.words: list[tuple[str, dict[str, Any]]] = []

    def ask(self, wait: int = 0) -> Any:
        return self.told

    def report(self, id: str, state: str, **more: Any) -> Any:
        self.words.append((state, more))
        return self.told


class Told:
    """A notice of ten minutes."""

    id, state, reason, withdrawn, waits = "n", "Noticed", "", False, False
    due = time.monotonic() + 600


def main(rank: int, ranks: int, store: str, told_at: int, killed_at: int = 0) -> None:
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=ranks
    )
    source = Source()
    notices = Notices(source, pause=lambda seconds: True)  # type: ignore[arg-type]
    weight = torch.zeros(4)
    for step in range(1, 200):
        weight += 1
        if step == killed_at and rank == ranks - 1:
            os.kill(os.getpid(), signal.SIGKILL)
        torch.distributed.all_reduce(weight)
        if rank == 0 and step == told_at:
            source.told = Told()
            notices.ask()
        notice = notices.due(step, every=5)
        if notice:
            notice.saved(step=step)
            print(f"rank {rank} saved {step}", flush=True)
            break
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], *map(int, sys.argv[4:]))
