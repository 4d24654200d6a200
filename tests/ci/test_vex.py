"""What a release says of known weaknesses has the form that OpenVEX demands."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chart.go_tools import go

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / ".ci" / "vex.py"
URL = "https://host.example/releases/v1.2.3/reprieve.openvex.json"
DIGEST = "sha256:" + "0a" * 32
IMAGES = (f"registry.example:5000/a/reprieve@{DIGEST}", f"registry.example/reprieve-up@{DIGEST}")
STATED: dict[str, Any] = {
    "vulnerability": "CVE-2030-1",
    "images": ["reprieve"],
    "part": "pkg:pypi/x",
    "since": "2030-01-02",
    "status": "not_affected",
    "justification": "component_not_present",
}
# What the specification calls required, and all that it knows, of a document and of a statement.
DOCUMENT = {"@context", "@id", "author", "role", "timestamp", "version", "statements"}
STATEMENT = {"vulnerability", "timestamp", "products", "status"}
REASONS = {"justification", "impact_statement", "action_statement", "status_notes"}
GO_MODULE = "github.com/openvex/go-vex"
GO_VERSION = "v0.2.7"
READER = """package main

import (
	"fmt"
	"os"

	"github.com/openvex/go-vex/pkg/vex"
)

func main() {
	document, err := vex.Open(os.Args[1])
	if err != nil {
		panic(err)
	}
	for _, statement := range document.Statements {
		if err := statement.Validate(); err != nil {
			panic(err)
		}
	}
	for _, found := range document.Matches(os.Args[2], os.Args[3], []string{os.Args[4]}) {
		fmt.Println(found.Status)
	}
}
"""


def asked(script: Path, *arguments: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, str(script), *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "SOURCE_DATE_EPOCH": "1893456000"},
    )
    return done.returncode, done.stdout, done.stderr


def refused(folder: Path, **changes: str) -> str:
    """Return why a statement with these changes is refused; an empty text removes a field."""
    row = {key: value for key, value in {**STATED, **changes}.items() if value}
    lines = [
        f"{key} = {value if key == 'since' else json.dumps(value)}" for key, value in row.items()
    ]
    (folder / "vex.toml").write_text("\n".join(["[[statement]]", *lines]))
    script = folder / "vex.py"
    script.write_text(SCRIPT.read_text())
    return asked(script, URL, *IMAGES)[2].strip()


def test_a_release_states_what_it_knows_of_each_image_by_its_digest() -> None:
    code, printed, said = asked(SCRIPT, URL, *IMAGES)
    assert (code, said) == (0, "")
    written = json.loads(printed)
    assert written.keys() == DOCUMENT
    assert written["@context"] == "https://openvex.dev/ns/v0.2.0"
    assert (written["@id"], written["timestamp"]) == (URL, "2030-01-01T00:00:00Z")
    assert type(written["version"]) is int and written["version"] >= 1
    stated = tomllib.loads(SCRIPT.with_name("vex.toml").read_text())["statement"]
    assert len(written["statements"]) == len(stated) >= 1
    for row, found in zip(stated, written["statements"], strict=True):
        assert STATEMENT <= found.keys() <= STATEMENT | REASONS
        assert re.fullmatch(r"CVE-\d{4}-\d{4,}|GHSA(-\w{4}){3}", found["vulnerability"]["name"])
        assert datetime.fromisoformat(found["timestamp"]).date() == row["since"]
        names = [each["@id"].partition("@")[0] for each in found["products"]]
        assert names == [f"pkg:oci/{image}" for image in row["images"]]


def test_a_statement_that_openvex_does_not_permit_is_refused(tmp_path: Path) -> None:
    assert refused(tmp_path) == ""
    assert refused(tmp_path, status="harmless").startswith("CVE-2030-1: status harmless, not one")
    reason = "CVE-2030-1: not_affected has one of justification, impact_statement, not "
    assert refused(tmp_path, justification="") == f"{reason}none"
    assert refused(tmp_path, impact_statement="x") == f"{reason}impact_statement, justification"
    assert refused(tmp_path, justification="never_run").endswith("is no justification of OpenVEX")
    known = "CVE-2030-1: affected has one of action_statement, not "
    assert refused(tmp_path, status="affected") == f"{known}justification"
    assert refused(tmp_path, status="affected", justification="") == f"{known}none"
    assert refused(tmp_path, status="affected", justification="", action_statement="update") == ""
    assert refused(tmp_path, status="fixed") == "CVE-2030-1: fixed has no reason, not justification"
    assert refused(tmp_path, status="fixed", justification="") == ""


def test_images_are_named_by_digests_and_no_document_is_empty(tmp_path: Path) -> None:
    tag = "registry.example/reprieve:v1.2.3"
    said = f"{tag}: an image is REGISTRY/NAME@sha256:DIGEST\n"
    assert asked(SCRIPT, URL, tag) == (1, "", said)
    assert asked(SCRIPT, URL, IMAGES[0])[2].endswith(": no digest of reprieve-up\n")
    script = tmp_path / "vex.py"
    script.write_text(SCRIPT.read_text())
    script.with_name("vex.toml").write_text("")
    assert asked(script, URL, *IMAGES) == (1, "", "a document has at least one statement\n")
    assert asked(SCRIPT, URL)[0] == 2


def test_the_workflow_attests_the_document_to_each_image_and_publishes_it() -> None:
    workflow = ROOT / ".github" / "workflows" / "release.yml"
    jobs = yaml.safe_load(workflow.read_text())["jobs"]
    steps = jobs["image"]["steps"]
    (run,) = (step["run"] for step in steps if "vex.py" in step.get("run", ""))
    (file,) = set(re.findall(r"[\w.]+\.openvex\.json", run))
    pushed = [step["id"] for step in steps if "push" in step.get("with", {})]
    assert len(re.findall(r"cosign attest .*--type openvex ", run)) == 1
    assert len(re.findall(r'"\$(IMAGE|UP)"', run)) == 2 * len(pushed)
    (kept,) = (step["with"] for step in steps if step.get("with", {}).get("path") == file)
    names = [step["with"].get("name") for step in jobs["release"]["steps"] if "with" in step]
    assert kept["name"] in names


@pytest.mark.slow
def test_the_readers_of_scanners_understand_the_document(tmp_path: Path) -> None:
    compiler = go()
    if compiler is None:
        pytest.skip("needs Go, with which the reader of OpenVEX is built")
    (tmp_path / "go.mod").write_text(f"module reader\ngo 1.22\nrequire {GO_MODULE} {GO_VERSION}\n")
    (tmp_path / "main.go").write_text(READER)
    written = tmp_path / "reprieve.openvex.json"
    written.write_text(asked(SCRIPT, URL, *IMAGES)[1])
    for image in json.loads(written.read_text())["statements"][0]["products"]:
        done = subprocess.run(
            [compiler, "run", ".", str(written), "CVE-2018-20225", image["@id"], "pkg:pypi/pip"],
            cwd=tmp_path,
            env={**os.environ, "GOFLAGS": "-mod=mod", "CGO_ENABLED": "0"},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert (done.stdout, done.returncode) == ("not_affected\n", 0), done.stderr
