"""A callback for Lightning: save and stop when the pod gets notice.

Every rank checks after the same batch, so that all save the same step. `path` is where the
checkpoint is written, by default `notice.ckpt` in the trainer's default root folder; training
resumes from it with `trainer.fit(..., ckpt_path=path)`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lightning.pytorch.callbacks import Callback

from reprieve_notice.notices import Notices

__all__ = ["NoticeCallback"]


class NoticeCallback(Callback):  # type: ignore[misc,unused-ignore]
    """`Trainer(..., callbacks=[NoticeCallback()])`; checks at steps that `every` divides."""

    def __init__(self, notices: Notices | None = None, path: str = "", every: int = 1) -> None:
        self._notices = notices or Notices()
        self._path = path
        self._every = every
        self._over = False

    def on_train_batch_end(self, trainer: Any, *rest: Any, **more: Any) -> None:
        """Check; save, report and stop when the pod gets notice."""
        step = int(trainer.global_step)
        if self._over:
            return
        notice = self._notices.due(step, every=self._every)
        if notice is None:
            return
        self._over = True
        path = self._path or str(Path(trainer.default_root_dir) / "notice.ckpt")
        trainer.save_checkpoint(path)  # on every rank, which it waits for
        notice.saved(step=step, checkpoint=path)
        trainer.should_stop = True
