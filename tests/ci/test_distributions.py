"""Four wheels: Reprieve without an API server, the others without Reprieve."""

from __future__ import annotations

import ast
import email
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.message import Message
from pathlib import Path

import pytest

import reprieve
from reprieve import __version__
from tests.docs.man_pages import MAN

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, zipfile.ZipFile]:
    uv = Path(sys.executable).with_name("uv")
    if not uv.exists():
        pytest.skip("no uv beside this Python: the tests do not run in the project's environment")
    folder = tmp_path_factory.mktemp("wheels")
    subprocess.run(
        [uv, "build", "--quiet", "--wheel", "--all-packages", "--out-dir", folder],
        cwd=ROOT,
        check=True,
    )
    return {path.name.partition("-")[0]: zipfile.ZipFile(path) for path in folder.glob("*.whl")}


def metadata(wheel: zipfile.ZipFile) -> Message:
    (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    return email.message_from_bytes(wheel.read(name))


def test_reprieve_brings_no_api_server_but_with_its_extra(
    wheels: dict[str, zipfile.ZipFile],
) -> None:
    assert set(wheels) == {"reprieve", "kubelocal", "kubeworld", "reprieve_notice"}
    assert not [name for name in wheels["reprieve"].namelist() if "kubelocal" in name]
    required = metadata(wheels["reprieve"]).get_all("Requires-Dist", [])
    found = {line for line in required if line.startswith(("kubelocal", "rich"))}
    assert found == {f"kubelocal=={__version__}; extra == 'local'", "rich>=14.0; extra == 'local'"}
    assert len(required) > len(found)


def test_reprieve_brings_its_man_pages(wheels: dict[str, zipfile.ZipFile]) -> None:
    pages = {
        Path(name).name for name in wheels["reprieve"].namelist() if "/share/man/man1/" in name
    }
    assert pages == {path.name for path in MAN.glob("*.1")} and pages


def test_what_an_index_shows_links_to_nothing_that_it_lacks(
    wheels: dict[str, zipfile.ZipFile],
) -> None:
    for name, wheel in wheels.items():
        text = str(metadata(wheel).get_payload())
        targets = re.findall(r"\]\(([^)\s]+)", text)
        assert [each for each in targets if not each.startswith(("https://", "#"))] == [], name
        assert len(text.splitlines()) > 10, name
    shown = str(metadata(wheels["reprieve"]).get_payload())
    assert "pip install reprieve\n" in shown and "uv run" not in shown


def test_a_candidate_of_1_0_is_no_alpha(wheels: dict[str, zipfile.ZipFile]) -> None:
    for name, wheel in wheels.items():
        stated = [
            each
            for each in metadata(wheel).get_all("Classifier", [])
            if each.startswith("Development Status ::")
        ]
        (status,) = stated
        assert ("Beta" in status) == ("rc" in __version__), name
        assert ("Stable" in status) == ("rc" not in __version__), name


def test_the_source_distribution_has_what_it_states_of_its_security(tmp_path: Path) -> None:
    uv = Path(sys.executable).with_name("uv")
    if not uv.exists():
        pytest.skip("no uv beside this Python: the tests do not run in the project's environment")
    subprocess.run([uv, "build", "-q", "--sdist", "--out-dir", tmp_path], cwd=ROOT, check=True)
    (path,) = tmp_path.glob("reprieve-*.tar.gz")
    with tarfile.open(path) as packed:
        members = {each.name.partition("/")[2] for each in packed}
    stated = (ROOT / "SECURITY-INSIGHTS.yml").read_text(encoding="utf-8")
    named = set(re.findall(r"(?:docs|\.github|\.ci)/[\w./-]+\w|\w+\.(?:md|toml)", stated))
    assert named > {"SECURITY.md", ".github/workflows/release.yml", ".ci/vex.toml"}
    assert named | {"SECURITY-INSIGHTS.yml"} <= members


def test_kubelocal_carries_its_data_and_neither_tests_nor_reprieve(
    wheels: dict[str, zipfile.ZipFile],
) -> None:
    names = set(wheels["kubelocal"].namelist())
    assert {"kubelocal/py.typed", "kubelocal/crds/ray.io.yaml"} <= names
    assert not [name for name in names if "/tests/" in name or "reprieve" in name]
    required = metadata(wheels["kubelocal"]).get_all("Requires-Dist", [])
    assert f"kubeworld=={__version__}" in required
    assert not [line for line in required if "reprieve" in line]


def test_kubeworld_needs_nothing_and_both_others_need_it(
    wheels: dict[str, zipfile.ZipFile],
) -> None:
    names = wheels["kubeworld"].namelist()
    modules = ("clock", "quantities", "untrusted")
    assert {f"kubeworld/units/{each}.py" for each in modules} | {"kubeworld/py.typed"} <= set(names)
    assert not [name for name in names if "reprieve" in name or "/tests/" in name]
    assert metadata(wheels["kubeworld"]).get_all("Requires-Dist", []) == []
    required = metadata(wheels["reprieve"]).get_all("Requires-Dist", [])
    assert f"kubeworld=={__version__}" in required


def test_the_library_for_notices_needs_nothing_and_runs_on_old_pythons(
    wheels: dict[str, zipfile.ZipFile],
) -> None:
    wheel = wheels["reprieve_notice"]
    sources = [name for name in wheel.namelist() if name.endswith(".py")]
    assert metadata(wheel)["Requires-Python"] == ">=3.9"
    assert metadata(wheel).get_all("Requires-Dist", []) == []
    assert "reprieve_notice/py.typed" in wheel.namelist()
    assert sources and all(name.startswith("reprieve_notice/") for name in sources)
    known = {"__future__", "reprieve_notice"} | set(sys.stdlib_module_names)
    for name in sources:
        tree = ast.parse(wheel.read(name), feature_version=(3, 9))
        imported = {
            each.module or "" if isinstance(each, ast.ImportFrom) else each.names[0].name
            for each in ast.walk(tree)
            if isinstance(each, (ast.Import, ast.ImportFrom))
        }
        # Callbacks are imported by those alone who have the framework.
        own = {Path(name).stem} & {"lightning", "ray", "transformers"}
        assert {each.partition(".")[0] for each in imported} <= known | own, name


def test_the_wheel_of_kubelocal_starts_by_itself(
    wheels: dict[str, zipfile.ZipFile], tmp_path: Path
) -> None:
    for name in ("kubelocal", "kubeworld"):
        wheels[name].extractall(tmp_path)
    code = (
        "import sys, urllib.request; sys.path.insert(0, sys.argv[1])\n"
        "from kubelocal.running import Settings, running_in_thread\n"
        "with running_in_thread(Settings(nodes=1)) as started:\n"
        "    print(urllib.request.urlopen(started.url + '/version').status)\n"
        "import kubelocal\n"
        "print(kubelocal.__file__.startswith(sys.argv[1]), 'reprieve' in sys.modules)"
    )
    said = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert said.stdout.split() == ["200", "True", "False"]


def test_the_version_that_the_extra_names_is_the_one_that_stands_beside_it() -> None:
    def project(path: Path) -> dict[str, object]:
        loaded: dict[str, object] = tomllib.loads(path.read_text(encoding="utf-8"))["project"]
        return loaded

    extras = project(ROOT / "pyproject.toml")["optional-dependencies"]
    version = project(ROOT / "kubelocal" / "pyproject.toml")["version"]
    assert isinstance(extras, dict)
    assert f"kubelocal=={version}" in extras["local"]


def test_simulation_annotations_occur_nowhere_in_reprieve_itself() -> None:
    package = Path(reprieve.__file__).parent
    searched = [
        path
        for folder in (package, ROOT / "charts")
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix != ".pyc"
    ]
    assert len(searched) > 300
    assert [path for path in searched if b"sim.reprieve.dev" in path.read_bytes()] == []
