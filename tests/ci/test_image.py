"""The image is built from named versions, and runs as nobody in particular."""

from __future__ import annotations

import re
from pathlib import Path

DOCKERFILE = (Path(__file__).parents[2] / "Dockerfile").read_text()


def test_the_base_image_and_uv_are_of_exact_versions() -> None:
    (base,) = re.findall(r"^ARG PYTHON=(\S+)$", DOCKERFILE, re.MULTILINE)
    assert re.fullmatch(r"python:\d+\.\d+\.\d+-slim-[a-z]+(@sha256:[0-9a-f]{64})?", base)
    stages = re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)
    assert set(stages) == {"${PYTHON}"}
    installed = re.findall(r"pip install .*", DOCKERFILE)
    assert [re.search(r" uv==\d+\.\d+\.\d+$", line) is not None for line in installed] == [True]
    assert "uv sync --locked" in DOCKERFILE


def test_it_does_not_run_as_root() -> None:
    users = re.findall(r"^USER (\S+)$", DOCKERFILE, re.MULTILINE)
    assert users == ["65532:65532"]
