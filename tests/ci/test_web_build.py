"""The page is built into the wheel from declared packages, and no file of others is committed."""

from __future__ import annotations

import gzip
import importlib.util
import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
FRONTEND = ROOT / "web" / "frontend"
STATIC = "reprieve/web/static/"


def lock() -> dict[str, dict[str, object]]:
    read: dict[str, dict[str, object]] = json.loads(
        (FRONTEND / "package-lock.json").read_text(encoding="utf-8")
    )["packages"]
    return read


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    uv = Path(sys.executable).with_name("uv")
    if not uv.exists():
        pytest.skip("no uv beside this Python: the tests do not run in the project's environment")
    if os.environ.get("REPRIEVE_WITHOUT_WEB", "") not in ("", "0"):
        pytest.skip("built without the web page (REPRIEVE_WITHOUT_WEB)")
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([uv, "build", "-q", "--wheel", "--out-dir", folder], cwd=ROOT, check=True)
    (path,) = folder.glob("*.whl")
    return zipfile.ZipFile(path)


def test_the_wheel_has_the_page_that_its_manifest_names_each_file_packed_too(
    wheel: zipfile.ZipFile,
) -> None:
    manifest = json.loads(wheel.read(f"{STATIC}manifest.json"))
    assert {"index.html", "main.js", "style.css", "theme.js", "icon.svg", "notices.txt"} <= set(
        manifest
    )
    for file in manifest.values():
        plain, packed = wheel.read(f"{STATIC}{file}"), wheel.read(f"{STATIC}{file}.gz")
        assert gzip.decompress(packed) == plain
    page = wheel.read(f"{STATIC}index.html").decode()
    for name in ("main.js", "style.css", "theme.js", "icon.svg"):
        assert f'"/assets/{manifest[name]}"' in page
    named = {f"{STATIC}{file}{packed}" for file in manifest.values() for packed in ("", ".gz")}
    named |= {f"{STATIC}manifest.json", f"{STATIC}sources.sha256"}
    assert {name for name in wheel.namelist() if name.startswith(STATIC)} == named


def test_a_first_load_is_at_most_60_kib_of_script_and_style(wheel: zipfile.ZipFile) -> None:
    manifest = json.loads(wheel.read(f"{STATIC}manifest.json"))
    sizes = {
        name.removeprefix(STATIC): wheel.getinfo(f"{name}.gz").file_size
        for name in wheel.namelist()
        if name.startswith(STATIC) and name.endswith((".js", ".css"))
    }
    # What is imported as the page starts, and what by its later half in brackets: import("...").
    first = {manifest[name] for name in ("main.js", "style.css", "theme.js")}
    main = wheel.read(f"{STATIC}{manifest['main.js']}").decode()
    first |= set(re.findall(r'(?:from|import)\s*"\./([^"]+)"', main))
    assert sum(sizes[name] for name in first) <= 60 * 1024, sizes
    # Charts of series over time come with the first of them.
    assert set(sizes) - first == {manifest["time_series.js"]}
    assert sum(sizes.values()) <= 72 * 1024, sizes


def test_the_notices_have_every_package_that_went_into_the_page(wheel: zipfile.ZipFile) -> None:
    manifest = json.loads(wheel.read(f"{STATIC}manifest.json"))
    notices = wheel.read(f"{STATIC}{manifest['notices.txt']}").decode()
    for name in ("preact", "@preact/signals", "@preact/signals-core", "uplot"):
        assert f"\n{name} {lock()[f'node_modules/{name}']['version']}, MIT\n" in notices
    assert "Permission is hereby granted" in notices


def test_the_lock_names_packages_by_their_hash_and_nobodys_address() -> None:
    packages = {path: each for path, each in lock().items() if path}
    assert packages
    assert not [path for path, each in packages.items() if "resolved" in each]
    assert not [
        path for path, each in packages.items() if not str(each["integrity"]).startswith("sha512-")
    ]
    assert "http" not in (FRONTEND / "package-lock.json").read_text("utf-8").replace(
        "https://opencollective.com", ""
    ).replace("https://github.com/sponsors", "")


def test_no_file_of_others_is_committed() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "web", "src/reprieve/web"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode:
        pytest.skip("not a clone: there is no telling what is committed")
    files = listed.stdout.split()
    assert "web/frontend/package-lock.json" in files
    assert not [
        file for file in files if "node_modules" in file or "/static/" in file or ".min." in file
    ]


def script(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_bill_of_materials_has_a_row_for_each_package_but_those_of_developers() -> None:
    rows = {row["name"]: row for row in script(".ci/npm_rows.py").npm_rows({"packages": lock()})}
    assert set(rows) == {"preact", "@preact/signals", "@preact/signals-core", "uplot", "esbuild"}
    assert rows["@preact/signals"]["purl"].startswith("pkg:npm/%40preact/signals@2.")
    assert {name for name, row in rows.items() if row["scope"] == "excluded"} == {"esbuild"}
    assert all(len(row["hashes"][0]["content"]) == 128 for row in rows.values())
