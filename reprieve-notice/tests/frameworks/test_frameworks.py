"""The library below the real torch, transformers, Lightning and Ray, on the CPU.

They are no dependencies of ours: `$REPRIEVE_FRAMEWORKS` names a Python that has them, else it is
`reprieve/frameworks/bin/python` in the user's cache folder. `pytest -m slow` runs these tests.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

_HERE = Path(__file__).parent
_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
_PYTHON = Path(
    os.environ.get("REPRIEVE_FRAMEWORKS") or _CACHE / "reprieve" / "frameworks" / "bin" / "python"
)
_RAY = _PYTHON.parents[1].glob("lib/python3*/site-packages/ray")
_LACKING = "torch, transformers and Lightning are not installed: $REPRIEVE_FRAMEWORKS names none"
_ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": str(_HERE.parents[1] / "src"),
    "OMP_NUM_THREADS": "1",
    "CUDA_VISIBLE_DEVICES": "",
}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not _PYTHON.exists(), reason=_LACKING),
]


def started(*arguments: str) -> subprocess.Popen[str]:
    command = ("timeout", "240", str(_PYTHON), *arguments)
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=_ENVIRONMENT, cwd=_HERE, stdout=pipe, text=True)


def said(process: subprocess.Popen[str]) -> str:
    out, _ = process.communicate()
    assert process.returncode == 0
    return out


@pytest.mark.parametrize("ranks", [2, 4])
def test_all_ranks_save_the_same_step_although_one_was_told(ranks: int, tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    processes = [started("ranks.py", str(rank), str(ranks), store, "7") for rank in range(ranks)]
    assert [said(each).strip() for each in processes] == [
        f"rank {rank} saved 10" for rank in range(ranks)
    ]


def test_after_a_rank_was_killed_nobody_reports_a_save(tmp_path: Path) -> None:
    """The unit is silent, and goes at its deadline."""
    store = str(tmp_path / "store")
    processes = [started("ranks.py", str(rank), "2", store, "7", "8") for rank in range(2)]
    out = [process.communicate()[0] for process in processes]
    assert out == ["", ""]
    assert all(process.returncode for process in processes)


@pytest.mark.skipif(not list(_RAY), reason="Ray is not installed: $REPRIEVE_FRAMEWORKS has none")
def test_a_node_of_ray_is_drained_and_all_workers_know_it_at_the_same_step(tmp_path: Path) -> None:
    last = said(started("ray_training.py", str(tmp_path))).strip().splitlines()[-1]
    assert last == "1 step, told ['[0, 1] True']"


@pytest.mark.parametrize("kind", ["transformers", "lightning"])
def test_a_trainer_saves_reports_and_stops_when_its_pod_is_told(kind: str, tmp_path: Path) -> None:
    last = said(started("trainers.py", kind, str(tmp_path))).strip().splitlines()[-1]
    assert last == "stopped at 8 of 40, reported [8]"
