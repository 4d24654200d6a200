"""`reprieve crds` prints the definitions that a cluster needs, and those of others on request."""

from __future__ import annotations

import pytest
import yaml
from click.testing import CliRunner

from reprieve.api.crds import GANG_NAMES, KUEUE_NAMES, NAMES
from reprieve.cli.crds import crds


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ([], NAMES),
        (["--pod-groups"], (*NAMES, *GANG_NAMES)),
        (["--kueue"], (*NAMES, *KUEUE_NAMES)),
    ],
)
def test_the_definitions_are_printed_as_documents(
    arguments: list[str], names: tuple[str, ...]
) -> None:
    printed = CliRunner().invoke(crds, arguments)
    assert printed.exit_code == 0
    found = list(yaml.safe_load_all(printed.output))
    assert {each["kind"] for each in found} == {"CustomResourceDefinition"}
    assert [each["metadata"]["name"] for each in found] == list(names)
