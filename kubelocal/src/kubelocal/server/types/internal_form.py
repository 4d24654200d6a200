"""Pods in the form in which error messages of the real server show them.

That form has every field, in the order of the layout and under its Go name; metadata stands in it
as JSON does. Source: messages of a 1.37 server.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from typing import Any, Final

from kubelocal.server.types.layout import Field, Shape, message

__all__ = ["difference", "pod_template"]

Object = Mapping[str, Any]

_POD_SPEC: Final = "core/v1.PodSpec"
# Names that are more than their JSON name with a capital letter.
_NAMES: Final = {
    "serviceAccount": "DeprecatedServiceAccount",
    "dnsConfig": "DNSConfig",
    "dnsPolicy": "DNSPolicy",
    "fsGroup": "FSGroup",
    "fsGroupChangePolicy": "FSGroupChangePolicy",
    "httpGet": "HTTPGet",
    "httpHeaders": "HTTPHeaders",
    "os": "OS",
    "seLinuxChangePolicy": "SELinuxChangePolicy",
    "seLinuxOptions": "SELinuxOptions",
    "tcpSocket": "TCPSocket",
    "tty": "TTY",
}
_ZEROS: Final = {"string": "", "bool": False, "int32": 0, "int64": 0, "double": 0}


def difference(old: Object, new: Object) -> str:
    """Return the lines in which two pod specs differ, with three lines around them."""
    before, after = (
        json.dumps(_form(_POD_SPEC, spec), indent=1, ensure_ascii=False).splitlines()
        for spec in (old, new)
    )
    lines = list(difflib.unified_diff(before, after, lineterm=""))[2:]
    return "".join(f"{line}\n" for line in lines)


def pod_template(template: Object) -> dict[str, Any]:
    """Return the form of a pod template."""
    spec = _form(_POD_SPEC, template.get("spec") or {})
    return {**(template.get("metadata") or {}), "Spec": spec}


def _form(layout: str, obj: Object) -> dict[str, Any]:
    fields = message(layout).json.values()
    return {_name(field.name): _value(field, obj.get(field.name)) for field in fields}


def _name(name: str) -> str:
    return _NAMES.get(name, name[0].upper() + name[1:])


def _value(field: Field, value: Any) -> Any:
    if field.shape is Shape.ONE:
        if value is None and (field.optional or not field.is_message):
            return None if field.optional else _ZEROS.get(field.type)
        return _form(field.type, value or {}) if field.is_message else value
    if value is None or not field.is_message:
        return value
    if field.shape is Shape.LIST:
        return [_form(field.type, one) for one in value]
    return {name: _form(field.type, one) for name, one in value.items()}
