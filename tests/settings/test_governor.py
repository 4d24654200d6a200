"""The section `governor`: what it says, what older options say, and what is not accepted."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeworld.units.durations import HOUR, MINUTE
from reprieve.engine.disruptions.questions import Enforcement, GovernorPolicy
from reprieve.planes.common.process_settings import OperatorOptions, operator_settings
from reprieve.units.errors import UsageError


def policy(folder: Path, text: str, *controllers: str) -> GovernorPolicy:
    file = folder / "config.yaml"
    file.write_text(text)
    options = OperatorOptions(controllers or ("quota",), {}, config_file=file)
    return operator_settings(options).governor


def test_without_the_section_the_older_options_of_quotas_count(tmp_path: Path) -> None:
    assert policy(tmp_path, "quota: {loopLimit: 5, loopWindow: 30m}") == GovernorPolicy(
        loop_limit=5, loop_window=30 * MINUTE
    )
    assert policy(tmp_path, "quota: {loopLimit: 5}", "scheduling") == GovernorPolicy()


def test_the_section_counts_for_every_plane(tmp_path: Path) -> None:
    said = (
        "quota: {loopLimit: 5}\ngovernor: {enforce: all, repeated: 4, repeatedWindow: 2h, "
        "loopLimit: 3, loopWindow: 10m, emergencyPriority: 1000000}"
    )
    wanted = GovernorPolicy(3, 10 * MINUTE, 4, 2 * HOUR, 3, Enforcement.ALL, 1_000_000)
    assert policy(tmp_path, said) == policy(tmp_path, said, "scheduling") == wanted
    assert policy(tmp_path, "governor: {enforce: true}").enforcement is Enforcement.EQUALS
    assert policy(tmp_path, "governor:").enforcement is Enforcement.TOLD


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ("{enforce: maybe}", "governor.enforce: 'maybe'; accepted: false, true or all"),
        ("{enforce: [1]}", r"governor.enforce: \[1\]; accepted: false, true or all"),
        ("{repeated: 0}", "governor.repeated: 0; accepted: an integer from 1 to 1000"),
        ("{loopWindow: 5}", "governor.loopWindow: 5; accepted: a Go duration"),
        ("{limit: 5}", "unknown key 'limit'; accepted: enforce"),
        ("[1]", "accepted: a mapping with enforce"),
        ("{emergencyPriority: high}", "accepted: an integer from"),
    ],
)
def test_what_is_not_accepted_is_named_with_what_is(
    tmp_path: Path, section: str, said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        policy(tmp_path, f"governor: {section}")
