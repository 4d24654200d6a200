"""Whether any rank was told, where torch.distributed runs: all save the same step, or none does."""

from __future__ import annotations

import sys
from typing import Any, Callable

__all__ = ["agreement"]


def agreement() -> Callable[[bool], bool] | None:
    """Return what asks all ranks, None where there is only this one.

    torch is never imported here: whoever trains with it has done so.
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
