"""Scenario files as typed steps: what may stand in a file, read once and refused in full detail.

A file is YAML: `name`, `operator_env`, `cluster.nodes` and `steps`, each step a mapping with one
key; `operator_config` is the operator's `--config` file. Every key is checked before anything runs,
and an error names the file, the step by number and keyword, the field and what is accepted. Source:
the format of the idle plane's scenario files; `namespace`, `controllers` and `operator_config` are
our additions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar, get_args

import msgspec
import yaml

from reprieve.scenarios.steps import STEP_KINDS, PhaseName, PreemptionReason, Step, Strict
from reprieve.units.bounded_yaml import read_yaml
from reprieve.units.errors import UsageError

__all__ = ["InvalidScenario", "NodeSpec", "Scenario", "load", "parse"]

Known = TypeVar("Known", bound=Strict)
Controller = Literal["idle", "scheduling", "quota"]


class InvalidScenario(UsageError):
    """A scenario file cannot be used: file, step, field and what is accepted."""


class NodeSpec(Strict, frozen=True):
    """One node; `allocatable` and capacity are the same."""

    name: str
    allocatable: dict[str, str | int]
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    taints: list[dict[str, str]] = msgspec.field(default_factory=list)


class ClusterSpec(Strict, frozen=True):
    """The machines of the cluster."""

    nodes: list[NodeSpec]


# Steps whose body is not a mapping of fields but the value of this one field.
_BODY_IS: Final = {
    "annotate_namespace": "annotations",
    "exporter": "state",
    "requires": "what",
    "sleep": "seconds",
}
_PHASES: Final = ", ".join(get_args(PhaseName))
_SECONDS: Final = "a number of seconds, 0 or more"
_ROOT: Final = "Kind/name of a root owner, such as Job/training"
_ACCEPTED: Final = {
    "root": _ROOT,
    "pods_of": _ROOT,
    "controller_owner": _ROOT,
    "phase": _PHASES,
    "phase_not": _PHASES,
    "phase_in": f"a list of {_PHASES}",
    "phases": f"a list of {_PHASES}",
    "timeout": _SECONDS,
    "during": _SECONDS,
    "seconds": _SECONDS,
    "state": "down, up",
    "type": "Normal, Warning",
    "what": "kueue",
    "value": "a number, percent",
    "annotations": "a mapping of texts to texts",
    "operator_env": "a mapping of texts to texts",
    "controllers": f"a list of {', '.join(get_args(Controller))}",
    "operator_config": "a mapping, the operator's --config file",
    "reason": ", ".join(get_args(PreemptionReason)),
    "fields": "a mapping of status fields to literals, {gpuworkload_of: Kind/name} or "
    "{remembered: key}",
}


class _File(Strict, frozen=True):
    name: str
    operator_env: dict[str, str]
    cluster: ClusterSpec
    steps: list[Any]
    source: str = ""
    ref: str = ""
    note: str = ""
    namespace: str | None = None
    operator_replicas: Annotated[int, msgspec.Meta(ge=1)] = 1
    controllers: list[Controller] = msgspec.field(default_factory=list)
    operator_config: dict[str, Any] = msgspec.field(default_factory=dict)


class Scenario(msgspec.Struct, frozen=True):
    """One scenario; `namespace` None means that the runner uses a fresh one.

    `controllers`: the planes that it needs, none for whatever the runner has.
    """

    name: str
    operator_env: Mapping[str, str]
    nodes: tuple[NodeSpec, ...]
    steps: tuple[Step, ...]
    operator_replicas: int = 1
    namespace: str | None = None
    note: str = ""
    controllers: tuple[Controller, ...] = ()
    operator_config: Mapping[str, Any] = {}


def load(path: Path) -> Scenario:
    """Read a scenario file.

    Raises:
        InvalidScenario: the file cannot be read or does not hold a scenario.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidScenario(f"{path}: cannot be read as text: {error}") from None
    return parse(text, str(path))


def parse(text: str, where: str) -> Scenario:
    """Read a scenario from YAML text; `where` names it in errors.

    Raises:
        InvalidScenario: not a scenario; the message names step, field and what is accepted.
    """
    try:
        document = read_yaml(text)
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, RecursionError) as error:
        raise InvalidScenario(f"{where}: not YAML: {' '.join(str(error).split())}") from None
    file = _convert(document, _File, where)
    steps = tuple(
        _step(step, f"{where}: step {number}") for number, step in enumerate(file.steps, start=1)
    )
    return Scenario(
        name=file.name,
        operator_env=file.operator_env,
        nodes=tuple(file.cluster.nodes),
        steps=steps,
        operator_replicas=file.operator_replicas,
        namespace=file.namespace,
        note=file.note,
        controllers=tuple(file.controllers),
        operator_config=file.operator_config,
    )


def _step(raw: object, where: str) -> Step:
    if not isinstance(raw, dict) or len(raw) != 1:
        raise InvalidScenario(
            f"{where}: expected a mapping with one key, the step's keyword; "
            f"accepted: {', '.join(STEP_KINDS)}"
        )
    ((keyword, body),) = raw.items()
    kind = STEP_KINDS.get(keyword)
    if kind is None:
        raise InvalidScenario(
            f"{where}: unknown step {keyword!r}; accepted: {', '.join(STEP_KINDS)}"
        )
    if keyword in _BODY_IS:
        body = {_BODY_IS[keyword]: body}
    return _convert({} if body is None else body, kind, f"{where} ({keyword})")


def _convert(raw: object, kind: type[Known], where: str) -> Known:
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        reason, _, path = str(error).partition(" - at `$")
        field = f" {path.rstrip('`').lstrip('.')}:" if path else ""
        accepted = _ACCEPTED.get(
            re.split(r"[.\[:]", field.strip())[0],
            f"the fields {', '.join(kind.__struct_encode_fields__)}"
            if kind.__struct_encode_fields__
            else "no fields",
        )
        raise InvalidScenario(f"{where}:{field} {reason}; accepted: {accepted}") from None
