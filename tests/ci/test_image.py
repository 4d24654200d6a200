"""The image is built from named versions, and runs as nobody in particular."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import msgspec

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
_SPEC = importlib.util.spec_from_file_location("prune", ROOT / ".ci" / "prune.py")
assert _SPEC is not None and _SPEC.loader is not None
prune = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(prune)


def test_the_base_image_and_uv_are_of_exact_versions() -> None:
    (base,) = re.findall(r"^ARG PYTHON=(\S+)$", DOCKERFILE, re.MULTILINE)
    assert re.fullmatch(r"python:\d+\.\d+\.\d+-slim-[a-z]+@sha256:[0-9a-f]{64}", base)
    stages = re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)
    assert set(stages) == {"${PYTHON}", "build"}
    installed = re.findall(r"pip install .*", DOCKERFILE)
    assert [re.search(r" uv==\d+\.\d+\.\d+$", line) is not None for line in installed] == [True]
    assert "uv sync --locked" in DOCKERFILE


def test_the_build_has_each_file_that_the_project_names() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    allowed = (ROOT / ".dockerignore").read_text().splitlines()
    (copied,) = re.findall(r"^COPY (pyproject\.toml .*) \./$", DOCKERFILE, re.MULTILINE)
    for name in (project["readme"], *project["license-files"]):
        assert name in copied.split() and f"!{name}" in allowed, name


def test_it_does_not_run_as_root() -> None:
    users = re.findall(r"^USER (\S+)$", DOCKERFILE, re.MULTILINE)
    assert users == ["65532:65532"] * 2  # the operator's, and that of `reprieve up`


def test_what_is_removed_of_the_image_is_imported_by_nobody(tmp_path: Path) -> None:
    """The commands of the image start where what `.ci/prune.py` removes cannot be imported."""
    packages = Path(msgspec.__file__).parents[1]
    gone = {
        ".".join(found.relative_to(packages).with_suffix("").parts)
        for found in prune.removed(packages.parents[2])
        if found.is_dir() or found.suffix == ".py"
    }
    assert {"kubernetes.aio", "numpy.f2py"} <= gone
    blocking = textwrap.dedent(f"""
        import importlib.abc, sys
        gone = {sorted(gone)!r}
        class Gone(importlib.abc.MetaPathFinder):
            def find_spec(self, name, path, target=None):
                if any(name == each or name.startswith(each + ".") for each in gone):
                    raise ModuleNotFoundError(f"the image has no {{name}}")
        sys.meta_path.insert(0, Gone())
        from reprieve.kube.credentials import load_connection, preload
        import asyncio, importlib
        preload()
        print(asyncio.run(load_connection(sys.argv[1])).server)
        from reprieve.operator.planes import PLANES
        webhooks = "reprieve.planes.quota.webhooks.process"
        commands = ("reprieve.operator.process", "reprieve.cli.web", "reprieve.cli.uninstall")
        for module in (*PLANES.values(), webhooks, *commands):
            importlib.import_module(module)
    """)
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n"
        "clusters: [{name: c, cluster: {server: 'https://192.0.2.1:6443'}}]\n"
        "users: [{name: u, user: {token: t}}]\n"
        "contexts: [{name: c, context: {cluster: c, user: u}}]\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", blocking, str(kubeconfig)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "https://192.0.2.1:6443\n"
