"""Files that no YAML reader understands: one line that names the file, never a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from reprieve.cli.main import cli
from reprieve.operator.lease_keeper import LeaseKeeper
from reprieve.units.errors import ReprieveError

# In here it is pytest's own process that is forked, which has threads; the program's has none then
# (`tests/controllers/test_fork.py`).
pytestmark = pytest.mark.filterwarnings(
    "ignore:This process .* is multi-threaded:DeprecationWarning"
)

COMMANDS = {
    "kubeconfig": ("run", "--controllers", "scheduling", "--kubeconfig"),
    "config": ("run", "--controllers", "scheduling", "--config"),
    "scheduler-config": ("run", "--controllers", "scheduling", "--scheduler-config"),
    "quota-config": ("run", "--controllers", "quota", "--quota-config"),
    "scenario": ("up", "--scenario"),
    "explain": ("explain", "-f"),
}
TEXTS = {
    "number": b"a: !!int many",
    "truth": b"a: !!bool perhaps",
    "depth": b"[" * 5_000,
    "open": b"a: [",
    "binary": b"\xff\xfe\x00",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS.keys())
def test_an_unreadable_file_is_named_in_one_line(
    command: tuple[str, ...], text: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "file.yaml"
    path.write_bytes(text)
    refused = CliRunner().invoke(cli, [*command, str(path)]).exception
    assert isinstance(refused, ReprieveError)
    assert str(path) in str(refused)
    assert "\n" not in str(refused)


def test_an_empty_scheduler_configuration_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file.yaml"
    path.write_text("# nothing\n")
    refused = CliRunner().invoke(cli, [*COMMANDS["scheduler-config"], str(path)]).exception
    assert str(refused).endswith("it is empty; accepted: a KubeSchedulerConfiguration")


def test_an_empty_scheduler_name_is_refused() -> None:
    given = ["run", "--controllers", "scheduling", "--scheduler-name", ""]
    refused = CliRunner().invoke(cli, given).exception
    assert str(refused) == "--scheduler-name: ''; accepted: the name that pods give"


def test_a_refused_start_lets_go_of_the_keeper_of_its_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_go: list[LeaseKeeper] = []

    def close(keeper: LeaseKeeper) -> None:
        let_go.append(keeper)
        really(keeper)

    really = LeaseKeeper.close
    monkeypatch.setattr(LeaseKeeper, "close", close)
    path = tmp_path / "file.yaml"
    path.write_bytes(TEXTS["number"])
    refused = CliRunner().invoke(cli, [*COMMANDS["scheduler-config"], str(path)]).exception
    assert isinstance(refused, ReprieveError)
    assert len(let_go) == 1
