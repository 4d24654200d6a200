"""A release is what its tag says, tells what changed, and can do no more than each step needs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from reprieve import __version__
from tests.chart.go_tools import ACTIONLINT, ToolMissing, tool

ROOT = Path(__file__).parents[2]
WORKFLOW = ROOT / ".github" / "workflows" / "release.yml"
FILES = (
    ".ci/release.py",
    "pyproject.toml",
    "kubelocal/pyproject.toml",
    "kubeworld/pyproject.toml",
    "reprieve-notice/pyproject.toml",
    "src/reprieve/__init__.py",
    "charts/reprieve/Chart.yaml",
)


def project(folder: Path, changelog: str) -> Path:
    """Return the script of a copy of what a release looks at, of version 0.1.0."""
    changes = (
        (__version__, "0.1.0"),
        (__version__.replace("rc", "-rc"), "0.1.0"),
        ('prerelease: "true"', 'prerelease: "false"'),
    )
    for name in FILES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        text = (ROOT / name).read_text()
        for before, after in changes:
            text = text.replace(before, after)
        (folder / name).write_text(text)
    (folder / "CHANGELOG.md").write_text(changelog)
    return folder / ".ci" / "release.py"


def asked(script: Path, *arguments: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, str(script), *arguments], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout, done.stderr


DATED = """# Changelog

## [0.1.0] - 2030-01-02

### Added

- All.

## [0.0.1] - 2029-01-01

- x
"""


def test_a_tag_that_all_places_name_is_released_with_its_section(tmp_path: Path) -> None:
    script = project(tmp_path, DATED)
    assert asked(script, "check", "v0.1.0") == (0, "", "")
    assert asked(script, "notes", "v0.1.0") == (0, "### Added\n\n- All.\n", "")


def test_everything_that_names_another_version_is_told_at_once(tmp_path: Path) -> None:
    script = project(tmp_path, DATED)
    code, _, said = asked(script, "check", "v0.2.0")
    assert code == 1
    assert said.splitlines() == [
        "pyproject.toml: 0.1.0, not 0.2.0",
        "kubelocal/pyproject.toml: 0.1.0, not 0.2.0",
        "kubeworld/pyproject.toml: 0.1.0, not 0.2.0",
        "reprieve-notice/pyproject.toml: 0.1.0, not 0.2.0",
        "src/reprieve/__init__.py: 0.1.0, not 0.2.0",
        "version of the chart: 0.1.0, not 0.2.0",
        "appVersion of the chart: 0.1.0, not 0.2.0",
        "CHANGELOG.md: no section '## [0.2.0] - YYYY-MM-DD' with text",
    ]


@pytest.mark.parametrize(
    "changelog",
    ["", DATED.replace("2030-01-02", "Unreleased"), "## [0.1.0] - 2030-01-02\n\n## [0.0.1]\n- x\n"],
)
def test_a_section_without_a_date_or_a_text_is_no_release(tmp_path: Path, changelog: str) -> None:
    code, _, said = asked(project(tmp_path, changelog), "check", "v0.1.0")
    assert (code, said) == (1, "CHANGELOG.md: no section '## [0.1.0] - YYYY-MM-DD' with text\n")


def test_a_tag_of_another_form_and_other_words_are_refused(tmp_path: Path) -> None:
    script = project(tmp_path, DATED)
    assert asked(script, "check", "0.1.0")[2].startswith(
        "0.1.0: a tag is such as v1.2.3 or v1.2.3-rc1\n"
    )
    assert asked(script, "publish", "v0.1.0")[0] == asked(script)[0] == 2


def test_a_candidate_is_one_for_python_and_for_catalogues(tmp_path: Path) -> None:
    script = project(tmp_path, DATED.replace("[0.1.0]", "[0.1.0-rc2]"))
    for name in FILES[1:]:
        file = tmp_path / name
        version = "0.1.0-rc2" if name.endswith("Chart.yaml") else "0.1.0rc2"
        file.write_text(file.read_text().replace("0.1.0", version))
    said = "charts/reprieve/Chart.yaml: artifacthub.io/prerelease is not true\n"
    assert asked(script, "check", "v0.1.0-rc2") == (1, "", said)
    chart = tmp_path / "charts/reprieve/Chart.yaml"
    chart.write_text(chart.read_text().replace('prerelease: "false"', 'prerelease: "true"'))
    assert asked(script, "check", "v0.1.0-rc2") == (0, "", "")


def test_images_and_chart_are_signed_by_the_digests_that_were_pushed() -> None:
    jobs = yaml.safe_load(WORKFLOW.read_text())["jobs"]
    signed = {}
    for name in ("image", "chart"):
        assert jobs[name]["permissions"]["id-token"] == "write"
        (last,) = [step for step in jobs[name]["steps"] if "cosign sign" in step.get("run", "")]
        signed[name] = re.findall(r'cosign sign --yes "(.*)"', last["run"])
        if name == "image":
            pushed = {step["id"] for step in jobs[name]["steps"] if "push" in step.get("with", {})}
            digests = re.findall(r"@\$\{\{ steps\.(\w+)\.outputs\.digest", str(last["env"]))
            assert {*digests} == pushed
    assert signed == {"image": ['$IMAGE" "$UP'], "chart": ["$REGISTRY/charts/reprieve@$digest"]}


def test_no_step_of_the_workflow_has_rights_that_it_does_not_name() -> None:
    workflow: dict[str, Any] = yaml.safe_load(WORKFLOW.read_text())
    assert workflow["permissions"] == {}
    for name, job in workflow["jobs"].items():
        assert job["permissions"], name
        writes = {right for right, level in job["permissions"].items() if level == "write"}
        built = {"id-token", "attestations"}
        allowed = {"build": built, "archive": built, "release": {"contents"}}
        allowed["site"] = {"contents"}
        assert writes <= allowed.get(name, {"id-token"}), name
        for step in job["steps"]:
            if "uses" in step:
                assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", step["uses"]), step["uses"]
            if step.get("uses", "").startswith("actions/checkout@"):
                assert step["with"] == {"persist-credentials": False}
            # What an event brings is never part of a script.
            assert "${{ github." not in step.get("run", ""), step


def test_pip_installs_only_into_a_python_that_the_job_has_set_up() -> None:
    """Pythons of distributions refuse it: they are managed by another program."""
    for name, job in yaml.safe_load(WORKFLOW.read_text())["jobs"].items():
        steps = job["steps"]
        own = [at for at, each in enumerate(steps) if "setup-python" in each.get("uses", "")]
        for at, step in enumerate(steps):
            if "pip install" in step.get("run", ""):
                assert own and own[0] < at, name


@pytest.mark.slow
def test_the_workflow_passes_actionlint() -> None:
    try:
        linter = tool(ACTIONLINT)
    except ToolMissing as missing:
        pytest.skip(str(missing))
    done = subprocess.run([linter, WORKFLOW], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_two_builds_are_the_same_bytes(tmp_path: Path) -> None:
    uv = Path(sys.executable).with_name("uv")
    if not uv.exists():
        pytest.skip("no uv beside this Python: the tests do not run in the project's environment")
    for folder in ("one", "other"):
        subprocess.run(
            [uv, "build", "--quiet", "--all-packages", "--out-dir", tmp_path / folder],
            cwd=ROOT,
            check=True,
            env={**os.environ, "SOURCE_DATE_EPOCH": "1893456000"},
        )
    one = {path.name: path.read_bytes() for path in (tmp_path / "one").iterdir()}
    other = {path.name: path.read_bytes() for path in (tmp_path / "other").iterdir()}
    assert {name for name in one if name.endswith((".whl", ".tar.gz"))}
    assert one == other


@pytest.mark.slow
def test_the_bill_of_materials_names_what_an_installation_brings(tmp_path: Path) -> None:
    uv = Path(sys.executable).with_name("uv")
    if not uv.exists():
        pytest.skip("no uv beside this Python: the tests do not run in the project's environment")
    line = next(
        step["run"]
        for step in yaml.safe_load(WORKFLOW.read_text())["jobs"]["build"]["steps"]
        if "cyclonedx" in step.get("run", "")
    )
    written = tmp_path / "reprieve.cdx.json"
    command = line.replace("dist/reprieve.cdx.json", str(written)).split()
    subprocess.run([uv, *command[1:]], cwd=ROOT, check=True, capture_output=True)
    rows = [sys.executable, ".ci/npm_rows.py", str(written)]
    subprocess.run(rows, cwd=ROOT, check=True, capture_output=True)
    components = {each["name"] for each in yaml.safe_load(written.read_text())["components"]}
    assert {"aiohttp", "msgspec", "numpy", "preact", "@preact/signals"} <= components
    assert not {"pytest", "mypy", "hypothesis", "typescript", "axe-core"} & components


def test_what_the_project_states_of_its_security_has_the_fields_of_the_specification() -> None:
    stated = yaml.safe_load((ROOT / "SECURITY-INSIGHTS.yml").read_text())
    assert set(stated) == {"header", "project", "repository"}
    header, project, repository = stated["header"], stated["project"], stated["repository"]
    assert {*header} >= {"schema-version", "last-updated", "last-reviewed", "url"}
    assert header["last-updated"] <= header["last-reviewed"]
    assert {*project} >= {"name", "administrators", "repositories", "vulnerability-reporting"}
    assert {*repository} >= {
        "accepts-automated-change-request",
        "accepts-change-request",
        "core-team",
        "license",
        "security",
        "status",
        "url",
    }
    # One contact of each list is the first one to turn to.
    for contacts in (project["administrators"], repository["core-team"]):
        assert [each["primary"] for each in contacts] == [True]
    for tool_row in repository["security"]["tools"]:
        assert tool_row["type"] in ("fuzzing", "container", "secret", "SCA", "SAST", "other")
        assert {*tool_row["integration"]} == {"adhoc", "ci", "release"}
    named = set(re.findall(r"(?:docs|\.github|\.ci)/[\w./-]+\w|\w+\.(?:md|toml)", str(stated)))
    assert {"SECURITY.md", "docs/security.md", ".github/workflows/release.yml"} <= named
    assert [each for each in named if not (ROOT / each).exists()] == []
    select = re.search(r"^select = (\[.*\])$", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    (rules,) = (
        each["rulesets"] for each in repository["security"]["tools"] if each["name"] == "ruff"
    )
    assert select is not None and {*rules} <= {*yaml.safe_load(select[1])}
