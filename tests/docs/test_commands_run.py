"""Each command that a document shows is run by a test, or its block names why it is not.

Pages that are played whole name their test in `PLAYED`. A command that keeps running, or needs
another program, is run by the test that `ELSEWHERE` names. All others are run here, as bash and
kubectl run them, on an embedded cluster that serves every kind: none may be a wrong use, name a
kind that is not served, or a field that is not read. That an object of the text is not there is
no fault. A block after `<!-- run by: FILE -->` is run by that test, one after
`<!-- not run: REASON -->` by none.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
import yaml

from kubelocal.cluster import EmbeddedCluster
from kubelocal.tests.kubectl_binary import find_kubectl
from reprieve.api.crds import all_crds, gang_crds, kueue_crds

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md"))]
SHELLS: Final = frozenset({"sh", "console", "bash"})

#: Pages, or folders of pages, whose every block a test plays.
PLAYED: Final = {
    "docs/tutorials/": "tests/tutorials/test_tutorials.py",
    "docs/quota/troubleshooting.md": "tests/docs/test_quota_troubleshooting.py",
    "docs/scheduling/troubleshooting.md": "tests/docs/test_scheduling_troubleshooting.py",
}

#: What a command begins with, the file that runs it, and words of that file.
ELSEWHERE: Final = (
    (r"python3 -m venv \.venv .* pytest$", ".ci/run", "run_tests"),
    (r"(python3 -m venv .* )?(\.venv/bin/uv run )?reprieve up( |$)", ".ci/run", "reprieve up"),
    (r"(\.venv/bin/uv run )?reprieve dashboard$", "tests/web/test_dashboard.py", "dashboard"),
    (
        r"(\w+=\S+ )?(\.venv/bin/uv run )?reprieve run( |$)",
        "tests/cli/test_decision_log.py",
        '"run"',
    ),
    (r"helm install ", "tests/chart/test_installation.py", '"install"'),
    (r"python -m bench\.(\w+)", ".ci/run", "bench."),
)
_ABSENT: Final = re.compile(
    r"\(NotFound\)|\(AlreadyExists\)|No resources found|no Preemption|; there is none"
    '|"none" not found|Metrics API not available'
)


@dataclass(frozen=True, slots=True)
class Block:
    """The commands of a block: where it begins, and its marker with what it names."""

    page: str
    line: int
    commands: tuple[str, ...]
    marker: str
    named: str


def blocks(page: Path) -> Iterator[Block]:
    """Yield the blocks of a page that a shell reads."""
    lines = page.read_text(encoding="utf-8").splitlines()
    language, body, start = None, list[str](), 0
    for at, line in enumerate(lines):
        fence = re.match(r" *```(\w*)", line)
        if fence is None:
            body.append(line.strip())
        elif language is None:
            language, body, start = fence[1], [], at
        else:
            if language in SHELLS:
                before = next((each for each in reversed(lines[:start]) if each.strip()), "")
                marker = re.fullmatch(r" *<!-- (not run|run by): (.+) -->", before)
                name = str(page.relative_to(ROOT))
                commands = tuple(_commands(body, console=language == "console"))
                yield Block(name, start + 1, commands, *(marker.groups() if marker else ("", "")))
            language = None


def _commands(body: list[str], *, console: bool) -> Iterator[str]:
    """Yield the commands of a block, continued lines joined, without prompts and remarks.

    A block with a document of its own is one command.
    """
    if any("<<" in line for line in body):
        yield "\n".join(body)
        return
    for line in re.sub(r"\\\n\s*", "", "\n".join(body)).splitlines():
        if console and not line.startswith("$ "):
            continue
        command = re.sub(r"\s{2,}#.*$", "", line.removeprefix("$ "))
        if command and not command.startswith("#"):
            yield command


ALL: Final = [block for page in PAGES for block in blocks(page)]


def played(block: Block) -> bool:
    return block.page.startswith(tuple(PLAYED))


def elsewhere(command: str) -> bool:
    return any(re.match(pattern, command) for pattern, _, _ in ELSEWHERE)


def here() -> list[Block]:
    """Return the blocks that are run here."""
    return [block for block in ALL if not (played(block) or block.marker)]


def test_most_blocks_are_run() -> None:
    left_out = [block for block in ALL if block.marker == "not run"]
    assert len(ALL) > 150 and len(left_out) < len(ALL) / 12
    assert all(block.commands for block in ALL)
    named = {block.named for block in ALL if block.marker == "run by"} | {*PLAYED.values()}
    assert [each for each in named if not (ROOT / each).is_file()] == []


@pytest.mark.parametrize(("file", "words"), sorted({(file, words) for _, file, words in ELSEWHERE}))
def test_what_runs_a_command_elsewhere_is_there(file: str, words: str) -> None:
    assert words in (ROOT / file).read_text(encoding="utf-8")


def test_a_bench_that_a_document_shows_is_one_that_ci_runs() -> None:
    ci = (ROOT / ".ci/run").read_text(encoding="utf-8")
    shown = {
        name
        for block in ALL
        if not block.marker
        for command in block.commands
        for name in re.findall(r"python -m (bench\.\w+)", command)
    }
    assert {name for name in shown if name not in ci} == set()


@asynccontextmanager
async def shell(folder: Path) -> AsyncIterator[None]:
    """Serve every kind, in a folder with the programs and files that commands name."""
    kubectl = find_kubectl()
    if kubectl is None:
        pytest.skip("no kubectl: set $KUBECTL, or put one on PATH")
    (folder / "bin").mkdir()
    (folder / "bin" / "kubectl").symlink_to(kubectl)
    # A link to a Python is not one of its environment.
    for name in ("reprieve", "python"):
        script = folder / "bin" / name
        script.write_text(f'#!/bin/sh\nexec {Path(sys.executable).with_name(name)} "$@"\n')
        script.chmod(0o755)
    (folder / "examples").symlink_to(ROOT / "examples")
    pod = {
        "containers": [{"name": "main", "image": "registry.example/main:1"}],
        "restartPolicy": "Never",
    }
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train"},
        "spec": {"template": {"spec": pod}},
    }
    (folder / "job.yaml").write_text(yaml.safe_dump(job), encoding="utf-8")
    (folder / "candidate.yaml").write_text(
        yaml.safe_dump({"harmBudgets": {"day": {"limits": {"displacements": 1}, "window": "1h"}}}),
        encoding="utf-8",
    )
    (folder / "study.yaml").write_text(
        "{cluster: {nodes: 4, devices: 8}, policies: {classical: {}},"
        " workload: {trace: csv, path: examples/policies/trace.csv, load: [1.0], seeds: [0, 1]}}\n"
    )
    gates = {"CompositePodGroup": True, "TopologyAwareWorkloadScheduling": True}
    async with EmbeddedCluster(feature_gates=gates) as cluster:
        cluster.write_kubeconfig(folder / "kubeconfig")
        crds = [*all_crds(), *kueue_crds(), *gang_crds()]
        (folder / "crds.yaml").write_text(yaml.safe_dump_all(crds), encoding="utf-8")
        spaces = ("team", "gangs", "research", "ml-team", "kaiwo-system", "reprieve")
        for command in (
            "kubectl apply --server-side -f crds.yaml",
            *(f"kubectl create namespace {each}" for each in spaces),
        ):
            assert (await ended(command, folder))[0] == 0
        yield


def typed(command: str) -> str:
    """Return a command as it is run here: placeholders are names, and nothing is deleted."""
    named = re.sub(r"\b(PREEMPTION|NAMESPACE|EXPORTER|SERVICEACCOUNT|NODE|NAME)\b", "none", command)
    named = re.sub(r"^\.venv/bin/uv run ", "", named)
    return re.sub(r"kubectl (delete|annotate)\b(.*)", r"kubectl \1\2 --dry-run=server", named)


async def ended(command: str, folder: Path) -> tuple[int | None, str]:
    """Return the exit code of a command, and what it printed."""
    process = await asyncio.create_subprocess_exec(
        "bash",
        "-c",
        command,
        cwd=folder,
        env={
            "KUBECONFIG": str(folder / "kubeconfig"),
            "HOME": str(folder),
            "PATH": f"{folder / 'bin'}:{os.defpath}",
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    return process.returncode, said.decode()


async def test_the_commands_of_all_pages_are_ones_that_run(tmp_path: Path) -> None:
    wrong, ran = [], set[str]()
    async with shell(tmp_path):
        for block in here():
            for command in block.commands:
                if elsewhere(command) or typed(command) in ran:
                    continue
                ran.add(typed(command))
                code, said = await ended(typed(command), tmp_path)
                if code and not (code in (1, 2) and _ABSENT.search(said)):
                    wrong.append(f"{block.page}:{block.line}: {command}: {code}\n{said}")
    assert not wrong, "\n".join(wrong)
    assert len(ran) > 80
