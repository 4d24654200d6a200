"""An option, a reason and a kind of job are added as CONTRIBUTING says, in a copy of the tree.

Each takes no more files than are promised there. What is made of the rows is made anew, and the
tests that read it pass: the tables, the chart and its schema, the words, both worlds of a plan.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_COPIED = ("src", "kubeworld", "kubelocal", "tests", "docs", "charts", "examples", "bench")
_LEFT_OUT = shutil.ignore_patterns("__pycache__", ".venv", "node_modules", ".mypy_cache")

#: By file: what stands there, and what is put before it.
Edits = Mapping[str, tuple[str, str]]

OPTION: Edits = {
    "src/reprieve/settings/options.py": (
        '    Option(\n        "maxMinRuntime",',
        """    Option(
        "everySecondDomain",
        Form.SWITCH,
        False,
        "examine every second domain only",
        "every_second_domain",
        recorded=("every_second_domain",),
    ),
""",
    ),
    "src/reprieve/engine/placement/profile.py": (
        "    topology_preemption: bool",
        "    every_second_domain: bool = field(default=False, metadata={_OPTION: True})\n",
    ),
    "src/reprieve/engine/scheduling/least_cost/alternatives.py": (
        "        limit = len(others) if policy.topology",
        "        others = others[::2] if policy.every_second_domain else others\n",
    ),
    "CHANGELOG.md": ("- ", "- `scheduling.everySecondDomain` examines every second domain.\n"),
}
REASON: Edits = {
    "src/reprieve/engine/diagnosis/reasons.py": (
        '    BACKOFF = "Backoff"',
        '    FULL_MOON = "FullMoon"\n',
    ),
    "src/reprieve/wording/diagnosis.py": (
        "    Reason.BACKOFF: Words(",
        '    Reason.FULL_MOON: Words("The moon is full", "Wait until it wanes."),\n',
    ),
}
_ROW = ("        Reason.BACKOFF: _Row(", "        Reason.FULL_MOON: _Row((_QUOTA,)),\n")
KIND: Edits = {
    "src/reprieve/jobs/suspendable_rows.py": (
        '    _training("PaddleJob"',
        '    _training("ChainerJob", "chainerReplicaSpecs", ("Master", "Worker")),\n',
    ),
    "kubelocal/src/kubelocal/crds/kubeflow.org.yaml": ("", ""),
    "kubeworld/src/kubeworld/kinds/families.py": (
        '    "PaddleJob": "paddle",',
        '    "ChainerJob": "chainer",\n',
    ),
    "charts/reprieve/templates/_names.tpl": ('"jaxjobs" ', '"chainerjobs" '),
}
MANIFEST = """---
apiVersion: kubeflow.org/v1
kind: ChainerJob
metadata: {name: NAME}
spec:
  chainerReplicaSpecs:
    Master:
      replicas: 1
      template: &chainer
        spec:
          containers:
          - {name: main, image: example.org/app:1, resources: {requests: {cpu: "1"}}}
    Worker: {replicas: 1, template: *chainer}
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a copy of the tree."""
    for name in _COPIED:
        shutil.copytree(ROOT / name, tmp_path / name, ignore=_LEFT_OUT, symlinks=True)
    for file in ROOT.iterdir():
        if file.is_file() and file.name != ".git":
            shutil.copy(file, tmp_path)
    return tmp_path


def edit(tree: Path, edits: Edits) -> None:
    for name, (before, added) in edits.items():
        file = tree / name
        text = file.read_text(encoding="utf-8")
        assert before in text, f"{name} has changed: {before!r} does not stand there"
        place = text.index(before)
        file.write_text(text[:place] + added + text[place:], encoding="utf-8")


def run(tree: Path, *arguments: str) -> str:
    """Run Python on the copy; its output, if it succeeds."""
    sources = [str(tree / each) for each in ("src", "kubeworld/src", "kubelocal/src", ".")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sources)}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=tree,
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6_000:] + done.stderr[-2_000:]
    return done.stdout


def check(tree: Path, *tests: str, chosen: Sequence[str] = ()) -> None:
    run(tree, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "-m", "", *chosen, *tests)


def shown(tree: Path, expression: str) -> str:
    return run(tree, "-c", f"import json; {expression}").strip()


def test_an_option_takes_six_files(tree: Path) -> None:
    assert len(OPTION) <= 6
    edit(tree, OPTION)
    run(tree, "-m", "tests.docs.generated")
    assert "everySecondDomain" in (tree / "docs" / "scheduling" / "options.md").read_text()
    assert "everySecondDomain: false" in (tree / "charts/reprieve/values.yaml").read_text()
    assert (
        shown(
            tree,
            "from reprieve.settings.scheduling import scheduling_settings as s;"
            "print(s({'everySecondDomain': True}).policy.every_second_domain)",
        )
        == "True"
    )
    check(
        tree,
        "tests/docs/test_generated.py",
        "tests/docs/test_option_rows.py",
        "tests/settings/test_nonsense.py",
    )


def test_a_reason_takes_two_files(tree: Path) -> None:
    assert len(REASON) <= 2
    edit(tree, REASON)
    edit(tree, {"src/reprieve/engine/diagnosis/reasons.py": _ROW})
    run(tree, "-m", "tests.docs.generated")
    assert "FullMoon" in (tree / "docs" / "why-it-waits.md").read_text()
    check(
        tree,
        "tests/docs/test_generated.py",
        "tests/engine/diagnosis/test_reasons.py",
        "tests/wording/test_diagnosis.py",
    )


def test_a_kind_of_job_takes_four_files(tree: Path) -> None:
    assert len(KIND) <= 4
    edit(tree, KIND)
    definitions = tree / "kubelocal/src/kubelocal/crds/kubeflow.org.yaml"
    text = definitions.read_text(encoding="utf-8")
    [paddle] = [each for each in text.split("---\n") if "kind: PaddleJob" in each]
    added = paddle.replace("PaddleJob", "ChainerJob").replace("paddlejob", "chainerjob")
    definitions.write_text(f"{text.rstrip()}\n---\n{added}", encoding="utf-8")
    manifests = tree / "tests" / "quota_plane" / "kinds.yaml"
    manifests.write_text(manifests.read_text(encoding="utf-8").rstrip() + "\n" + MANIFEST)
    run(tree, "-m", "tests.docs.generated")
    assert "ChainerJob" in (tree / "docs" / "quota" / "job-kinds.md").read_text()
    check(tree, "tests/kubeworld/test_one_world.py", chosen=["-k", "ChainerJob or every_kind"])
    # All of them: one cluster plays the stories, and those that are not awaited are cut off.
    check(tree, "tests/quota_plane/test_kinds.py")
    check(tree, "tests/docs/test_generated.py")
    check(tree, "tests/chart/test_quota_rights.py", chosen=["-k", "roles_of_the_chart"])
