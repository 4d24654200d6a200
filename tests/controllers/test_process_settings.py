"""What the operator process is told of quotas: a file of its own, a section, a ConfigMap."""

from __future__ import annotations

from pathlib import Path

import pytest

from reprieve.engine.quota.model import Strategy
from reprieve.planes.common.process_settings import OperatorOptions, operator_settings
from reprieve.units.errors import UsageError

FAIR = """\
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
fairSharing: {preemptionStrategies: [LessThanInitialShare]}
"""


def options(tmp_path: Path, file: str | None = None, config: str | None = None) -> OperatorOptions:
    """Return options with these files, None for one that is not given."""
    paths: list[Path | None] = [None, None]
    for index, (name, text) in enumerate((("kueue.yaml", file), ("values.yaml", config))):
        if text is not None:
            (tmp_path / name).write_text(text)
            paths[index] = tmp_path / name
    return OperatorOptions(
        controllers=("quota",), environment={}, quota_config=paths[0], config_file=paths[1]
    )


def test_a_file_of_kueue_is_taken_as_it_stands(tmp_path: Path) -> None:
    source = operator_settings(options(tmp_path, FAIR, "quota: {proveNodes: true}")).quota
    assert source is not None
    found = source.settings()
    assert found.configuration.settings.fair_sharing == (Strategy.LESS_THAN_INITIAL_SHARE,)
    assert found.prove_nodes


def test_a_bad_file_ends_the_start_with_its_path_and_its_keys(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as raised:
        operator_settings(options(tmp_path, f"{FAIR}queueVisibility: {{}}\nother: 1\n"))
    assert str(raised.value) == (
        f"--quota-config {tmp_path}/kueue.yaml: "
        'strict decoding error: unknown field "queueVisibility"; '
        'strict decoding error: unknown field "other"'
    )


def test_a_file_and_a_section_are_not_mixed(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"has a quota\.configuration already"):
        operator_settings(options(tmp_path, FAIR, "quota: {configuration: {}}"))
    with pytest.raises(UsageError, match="cannot be read"):
        operator_settings(
            OperatorOptions(
                controllers=("quota",), environment={}, quota_config=tmp_path / "none.yaml"
            )
        )


def test_a_config_map_is_read_later(tmp_path: Path) -> None:
    source = operator_settings(options(tmp_path, None, "quota: {configurationMap: a}")).quota
    assert source is not None and source.settings().configuration_map == "a"
    fair = source.settings(FAIR).configuration.settings.fair_sharing
    assert fair == (Strategy.LESS_THAN_INITIAL_SHARE,)
