"""The README's example runs as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

README = Path(__file__).parents[2] / "kubeworld" / "README.md"


def test_the_example_runs() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    exec(compile(example, str(README), "exec"), {})
