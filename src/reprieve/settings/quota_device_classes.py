"""`resources.deviceClassMappings` of Kueue's Configuration: as what devices of claims are counted.

    resources:
      deviceClassMappings:
      - name: nvidia.com/gpu
        deviceClassNames: [gpu.nvidia.com]

Source: Kueue's KEP-2941 and the validation of its Configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from reprieve.api import field_errors as wrong
from reprieve.settings.quota_configuration_parts import Errors

__all__ = ["device_class_mappings"]

_PATH: Final = "resources.deviceClassMappings"
_MOST: Final = 16
_MOST_CLASSES: Final = 8
_LONGEST: Final = 253
_NO_SOURCES: Final = {
    "counter": "counter sources require KueueDRAIntegrationPartitionableDevices to be enabled",
    "capacity": "capacity sources require KueueDRAIntegrationConsumableCapacity to be enabled",
}


def device_class_mappings(resources: Mapping[str, Any], errors: Errors) -> dict[str, str]:
    """Return the resource by the name of each DeviceClass that is mapped to it."""
    listed = resources.get("deviceClassMappings") or []
    if not isinstance(listed, list) or not all(isinstance(each, Mapping) for each in listed):
        errors.append(wrong.invalid(_PATH, listed, "must be a list of mappings"))
        return {}
    if len(listed) > _MOST:
        errors.append(wrong.too_many(_PATH, len(listed), _MOST))
    found: dict[str, str] = {}
    names: set[str] = set()
    for index, mapping in enumerate(listed):
        at = f"{_PATH}[{index}]"
        name = mapping.get("name") or ""
        _check_name(name, f"{at}.name", errors)
        if name in names:
            errors.append(wrong.duplicate(f"{at}.name", name))
        names.add(str(name))
        _add_classes(mapping.get("deviceClassNames") or [], str(name), at, found, errors)
        for place, source in enumerate(mapping.get("sources") or ()):
            for kind in _NO_SOURCES.keys() & set(source if isinstance(source, Mapping) else ()):
                where = f"{at}.sources[{place}].{kind}"
                errors.append(wrong.invalid(where, True, _NO_SOURCES[kind]))
    return found


def _add_classes(classes: Any, name: str, at: str, found: dict[str, str], errors: Errors) -> None:
    path = f"{at}.deviceClassNames"
    if not isinstance(classes, list):
        errors.append(wrong.invalid(path, classes, "must be a list of texts"))
        return
    if not classes:
        errors.append(wrong.required(path, "at least one device class name is required"))
    if len(classes) > _MOST_CLASSES:
        errors.append(wrong.too_many(path, len(classes), _MOST_CLASSES))
    for index, each in enumerate(classes):
        _check_name(each, f"{path}[{index}]", errors)
        if each in classes[:index]:
            errors.append(wrong.duplicate(f"{path}[{index}]", each))
        elif found.get(str(each), name) != name:
            why = f"device class already mapped to resource {found[str(each)]}"
            errors.append(wrong.invalid(f"{path}[{index}]", each, why))
        found.setdefault(str(each), name)


def _check_name(name: Any, path: str, errors: Errors) -> None:
    if not isinstance(name, str):
        errors.append(wrong.invalid(path, name, "must be a text"))
        return
    faults = list(wrong.qualified_name(name))
    if faults:
        errors.append(wrong.invalid(path, name, "; ".join(faults)))
    if len(name) > _LONGEST:
        errors.append(wrong.invalid(path, name, f"must not exceed {_LONGEST} characters"))
