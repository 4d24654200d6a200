"""The scenarios that come with Reprieve, and how a scenario is named on the command line."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Final

from reprieve.scenarios.model import InvalidScenario, NodeSpec, Scenario, load, parse

__all__ = ["DEFAULT", "find", "names", "packaged", "playground"]

DEFAULT: Final = "idle-guide"
_GPU: Final = "amd.com/gpu"
_NOTICE: Final = {"max": "10m"}
_LIBRARY: Final = files("reprieve.scenarios").joinpath("library")


def names() -> list[str]:
    """Return the names of the packaged scenarios."""
    return sorted(
        entry.name.removesuffix(".yaml")
        for entry in _LIBRARY.iterdir()
        if entry.name.endswith(".yaml")
    )


def packaged(name: str) -> Scenario:
    """Return a packaged scenario.

    Raises:
        InvalidScenario: there is none of that name.
    """
    if name not in names():
        raise InvalidScenario(f"no scenario {name!r}; accepted: {', '.join(names())}")
    text = _LIBRARY.joinpath(f"{name}.yaml").read_text(encoding="utf-8")
    return parse(text, f"scenario {name}")


def find(name_or_file: str) -> Scenario:
    """Return the packaged scenario of that name, else the one in that file.

    Raises:
        InvalidScenario: neither, or the file holds no scenario.
    """
    if name_or_file in names():
        return packaged(name_or_file)
    path = Path(name_or_file)
    if not path.is_file():
        raise InvalidScenario(
            f"no scenario {name_or_file!r}; accepted: a file, or one of {', '.join(names())}"
        )
    return load(path)


def playground(nodes: int, gpus: int) -> Scenario:
    """Return an empty cluster of so many nodes with so many GPUs each; nothing is played.

    All planes run: what they are to do is stated by what people create.
    """
    amount = {"cpu": "64", "memory": "512Gi", **({_GPU: str(gpus)} if gpus else {})}
    return Scenario(
        name="playground",
        operator_env={"GPU_PREEMPTION_ENABLED": "true", "GPU_PREEMPTION_POLLING_INTERVAL": "1s"},
        nodes=tuple(NodeSpec(f"node-{number}", dict(amount)) for number in range(nodes)),
        steps=(),
        controllers=("idle", "scheduling", "quota"),
        operator_config={
            "scheduling": {"notice": _NOTICE},
            "quota": {"webhooks": {"url": "https://127.0.0.1:0"}, "notice": _NOTICE},
            "gpuPreemption": {"notice": _NOTICE},
        },
    )
