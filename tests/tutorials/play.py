"""Plays a tutorial. `python -m tests.tutorials.play NAME` writes into it what was printed.

The block that runs `reprieve up` starts the cluster, another block `sh` is run by bash, and what
its last command prints becomes what stands in the block `text` after it, within a minute. What a
block exports is there for those after it, as in one terminal; nothing but kubectl is on the path
before. Ages, times, uids and the random parts of names differ; so do the widths of columns.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest

from kubelocal.tests.kubectl_binary import find_kubectl
from reprieve.scenarios import with_parent

__all__ = ["FOLDER", "Step", "play", "playground", "steps"]

FOLDER: Final = Path(__file__).parents[2] / "docs" / "tutorials"
EXAMPLES: Final = Path(__file__).parents[2] / "examples"
SCRIPTS: Final = Path(sys.executable).parent
_EXPORTS: Final = ".exports"
_BLOCK: Final = re.compile(r"```(sh|text)\n(.*?)```", re.DOTALL)
_RUN: Final = ".venv/bin/uv run "
_READY: Final = "quota plane runs"
_NOTICES: Final = "export REPRIEVE_NOTICE_URL="
_TRIES: Final = 60
_SETTLED_S: Final = 9
# What differs from run to run, the longer forms first.
_VARIES: Final = tuple(
    (re.compile(pattern), word)
    for pattern, word in (
        (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "UID"),
        (r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "TIME"),
        (r"\b\d\d:\d\d:\d\d( UTC|Z)?", "TIME"),
        (r"\b\d+(\.\d+)? device (hour|second)s?\b", "LOST"),
        (r"\b[0-9a-f]{16}\b", "PLAN"),
        (r"-[0-9a-z]{8,10}-[0-9a-z]{5}\b", "-RANDOM"),
        (r"-[0-9a-f]{10}\b", "-RANDOM"),
        (r"-[0-9a-f]{8}\b", "-RANDOM"),
        # Of the Workload of a job or pod, and of the pod of a Job.
        (r"\b((?:job|pod)-[0-9a-z-]+)-[0-9a-f]{5}\b", r"\1-RANDOM"),
        (r"\b(train(?:ing)?)-[0-9a-z]{5}\b", r"\1-RANDOM"),
        (r"\b\d+(\.\d+)?( ?s|m\d*s?| min)\b", "AGE"),
    )
)


@dataclass(frozen=True, slots=True)
class Step:
    """One block of commands, and what its last one is to print; None where nothing stands."""

    commands: str
    expected: str | None


def steps(text: str) -> tuple[str, list[Step]]:
    """Return the command that starts the cluster, and what follows."""
    start, found = "", list[Step]()
    blocks = _BLOCK.findall(text)
    for at, (language, body) in enumerate(blocks):
        following = blocks[at + 1] if at + 1 < len(blocks) else ("", "")
        if body.startswith(_RUN):
            start = body.strip()
        elif language == "sh":
            found.append(Step(body, following[1] if following[0] == "text" else None))
    return start, found


def shown(text: str) -> list[str]:
    """Return the words of an output without what differs from run to run, as lines may do, too."""
    for pattern, word in _VARIES:
        text = pattern.sub(word, text)
    return text.split()


@asynccontextmanager
async def playground(command: str, folder: Path) -> AsyncIterator[dict[str, str]]:
    """Run a tutorial's first command; give the variables of the second terminal."""
    kubectl = find_kubectl()
    if kubectl is None:
        pytest.skip("no kubectl: set $KUBECTL, or put one on PATH")
    (folder / "bin").mkdir()
    (folder / "bin" / "kubectl").symlink_to(kubectl)
    # As in a clone: what is installed stands in `.venv`, and the scenarios of the tutorials there.
    (folder / ".venv").symlink_to(SCRIPTS.parent)
    (folder / "examples").symlink_to(EXAMPLES)
    elsewhere = [each for each in os.environ["PATH"].split(":") if Path(each) != SCRIPTS]
    path = ":".join((str(folder / "bin"), *elsewhere))
    (folder / _EXPORTS).touch()
    environment = {
        "PATH": path,
        "HOME": str(folder),
        "COLUMNS": "100",
        "BASH_ENV": str(folder / _EXPORTS),
    }
    assert command.startswith(_RUN)
    process = await asyncio.create_subprocess_exec(
        *with_parent.command(*command.removeprefix(_RUN).split()),
        env={**environment, "PATH": f"{SCRIPTS}:{path}"},
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    reading: list[asyncio.Task[None]] = []
    try:
        first = (await process.stdout.readline()).decode()
        environment["KUBECONFIG"] = first.removeprefix("export KUBECONFIG=").strip()
        while _READY not in (await process.stderr.readline()).decode():
            pass
        if "--nodes" in command:
            while _NOTICES not in (line := (await process.stdout.readline()).decode()):
                assert line, "the command has ended"
            environment["REPRIEVE_NOTICE_URL"] = line.removeprefix(_NOTICES).strip()
        reading = [
            asyncio.create_task(_drain(stream)) for stream in (process.stdout, process.stderr)
        ]
        yield environment
    finally:
        process.terminate()
        await process.wait()
        for task in reading:
            await task


async def _drain(stream: asyncio.StreamReader) -> None:
    while await stream.readline():
        pass


async def bash(commands: str, environment: dict[str, str], folder: Path) -> str:
    process = await asyncio.create_subprocess_exec(
        "bash",
        "-euo",
        "pipefail",
        "-c",
        commands,
        env=environment,
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    said, errors = await process.communicate()
    assert process.returncode == 0, f"{commands}\n{said.decode()}{errors.decode()}"
    with (folder / _EXPORTS).open("a", encoding="utf-8") as file:
        file.writelines(f"{each}\n" for each in commands.splitlines() if each.startswith("export "))
    return said.decode()


async def play(step: Step, environment: dict[str, str], folder: Path) -> None:
    # Instants of objects have whole seconds, and no reader types two steps within one.
    before = int(time.time())
    while int(time.time()) == before:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    said = await bash(step.commands, environment, folder)
    if step.expected is None:
        return
    wanted = shown(step.expected)
    last = step.commands.strip().splitlines()[-1]
    for _ in range(_TRIES):
        if _ends_with(shown(said), wanted):
            return
        await asyncio.sleep(1)
        said = await bash(last, environment, folder)
    raise AssertionError(f"{last}\nprints:\n{said}\nand not:\n{step.expected}")


def _ends_with(said: Sequence[str], wanted: Sequence[str]) -> bool:
    """Whether the last words are these; where several commands print, the last one counts."""
    return list(said[-len(wanted) :]) == list(wanted)


async def _write(name: str) -> None:
    """Play a tutorial and write into its blocks of text what was printed nine seconds later."""
    path = FOLDER / f"{name}.md"
    text = path.read_text(encoding="utf-8")
    blocks = list(_BLOCK.finditer(text))
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        async with playground(steps(text)[0], folder) as environment:
            printed = dict[tuple[int, int], str]()
            for block, following in pairwise([*blocks, None]):
                if block is None or block[1] != "sh" or block[2].startswith(_RUN):
                    continue
                await bash(block[2], environment, folder)
                if following is not None and following[1] == "text":
                    await asyncio.sleep(_SETTLED_S)
                    last = block[2].strip().splitlines()[-1]
                    printed[following.span(2)] = await bash(last, environment, folder)
    for (start, end), said in sorted(printed.items(), reverse=True):
        text = text[:start] + said.rstrip() + "\n" + text[end:]
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    for each in sys.argv[1:]:
        asyncio.run(_write(each))
