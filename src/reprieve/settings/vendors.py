"""`gpuPreemption.vendors`: which GPU vendors are watched, by name or by a full entry.

    vendors:
      - amd
      - name: nvidia                          # a known name: keys left out keep the table's values
        metrics: [DCGM_FI_DEV_GPU_UTIL]       # text: a metric in percent
      - name: acme                            # a new name needs resources and metrics
        resources: ["acme.example/gpu", "acme.example/part-*"]
        notDevices: ["acme.example/part-memory"]
        deviceClasses: [gpu.acme.example]     # and names of drivers: GPUs of claims
        metrics: [{name: acme_busy, scale: ratio}]
        labels: {namespace: [ns], pod: [pod], gpu: [card], partition: [slice]}

Without a value AMD alone is watched, as the guide states. The table stands in
`reprieve.engine.idle.vendors`; label names that are left out are those of AMD's entry.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from reprieve.engine.idle.vendors import AMD, KNOWN_VENDORS, UtilizationMetric, Vendor
from reprieve.units.errors import UsageError

__all__ = ["DEFAULT_VENDORS", "parse_vendors"]

DEFAULT_VENDORS: Final = (AMD,)

_KEYS: Final = ("name", "resources", "notDevices", "deviceClasses", "metrics", "labels")
_LABELS: Final = {
    "namespace": "namespace_labels",
    "pod": "pod_labels",
    "gpu": "gpu_labels",
    "partition": "partition_labels",
    "uuid": "uuid_labels",
}
_SCALES: Final = {"percent": 1.0, "ratio": 100.0}
# What an extended resource name may hold, and `*`.
_RESOURCE: Final = re.compile(r"[a-z0-9.*-]+/[A-Za-z0-9._*-]+")


def parse_vendors(value: object, where: str = "gpuPreemption.vendors") -> tuple[Vendor, ...]:
    """Return the vendors that `value` names, in its order; the default for None or empty text.

    `value`: a list of names and entries, or text with names between commas (from a variable).
    `where`: how the user calls the place that it comes from.

    Raises:
        UsageError: what is wrong, where, and what is accepted.
    """
    if value is None or value == "":
        return DEFAULT_VENDORS
    if isinstance(value, str):
        value = [name.strip() for name in value.split(",")]
    if not isinstance(value, list) or not value:
        raise UsageError(f"{where}: {value!r} is not a list of vendors; accepted: {_accepted()}")
    vendors = tuple(_vendor(entry, f"{where}[{index}]") for index, entry in enumerate(value))
    _refuse_doubles(where, "vendor", [vendor.name for vendor in vendors])
    _refuse_doubles(where, "metric", [m.name for vendor in vendors for m in vendor.metrics])
    return vendors


def _vendor(entry: object, where: str) -> Vendor:
    if isinstance(entry, str):
        known = KNOWN_VENDORS.get(entry)
        if known is None:
            raise UsageError(f"{where}: unknown vendor {entry!r}; accepted: {_accepted()}")
        return known
    if not isinstance(entry, Mapping):
        raise UsageError(f"{where}: {entry!r} is not a vendor; accepted: {_accepted()}")
    _refuse_unknown(entry, _KEYS, where)
    name = entry.get("name")
    if not isinstance(name, str) or not name:
        raise UsageError(f"{where}.name: {name!r}; accepted: a name that is not empty")
    vendor = KNOWN_VENDORS.get(name) or replace(
        AMD, name=name, resources=(), metrics=(), device_classes=()
    )
    if "resources" in entry:
        vendor = replace(vendor, resources=_resources(entry["resources"], f"{where}.resources"))
    if "notDevices" in entry:
        vendor = replace(vendor, not_devices=_resources(entry["notDevices"], f"{where}.notDevices"))
    if "deviceClasses" in entry:
        accepted = "names of DeviceClasses and drivers, * for any text"
        named = _texts(entry["deviceClasses"], f"{where}.deviceClasses", accepted)
        vendor = replace(vendor, device_classes=named)
    if "metrics" in entry:
        vendor = replace(vendor, metrics=_metrics(entry["metrics"], f"{where}.metrics"))
    for missing in (key for key in ("resources", "metrics") if not getattr(vendor, key)):
        raise UsageError(f"{where}.{missing}: missing; a vendor with a new name needs it")
    return _with_labels(vendor, entry.get("labels", {}), f"{where}.labels")


def _resources(value: object, where: str) -> tuple[str, ...]:
    patterns = _texts(value, where, "resource names such as acme.example/gpu or acme.example/*")
    for pattern in patterns:
        if not _RESOURCE.fullmatch(pattern):
            raise UsageError(
                f"{where}: {pattern!r} is no resource name; accepted: DOMAIN/NAME, * for any text"
            )
    return patterns


def _metrics(value: object, where: str) -> tuple[UtilizationMetric, ...]:
    if not isinstance(value, list) or not value:
        raise UsageError(f"{where}: {value!r}; accepted: a list of metric names or entries")
    return tuple(_metric(entry, f"{where}[{index}]") for index, entry in enumerate(value))


def _metric(entry: object, where: str) -> UtilizationMetric:
    if isinstance(entry, str):
        entry = {"name": entry}
    if not isinstance(entry, Mapping):
        raise UsageError(f"{where}: {entry!r}; accepted: a metric name or {{name, scale}}")
    _refuse_unknown(entry, ("name", "scale"), where)
    name, scale = entry.get("name"), entry.get("scale", "percent")
    if not isinstance(name, str) or not name:
        raise UsageError(f"{where}.name: {name!r}; accepted: the name of a metric family")
    factor = _SCALES.get(scale) if isinstance(scale, str) else scale
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not 0 < factor < 1e9:
        raise UsageError(
            f"{where}.scale: {scale!r}; accepted: percent, ratio, or the number that makes percent"
        )
    return UtilizationMetric(name, float(factor))


def _with_labels(vendor: Vendor, value: object, where: str) -> Vendor:
    if not isinstance(value, Mapping):
        raise UsageError(f"{where}: {value!r}; accepted: lists under {', '.join(_LABELS)}")
    _refuse_unknown(value, tuple(_LABELS), where)
    names = {
        field: _texts(value[key], f"{where}.{key}", "label names")
        for key, field in _LABELS.items()
        if key in value
    }
    return replace(vendor, **names)  # type: ignore[arg-type]  # only fields that hold label names


def _texts(value: object, where: str, accepted: str) -> tuple[str, ...]:
    if isinstance(value, list) and value and all(isinstance(item, str) and item for item in value):
        return tuple(value)
    raise UsageError(f"{where}: {value!r}; accepted: a list of {accepted}")


def _refuse_unknown(entry: Mapping[object, object], keys: tuple[str, ...], where: str) -> None:
    for key in entry:
        if key not in keys:
            raise UsageError(f"{where}: unknown key {key!r}; accepted: {', '.join(keys)}")


def _refuse_doubles(where: str, what: str, names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"{where}: {what} {name!r} is given twice; accepted: once")


def _accepted() -> str:
    return f"{', '.join(KNOWN_VENDORS)}, or an entry with {', '.join(_KEYS)}"
