"""A training of a few steps by a Trainer, of which the pod is told at step 7: prints what it did.

`python trainers.py transformers|lightning FOLDER`
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from ranks import Source, Told

from reprieve_notice.notices import Notices

_STEPS = 40


def told_at(step: int, source: Source, notices: Notices) -> None:
    """Tell the pod at step 7."""
    if step == 7:
        source.told = Told()
        notices.ask()


def by_transformers(folder: Path, source: Source, notices: Notices) -> int:
    from transformers import Trainer, TrainerCallback, TrainingArguments

    from reprieve_notice.transformers import NoticeCallback

    class Model(torch.nn.Module):  # type: ignore[misc,unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def forward(self, x: Any, labels: Any) -> Any:
            return {"loss": ((self.layer(x) - labels) ** 2).mean()}

    class Operator(TrainerCallback):  # type: ignore[misc,unused-ignore]
        def on_step_begin(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
            told_at(state.global_step, source, notices)

    data = [{"x": torch.ones(4), "labels": torch.ones(1)} for _ in range(64)]
    arguments = TrainingArguments(
        output_dir=str(folder), max_steps=_STEPS, use_cpu=True, report_to=[], save_strategy="no"
    )
    callbacks = [Operator(), NoticeCallback(notices)]
    trainer = Trainer(model=Model(), args=arguments, train_dataset=data, callbacks=callbacks)
    trainer.train()
    assert (folder / f"checkpoint-{trainer.state.global_step}").is_dir()
    return int(trainer.state.global_step)


def by_lightning(folder: Path, source: Source, notices: Notices) -> int:
    import lightning.pytorch as lightning

    from reprieve_notice.lightning import NoticeCallback

    class Model(lightning.LightningModule):  # type: ignore[misc,unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch: Any) -> Any:
            told_at(int(self.trainer.global_step), source, notices)
            return (self.layer(batch) ** 2).mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.1)

    trainer = lightning.Trainer(
        max_steps=_STEPS,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        default_root_dir=str(folder),
        callbacks=[NoticeCallback(notices)],
    )
    data = torch.utils.data.DataLoader([torch.ones(4) for _ in range(64)], batch_size=1)
    trainer.fit(Model(), data)
    saved = torch.load(folder / "notice.ckpt", weights_only=False)
    assert saved["global_step"] == trainer.global_step
    return int(trainer.global_step)


def main(kind: str, folder: Path) -> None:
    source = Source()
    notices = Notices(source, pause=lambda seconds: True)  # type: ignore[arg-type]
    step = (by_transformers if kind == "transformers" else by_lightning)(folder, source, notices)
    said = [more["step"] for state, more in source.words if state == "saved"]
    print(f"stopped at {step} of {_STEPS}, reported {said}")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
