"""What the pods of a SparkApplication request: Spark works it out when it makes them.

The operator hands fields of the application to Spark, and Spark adds to them. Of a role:

1. cpu: `coreRequest`, else `cores`, else 1
2. memory: `memory` (1 GiB without it) and what the process needs beside its heap: `memoryOverhead`,
   else a share of the memory, and 384 MiB at least. The share is 0.1, or 0.4 for Python and R
3. of executors also the memory of Python processes, and the memory outside the heap

A field of the application wins over the property of the same meaning in `sparkConf`, which wins
over `memoryOverheadFactor`. A value that Spark would not read is returned as it is written.

Source: Spark's documentation (Configuration; Running Spark on Kubernetes).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubeworld.units.untrusted import Form, Unreadable, integer_or_none, read_float

__all__ = ["java_memory", "spark_requests"]

_AMOUNT: Final = Form(r"([0-9]++)([a-z]*+)")
_MIB: Final = 1 << 20
_UNITS: Final = {"b": 1, "k": 1 << 10, "m": _MIB, "g": 1 << 30, "t": 1 << 40, "p": 1 << 50}
_HEAP: Final = 1 << 10  # MiB
_LEAST_BESIDE: Final = 384  # MiB
_LARGEST: Final = (1 << 63) - 1
_NOT_JVM: Final = ("Python", "R")
_SHARES: Final = (0.1, 0.4)


class _NotRead(ValueError):
    """A value is none that Spark reads; the message is the value."""


def spark_requests(role: str, spec: Mapping[str, Any]) -> dict[str, str]:
    """Return what each pod of a role (`driver`, `executor`) requests of cpu and memory."""
    said = spec.get(role)
    given = said if isinstance(said, Mapping) else {}
    properties = spec.get("sparkConf")
    conf = properties if isinstance(properties, Mapping) else {}

    def stated(field: str, *names: str) -> str | None:
        for value in (given.get(field), *(conf.get(name) for name in names)):
            if value is not None:
                return str(value)
        return None

    cores = stated("coreRequest", f"spark.kubernetes.{role}.request.cores")
    cpu = cores or stated("cores", f"spark.{role}.cores") or "1"
    try:
        heap = _mebibytes(stated("memory", f"spark.{role}.memory"), _HEAP)
        beside = stated("memoryOverhead", f"spark.{role}.memoryOverhead")
        if beside is None:
            whole = heap + max(_LEAST_BESIDE, int(heap * _share(role, spec, conf)))
        else:
            whole = heap + _mebibytes(beside, 0)
        if role == "executor":
            whole += _of_executors(spec, conf)
    except _NotRead as value:
        return {"cpu": cpu, "memory": str(value)}
    return {"cpu": cpu, "memory": f"{whole}Mi"}


def _share(role: str, spec: Mapping[str, Any], conf: Mapping[str, Any]) -> float:
    stated = (
        conf.get(f"spark.{role}.memoryOverheadFactor"),
        conf.get("spark.kubernetes.memoryOverheadFactor"),
        spec.get("memoryOverheadFactor"),
    )
    text = next((str(each) for each in stated if each not in (None, "")), None)
    if text is None:
        return _SHARES[spec.get("type") in _NOT_JVM]
    try:
        share = read_float(text)
    except Unreadable:
        raise _NotRead(text) from None
    if not 0 <= share <= _LARGEST:
        raise _NotRead(text)
    return share


def _of_executors(spec: Mapping[str, Any], conf: Mapping[str, Any]) -> int:
    """Return the memory that executors have beside what the driver has, too, in MiB."""
    more = 0
    if spec.get("type") == "Python":
        more += _mebibytes(conf.get("spark.executor.pyspark.memory"), 0)
    if str(conf.get("spark.memory.offHeap.enabled")).lower() == "true":
        more += _mebibytes(conf.get("spark.memory.offHeap.size"), 0, unit="b")
    return more


def _mebibytes(value: object, default: int, unit: str = "m") -> int:
    """Return an amount as Spark writes it: digits and a unit, `unit` without one."""
    if value is None:
        return default
    text = str(value)
    found = _AMOUNT.fullmatch(text.strip().lower())
    number = None if found is None else integer_or_none(found.group(1), 0, _LARGEST)
    if found is None or number is None:
        raise _NotRead(text)
    name = found.group(2).removesuffix("b") or ("b" if found.group(2) else unit)
    if name not in _UNITS or number * _UNITS[name] > _LARGEST:
        raise _NotRead(text)
    return number * _UNITS[name] // _MIB


def java_memory(text: str) -> str:
    """Return an amount of memory as the JVM has it (`512m`, `2g`) as a quantity."""
    number = text.lower().removesuffix("b")
    unit = number[-1:] if number[-1:] in ("k", "m", "g", "t", "p") else ""
    return f"{number.removesuffix(unit)}{unit.upper()}i" if unit else number
