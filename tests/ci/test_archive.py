"""The archive for krew answers without Python, and its manifest names what is in it."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest
import yaml

from reprieve.whatif.snapshots.stored import stored_bytes
from tests.chart.go_tools import KREW, ToolMissing, tool
from tests.explain.test_from_snapshot import snapshot

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / ".ci" / "archive.py"
_SPEC = importlib.util.spec_from_file_location("archive", SCRIPT)
assert _SPEC is not None and _SPEC.loader is not None
archive_script = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(archive_script)


def asked(*arguments: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, SCRIPT, *arguments], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout, done.stderr


def archives(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).write_bytes(name.encode())


def test_the_manifest_names_each_archive_by_its_hash_and_program(tmp_path: Path) -> None:
    names = ("reprieve-1.2.3rc1-darwin-arm64.tar.gz", "reprieve-1.2.3rc1-linux-amd64.tar.gz")
    archives(tmp_path, *names, "reprieve-1.2.3rc1-py3-none-any.whl", "SHA256SUMS")
    code, _, _ = asked("krew", str(tmp_path), "https://downloads.example/v1.2.3-rc1/")
    assert code == 0
    written = yaml.safe_load((tmp_path / "reprieve.yaml").read_text())
    assert (written["apiVersion"], written["kind"], written["metadata"]) == (
        "krew.googlecontainertools.github.com/v1alpha2",
        "Plugin",
        {"name": "reprieve"},
    )
    spec = written["spec"]
    assert spec["version"] == "v1.2.3-rc1"
    # krew's index asks for a short text without a full stop that does not begin with "kubectl".
    assert len(spec["shortDescription"]) <= 50 and not spec["shortDescription"].endswith(".")
    assert spec["homepage"].startswith("https://") and spec["description"].strip()
    assert spec["platforms"] == [
        {
            "selector": {"matchLabels": {"os": os_name, "arch": arch}},
            "uri": f"https://downloads.example/v1.2.3-rc1/{name}",
            "sha256": hashlib.sha256(name.encode()).hexdigest(),
            "bin": f"{name.removesuffix('.tar.gz')}/kubectl-reprieve",
        }
        for name, os_name, arch in zip(names, ("darwin", "linux"), ("arm64", "amd64"), strict=True)
    ]


@pytest.mark.parametrize(
    ("names", "found"),
    [((), 0), (("reprieve-1.0.0-linux-amd64.tar.gz", "reprieve-1.0.1-linux-arm64.tar.gz"), 2)],
)
def test_no_manifest_is_of_no_archive_or_of_two_versions(
    tmp_path: Path, names: tuple[str, ...], found: int
) -> None:
    archives(tmp_path, *names)
    said = f"{tmp_path}: archives of {found} versions; accepted is one version\n"
    assert asked("krew", str(tmp_path), "https://downloads.example") == (1, "", said)
    assert not (tmp_path / "reprieve.yaml").exists()


def test_other_words_are_refused_with_what_is_accepted() -> None:
    said = "accepted: archive.py build FOLDER, archive.py krew FOLDER ADDRESS\n"
    assert asked("build") == asked() == (2, "", said)


def test_an_archive_has_no_links_which_krew_refuses_to_unpack(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "libraries").mkdir(parents=True)
    (tree / "libraries" / "real.so").write_bytes(b"library")
    (tree / "real.so").symlink_to("libraries/real.so")
    with tarfile.open(archive_script._packed(tree, tmp_path / "a.tar.gz", "a")) as packed:
        assert all(each.isfile() for each in packed)
        found = {each.name: packed.extractfile(each) for each in packed}
        read = {name: file.read() for name, file in found.items() if file is not None}
    assert read == {"a/libraries/real.so": b"library", "a/real.so": b"library"}


def test_the_same_files_are_the_same_archive_at_any_time_and_umask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = []
    for moment, mode in ((1_800_000_000.0, 0o755), (1_900_000_000.0, 0o700)):
        tree = tmp_path / str(mode)
        tree.mkdir()
        (tree / "program").write_bytes(b"program")
        (tree / "program").chmod(mode)
        monkeypatch.setattr(time, "time", lambda now=moment: now)
        packed.append(archive_script._packed(tree, tmp_path / f"{mode}.gz", "a").read_bytes())
    assert packed[0] == packed[1]


def installed_by_krew(archive: Path, folder: Path) -> Path:
    """Return the folder that krew has put on PATH; the manifest is the one of the release."""
    code, written, fault = asked("krew", str(archive.parent), "https://downloads.example/")
    assert code == 0, fault
    done = subprocess.run(
        [tool(KREW), "install", "--manifest", written.strip(), "--archive", archive],
        capture_output=True,
        text=True,
        env={**os.environ, "KREW_ROOT": str(folder)},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder / "bin"


@pytest.mark.slow
def test_an_archive_answers_without_python_as_the_installed_command(tmp_path: Path) -> None:
    if not Path(sys.executable).with_name("uv").exists():
        pytest.skip("no uv beside this Python: the tests do not run in the project's environment")
    code, built, fault = asked("build", str(tmp_path / "built"))
    assert code == 0, fault
    archive = Path(built.strip())
    with tarfile.open(archive) as packed:
        assert {(each.uid, each.gid, each.uname, each.mtime) for each in packed} == {
            (0, 0, "", 315532800)
        }
    try:
        bin_folder = installed_by_krew(archive, tmp_path / "krew")
    except ToolMissing as missing:
        pytest.skip(str(missing))
    # The environment has neither Python nor PATH; krew has linked the program.
    program = bin_folder / "kubectl-reprieve"
    assert program.is_symlink()
    assert (program.resolve().parent / "LICENSE").exists()
    file = tmp_path / "cluster.snapshot"
    file.write_bytes(stored_bytes(snapshot()))
    installed = Path(sys.executable).with_name("kubectl-reprieve")
    for words in (
        ["explain", "pod/train-1", "-n", "team", "--from", str(file)],
        ["explain", "pod/train-1", "-n", "team", "--from", str(file), "-o", "json"],
        ["explain", "pod/none", "-n", "team", "--from", str(file)],
        ["crds"],
        ["plan", "-f", str(tmp_path / "none.yaml"), "--from", str(file)],
    ):
        here, there = (
            subprocess.run(
                [each, *words], capture_output=True, text=True, env=environment, check=False
            )
            for each, environment in ((program, {}), (installed, {**os.environ, "COLUMNS": "80"}))
        )
        assert (here.returncode, here.stdout, here.stderr) == (
            there.returncode,
            there.stdout,
            there.stderr,
        ), words
    completion = bin_folder / "kubectl_complete-reprieve"
    completion.symlink_to(program.resolve().with_name(completion.name))
    for words in (["expl"], ["plan", "-"], []):
        here, there = (
            subprocess.run([each, *words], capture_output=True, text=True, env={}, check=True)
            for each in (completion, installed.with_name(completion.name))
        )
        assert here.stdout == there.stdout and here.stdout.endswith("\n:4\n"), words
