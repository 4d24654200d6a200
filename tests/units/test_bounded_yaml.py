"""Aliases of YAML stand for no more than a reader can take, whoever reads."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import yaml

import kubelocal
import reprieve
from kubelocal.server.errors import StatusError
from kubelocal.server.wire.negotiation import read_yaml as read_body
from reprieve.kube.yaml_text import ManifestLoader
from reprieve.scenarios.model import InvalidScenario
from reprieve.scenarios.model import parse as parse_scenario
from reprieve.settings.fields import read_yaml as read_setting
from reprieve.simulation.document import read_document
from reprieve.units.bounded_yaml import read_yaml, read_yaml_all
from reprieve.units.errors import UsageError

LEVELS = 12


def bomb() -> str:
    """Return 1.2 kB that stand for ten to the power of twelve values."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    for level in range(1, LEVELS):
        inside = ", ".join([f"*a{level - 1}"] * 10)
        lines.append(f"a{level}: &a{level} [{inside}]")
    return "\n".join(lines)


def test_every_reader_refuses_aliases_that_stand_for_too_much(tmp_path: Path) -> None:
    text = bomb()
    assert len(text) < 1_300
    with pytest.raises(yaml.YAMLError, match="more than 200000 values"):
        read_yaml(text)
    with pytest.raises(yaml.YAMLError, match="more than 200000 values"):
        list(read_yaml_all(f"a: 1\n---\n{text}"))
    with pytest.raises(yaml.YAMLError, match="more than 200000 values"):
        yaml.load(text, ManifestLoader)
    with pytest.raises(UsageError, match="more than 200000 values"):
        read_setting(text, "settings")
    with pytest.raises(InvalidScenario, match="more than 200000 values"):
        parse_scenario(text, "a scenario")
    study = tmp_path / "study.yaml"
    study.write_text(text)
    with pytest.raises(UsageError, match="more than 200000 values"):
        read_document(study, ())
    with pytest.raises(StatusError, match="no YAML document"):
        read_body(text.encode())


def test_an_alias_of_what_it_is_in_is_refused() -> None:
    with pytest.raises(yaml.YAMLError, match="stands for what it is in"):
        read_yaml("a: &a [1, *a]")


def test_aliases_of_usual_size_and_long_documents_without_are_read() -> None:
    assert read_yaml("base: &b {x: 1}\nmore: {<<: *b, y: 2}")["more"] == {"x": 1, "y": 2}
    long = "\n".join(f"- {number}" for number in range(210_000))
    assert len(read_yaml(long)) == 210_000
    assert len(read_yaml(f"&all\n{long}")) == 210_000


_READERS = {
    *("safe_load", "safe_load_all", "full_load", "unsafe_load"),
    *("FullLoader", "Loader", "CLoader", "CSafeLoader"),
}


def test_no_other_module_reads_yaml_by_a_loader_of_its_own() -> None:
    found = []
    for package in (reprieve, kubelocal):
        assert package.__file__ is not None
        root = Path(package.__file__).parent
        for file in sorted(root.rglob("*.py")):
            if file.name == "bounded_yaml.py" or "tests" in file.relative_to(root).parts:
                continue
            for node in ast.walk(ast.parse(file.read_text())):
                named = isinstance(node, ast.Attribute) and node.attr in _READERS
                text = isinstance(node, ast.Constant) and node.value == "CSafeLoader"
                if isinstance(node, ast.expr) and (named or text):
                    found.append(f"{file.relative_to(root)}:{node.lineno}")
    assert found == []


@pytest.mark.parametrize("beside", ["", "b: &b 1\n"], ids=["alone", "with an anchor"])
@pytest.mark.parametrize("opened", ["[", "{a: ", "- ", "? "])
def test_what_is_nested_too_deeply_is_refused_before_it_is_read(opened: str, beside: str) -> None:
    closed = {"[": "]", "{a: ": "}"}.get(opened, "")
    line = "" if closed else "\n  "
    for read in (read_yaml, lambda text: list(read_yaml_all(text))):
        with pytest.raises(yaml.YAMLError, match="nested more than 500 deep"):
            read(f"{beside}a: {line}{opened * 200_000}1{closed * 200_000}")


def test_what_is_nested_as_manifests_are_is_read() -> None:
    text = "\n".join(f"{' ' * depth}a:" for depth in range(100)) + " [[[1]]]"
    assert read_yaml(text) == read_yaml(text.encode())
    assert len(list(read_yaml_all(f"{text}\n---\n{text}"))) == 2


@pytest.mark.parametrize(
    "claim",
    ["!!bool maybe", "!!bool '[a]'", "!!int ''", "!!int '-'", "!!float '+'", "!!timestamp soon"],
)
@pytest.mark.parametrize("text", ["a: {}\n", "? {}\n: 1\n", "b: &b 1\na: {}\n"])
def test_every_reader_refuses_values_that_are_not_what_they_claim(
    claim: str, text: str, tmp_path: Path
) -> None:
    body = text.replace("{}", claim)
    with pytest.raises(yaml.YAMLError):
        read_yaml(body)
    with pytest.raises(yaml.YAMLError):
        list(read_yaml_all(f"a: 1\n---\n{body}"))
    with pytest.raises(yaml.YAMLError):
        yaml.load(body, ManifestLoader)
    with pytest.raises(UsageError):
        read_setting(body, "settings")
    with pytest.raises(InvalidScenario):
        parse_scenario(body, "a scenario")
    study = tmp_path / "study.yaml"
    study.write_text(body)
    with pytest.raises(UsageError):
        read_document(study, ("a", "b"))
    with pytest.raises(StatusError, match="no YAML document"):
        read_body(body.encode())
