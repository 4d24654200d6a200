"""Whether any rank got notice, where torch.distributed runs: all save one step, or none."""

from __future__ import annotations

import sys
from typing import Any, Callable

__all__ = ["agreement"]


def agreement() -> Callable[[bool], bool] | None:
    """Return what queries all ranks, None where there is only this one.

    torch is never imported here: a program that trains with it has done so.
    """
    torch: Any = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    backend = str(distributed.get_backend())
    device = "cuda" if "nccl" in backend and "gloo" not in backend else "cpu"

    def any_rank(mine: bool) -> bool:
        flag = torch.tensor([int(mine)], device=device)
        distributed.all_reduce(flag, op=distributed.ReduceOp.MAX)
        return bool(flag.item())

    return any_rank
