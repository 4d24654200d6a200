"""A training that saves when it is told of its eviction, and goes on from there when it runs again.

`python train.py` counts steps in place of training. It needs the library reprieve-notice alone.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

from reprieve_notice import Notices

CHECKPOINT = Path("checkpoint.json")
STEPS = 3_000


def main() -> None:
    """Train until the end, or until the pod is told."""
    step = json.loads(CHECKPOINT.read_text())["step"] if CHECKPOINT.exists() else 0
    print("goes on from its checkpoint" if step else "begins", flush=True)
    notices = Notices()
    while step < STEPS:
        step += 1
        time.sleep(0.1)  # train(batch)
        notice = notices.due(step, every=10)
        if notice:
            print(f"told: {notice.reason}; {notice.remaining:.0f} s left", flush=True)
            CHECKPOINT.write_text(json.dumps({"step": step}))
            notice.saved(step=step, checkpoint=str(CHECKPOINT))
            print("saved", flush=True)
            return
    print("done", flush=True)


if __name__ == "__main__":
    main()
