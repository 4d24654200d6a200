"""A callback for the Trainer of transformers: save and stop when the pod gets notice.

Every rank checks at the same step, so that all save the same one. The Trainer writes its checkpoint
before it stops; only then the pod reports that it has saved.
"""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from reprieve_notice.notices import Notice, Notices

__all__ = ["NoticeCallback"]


class NoticeCallback(TrainerCallback):  # type: ignore[misc,unused-ignore]
    """`Trainer(..., callbacks=[NoticeCallback()])`; checks at steps that `every` divides."""

    def __init__(self, notices: Notices | None = None, every: int = 1) -> None:
        self._notices = notices or Notices()
        self._every = every
        self._notice: Notice | None = None

    def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> Any:
        """Check, and have the Trainer save and stop when the pod gets notice."""
        if self._notice is None:
            self._notice = self._notices.due(state.global_step, every=self._every)
            if self._notice is not None:
                control.should_save = control.should_training_stop = True
        return control

    def on_save(self, args: Any, state: Any, control: Any, **rest: Any) -> Any:
        """Report that the checkpoint of the step at which the pod got notice is written."""
        if self._notice is not None:
            self._notice.saved(step=state.global_step)
        return control
