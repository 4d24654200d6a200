"""A training on two workers of Ray, whose node is drained once its pod is told: prints who knew.

`python ray_training.py FOLDER`
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import ray
import ray.train
from ranks import Source, Told
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

from reprieve_notice.notices import Notices
from reprieve_notice.ray import drain_on_notice

_PATIENCE_S = 180


def train(config: dict[str, Any]) -> None:
    """Train until Ray says that the node is preempted."""
    folder, rank = Path(config["folder"]), ray.train.get_context().get_world_rank()
    (folder / f"began-{rank}").touch()
    for step in range(int(_PATIENCE_S / 0.2)):
        time.sleep(0.2)
        told = ray.train.get_preemption_info()
        if told is not None:
            ahead = told.deadline_ms / 1000 > time.time() + 60
            (folder / f"told-{rank}").write_text(f"{step} {told.preempted_ranks} {ahead}")
            return


def watched() -> bool:
    """Whether Ray Train looks for nodes that are drained; no drained node gets its actor."""
    actors = ray._private.state.actors().values()
    return any(
        each["ActorClassName"] == "PreemptionWatcher" and each["State"] == "ALIVE"
        for each in actors
    )


def main(folder: Path) -> None:
    os.environ["RAY_TRAIN_V2_ENABLED"] = "1"
    ray.init(num_cpus=2, log_to_driver=False)
    source = Source()
    notices = Notices(source, pause=lambda seconds: True)  # type: ignore[arg-type]

    def tell() -> None:
        while len(list(folder.glob("began-*"))) < 2 or not watched():
            time.sleep(0.1)
        source.told = Told()
        notices.ask()
        drain_on_notice(notices)

    threading.Thread(target=tell, daemon=True).start()
    two = ray.train.ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.5})
    DataParallelTrainer(train, train_loop_config={"folder": str(folder)}, scaling_config=two).fit()
    steps = {path.read_text().partition(" ")[0] for path in folder.glob("told-*")}
    told = {path.read_text().partition(" ")[2] for path in folder.glob("told-*")}
    print(f"{len(steps)} step, told {sorted(told)}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
